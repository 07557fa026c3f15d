"""Values to text as Go prints them: `print`, `printf`, quoted strings, floats."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from sandbox.report.gotemplate.floats import hex_float, shortest
from sandbox.report.gotemplate.quoting import code_point, quote
from sandbox.report.gotemplate.values import NO_VALUE, Record, Value, is_integer, type_name

_LARGEST_PADDING = 1_000_000  # Go's own bound for widths and precisions
_LAST_CHARACTER = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)
_INT_BASES = {"d": "d", "v": "d", "b": "b", "o": "o", "O": "o", "x": "x", "X": "X"}
_PREFIXES = {"b": "0b", "o": "0", "O": "0o", "x": "0x", "X": "0X"}
_VERB = re.compile(r"%(?P<flags>[-+# 0]*)", re.DOTALL)


# --- print ----------------------------------------------------------------------------------------


def show(value: Value) -> str:
    """Return a value as Go's `%v`; nil is `<nil>`."""
    return _Printer(value, "v", _Flags()).text()


def show_output(value: Value) -> str:
    """Return a value as an action prints it; nil and what is missing are `<no value>`."""
    return "<no value>" if _is_nil(value) else show(value)


def sprint(arguments: Sequence[Value]) -> str:
    """Return Go's Sprint: a space between two values of which neither is a string."""
    parts: list[str] = []
    for index, value in enumerate(arguments):
        if index and not isinstance(value, str) and not isinstance(arguments[index - 1], str):
            parts.append(" ")
        parts.append(show(value))
    return "".join(parts)


def sprintln(arguments: Sequence[Value]) -> str:
    """Return Go's Sprintln: spaces between all values, a new line behind them."""
    return " ".join(show(value) for value in arguments) + "\n"


# --- printf ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flags:
    minus: bool = False
    plus: bool = False
    sharp: bool = False
    space: bool = False
    zero: bool = False
    width: int | None = None
    precision: int | None = None


class _Format:
    """One pass over a format: where it is, which argument is next."""

    def __init__(self, text: str, arguments: Sequence[Value]) -> None:
        self.text = text
        self.arguments = arguments
        self.position = 0
        self.next = 0
        self.reordered = False
        self.bad_index = False
        self.after_index = False

    def run(self) -> str:
        out: list[str] = []
        while (found := self.text.find("%", self.position)) >= 0:
            out.append(self.text[self.position : found])
            self.position = found
            out.append(self._directive())
        out.append(self.text[self.position :])
        if not self.reordered and self.next < len(self.arguments):
            extra = [
                "<nil>"
                if value is None or value is NO_VALUE
                else f"{type_name(value)}={show(value)}"
                for value in self.arguments[self.next :]
            ]
            out.append(f"%!(EXTRA {', '.join(extra)})")
        return "".join(out)

    def _directive(self) -> str:
        match = _VERB.match(self.text, self.position)
        flags = match["flags"] if match else ""
        self.position += 1 + len(flags)
        self.bad_index = self.after_index = False
        minus = "-" in flags
        self._index()
        width, problem = self._measure("WIDTH")
        if width is not None and width < 0:
            minus, width = True, -width
        precision = None
        if self.text.startswith(".", self.position):
            self.position += 1
            if self.after_index:
                self.bad_index = True
            self._index()
            precision, trouble = self._measure("PREC")
            problem += trouble
            if precision is None and not trouble:
                precision = 0
            if precision is not None and precision < 0:
                precision, problem = None, problem + "%!(BADPREC)"
        if not self.after_index:
            self._index()
        return problem + self._verb(
            _Flags(
                minus=minus,
                plus="+" in flags,
                sharp="#" in flags,
                space=" " in flags,
                zero="0" in flags and not minus,
                width=width,
                precision=precision,
            )
        )

    def _index(self) -> None:
        """Take an explicit argument number such as `[2]`."""
        if not self.text.startswith("[", self.position):
            return
        self.reordered = True
        end = self.text.find("]", self.position)
        inside = self.text[self.position + 1 : end] if end > 0 else ""
        if end < 0:
            self.position += 1
        else:
            self.position = end + 1
        if re.fullmatch(r"[0-9]{1,7}", inside) and 1 <= int(inside) <= len(self.arguments):
            self.next, self.after_index = int(inside) - 1, True
        else:
            self.bad_index = True

    def _measure(self, name: str) -> tuple[int | None, str]:
        """Return a width or precision, written out or taken from the arguments."""
        if self.text.startswith("*", self.position):
            self.position += 1
            self.after_index = False
            value = self.arguments[self.next] if self.next < len(self.arguments) else None
            self.next += 1
            if isinstance(value, int) and is_integer(value) and abs(value) <= _LARGEST_PADDING:
                return value, ""
            return None, f"%!(BAD{name})"
        match = re.compile(r"[0-9]+").match(self.text, self.position)
        if match is None:
            return None, ""
        if self.after_index:
            self.bad_index = True
        self.position = match.end()
        digits = match[0].lstrip("0") or "0"
        if len(digits) > len(str(_LARGEST_PADDING)) or int(digits) > _LARGEST_PADDING:
            return None, f"%!(BAD{name})" if name == "WIDTH" else ""
        return int(digits), ""

    def _verb(self, flags: _Flags) -> str:
        verb = self.text[self.position : self.position + 1]
        self.position += 1
        if not verb:
            return "%!(NOVERB)"
        if verb == "%":
            return "%"
        if self.bad_index:
            return f"%!{verb}(BADINDEX)"
        if self.next >= len(self.arguments):
            return f"%!{verb}(MISSING)"
        value = self.arguments[self.next]
        self.next += 1
        return _Printer(value, verb, flags).text()


