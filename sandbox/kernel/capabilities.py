"""What root may do in a run: docker's fourteen capabilities unless asked otherwise, no more."""

from __future__ import annotations

import ctypes
import errno
import struct
from collections.abc import Iterable

from sandbox.kernel.libc import library as _libc
from sandbox.kernel.mount_calls import check

_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_VERSION_3 = 0x20080522
_MOST_CAPABILITIES = 64

_SYS_KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "ppc64le": 271, "s390x": 280}
_KEYCTL_JOIN_SESSION_KEYRING = 1

_ALL = (
    "chown dac_override dac_read_search fowner fsetid kill setgid setuid setpcap linux_immutable "
    "net_bind_service net_broadcast net_admin net_raw ipc_lock ipc_owner sys_module sys_rawio "
    "sys_chroot sys_ptrace sys_pacct sys_admin sys_boot sys_nice sys_resource sys_time "
    "sys_tty_config mknod lease audit_write audit_control setfcap mac_override mac_admin syslog "
    "wake_alarm block_suspend audit_read perfmon bpf checkpoint_restore"
)
NAMES = tuple(_ALL.split())
"""In the order of the kernel's numbers."""

_DOCKERS = (
    "chown dac_override fowner fsetid kill setgid setuid setpcap net_bind_service net_raw "
    "sys_chroot mknod audit_write setfcap"
)
KEPT = tuple(_DOCKERS.split())
"""Docker's own choice for containers that are not privileged."""


def mask_of(names: Iterable[str]) -> int:
    """Return the set of these capabilities as the kernel writes it."""
    return sum(1 << NAMES.index(name) for name in names)


KEPT_MASK = mask_of(KEPT)


_HEADER = struct.Struct("=Ii")
"""version, pid."""
_SETS = struct.Struct("=6I")
"""effective, permitted and inheritable: the lower halves, then the upper ones."""


def read_held(status: str) -> int:
    """Return the permitted set of a process by its /proc/PID/status; 0 if it says nothing."""
    for line in status.splitlines():
        if line.startswith("CapPrm:"):
            return int(line.split()[1], 16)
    return 0


def bound(mask: int = KEPT_MASK) -> None:
    """Make sure that no program gets more than `mask`, whatever file it executes.

    Raises:
        OSError: we may not give up capabilities.
    """
    for number in range(_MOST_CAPABILITIES):
        if mask >> number & 1:
            continue
        result = _libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(number), 0, 0, 0)
        if result < 0 and ctypes.get_errno() == errno.EINVAL:
            break  # this kernel has no more; an exception would cost more than all the calls
        check(result)


def reduce(mask: int = KEPT_MASK) -> None:
    """Give up what we hold beyond `mask`; after a change of user nothing is held at all.

    Raises:
        OSError: the kernel refuses.
    """
    header = ctypes.create_string_buffer(_HEADER.pack(_VERSION_3, 0))
    held = ctypes.create_string_buffer(_SETS.size)
    check(_libc.capget(header, held))
    effective, permitted, _, upper_effective, upper_permitted, _ = _SETS.unpack_from(held)
    low, high = mask & 0xFFFFFFFF, mask >> 32
    kept = (effective & low, permitted & low, 0, upper_effective & high, upper_permitted & high, 0)
    _SETS.pack_into(held, 0, *kept)
    check(_libc.capset(header, held))
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)


def forbid_new_privileges() -> None:
    """Let no exec give privileges: set-user-ID bits and file capabilities are ignored.

    Raises:
        OSError: the kernel is older than 3.5.
    """
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def hide_from_tracers() -> None:
    """Close our memory and our files in /proc to processes of the same user.

    Raises:
        OSError: the kernel refuses.
    """
    _prctl(_PR_SET_DUMPABLE, 0)


def find_keyring_call(machine: str) -> int | None:
    """Return the number of the system call for keyrings; None where it is not known."""
    return _SYS_KEYCTL.get(machine)


def leave_keyring(call: int) -> None:
    """Take a new session keyring: the caller's holds keys of the host."""
    _libc.syscall(ctypes.c_long(call), ctypes.c_long(_KEYCTL_JOIN_SESSION_KEYRING), None)


def _prctl(option: int, argument: int) -> None:
    check(_libc.prctl(option, ctypes.c_ulong(argument), 0, 0, 0))
