"""The samples file: whatever is put in comes out, and damage never becomes a number."""

from __future__ import annotations

import json
import struct
import zlib
from array import array
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.errors import StoreError
from sandbox.records.sample import ABSENT, Table
from sandbox.store import format as layout
from sandbox.store.format import Codec, Encoder, Header, encode_header
from sandbox.store.scan import Scanner, read_blocks

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
FAST, SLOW = ("time_ns", "cpu_usage_usec", "pids"), ("time_ns", "processes")
COLUMNS = {Table.FAST: FAST, Table.SLOW: SLOW}
HEADER = encode_header(Header(columns=COLUMNS, clock_ns=1, clock_utc_ns=2))

Rows = list[tuple[int, ...]]
Blocks = list[tuple[Table, Rows]]


def encode(blocks: Blocks, encoder: Encoder | None = None) -> bytes:
    """Return the bytes of a file with these blocks."""
    maker = encoder or Encoder()
    return HEADER + b"".join(
        maker.block(table, [array("q", column) for column in zip(*rows, strict=True)])
        for table, rows in blocks
    )


def decode(data: bytes) -> Blocks:
    """Return the blocks of a file."""
    return [(block.table, list(block.rows())) for block in read_blocks(data)]


def rows_of(width: int) -> st.SearchStrategy[Rows]:
    """Rows of anything at all, and rows of what samples really look like."""
    wild = st.lists(st.tuples(*[INT64] * width), min_size=1, max_size=12)
    calm = st.lists(
        st.tuples(*[st.sampled_from((0, 1, 5, 70_000, 1 << 40, ABSENT))] * width),
        min_size=1,
        max_size=300,
    )
    return wild | calm


BLOCKS = st.lists(
    st.tuples(st.just(Table.FAST), rows_of(3)) | st.tuples(st.just(Table.SLOW), rows_of(2)),
    max_size=4,
)
SOME = [
    (Table.FAST, [(i * 10_000_000, i * 9_876 + i % 7, i % 3) for i in range(100)]),
    (Table.SLOW, [(5, ABSENT), (6, 3)]),
    (Table.FAST, [(10**9 + i * i * i, i * 1_000_003 % 4_241, ABSENT) for i in range(300)]),
    (Table.SLOW, [(7, 4)]),
]


@settings(deadline=None)
@given(BLOCKS)
def test_what_is_written_is_read(blocks: Blocks) -> None:
    assert decode(encode(blocks)) == blocks


@pytest.mark.parametrize("codec", [Codec.ZLIB, Codec.ZSTD])
def test_large_blocks_are_compressed(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    if codec is Codec.ZLIB:
        monkeypatch.setattr(layout, "_find_zstd", lambda: None)
    data = encode(SOME)
    codecs = {data[len(HEADER) + 5]}
    assert codecs == {codec}
    assert decode(data) == SOME
    assert len(data) < 8 * sum(len(rows) * len(rows[0]) for _, rows in SOME) / 3


def test_small_blocks_are_stored_so_that_a_short_run_loads_no_compression() -> None:
    data = encode([(Table.SLOW, [(5, 1), (6, 3)])])
    assert data[len(HEADER) + 5] == Codec.STORED


def test_a_block_that_needs_what_is_not_installed_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = encode(SOME)
    monkeypatch.setattr(layout, "_find_zstd", lambda: None)
    with pytest.raises(StoreError, match="compression") as caught:
        decode(data)
    assert "backports.zstd" in (caught.value.hint or "")


def test_a_file_cut_anywhere_yields_a_prefix() -> None:
    data = encode(SOME)
    lengths = []
    for end in range(len(data) + 1):
        reader = read_blocks(data[:end])
        blocks = [(block.table, list(block.rows())) for block in reader]
        assert blocks == SOME[: len(blocks)], end
        assert reader.damaged == 0
        lengths.append(len(blocks))
    assert lengths == sorted(lengths)
    assert lengths[-1] == len(SOME)


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_flipped_bits_lose_blocks_but_never_change_one(data: st.DataObject) -> None:
    good = encode(SOME)
    damaged = bytearray(good)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(good) - 1))
        damaged[place] ^= 1 << data.draw(st.integers(0, 7))
    try:
        blocks = decode(bytes(damaged))
    except StoreError:
        return  # the header
    remaining = iter(SOME)
    assert all(block in remaining for block in blocks)  # in order, each as it was