def sprintf(text: str, arguments: Sequence[Value]) -> str:
    """Return Go's Sprintf; what does not fit is marked in the text, never an error."""
    return _Format(text, arguments).run()


class _Printer:
    """One value under one verb."""

    def __init__(self, value: Value, verb: str, flags: _Flags) -> None:
        self.value, self.verb, self.flags = value, verb, flags

    def text(self) -> str:
        value = self.value
        if self.verb == "T":
            return self._padded("<nil>" if _is_nil(value) else type_name(value))
        if _is_nil(value):
            return self._padded("<nil>") if self.verb == "v" else f"%!{self.verb}(<nil>)"
        if isinstance(value, str):
            return self._string(value)
        if isinstance(value, (bool, int, float)):
            return self._number(value)
        return self._collection(value)

    def _number(self, value: float) -> str:
        if isinstance(value, bool):
            return self._padded(str(value).lower()) if self.verb in "tv" else self._bad()
        return self._integer(value) if isinstance(value, int) else self._float(value)

    def _bad(self) -> str:
        plain = _Printer(self.value, "v", self.flags).text()
        return f"%!{self.verb}({type_name(self.value)}={plain})"

    def _padded(self, text: str, *, zero: bool | None = None) -> str:
        width = self.flags.width or 0
        if self.flags.minus:
            return text.ljust(width)
        return text.rjust(width, "0" if (self.flags.zero if zero is None else zero) else " ")

    # --- numbers ----------------------------------------------------------------------------------

    def _integer(self, value: int) -> str:
        flags = self.flags
        if self.verb == "c":
            return self._padded(chr(_valid(value)), zero=False)
        if self.verb == "q":
            return self._padded(quote(chr(_valid(value)), "'", ascii_only=flags.plus), zero=False)
        if self.verb == "U":
            return self._padded(code_point(value, sharp=flags.sharp), zero=False)
        if self.verb not in _INT_BASES:
            return self._bad()
        digits = format(abs(value), _INT_BASES[self.verb])
        if flags.precision == 0 and value == 0:
            return self._padded("", zero=False)
        prefix = _PREFIXES.get(self.verb, "") if self.verb == "O" or flags.sharp else ""
        sign = self._sign(negative=value < 0)
        if flags.precision is not None:
            digits = digits.rjust(flags.precision, "0")
        elif flags.zero and flags.width is not None:
            digits = digits.rjust(flags.width - len(sign), "0")
        if self.verb == "o" and digits.startswith("0"):
            prefix = ""
        return self._padded(sign + prefix + digits, zero=False)

    def _sign(self, *, negative: bool) -> str:
        if negative:
            return "-"
        return "+" if self.flags.plus else " " if self.flags.space else ""

    def _float(self, value: float) -> str:
        flags = self.flags
        if self.verb not in "vgGeEfFxX":
            return self._bad()
        negative = math.copysign(1.0, value) < 0
        if math.isinf(value):
            sign = "-" if negative else "+" if flags.plus or self.verb == "v" else ""
            sign = sign or (" " if flags.space else "+")
            return self._padded(sign + "Inf", zero=False)
        if math.isnan(value):
            return self._padded(("+" if flags.plus else "") + "NaN", zero=False)
        digits = _float_digits(abs(value), self.verb, flags)
        sign = self._sign(negative=negative)
        if flags.zero and flags.width is not None:
            return sign + digits.rjust(flags.width - len(sign), "0")
        return self._padded(sign + digits, zero=False)

    # --- texts and collections --------------------------------------------------------------------

    def _string(self, value: str) -> str:
        flags = self.flags
        if self.verb in "xX":
            return self._padded(_hex(value, self.verb, flags))
        if self.verb not in "vsq":
            return self._bad()
        if flags.precision is not None:
            value = value[: flags.precision]
        if self.verb == "q" or (self.verb == "v" and flags.sharp):
            if flags.sharp and self.verb == "q" and _can_backquote(value):
                return self._padded(f"`{value}`")
            value = quote(value, ascii_only=flags.plus and self.verb == "q")
        return self._padded(value)

    def _collection(self, value: Value) -> str:
        if isinstance(value, Record):
            value = value.plain()
        if isinstance(value, dict):
            pairs = [f"{self._item(key)}:{self._item(value[key])}" for key in sorted(value)]
            return f"map[{' '.join(pairs)}]"
        if isinstance(value, (list, tuple)):
            return f"[{' '.join(map(self._item, value))}]"
        return self._bad()

    def _item(self, value: Value) -> str:
        return _Printer(value, self.verb, self.flags).text()


def _is_nil(value: Value) -> bool:
    return value is None or value is NO_VALUE


def _valid(code: int) -> int:
    """Return the character's number, or the replacement's where there is no such character."""
    return code if 0 <= code <= _LAST_CHARACTER and code not in _SURROGATES else 0xFFFD


def _can_backquote(text: str) -> bool:
    return all((c.isprintable() and c not in "`\ufeff") or c == "\t" for c in text)


def _hex(text: str, verb: str, flags: _Flags) -> str:
    data = text.encode("utf-8", "replace")[: flags.precision]
    prefix = "0x" if flags.sharp else ""
    if flags.space:
        digits = " ".join(f"{prefix}{byte:02x}" for byte in data)
    else:
        digits = prefix + data.hex() if data else ""
    return digits.upper() if verb == "X" else digits


def _float_digits(value: float, verb: str, flags: _Flags) -> str:
    precision = flags.precision
    if verb in "xX":
        text = hex_float(value)
        return text.upper() if verb == "X" else text
    if verb in "fF":
        return f"{value:.{6 if precision is None else precision}f}"
    if verb in "eE":
        return f"{value:.{6 if precision is None else precision}{verb}}"
    text = shortest(value) if precision is None else f"{value:.{max(precision, 1)}g}"
    return text.upper() if verb == "G" else text
