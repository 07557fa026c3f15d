"""Build the filters of system calls that most runs have: `sandbox/kernel/prebuilt_filters.py`."""

from __future__ import annotations

import base64
import textwrap
import zlib
from pathlib import Path

from sandbox.kernel.capabilities import KEPT
from sandbox.kernel.seccomp_policy import assemble_policy, default_policy
from sandbox.kernel.syscalls import find_architecture

FILE = Path(__file__).resolve().parents[1] / "sandbox/kernel/prebuilt_filters.py"
MACHINES = ("x86_64", "aarch64")
HEAD = '''"""Filters of system calls, built by `scripts/filters.py`; a test compares them."""

from __future__ import annotations


def unpack(text: str) -> bytes:
    """Return a filter as the kernel takes it."""
    import zlib
    from binascii import a2b_base64

    return zlib.decompress(a2b_base64(text))


'''


def build() -> str:
    """Return what the module is to say."""
    parts = [HEAD]
    for name, what, capabilities in (
        ("DOCKERS", "Docker's default, for its fourteen capabilities", KEPT),
        ("POWERLESS", "The same for a program without any", ()),
    ):
        parts.append(f"{name} = {{\n")
        for machine in MACHINES:
            architecture = find_architecture(machine)
            if architecture is None:
                raise SystemExit(f"there is no table of {machine}")
            code = assemble_policy(default_policy(architecture, capabilities))
            text = base64.b64encode(zlib.compress(code, 9)).decode()
            lines = "\n".join(textwrap.wrap(text, 96))
            parts.append(f'    "{machine}": r"""\n{lines}\n""",\n')
        parts.append(f'}}\n"""{what}, by machine."""\n\n')
    return "".join(parts).rstrip() + "\n"


if __name__ == "__main__":
    FILE.write_text(build())
