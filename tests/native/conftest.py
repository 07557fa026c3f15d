"""What tests of several folders make: layers of images, and a kernel that is older than this."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable

import pytest

Files = dict[str, bytes | str | None]

OLD_KERNEL = """
import errno, sys
from sandbox.kernel import mount_calls
new_mount = mount_calls.new_mount
def refuse(kind, options, attributes):
    if kind == b"overlay":
        raise OSError(errno.EINVAL, "no lowerdir+")
    return new_mount(kind, options, attributes)
mount_calls.new_mount = refuse
from sandbox.__main__ import main
sys.exit(main())
"""


@pytest.fixture(scope="session")
def old_kernel() -> str:
    """The command line as a program, for which the kernel takes layers as one text only."""
    return OLD_KERNEL


@pytest.fixture(scope="session")
def make_layer() -> Callable[[Files], bytes]:
    """`make_layer({"a": b"x"})`: an archive; bytes are a file, text is a link, None a directory."""
    return _make_layer


def _make_layer(files: Files) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.mode = 0o755
            if content is None:
                entry.type = tarfile.DIRTYPE
            elif isinstance(content, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, content
            else:
                entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content) if isinstance(content, bytes) else None)
    return buffer.getvalue()
