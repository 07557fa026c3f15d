"""What docker's default profile means, as a policy of ours.

Docker lists the calls to allow, which by now are all but some seventy. Here it is the other way
round: those that are refused, and the capability, if any, that opens them again.
Numbers newer than our list answer ENOSYS, so that programs fall back to what they did before.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Mapping

from sandbox.kernel import call_filter
from sandbox.kernel.call_filter import Check, Comparison, Policy, Rule
from sandbox.kernel.syscalls import Architecture
from sandbox.records.light import replace

REFUSED = call_filter.ERRNO | errno.EPERM
MISSING = call_filter.ERRNO | errno.ENOSYS
DONE = call_filter.ERRNO
"""Error 0: the call seems to have succeeded."""
_OWNERS = """
chown fchown fchownat lchown setfsgid setfsuid setgid setgroups setregid setresgid setresuid
setreuid setuid
"""

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


def ownerless_policy(architecture: Architecture, capabilities: Collection[str]) -> Policy:
    """Return the default policy, but calls that change owners or users do nothing and succeed.

    Where there is one user only they would fail, and with them many an installation of packages.
    """
    policy = default_policy(architecture, capabilities)
    numbers = architecture.numbers
    done = {numbers[name]: (Rule(DONE),) for name in _OWNERS.split() if name in numbers}
    return replace(policy, rules={**policy.rules, **done})


def _is(index: int, value: int) -> Check:
    return Check(index, Comparison.MASKED_EQ, value, _WORD)


def _closed(capabilities: Collection[str]) -> set[str]:
    opened = {call for name in capabilities for call in _OPENED_BY.get(name, "").split()}
    return {call for calls in _OPENED_BY.values() for call in calls.split()} - opened


def local_policy(architecture: Architecture) -> Policy:
    """Return the policy of a program with no capability that may make only AF_UNIX sockets.

    For where there is no network namespace; not even the loopback is left then.
    """
    policy = default_policy(architecture, ())
    local = Rule(call_filter.ALLOW, (_is(0, _AF_UNIX),))
    rules = {**policy.rules, architecture.numbers["socket"]: (local, Rule(REFUSED))}
    return replace(policy, rules=rules)


def assemble_policy(policy: Policy) -> bytes:
    """Return the program of a policy, as the kernel takes it."""
    return call_filter.assemble(call_filter.compile_policy(policy))
