"""What docker's default profile means, as a policy of ours; and how a filter is put in force.

Docker lists the calls to allow, which by now are all but some seventy. Here it is the other way
round: those that are refused, and the capability, if any, that opens them again.
Numbers newer than our list answer ENOSYS, so that programs fall back to what they did before.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any, ClassVar

from sandbox.kernel import call_filter
from sandbox.kernel.call_filter import Check, Comparison, Policy, Rule
from sandbox.kernel.syscalls import Architecture, find_architecture
from sandbox.records.light import replace

_libc = ctypes.PyDLL(None, use_errno=True)

REFUSED = call_filter.ERRNO | errno.EPERM
MISSING = call_filter.ERRNO | errno.ENOSYS

_NEVER = (
    # Keys of the kernel know no namespace.
    "add_key keyctl request_key "
    # A handler of page faults, and a queue of calls that no filter sees, have opened many a kernel.
    "userfaultfd io_uring_enter io_uring_register io_uring_setup "
    # The whole machine's.
    "kexec_load kexec_file_load pivot_root swapoff swapon move_pages migrate_pages "
    # Obsolete.
    "_sysctl afs_syscall create_module get_kernel_syms getpmsg nfsservctl putpmsg query_module "
    "security sysfs tuxcall uselib ustat vserver"
)
_OPENED_BY: Mapping[str, str] = {
    "dac_read_search": "open_by_handle_at",
    "sys_admin": "bpf fanotify_init fsconfig fsmount fsopen fspick lookup_dcookie "
    "lsm_get_self_attr lsm_list_modules lsm_set_self_attr mount mount_setattr move_mount open_tree "
    "open_tree_attr perf_event_open quotactl quotactl_fd setdomainname sethostname setns syslog "
    "umount2 unshare",
    "sys_boot": "reboot",
    "sys_chroot": "chroot",
    "sys_module": "delete_module finit_module init_module",
    "sys_pacct": "acct",
    "sys_ptrace": "kcmp pidfd_getfd process_madvise",
    "sys_rawio": "ioperm iopl",
    "sys_time": "clock_settime settimeofday",
    "sys_tty_config": "vhangup",
    "sys_nice": "get_mempolicy mbind set_mempolicy set_mempolicy_home_node",
    "syslog": "syslog",
    "bpf": "bpf",
    "perfmon": "perf_event_open",
}

_NEW_NAMESPACES = 0x7E02_0000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET."""
_PERSONALITIES = (0, 0x8, 0x2_0000, 0x2_0008, 0xFFFF_FFFF)
"""PER_LINUX, PER_LINUX32, each with UNAME26, and the question which it is."""
_AF_UNIX, _AF_ALG, _AF_VSOCK = 1, 38, 40
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_WORD = 0xFFFF_FFFF

_PR_SET_SECCOMP = 22
_SECCOMP_MODE_FILTER = 2
_SECCOMP_SET_MODE_FILTER = 1
_SECCOMP_FILTER_FLAG_SPEC_ALLOW = 4


class _Program(ctypes.Structure):
    _fields_: ClassVar[Any] = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def default_policy(architecture: Architecture, capabilities: Collection[str]) -> Policy:
    """Return what docker's default profile means for a program with these capabilities.

    Other than docker's: keys cannot be put into a terminal's input (TIOCSTI, TIOCLINUX), as the
    terminal may be the user's own; and programs of 32 bits do not run.

    Args:
        architecture: The machine's.
        capabilities: What the program may hold, as `sys_admin`.
    """
    rules: dict[str, tuple[Rule, ...]] = {
        name: (Rule(REFUSED),) for name in (*_NEVER.split(), *_closed(capabilities))
    }
    rules["personality"] = (
        *(Rule(call_filter.ALLOW, (Check(0, Comparison.EQ, which),)) for which in _PERSONALITIES),
        Rule(REFUSED),
    )
    # The kernel takes 32 bits of these arguments.
    rules["socket"] = tuple(Rule(REFUSED, (_is(0, kind),)) for kind in (_AF_ALG, _AF_VSOCK))
    rules["ioctl"] = tuple(Rule(REFUSED, (_is(1, what),)) for what in (_TIOCSTI, _TIOCLINUX))
    if "sys_admin" not in capabilities:
        none = Check(0, Comparison.MASKED_EQ, 0, _NEW_NAMESPACES)
        rules["clone"] = (Rule(call_filter.ALLOW, (none,)), Rule(REFUSED))
        # Its flags are in memory, where a filter cannot look; without it, clone is used.
        rules["clone3"] = (Rule(MISSING),)
    numbers = architecture.numbers
    return Policy(
        architecture=architecture,
        rules={numbers[name]: rule for name, rule in rules.items() if name in numbers},
        default=call_filter.ALLOW,
        unknown=MISSING,
        foreign=MISSING,
    )


def _is(index: int, value: int) -> Check:
    return Check(index, Comparison.MASKED_EQ, value, _WORD)


def _closed(capabilities: Collection[str]) -> set[str]:
    opened = {call for name in capabilities for call in _OPENED_BY.get(name, "").split()}
    return {call for calls in _OPENED_BY.values() for call in calls.split()} - opened


@cache
def default_filter(capabilities: frozenset[str]) -> bytes | None:
    """Return docker's default filter for this machine; None where we know no system calls."""
    architecture = find_architecture(os.uname().machine)
    if architecture is None:
        return None
    return call_filter.assemble(
        call_filter.compile_policy(default_policy(architecture, capabilities))
    )


@cache
def without_network() -> bytes | None:
    """Return the filter of a program with no capability that may make no socket but AF_UNIX ones.

    For where there is no network namespace; not even the loopback is left then.
    """
    architecture = find_architecture(os.uname().machine)
    if architecture is None:
        return None
    policy = default_policy(architecture, ())
    local = Rule(call_filter.ALLOW, (_is(0, _AF_UNIX),))
    rules = {**policy.rules, architecture.numbers["socket"]: (local, Rule(REFUSED))}
    return call_filter.assemble(call_filter.compile_policy(replace(policy, rules=rules)))


def count_instructions(code: bytes) -> int:
    """Return how long a filter is."""
    return len(code) // 8


class Filter:
    """A filter ready to be put in force: nothing is looked up any more."""

    def __init__(self, code: bytes) -> None:
        """Take the program as `assemble` returns it."""
        self._program = _Program(count_instructions(code), code)
        architecture = find_architecture(os.uname().machine)
        self._call = None if architecture is None else architecture.numbers["seccomp"]

    def enforce(self) -> None:
        """Put it in force for this process and all that come of it, for good.

        Raises:
            OSError: the kernel has no filters, or privileges can still be gained.
        """
        program = ctypes.byref(self._program)
        if self._call is not None:
            # Before Linux 5.16 a filter would slow the program down (SSBD) unless told not to.
            result = _libc.syscall(
                ctypes.c_long(self._call),
                ctypes.c_uint(_SECCOMP_SET_MODE_FILTER),
                ctypes.c_uint(_SECCOMP_FILTER_FLAG_SPEC_ALLOW),
                program,
            )
            if result == 0:
                return
        mode = ctypes.c_ulong(_SECCOMP_MODE_FILTER)
        if _libc.prctl(_PR_SET_SECCOMP, mode, program, 0, 0) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
