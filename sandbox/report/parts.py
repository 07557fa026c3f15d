"""What several reports share: the verdict's line, labelled lines, warnings, what is lacking."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox.records.ports import PublishedPort
from sandbox.records.result import NetworkIo, Outcome, RunResult, RunWarning, Totals
from sandbox.report.numbers import ABSENT_TEXT, count_text, duration_text, size_text
from sandbox.report.style import Style, cell_width, command_line, printable

LABEL_WIDTH = 13
_SHORTEST_COMMAND = 16

_GROUPS = (
    ("network", "network"),
    ("cpu_pressure", "pressure"),
    ("memory_pressure", "pressure"),
    ("io_pressure", "pressure"),
    ("cpu_periods", "throttling"),
    ("cpu_throttled", "throttling"),
    ("cpu_", "CPU time"),
    ("memory_peak", "exact memory peak"),
    ("memory_current", "memory"),
    ("memory_kernel", "kernel memory"),
    ("memory_", "memory split"),
    ("swap", "swap peak"),
    ("oom", "OOM kills"),
    ("limit_hits", "limit hits"),
    ("pids", "threads"),
    ("processes", "processes"),
    ("io", "block I/O"),
)
_NO_NETWORK = "the run shares the host's network"


def header(result: RunResult, style: Style) -> str:
    """Return the verdict, and at the right what was run."""
    good = result.outcome.is_success(result.exit_code)
    reason = printable(result.reason) or result.outcome.value.replace("_", " ")
    if result.outcome is Outcome.EXITED and result.wall_ns is not None:
        reason += f" after {duration_text(result.wall_ns)}"
    elif result.exit_code is not None and f"({result.exit_code})" not in reason:
        reason += f", exit {result.exit_code}"
    mark = _mark(result, style)
    shade = "green" if good else "cyan" if result.outcome is Outcome.RUNNING else "red"
    left = style.clip(f"{mark} {reason}", style.width)
    room = style.width - cell_width(left) - 2
    painted = style.paint(left, shade)
    if room < _SHORTEST_COMMAND:
        shown = style.clip(command_line(result.command), style.width - 2)
        return f"{painted}\n  {style.paint(shown, 'dim')}"
    shown = style.clip(command_line(result.command), room)
    return painted + " " * (room - cell_width(shown) + 2) + style.paint(shown, "dim")


def _mark(result: RunResult, style: Style) -> str:
    if result.outcome is Outcome.RUNNING:
        return "▶" if style.unicode else "running:"
    if result.outcome.is_success(result.exit_code):
        return "✓" if style.unicode else "ok:"
    return "✗" if style.unicode else "failed:"


def network_line(totals: Totals) -> str:
    """Return what passed the network, all interfaces together; empty where nothing counted it."""
    if totals.network is None:
        return ""
    if not totals.network:
        return "none"
    received = sum(port.rx_bytes for port in totals.network)
    sent = sum(port.tx_bytes for port in totals.network)
    if not received and not sent:
        return "nothing received or sent"
    return f"received {size_text(received)}, sent {size_text(sent)}"


def network_rows(totals: Totals) -> list[tuple[str, str]]:
    """Return what passed each interface; nothing where nothing has counted it."""
    if totals.network is None:
        return []
    if not totals.network:
        return [("interfaces", "none but the loopback")]
    return [(port.name, _port(port)) for port in totals.network]


def port_rows(ports: Sequence[PublishedPort]) -> list[tuple[str, str]]:
    """Return the ports of the host that lead inside; nothing where there are none."""
    return [("published", ", ".join(port.text for port in ports))] if ports else []


def _port(port: NetworkIo) -> str:
    arrived, left = (
        ABSENT_TEXT if number is None else count_text(number, "packet", "packets")
        for number in (port.rx_packets, port.tx_packets)
    )
    text = (
        f"received {size_text(port.rx_bytes)} in {arrived}, "
        f"sent {size_text(port.tx_bytes)} in {left}"
    )
    troubles = {
        "broken": port.rx_errors,
        "not sent": port.tx_errors,
        "dropped on arrival": port.rx_dropped,
        "dropped on the way out": port.tx_dropped,
    }
    return text + "".join(f", {number} {what}" for what, number in troubles.items() if number)


def labelled(label: str, text: str, style: Style, *, wrap: bool = True) -> list[str]:
    """Return `text` beside its label, in as many lines as it takes."""
    lines = style.wrap(text, LABEL_WIDTH) if wrap else [text]
    head = style.paint(label.ljust(LABEL_WIDTH), "bold")
    return [head + lines[0], *lines[1:]]


def warning_lines(
    warnings: Sequence[RunWarning], style: Style, *, most: int | None = None
) -> list[str]:
    """Return each warning and below it what to do; beyond `most` only their number."""
    lines: list[str] = []
    for warning in warnings[:most]:
        wrapped = style.wrap(printable(warning.text), 2, first=len("warning: "))
        lines.append(style.paint("warning:", "yellow") + " " + wrapped[0])
        lines += wrapped[1:]
        if warning.hint:
            hint = style.wrap(printable(warning.hint), 4, first=len("  hint: "))
            lines.append("  " + style.paint("hint:", "cyan") + " " + hint[0])
            lines += hint[1:]
    if most is not None and len(warnings) > most:
        lines.append(f"and {len(warnings) - most} more warnings, see the details")
    return lines


def lacking(result: RunResult, most: int) -> str:
    """Return what this host cannot give, all that one reason explains together.

    Where that takes more than `most` characters, only the network's reason is given. Empty if
    nothing is lacking.
    """
    kinds: dict[str, str] = {}
    if result.totals.network is None:
        kinds["network"] = result.unavailable.get("network", _NO_NETWORK)
    for name, reason in result.unavailable.items():
        if name.startswith("swap") and not result.host.swap_total_bytes:
            continue  # nothing is missed where there is no swap
        if name.startswith("energy"):
            continue  # few machines have such counters, and the details tell
        kind = next((kind for prefix, kind in _GROUPS if name.startswith(prefix)), name)
        kinds.setdefault(kind, reason)
    reasons: dict[str, list[str]] = {}
    for kind, reason in kinds.items():
        reasons.setdefault(printable(reason), []).append(kind)
    text = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())
    if len(text) <= most or len(reasons) <= 1:
        return text
    if "network" not in kinds:
        return f"see the details: {', '.join(kinds)}"
    others = ", ".join(kind for kind in kinds if kind != "network")
    return f"network: {printable(kinds['network'])}; and, see the details: {others}"
