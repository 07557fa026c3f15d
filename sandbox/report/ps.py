"""The list of sandboxes: docker's `ps` columns as far as they have a meaning here, and filters."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from sandbox.analysis.docker import human_duration, short_id
from sandbox.errors import SpecError
from sandbox.records.light import dataclass
from sandbox.records.ps import PsRow
from sandbox.records.stats import State
from sandbox.report.columns import display_width
from sandbox.report.gotemplate.quoting import quote
from sandbox.report.gotemplate.values import Record, Value
from sandbox.report.style import printable
from sandbox.report.template import Format
from sandbox.units import NS_PER_SEC, format_size

PS_TABLE = r"{{.ID}}\t{{.Command}}\t{{.RunningFor}}\t{{.Status}}\t{{.Limits}}\t{{.Names}}"
PS_TABLE_WITH_PORTS = PS_TABLE.replace(r"\t{{.Names}}", r"\t{{.Ports}}\t{{.Names}}")
"""Where a sandbox that is shown has some."""
QUIET = "{{.ID}}"
HEADINGS = {
    "Command": "COMMAND",
    "CreatedAt": "CREATED AT",
    "ExitCode": "EXIT CODE",
    "ID": "ID",
    "Labels": "LABELS",
    "Limits": "LIMITS",
    "Names": "NAMES",
    "Owner": "OWNER",
    "PIDs": "PIDS",
    "Ports": "PORTS",
    "RunningFor": "CREATED",
    "State": "STATE",
    "Status": "STATUS",
}
_COMMAND_WIDTH = 20
_UNKNOWN = "--"

# --- the list -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Shown:
    """A row and what its text depends on."""

    row: PsRow
    now_utc_ns: int
    truncate: bool


def render_ps(
    rows: Iterable[PsRow],
    *,
    now_utc_ns: int,
    format_text: str = "",
    truncate: bool = True,
    quiet: bool = False,
) -> str:
    """Return the rows as text that ends in a newline; a table has headings also when empty.

    Raises:
        SpecError: the template cannot be parsed, or asks for what a row lacks.
    """
    if quiet:
        format_text = QUIET
    shown = [*rows]
    records = (ps_record(row, now_utc_ns=now_utc_ns, truncate=truncate) for row in shown)
    table = PS_TABLE_WITH_PORTS if any(row.ports for row in shown) else PS_TABLE
    return Format(format_text, default_table=table).render(records, HEADINGS)


def ps_record(row: PsRow, *, now_utc_ns: int, truncate: bool = True) -> Record:
    """Return a row as templates and `json` see it."""
    return Record(
        type_name="sandbox",
        getters=_GETTERS,
        source=_Shown(row, now_utc_ns, truncate),
        methods={"Label": _label},
        json_names=tuple(HEADINGS),
    )


def status_text(row: PsRow, now_utc_ns: int) -> str:
    """Return docker's STATUS: `Up 2 hours`, `Up 3 seconds (Paused)`, `Exited (137) 5 minutes ago`.

    What is not known is left out: a sandbox whose supervisor was lost is `Dead`.
    """
    if row.state is State.CREATED:
        return "Created"
    if row.state in {State.RUNNING, State.PAUSED}:
        since = row.created_utc_ns if row.started_utc_ns is None else row.started_utc_ns
        up = f"Up {human_duration(now_utc_ns - since)}"
        return up + (" (Paused)" if row.state is State.PAUSED else "")
    code = "" if row.exit_code is None else f" ({row.exit_code})"
    if row.finished_utc_ns is not None:
        code += f" {human_duration(now_utc_ns - row.finished_utc_ns)} ago"
    return ("Dead" if row.state is State.DEAD else "Exited") + code


def limits_text(row: PsRow) -> str:
    """Return the limits in force: `1.5 CPUs, 512 MiB, 64 tasks`."""
    parts = []
    if row.cpus_limit is not None:
        parts.append(f"{row.cpus_limit:g} {'CPU' if row.cpus_limit == 1 else 'CPUs'}")
    if row.memory_limit_bytes is not None:
        parts.append(format_size(row.memory_limit_bytes))
    if row.pids_limit is not None:
        parts.append(f"{row.pids_limit} {'task' if row.pids_limit == 1 else 'tasks'}")
    return ", ".join(parts) or "none"


def _id(shown: _Shown) -> str:
    return short_id(shown.row.id) if shown.truncate else shown.row.id


def _command(shown: _Shown) -> str:
    """Return the command quoted, as docker does: nothing in it can command a terminal."""
    if not shown.row.command:
        return _UNKNOWN
    command = " ".join(shown.row.command)
    return quote(_ellipsis(command, _COMMAND_WIDTH) if shown.truncate else command)


def _ellipsis(text: str, width: int) -> str:
    if display_width(text) <= width:
        return text
    kept = ""
    while display_width(kept + text[len(kept)]) < width:
        kept += text[len(kept)]
    return kept + "…"


def _created_at(shown: _Shown) -> str:
    from datetime import UTC, datetime

    moment = datetime.fromtimestamp(shown.row.created_utc_ns // NS_PER_SEC, UTC)
    return moment.strftime("%Y-%m-%d %H:%M:%S +0000 UTC")


def _labels(shown: _Shown) -> str:
    return printable(",".join(f"{key}={value}" for key, value in sorted(shown.row.labels.items())))


def _label(shown: _Shown, key: str) -> Value:
    return printable(shown.row.labels.get(key, ""))


def _number(value: int | None) -> str:
    return _UNKNOWN if value is None else str(value)


_GETTERS: Mapping[str, Callable[[_Shown], Value]] = {
    "Command": _command,
    "CreatedAt": _created_at,
    "ExitCode": lambda shown: _number(shown.row.exit_code),
    "ID": _id,
    "Labels": _labels,
    "Limits": lambda shown: limits_text(shown.row),
    "Names": lambda shown: printable(shown.row.name),
    "Owner": lambda shown: shown.row.owner or _UNKNOWN,
    "PIDs": lambda shown: _number(shown.row.pids),
    "Ports": lambda shown: ", ".join(port.text for port in shown.row.ports),
    "RunningFor": lambda shown: (
        human_duration(shown.now_utc_ns - shown.row.created_utc_ns) + " ago"
    ),
    "State": lambda shown: shown.row.state.value,
    "Status": lambda shown: status_text(shown.row, shown.now_utc_ns),
}

# --- filters --------------------------------------------------------------------------------------

Predicate = Callable[[PsRow], bool]


def parse_filters(texts: Sequence[str]) -> Predicate:
    """Return what `--filter` asks for, given once or several times.

    `id=PREFIX`, `name=REGEX`, `status=STATE`, `exited=CODE`, `owner=USER`, `label=KEY` and
    `label=KEY=VALUE`. As in docker, several values of one key mean any of them, several labels all
    of them, and different keys must all hold.

    Raises:
        SpecError: a text is not `key=value`, or a key or value is unknown.
    """
    kinds: dict[str, list[Predicate]] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        key = key.strip().lower()
        if not equals or not key:
            raise SpecError(
                f"invalid filter `{text}` (expected format: name=value)",
                hint=f"the names are {', '.join(sorted(_FILTERS))}",
            )
        if key not in _FILTERS:
            raise SpecError(
                f"invalid filter `{key}`", hint=f"the filters are {', '.join(sorted(_FILTERS))}"
            )
        kinds.setdefault(key, []).append(_FILTERS[key](value.strip()))

    def holds(row: PsRow) -> bool:
        return all(
            (all if key == "label" else any)(predicate(row) for predicate in predicates)
            for key, predicates in kinds.items()
        )

    return holds


def _by_id(value: str) -> Predicate:
    return lambda row: row.id.startswith(value)


def _by_name(value: str) -> Predicate:
    try:
        pattern = re.compile(value)
    except (re.error, OverflowError, RecursionError) as problem:
        raise SpecError(
            f"invalid filter `name={value}`: {problem}",
            hint="it is a regular expression: `name=web` finds it anywhere, `name=^web$` the whole",
        ) from None
    return lambda row: pattern.search(row.name) is not None


def _by_status(value: str) -> Predicate:
    try:
        state = State(value.lower())
    except ValueError:
        raise SpecError(
            f"invalid filter `status={value}`",
            hint=f"the states are {', '.join(state.value for state in State)}",
        ) from None
    return lambda row: row.state is state


def _by_exit_code(value: str) -> Predicate:
    if not re.fullmatch(r"[0-9]{1,3}", value):
        raise SpecError(f"invalid filter `exited={value}`", hint="write an exit status: `exited=0`")
    code = int(value)
    return lambda row: row.state is State.EXITED and row.exit_code == code


def _by_owner(value: str) -> Predicate:
    return lambda row: row.owner == value


def _by_label(value: str) -> Predicate:
    key, equals, wanted = value.partition("=")
    if not equals:
        return lambda row: key in row.labels
    return lambda row: row.labels.get(key) == wanted


_FILTERS: Mapping[str, Callable[[str], Predicate]] = {
    "exited": _by_exit_code,
    "id": _by_id,
    "label": _by_label,
    "name": _by_name,
    "owner": _by_owner,
    "status": _by_status,
}
