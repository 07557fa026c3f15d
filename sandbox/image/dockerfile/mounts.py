"""`RUN --mount=…`: the keys of each type of mount."""

from __future__ import annotations

from collections.abc import Callable

from sandbox.errors import SpecError
from sandbox.image.dockerfile.arguments import nearest
from sandbox.image.dockerfile.syntax import Mount
from sandbox.units import parse_size

KINDS = ("bind", "cache", "tmpfs", "secret")
SHARING = ("shared", "private", "locked")

_KEYS = {
    "type": "type",
    "from": "from",
    "source": "source",
    "src": "source",
    "target": "target",
    "dst": "target",
    "destination": "target",
    "readonly": "readonly",
    "ro": "readonly",
    "readwrite": "readwrite",
    "rw": "readwrite",
    "required": "required",
    "size": "size",
    "id": "id",
    "sharing": "sharing",
    "mode": "mode",
    "uid": "uid",
    "gid": "gid",
    "env": "env",
}
_FLAGS = frozenset({"readonly", "readwrite", "required"})
_COMMON = frozenset({"type", "target", "readonly", "readwrite"})
_OWNED = frozenset({"id", "mode", "uid", "gid"})
_ALLOWED = {
    "bind": _COMMON | {"from", "source"},
    "cache": _COMMON | _OWNED | {"from", "source", "sharing"},
    "tmpfs": _COMMON | {"size"},
    "secret": _COMMON | _OWNED | {"source", "required", "env"},
}
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_LARGEST_MODE = 0o7777
_LARGEST_ID = (1 << 32) - 2


def read_from(text: str) -> str | None:
    """Return the stage or image that a mount takes its files from, before anything is expanded.

    Raises:
        SpecError: it has variables: what is built is decided before any of them has a value.
    """
    found = None
    for key, value in split_mount(text):
        if key == "from":
            found = value or None
            if "$" in (value or "")[:-1]:
                hint = "make a stage of it: `FROM $NAME AS other`, and write `from=other`"
                raise _refusal(text, "`from` takes no variables", hint)
    return found


def split_mount(text: str) -> list[tuple[str, str | None]]:
    """Return the keys and values of a mount; a value is None where there is only a key.

    Raises:
        SpecError: a quote is open.
    """
    fields = [field.partition("=") for field in _fields(text)]
    return [(key.lower(), value if equals else None) for key, equals, value in fields]


def _fields(text: str) -> list[str]:
    """Return the fields of one line of CSV."""
    import csv

    try:
        rows = list(csv.reader([text], strict=True))
    except csv.Error as exc:
        raise SpecError(
            f"`--mount={text}` cannot be read: {exc}", hint='quote a whole field: `"target=/a,b"`'
        ) from exc
    return rows[0] if rows else []


def parse_mount(text: str, expand: Callable[[str], str]) -> Mount:
    """Return what one `--mount` asks for.

    Args:
        text: What follows `--mount=`.
        expand: What replaces the variables of a value.

    Raises:
        SpecError: a key or a value is not known, or does not belong to the type of mount.
    """
    values: dict[str, str] = {}
    for key, value in split_mount(text):
        name = _KEYS.get(key)
        if name is None:
            raise _refusal(text, f"`{key}` is no key", nearest(key, sorted(_KEYS)))
        if value is None and name not in _FLAGS:
            raise _refusal(text, f"`{key}` needs a value", f"write `{key}=VALUE`")
        values[name] = "true" if value is None else expand(value)
    kind = values.get("type", "bind").lower()
    if kind not in KINDS:
        raise _kind_refusal(text, kind)
    for name in values:
        if name not in _ALLOWED[kind]:
            allowed = ", ".join(sorted(_ALLOWED[kind]))
            raise _refusal(
                text, f"`{name}` does not belong to a {kind} mount", f"allowed are {allowed}"
            )
    mount = _mount(text, kind, values)
    _check(text, mount)
    return mount


def _mount(text: str, kind: str, values: dict[str, str]) -> Mount:
    sharing = values.get("sharing", "shared").lower()
    if sharing not in SHARING:
        raise _refusal(text, f"`sharing={sharing}` is not known", nearest(sharing, SHARING))
    return Mount(
        kind=kind,
        target=values.get("target", ""),
        source=values.get("source", ""),
        from_stage=values.get("from") or None,
        read_only=_read_only(text, kind, values),
        size_bytes=_size(text, values),
        id=values.get("id", ""),
        sharing=sharing,
        required=_boolean(text, "required", values.get("required", "false")),
        env=values.get("env"),
        mode=_number(text, values, "mode", 8, _LARGEST_MODE),
        uid=_number(text, values, "uid", 10, _LARGEST_ID),
        gid=_number(text, values, "gid", 10, _LARGEST_ID),
    )


def _read_only(text: str, kind: str, values: dict[str, str]) -> bool:
    """Return what the flag that stands last says, or else what the type does."""
    read_only = kind in {"bind", "secret"}
    for name, value in values.items():
        if name in {"readonly", "readwrite"}:
            read_only = _boolean(text, name, value) == (name == "readonly")
    return read_only


def _check(text: str, mount: Mount) -> None:
    if mount.kind == "secret":
        if mount.source and mount.id:
            raise _refusal(text, "`source` and `id` of a secret mean the same", "leave one of them")
        if not (mount.source or mount.id or mount.target):
            raise _refusal(text, "it does not say which secret", "write `id=NAME`")


def _kind_refusal(text: str, kind: str) -> SpecError:
    if kind == "ssh":
        return _refusal(
            text,
            "keys of an SSH agent are not forwarded",
            "fetch before the build, or pass one key with `--mount=type=secret`",
        )
    return _refusal(text, f"`type={kind}` is not known", nearest(kind, KINDS))


def _boolean(text: str, name: str, value: str) -> bool:
    if value in _TRUE:
        return True
    if value in _FALSE:
        return False
    raise _refusal(text, f"`{name}={value}` is neither true nor false", f"write `{name}`")


def _number(text: str, values: dict[str, str], name: str, base: int, largest: int) -> int | None:
    value = values.get(name)
    if value is None:
        return None
    number = int(value, base) if value.isascii() and value.isdigit() and _fits(value, base) else -1
    if not 0 <= number <= largest:
        hint = "write it octal, such as 0755" if base == 8 else "write a number"  # noqa: PLR2004
        raise _refusal(text, f"`{name}={value}` cannot be used", hint)
    return number


def _fits(value: str, base: int) -> bool:
    return len(value) <= 12 and all(int(digit) < base for digit in value)  # noqa: PLR2004 - digits of 2³²


def _size(text: str, values: dict[str, str]) -> int | None:
    value = values.get("size")
    if value is None:
        return None
    try:
        return parse_size(value)
    except SpecError as exc:
        raise _refusal(text, f"`size={value}`: {exc}", exc.hint) from exc


def _refusal(text: str, what: str, hint: str | None) -> SpecError:
    return SpecError(f"`--mount={text}`: {what}", hint=hint)
