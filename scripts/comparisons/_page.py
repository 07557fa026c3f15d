"""The page of the comparison, from its figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

TEMPLATE = Path(__file__).with_name("page.md.template")

LABELS = {
    "memory_limit": "memory limit, and by how much it was passed",
    "cpu_limit": "CPU limit, and by how much it was passed",
    "process_limit": "limit on processes, and how many there were",
    "time_to_dead": "from a wall-clock limit to all dead",
    "survivors": "processes that outlive a SIGKILL of the command",
    "groups_after_kill": "groups left after that",
    "groups_after_runs": "groups left after ten runs",
    "exit_status": "exit status",
    "peak_error": "error of the peak of memory",
    "cpu_error": "error of the CPU time",
    "launch_ratio": "start and end of `true`",
    "sampling_cost": "CPU time of one sample",
}


def render(figures: dict[str, Any]) -> str:
    """Return the page."""
    tools = list(figures["versions"])
    lines = [f"| | {' | '.join(tools)} |", f"|---|{'---|' * len(tools)}"]
    for key, cells in figures["rows"].items():
        lines.append(f"| {LABELS[key]} | {' | '.join(cells[tool] for tool in tools)} |")
    versions = ", ".join(_short(version) for version in figures["versions"].values())
    host = f"Linux {figures['kernel']}, {figures['cpus']} CPUs. {versions}."
    return TEMPLATE.read_text().replace("{table}", "\n".join(lines)).replace("{host}", host)


def _short(version: str) -> str:
    return version.removesuffix(")").replace(" (", " ").split(", build")[0]
