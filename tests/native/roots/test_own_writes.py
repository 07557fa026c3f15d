"""What other programs have left to be written is not counted as a run's."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

MIB = 1 << 20


def test_the_end_of_a_root_does_not_write_what_others_wrote(inside: Any, tmp_path: Path) -> None:
    """An overlay that is unmounted has its whole disk written out, by who unmounts it."""
    record = tmp_path / "run.json"
    others = os.open(tmp_path / "others", os.O_WRONLY | os.O_CREAT)
    os.write(others, b"1" * (32 * MIB))  # in the page cache, and not asked to be on the disk

    done = inside("true", flags=["-o", record])
    os.close(others)

    assert done.status == 0, done.stderr
    written = [disk["write_bytes"] for disk in json.loads(record.read_text())["totals"]["io"] or ()]
    assert sum(written) < MIB
