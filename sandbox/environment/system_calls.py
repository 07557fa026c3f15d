"""The filter of system calls that a run gets: a prebuilt one, or that of a profile of docker's."""

from __future__ import annotations

import os

from sandbox.errors import HostError, SpecError
from sandbox.records.security import (
    OWNERLESS,
    UNCONFINED,
    Protection,
    ProtectionState,
    Security,
)

_SECCOMP = "/proc/sys/kernel/seccomp"
_MOST_CHARACTERS = 1 << 20


def find_filter(security: Security, names: frozenset[str]) -> tuple[bytes, Protection]:
    """Return the filter of system calls, empty for none, and what to say of it.

    Raises:
        SpecError: the profile is none, or too long.
        HostError: the profile cannot be read, or no filter can be had for it.
    """
    if security.seccomp == UNCONFINED or (security.privileged and not security.seccomp):
        why = "by --privileged" if security.privileged else "by --security-opt seccomp=unconfined"
        return b"", Protection(name="seccomp", state=ProtectionState.OFF, detail=why)
    code = None
    if os.path.exists(_SECCOMP):  # noqa: PTH110 - in every run
        code = _find_code(security.seccomp, names)
    if code is None:
        reason = "no filter of system calls can be made for this kernel or machine"
        if security.seccomp:
            raise HostError(reason, hint="leave out --security-opt seccomp")
        unavailable = ProtectionState.UNAVAILABLE
        return b"", Protection(name="seccomp", state=unavailable, detail=reason)
    from sandbox.kernel.seccomp import count_instructions

    what = security.seccomp or "docker's default"
    detail = f"{what}, {count_instructions(code)} instructions"
    return code, Protection(name="seccomp", state=ProtectionState.ON, detail=detail)


def _find_code(asked: str, names: frozenset[str]) -> bytes | None:
    from sandbox.kernel.seccomp import default_filter, ownerless_filter

    if asked == OWNERLESS:
        return ownerless_filter(names)
    return _of_profile(asked, names) if asked else default_filter(names)


def _of_profile(path: str, names: frozenset[str]) -> bytes | None:
    from sandbox.kernel.features import parse_release
    from sandbox.kernel.seccomp_policy import assemble_policy
    from sandbox.kernel.seccomp_profile import Circumstances, parse_profile
    from sandbox.kernel.syscalls import find_architecture

    architecture = find_architecture(os.uname().machine)
    if architecture is None:
        return None
    kernel = parse_release(os.uname().release) or (0, 0)
    around = Circumstances(architecture=architecture, capabilities=names, kernel=kernel)
    policy = parse_profile(_read_profile(path), around, path)
    try:
        return assemble_policy(policy)
    except SpecError as error:
        raise SpecError(f"the seccomp profile {path}: {error}", hint=error.hint) from None


def _read_profile(path: str) -> str:
    hint = "give the path of a profile as docker takes it, or `unconfined`"
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 - read with a bound
            text = file.read(_MOST_CHARACTERS + 1)
    except OSError as exc:
        raise HostError(
            f"cannot read the seccomp profile {path}: {exc.strerror}", hint=hint
        ) from None
    except UnicodeDecodeError as exc:
        raise SpecError(
            f"the seccomp profile {path} is not text: byte {exc.start} is not UTF-8", hint=hint
        ) from None
    if len(text) > _MOST_CHARACTERS:
        raise SpecError(
            f"the seccomp profile {path} is longer than {_MOST_CHARACTERS} characters", hint=hint
        )
    return text
