"""The command's entry: `sandbox`, and `python -m sandbox`."""

import gc
from typing import NoReturn

_OBJECTS = 100_000


def main() -> NoReturn:
    """Run the command line and leave the process."""
    # What a start imports is no garbage, and looking for some again and again takes 4 of 70 ms.
    gc.set_threshold(_OBJECTS)
    from sandbox.cli import main as command

    command()


if __name__ == "__main__":
    main()
