"""JSON as Go writes it: sorted keys, no spaces, and for whole records `<`, `>` and `&` escaped."""

from __future__ import annotations

import math
import re
from functools import lru_cache

from sandbox.report.gotemplate.floats import shortest
from sandbox.report.gotemplate.values import NO_VALUE, CallProblem, Record, Value

_SHORT = {
    '"': '\\"',
    "\\": "\\\\",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\b": "\\b",
    "\f": "\\f",
}
_PLAIN = re.compile(r"[\w %./:+-]*", re.ASCII)
_HTML = frozenset("<>&")
_LINE_SEPARATORS = frozenset("\u2028\u2029")
_LARGE = 1e21
_SMALL = 1e-6


def marshal(value: Value, *, escape_html: bool = False) -> str:
    """Return a value as docker's `json` function writes it.

    A record escapes for HTML whatever is asked, since it brings its own JSON along.

    Raises:
        CallProblem: JSON has no such number.
    """
    if isinstance(value, str):
        return _text(value, escape_html=escape_html)
    if isinstance(value, (list, tuple)):
        return f"[{','.join(marshal(item, escape_html=escape_html) for item in value)}]"
    if isinstance(value, Record):
        return _record(value)
    if isinstance(value, dict):
        pairs = (
            f"{_text(key, escape_html=escape_html)}:{marshal(value[key], escape_html=escape_html)}"
            for key in sorted(value)
        )
        return "{" + ",".join(pairs) + "}"
    return _word(value)


def _record(record: Record) -> str:
    """Write its fields, one by one: this is done for every line of a live display."""
    getters, source = record.getters, record.source
    pairs = []
    for name, start in _starts(record.json_names):
        value = getters[name](source)
        is_plain = isinstance(value, str) and _PLAIN.fullmatch(value)
        pairs.append(f'{start}"{value}"' if is_plain else start + marshal(value, escape_html=True))
    return "{" + ",".join(pairs) + "}"


@lru_cache
def _starts(names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return the names of fields in the order of JSON, each with how its pair starts."""
    return tuple((name, _text(name, escape_html=True) + ":") for name in sorted(names))


def _word(value: Value) -> str:
    if value is None or value is NO_VALUE:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return _float(value) if isinstance(value, float) else str(value)


def _text(text: str, *, escape_html: bool) -> str:
    if _PLAIN.fullmatch(text):  # nearly every text of a table of figures
        return f'"{text}"'
    return '"' + "".join(_character(c, escape_html=escape_html) for c in text) + '"'


def _character(character: str, *, escape_html: bool) -> str:
    if character in _SHORT:
        return _SHORT[character]
    escaped = character < " " or character in _LINE_SEPARATORS
    if escaped or (escape_html and character in _HTML):
        return f"\\u{ord(character):04x}"
    return "\\ufffd" if "\ud800" <= character <= "\udfff" else character


def _float(value: float) -> str:
    if not math.isfinite(value):
        names = {math.inf: "+Inf", -math.inf: "-Inf"}
        raise CallProblem(f"json: unsupported value: {names.get(value, 'NaN')}")
    size = abs(value)
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    if size and (size < _SMALL or size >= _LARGE):
        mantissa, _, power = shortest(size, 0).partition("e")
        exponent = int(power) if power else 0
        return f"{sign}{mantissa}e{exponent:+d}".replace("e+0", "e+").replace("e-0", "e-")
    return sign + _plain(size)


def _plain(size: float) -> str:
    text = shortest(size, 400)  # an exponent that no float reaches
    if "e" not in text:
        return text
    digits, _, power = text.partition("e-")
    return "0." + "0" * (int(power) - 1) + digits.replace(".", "")
