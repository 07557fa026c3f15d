"""Whose files are in the image, kept where the store's owner cannot give them away."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.image import mend as mend_module
from sandbox.image import unpack as unpack_module
from sandbox.image.layer import unpack_layer
from sandbox.image.mend import Layer, mend
from sandbox.image.owners import OWNERS, Owners, read_owners, write_owners
from sandbox.image.unpack import Bounds, Unpacked

IDS = st.integers(0, 2**32 - 2)
NAMES = st.binary(min_size=1, max_size=20).filter(lambda name: b"\0" not in name)


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a plain user's store, whoever runs the tests."""
    for module in (unpack_module, mend_module):
        monkeypatch.setattr(module, "keeps_owners", lambda: False)


def unpack(directory: Path, *entries: tuple[str, bytes, int, str]) -> Unpacked:
    """Unpack a layer of `(name, kind, uid, link)`; the group is the user's."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, kind, uid, link in entries:
            entry = tarfile.TarInfo(name)
            entry.type, entry.uid, entry.gid, entry.linkname, entry.mode = kind, uid, uid, link, 493
            archive.addfile(entry)
    buffer.seek(0)
    return unpack_layer(buffer, directory, None, Bounds())[0]


DIRECTORY, FILE, LINK, HARD = tarfile.DIRTYPE, tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE


def test_what_is_not_roots_is_noted_by_its_real_path(tmp_path: Path) -> None:
    unpacked = unpack(
        tmp_path / "tree",
        ("./", DIRECTORY, 9, ""),
        ("etc", DIRECTORY, 0, ""),
        ("home", DIRECTORY, 7, ""),
        ("link", LINK, 8, "home"),
        ("link/file", FILE, 5, ""),
        ("other", HARD, 0, "home/file"),
    )

    expected = {b"": 9, b"home": 7, b"link": 8, b"home/file": 5, b"other": 5}
    assert unpacked.owners == {path: (uid, uid) for path, uid in expected.items()}


def test_the_last_entry_of_a_name_counts(tmp_path: Path) -> None:
    unpacked = unpack(
        tmp_path / "tree",
        ("a", FILE, 5, ""),
        ("a", FILE, 0, ""),
        ("d", DIRECTORY, 6, ""),
        ("d/x", FILE, 6, ""),
        ("d", FILE, 7, ""),
    )

    assert unpacked.owners == {b"d": (7, 7)}


def test_what_mends_a_stack_is_whose_it_was(tmp_path: Path) -> None:
    (tmp_path / "low").mkdir()
    low = unpack(
        tmp_path / "low/tree",
        ("d", DIRECTORY, 7, ""),
        ("d/file", FILE, 5, ""),
    )
    (tmp_path / "high").mkdir()
    high = unpack(tmp_path / "high/tree", ("d/new", FILE, 0, ""), ("linked", HARD, 0, "d/file"))
    stack = []
    for name, unpacked in (("low", low), ("high", high)):
        write_owners(tmp_path / name, unpacked.owners)
        stack.append(
            Layer(
                tree=tmp_path / name / "tree",
                implied=unpacked.implied,
                borrowed=unpacked.borrowed,
                whiteouts=unpacked.whiteouts,
            )
        )
    (tmp_path / "mend").mkdir()

    assert mend(stack, tmp_path / "mend/tree")
    expected = {b"d": (7, 7), b"d/file": (5, 5), b"linked": (5, 5)}
    assert read_owners(tmp_path / "mend/tree") == expected


@given(st.dictionaries(NAMES, st.tuples(IDS, IDS)))
def test_they_are_read_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, owners: Owners
) -> None:
    directory = tmp_path_factory.mktemp("layer")
    write_owners(directory, owners)

    assert read_owners(directory / "tree") == owners
    assert (directory / OWNERS).exists() is bool(owners)
    if owners:
        os.unlink(directory / OWNERS)  # noqa: PTH108 - the cache must not answer for it
        assert read_owners(directory / "tree") == {}
