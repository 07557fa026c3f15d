"""What a guard calls for files of ids that were lent: `python -I remover.py DIRECTORY`.

It removes the directory and ends with 0 once it is gone. A guard itself is a shell, and the files
are another user's; only root of a user namespace with the same ids may remove them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main(path: Path) -> int:
    """Remove a directory by all the ids that we have; return the exit status."""
    from sandbox.kernel.namespaces import find_ids
    from sandbox.kernel.roots import Roots
    from sandbox.kernel.scratch import remove_scratch

    uid = os.geteuid()
    ids = None if uid == 0 else find_ids(uid, os.getegid(), roots=Roots())
    return 0 if remove_scratch(path, ids) else 1


if __name__ == "__main__":
    # -I leaves out everything that a user may have put in the way, and so also ourselves.
    sys.path.append(str(Path(__file__).resolve().parents[2]))
    sys.exit(main(Path(sys.argv[1])))
