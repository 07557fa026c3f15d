"""What only somebody who is not root meets: directories that are closed to their owner."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

CODE = """
import os, sys
from sandbox.kernel.files import list_tree, remove_tree
base = sys.argv[1] + "/run-1"
os.makedirs(base + "/main/own/deeper")
for name in ("/main/own", "/main"):
    os.chmod(base + name, 0)
try:
    os.listdir(base + "/main")
except PermissionError:
    print(len(list_tree(base)))
remove_tree(base)
print(os.path.exists(base))
"""


def test_the_owner_of_a_closed_tree_can_remove_it(
    plain_user: Callable[..., Any], plain_home: Path
) -> None:
    done = plain_user("python", "-c", CODE, plain_home)

    assert done.stdout.split() == ["4", "False"], done
