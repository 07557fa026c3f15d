"""Floats to their shortest digits, as Go writes them."""

from __future__ import annotations

_LARGE_EXPONENT = 6  # from here on %v writes an exponent


def shortest(value: float, large_exponent: int = _LARGE_EXPONENT) -> str:
    """Return the shortest digits that mean `value`, with an exponent below 1e-4 and when large."""
    digits, exponent = _digits(value)
    if value and (exponent < -4 or exponent >= large_exponent):  # noqa: PLR2004 - Go's bound
        fraction = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{digits[0]}{fraction}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
    if exponent < 0:
        return "0." + "0" * (-exponent - 1) + digits
    whole = digits[: exponent + 1].ljust(exponent + 1, "0")
    rest = digits[exponent + 1 :]
    return f"{whole}.{rest}" if rest else whole


def _digits(value: float) -> tuple[str, int]:
    """Return the shortest digits that mean `value`, and the power of ten of the first of them."""
    mantissa, _, power = repr(value).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    leading = len(whole + fraction) - len(digits)
    exponent = int(power or 0) + len(whole) - 1 - leading
    return (digits.rstrip("0"), exponent) if digits else ("0", 0)


def hex_float(value: float) -> str:
    """Return the exact value: hexadecimal digits and a power of two, as C's `%a`."""
    mantissa, _, exponent = value.hex().partition("p")
    whole, _, fraction = mantissa.partition(".")
    fraction = fraction.rstrip("0")
    power = int(exponent)
    return (
        f"{whole}{'.' + fraction if fraction else ''}p{'-' if power < 0 else '+'}{abs(power):02d}"
    )
