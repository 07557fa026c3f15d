"""`python -m sandbox.profiler`: the flags of `sandbox profile` under another name."""

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line as `sandbox profile`, and leave the process."""
    from sandbox.cli import main as command

    sys.argv[1:1] = ["profile"]
    command()


if __name__ == "__main__":
    main()