def test_every_damaged_byte_costs_at_most_its_own_block() -> None:
    good = encode(SOME)
    for place in range(len(HEADER), len(good), 7):
        damaged = bytearray(good)
        damaged[place] ^= 0x55
        assert len(decode(bytes(damaged))) == len(SOME) - 1, place


def test_a_damaged_block_is_skipped_and_counted() -> None:
    good = encode(SOME)
    second = len(encode(SOME[:1]))
    reader = read_blocks(good[: second + 20] + b"\0" + good[second + 21 :])
    assert [list(block.rows()) for block in reader] == [SOME[0][1], SOME[2][1], SOME[3][1]]
    assert reader.damaged == 1


def test_garbage_between_blocks_is_skipped_even_if_it_looks_like_a_block() -> None:
    good = encode(SOME)
    end = len(encode(SOME[:2]))
    reader = read_blocks(good[:end] + layout.SYNC * 50 + b"\xff" * 300 + good[end:])
    assert [(block.table, list(block.rows())) for block in reader] == SOME
    assert reader.damaged == 1


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_anything_after_the_header_is_read_without_an_error(tail: bytes) -> None:
    assert decode(HEADER + tail) == []


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_a_block_that_claims_anything_and_is_intact_is_read_or_skipped(payload: bytes) -> None:
    for codec in (0, 1, 2):
        head = struct.pack(
            "<4sBBHIIII", layout.SYNC, 0, codec, 3, 5, len(payload), len(payload), 0
        )[:-4]
        crc = zlib.crc32(payload, zlib.crc32(head[4:]))
        blocks = decode(HEADER + head + crc.to_bytes(4, "little") + payload)
        assert all(len(rows) == 5 for _, rows in blocks)


@settings(deadline=None)
@given(st.binary(max_size=100))
def test_what_is_no_samples_file_is_refused(data: bytes) -> None:
    if b"sandbox-samples\n".startswith(data[:16]):
        return
    with pytest.raises(StoreError, match="not a samples file"):
        read_blocks(data)


def test_a_newer_format_is_refused_with_a_remedy() -> None:
    newer = HEADER[:16] + (layout.SCHEMA + 1).to_bytes(2, "little") + HEADER[18:]
    with pytest.raises(StoreError, match="newer version") as caught:
        read_blocks(newer)
    assert "upgrade" in (caught.value.hint or "")


def test_an_intact_header_that_says_nothing_known_is_refused() -> None:
    text = json.dumps({"columns": 5}).encode()
    head = struct.pack("<16sHHII", b"sandbox-samples\n", 1, 0, len(text), zlib.crc32(text))
    with pytest.raises(StoreError, match="header is damaged"):
        read_blocks(head + text)


def test_the_header_says_what_the_columns_are_and_how_the_clocks_stood() -> None:
    reader = read_blocks(HEADER)
    assert reader.columns == COLUMNS
    assert reader.header is not None
    assert (reader.header.clock_ns, reader.header.clock_utc_ns) == (1, 2)


def test_a_block_that_is_not_wholly_written_yet_is_found_later() -> None:
    whole, grown = encode(SOME), bytearray()
    scanner = Scanner(lambda offset, length: bytes(grown[offset : offset + length]))
    offset, found = len(HEADER), []
    for start in range(0, len(whole), 50):
        grown += whole[start : start + 50]
        while block := scanner.next_block(offset):
            offset = block.end
            found.append((block.head.table, list(zip(*block.columns(), strict=True))))
    assert found == SOME


def test_a_reader_that_is_left_half_way_closes_its_file(tmp_path: Path) -> None:
    path = tmp_path / "samples"
    path.write_bytes(encode(SOME))
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        for _block in read_blocks(path):
            break
    del _block
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"cannot read the samples in .*/nowhere: No such file"):
        read_blocks(tmp_path / "nowhere")
