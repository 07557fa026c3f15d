"""A program that sends marks without end; too slow for an emulated machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Command = Callable[..., Any]


def test_a_flood_of_marks_ends_in_a_warning_not_in_a_lost_run(cli: Command, tmp_path: Path) -> None:
    source = (
        "import os, socket, time\n"
        "place = b'\\0' + os.environ['SANDBOX_MARKS'][1:].encode()\n"
        "box = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "sent = 0\n"
        "while True:\n"
        "    try:\n        box.sendto(b'\\xff\\x1b[2J' * 9000, place); sent += 1\n"
        "    except ConnectionRefusedError:\n        break\n"
        "print(sent)\n"
    )
    out = tmp_path / "out.json"
    done = cli("run", "-q", "-o", out, "--timeout", "30s", "--", sys.executable, "-c", source)

    result = json.loads(out.read_text())
    assert done.status == 0, done.stderr
    assert len(result["phases"]) == 1000
    assert "too_many_marks" in {warning["code"] for warning in result["warnings"]}
    used = [phase["totals"]["cpu_usage_usec"] for phase in result["phases"]]
    assert sum(used) == result["totals"]["cpu_usage_usec"]
