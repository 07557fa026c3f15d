"""Archives: what is legal is read right, what is damaged is always an error."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import importlib
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import ImageError
from sandbox.image.layer import unpack_layer
from sandbox.image.places import remove_tree
from sandbox.image.stream import ByteStream
from sandbox.image.tar import Entry, TarReader
from sandbox.image.tar_headers import field_number, parse_pax
from sandbox.image.unpack import Bounds

NAMES = st.text(
    st.characters(blacklist_characters="\0/", blacklist_categories=["Cs"]), min_size=1, max_size=60
).filter(lambda name: name not in {".", ".."} and not name.startswith(".wh."))


def zstd() -> Any:
    """The library that has it: of Python 3.14, or for those before."""
    name = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
    return importlib.import_module(name)


def read(data: bytes, piece: int = 1000, *, must_end: bool = True) -> list[tuple[Entry, bytes]]:
    pieces = iter([data[start : start + piece] for start in range(0, len(data), piece)])
    reader = TarReader(ByteStream(pieces), must_end=must_end)
    return [(entry, reader.read(entry)) for entry in reader]


@given(
    st.lists(st.tuples(NAMES, st.binary(max_size=2000)), max_size=5),
    st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT]),
    st.integers(1, 1500),
)
def test_what_the_standard_library_writes_is_read(
    files: list[tuple[str, bytes]], form: int, piece: int
) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        for name, content in files:
            member = tarfile.TarInfo(name * 3)
            member.size, member.mode, member.uid, member.mtime = len(content), 0o4751, 70000, 17
            archive.addfile(member, io.BytesIO(content))

    found = read(buffer.getvalue(), piece)

    assert [(os.fsdecode(entry.name), data) for entry, data in found] == [
        (name * 3, content) for name, content in files
    ]
    assert all((entry.mode, entry.uid) == (0o4751, 70000) for entry, _ in found)
    assert all(entry.mtime_ns == 17_000_000_000 for entry, _ in found)


@given(st.binary(max_size=3000))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(ImageError):
        read(data)


@given(st.data())
def test_an_archive_with_any_changed_byte_is_read_or_refused(data: Any) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        member = tarfile.TarInfo("é" * 120)
        member.size = 700
        member.pax_headers = {"SCHILY.xattr.user.a": "b"}
        archive.addfile(member, io.BytesIO(bytes(700)))
    content = bytearray(buffer.getvalue()[:4096])
    content[data.draw(st.integers(0, 4095))] = data.draw(st.integers(0, 255))

    with contextlib.suppress(ImageError):
        read(bytes(content))


@given(st.binary(max_size=200))
def test_any_pax_records_are_read_or_refused(data: bytes) -> None:
    try:
        found = parse_pax(data)
    except ImageError:
        return
    assert all(isinstance(key, bytes) for key in found)


@given(st.integers(0, (1 << 63) - 1))
def test_large_numbers_are_binary(number: int) -> None:
    assert field_number(b"\x80" + number.to_bytes(11, "big"), 0, 12, "size") == number


def test_numbers_below_zero_are_binary_too() -> None:
    assert field_number((-5).to_bytes(12, "big", signed=True), 0, 12, "size") == -5


@pytest.mark.parametrize("text", [b"12x\0", b"0x10\0", b"1 2\0", b"-1\0", b"9\0"])
def test_what_is_no_number_is_refused(text: bytes) -> None:
    with pytest.raises(ImageError, match="damaged"):
        field_number(text.ljust(12, b"\0"), 0, 12, "size")


@pytest.mark.parametrize("form", ["--format=gnu", "0.0", "0.1", "1.0"])
def test_holes_stay_holes(form: str, tmp_path: Path, unpack: Any) -> None:
    source = tmp_path / "sparse"
    with source.open("wb") as file:
        for offset in range(0, 40 << 20, 1 << 20):  # more parts than one header holds
            file.seek(offset)
            file.write(b"data %d" % offset)
        file.truncate(50 << 20)
    options = [form] if form.startswith("-") else ["--format=pax", f"--sparse-version={form}"]
    archive = tmp_path / "sparse.tar"
    command = ["tar", "-C", tmp_path, "--sparse", *options, "-cf", archive, "sparse"]
    subprocess.run(command, check=True, timeout=20)

    _, tree = unpack(archive.read_bytes())

    found = (tree / "sparse").stat()
    assert found.st_size == 50 << 20
    assert found.st_blocks * 512 < 8 << 20
    assert (tree / "sparse").read_bytes() == source.read_bytes()


def test_a_layer_cut_anywhere_is_an_error(make_tar: Any, tmp_path: Path) -> None:
    plain = make_tar().add("a/", "5").add("a/f", data="x" * 600).add("a/l", "2", link="f").end()
    diff_id = f"sha256:{hashlib.sha256(plain).hexdigest()}"
    for whole in (plain, gzip.compress(plain, mtime=0), zstd().compress(plain)):
        for length in range(len(whole)):
            tree = tmp_path / "tree"
            with pytest.raises(ImageError):
                unpack_layer(io.BytesIO(whole[:length]), tree, diff_id, Bounds())
            remove_tree(tree)


@pytest.mark.parametrize("ratio", [100, 2000])
def test_a_layer_that_unpacks_to_many_times_its_size_is_refused(
    make_tar: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ratio: int
) -> None:
    monkeypatch.setattr("sandbox.image.layer._SPARED_BYTES", 1 << 20)  # a gigabyte takes long
    plain = make_tar().add("zeros", data=bytes(8 << 20)).end()  # gzip makes a thousandth of it
    bounds = Bounds(ratio=ratio)
    packed = io.BytesIO(gzip.compress(plain, mtime=0))

    if ratio > 1000:
        unpack_layer(packed, tmp_path / "tree", None, bounds)
        assert (tmp_path / "tree/zeros").stat().st_size == 8 << 20
    else:
        with pytest.raises(ImageError, match="100 times its size") as caught:
            unpack_layer(packed, tmp_path / "tree", None, bounds)
        assert "--max-size" in str(caught.value.hint)


def test_an_archive_without_a_digest_has_to_end(make_tar: Any, unpack: Any) -> None:
    whole = make_tar().add("f", data="x" * 600).end()
    for length in range(0, len(whole) - 1023, 5):
        with pytest.raises(ImageError):
            unpack(whole[:length], checked=False)


def test_a_layer_whose_writer_forgot_the_end_is_whole_if_its_digest_says_so(
    make_tar: Any, unpack: Any
) -> None:
    for cut in (1024, 1024 + 511):  # without the end, and without the padding before it
        _, tree = unpack(make_tar().add("f", data="x").end()[:-cut])

        assert (tree / "f").read_text() == "x"


def test_data_after_half_an_end_is_refused(make_tar: Any) -> None:
    with pytest.raises(ImageError, match="after its end"):
        read(make_tar().add("f").raw(bytes(512)).add("g").end())


def test_records_for_all_entries_hold_until_they_are_replaced(make_tar: Any) -> None:
    archive = make_tar().pax({"mtime": "5", "uid": "7"}, kind="g")
    archive.add("f", mtime=1).add("g", mtime=1, pax={"mtime": "6.25"})

    times = [(entry.mtime_ns, entry.uid) for entry, _ in read(archive.end())]

    assert times == [(5_000_000_000, 7), (6_250_000_000, 7)]


def test_an_empty_record_takes_a_value_back(make_tar: Any) -> None:
    archive = make_tar().add("f", data="x", pax={"path": "", "size": ""})

    assert [(entry.name, data) for entry, data in read(archive.end())] == [(b"f", b"x")]


def test_a_name_before_posix_ends_with_a_slash_if_it_is_a_directory(make_tar: Any) -> None:
    ((entry, _),) = read(make_tar().add("d/", "0").end())

    assert entry.kind == "5"


def test_gnu_long_names_and_links_are_read(make_tar: Any) -> None:
    long = b"d/" * 80 + b"f"
    archive = make_tar().add("@", "L", long + b"\0").add("@", "K", long + b"x\0").add("a", "2")

    ((entry, _),) = read(archive.end())

    assert (entry.name, entry.link) == (long, long + b"x")


def test_a_prefix_belongs_to_the_name(make_tar: Any) -> None:
    header = make_tar().add("file").parts[0][:345] + b"some/where".ljust(155, b"\0") + bytes(12)

    ((entry, _),) = read(make_tar().block(header).end())

    assert entry.name == b"some/where/file"
