"""Build the filters of system calls that most runs have: `sandbox/kernel/prebuilt_filters.py`."""

from __future__ import annotations

import textwrap
from pathlib import Path

from sandbox.kernel.capabilities import KEPT
from sandbox.kernel.seccomp_policy import assemble_policy, default_policy
from sandbox.kernel.syscalls import find_architecture

FILE = Path(__file__).resolve().parents[1] / "sandbox/kernel/prebuilt_filters.py"
MACHINES = ("x86_64", "aarch64")
HEAD = '''"""Filters of system calls, in hexadecimal, by `scripts/filters.py`; a test compares them.

Not compressed: to load what would unpack them takes longer than the rest of a start with a filter.
"""

from __future__ import annotations

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
            lines = "\n".join(textwrap.wrap(code.hex(), 96))
            parts.append(f'    "{machine}": """\n{lines}\n""",\n')
        parts.append(f'}}\n"""{what}, by machine."""\n\n')
    return "".join(parts).rstrip() + "\n"


if __name__ == "__main__":
    FILE.write_text(build())
