"""The flags of `sandbox run` about privileges, devices and hardening."""

# Without `from __future__ import annotations`, as in the command itself.

from typing import TYPE_CHECKING, Annotated, Any

from sandbox.cli.options import option
from sandbox.errors import SpecError
from sandbox.records.light import dataclass

if TYPE_CHECKING:
    from sandbox.records.security import Harden, Security

_PANEL = "Isolation"
_NEEDS_ROOT = "it goes with --image NAME or --rootfs DIR"
_WITH_HARDEN = frozenset({"security_opt"})


def _harden(text: str) -> Any:
    return option("--harden", panel=_PANEL, envvar="SANDBOX_HARDEN", help=text)


HardenFlag = Annotated[
    bool,
    _harden(
        "On the host's own root: write to the working directory alone, no network, no "
        "privileges; -v DIR:DIR adds a place to write to."
    ),
]
HardenEach = Annotated[
    bool,
    _harden(
        "Each run on the host's own root: write to the working directory alone, no network, no "
        "privileges."
    ),
]
"""Of commands that start many runs."""
CapAdd = Annotated[
    list[str] | None,
    option("--cap-add", panel=_PANEL, metavar="NAME", help="Let root inside hold a capability."),
]
CapDrop = Annotated[
    list[str] | None,
    option("--cap-drop", panel=_PANEL, metavar="NAME", help="Take one away; ALL takes all."),
]
SecurityOpt = Annotated[
    list[str] | None,
    option(
        "--security-opt",
        panel=_PANEL,
        metavar="seccomp=…|no-new-privileges",
        help="Another filter of system calls (unconfined, or docker's JSON), or whether "
        "set-user-ID programs gain anything.",
    ),
]
Privileged = Annotated[
    bool,
    option(
        "--privileged",
        panel=_PANEL,
        help="All capabilities and devices, no filter: the program is the host's root.",
    ),
]
DeviceFlag = Annotated[
    list[str] | None,
    option(
        "--device",
        panel=_PANEL,
        metavar="SOURCE[:TARGET][:rwm]",
        help="Show a device of the host inside, or a directory of them; as root, to read (r) or "
        "write (w) alone.",
    ),
]
DeviceCgroupRule = Annotated[
    list[str] | None,
    option(
        "--device-cgroup-rule",
        panel=_PANEL,
        metavar="'TYPE MAJOR:MINOR ACCESS'",
        help="Let devices be used that are not shown, such as 'c 42:* rwm'; as root.",
    ),
]
GpusFlag = Annotated[
    str | None,
    option(
        "--gpus",
        panel=_PANEL,
        metavar="all|N|device=0,1",
        help="Show NVIDIA GPUs and their driver's libraries inside.",
    ),
]
Ipc = Annotated[
    str | None,
    option(
        "--ipc",
        panel=_PANEL,
        metavar="private|host|none",
        help="Shared memory and message queues: its own unless given.",
    ),
]
Pid = Annotated[
    str | None,
    option("--pid", panel=_PANEL, metavar="host", help="See the processes of the host."),
]


def harden_each(*, harden: bool, has_own_root: bool = False) -> dict[str, Any]:
    """Return what `--harden` says of each of many runs, by the fields of `RunSpec`.

    Raises:
        SpecError: they are in a root file system of their own.
    """
    if not harden:
        return {}
    if has_own_root:
        raise _apart_already('DOCK_ARGS="--read-only --network none --cap-drop ALL" goes')
    from sandbox.records.security import Harden

    return {"harden": Harden(), "network": "none"}


def _apart_already(way: str = "--read-only, --network none and --cap-drop ALL go") -> SpecError:
    return SpecError(
        "--harden is for the host's own root: a root file system of its own is apart",
        hint=f"{way} further there; if you did not ask for it, `unset SANDBOX_HARDEN`",
    )


@dataclass(frozen=True, kw_only=True)
class SecurityFlags:
    """What was given of them."""

    harden: bool = False
    cap_add: list[str] | None = None
    cap_drop: list[str] | None = None
    security_opt: list[str] | None = None
    privileged: bool = False
    device: list[str] | None = None
    device_cgroup_rule: list[str] | None = None
    gpus: str | None = None
    ipc: str | None = None
    pid: str | None = None

    def build(self) -> "Security":
        """Return what they ask for in a root file system of its own.

        Raises:
            SpecError: one cannot be meant.
        """
        from sandbox.environment import security_flags as parsers
        from sandbox.records.security import Security

        if self.harden:
            raise _apart_already()
        return Security(
            privileged=self.privileged,
            cap_add=tuple(map(parsers.parse_capability, self.cap_add or ())),
            cap_drop=tuple(map(parsers.parse_capability, self.cap_drop or ())),
            devices=tuple(map(parsers.parse_device, self.device or ())),
            device_rules=tuple(map(parsers.parse_device_rule, self.device_cgroup_rule or ())),
            gpus=None if self.gpus is None else parsers.parse_gpus(self.gpus),
            ipc=parsers.parse_ipc(self.ipc or "private"),
            pid=parsers.parse_pid(self.pid or "private"),
            **parsers.parse_security_opts(self.security_opt or ()),
        )

    def build_harden(self, volumes: list[str] | None) -> "Harden | None":
        """Return what they ask for on the host's own root; None without --harden.

        Raises:
            SpecError: one has no meaning there.
        """
        for name, value in vars(self).items():
            is_meant = self.harden and name in _WITH_HARDEN
            if name != "harden" and value not in (None, False, []) and not is_meant:
                flag = "--" + name.replace("_", "-")
                raise SpecError(
                    f"{flag} has no meaning on the host's own root file system", hint=_NEEDS_ROOT
                )
        if not self.harden:
            return None
        from sandbox.records.security import Harden

        if not self.security_opt and not volumes:
            return Harden()  # most runs: nothing is to be parsed, so nothing loaded
        from sandbox.environment.security_flags import parse_places, parse_security_opts

        fields = parse_security_opts(self.security_opt or ())
        if not fields.pop("no_new_privileges", True):
            raise SpecError(
                "--harden always forbids new privileges", hint="leave out `--security-opt`"
            )
        writable, readable = parse_places(volumes or ())
        return Harden(writable=writable, readable=readable, **fields)
