"""`--harden`: a program on the host's own root that can change little of it and reach nothing.

Two mechanisms hold the files, each where the kernel and the user allow it: read-only mounts in
namespaces of the run's own, and Landlock, which needs no privilege. What cannot be had is said in
the result, and refused with --strict.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from sandbox.environment.host import Prepared
from sandbox.environment.system_calls import find_filter
from sandbox.errors import HostError, SpecError
from sandbox.kernel.capabilities import NAMES, read_held
from sandbox.kernel.files import find_file_system
from sandbox.kernel.in_place import can_be_apart
from sandbox.kernel.landlock import describe_gaps
from sandbox.kernel.libc import landlock_abi
from sandbox.kernel.namespaces import flags_of
from sandbox.records.enclosure import Enclosure, IdMap, InPlace, Network, OwnNetwork
from sandbox.records.light import replace
from sandbox.records.program import MARKS_VARIABLE, Program
from sandbox.records.result import RunWarning
from sandbox.records.security import Confinement, Harden, Protection, ProtectionState, Security
from sandbox.spec import RunSpec

_DEVICES = (
    *("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "fuse"),
    *("dri", "kfd", "accel", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"),
)
_TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - the run's own, or the host's to write
_KERNELS = ("/dev", "/proc", "/sys")
_KERNELS_OWN = (
    *("proc", "sysfs", "cgroup", "cgroup2", "devtmpfs", "debugfs", "tracefs", "securityfs", "bpf"),
    *("configfs", "efivarfs", "pstore", "binfmt_misc", "fusectl", "selinuxfs", "resctrl"),
)
_RESOLV_CONF = "/etc/resolv.conf"


def harden(prepared: Prepared, spec: RunSpec, asked: Harden, run_id: str) -> Prepared:
    """Return a prepared program that gives up what `--harden` says.

    Raises:
        SpecError: what is to be writable cannot be.
        HostError: it is not there.
        LaunchError: nor is the working directory (126).
    """
    workdir = _find_workdir(prepared.program)
    writable = _find_writable(asked, workdir)
    kept = (*_find_kept(spec), *_check_readable(asked))
    place = InPlace(is_apart=True, writable=writable, kept=kept)
    if spec.venv is not None and place.emptied_above(spec.venv.directory):
        place = replace(place, kept=(*kept, spec.venv.directory))
    program, reason = _take_apart(prepared.program, spec, workdir, place, run_id)
    abi = landlock_abi()
    is_apart = reason is None
    has_network = spec.network == Network.HOST
    code, seccomp = find_filter(Security(seccomp=asked.seccomp), frozenset())
    if not is_apart and not has_network and not asked.seccomp:
        from sandbox.kernel.seccomp import without_network

        code = without_network() or code
    confinement = Confinement(
        filter=code,
        read_only_tree=abi > 0,
        writable=(*writable, *_TEMPORARY, *(("/proc",) if is_apart else ("/proc/self",))),
        devices=tuple(_find_devices()),
    )
    enclosure = program.enclosure
    if enclosure is not None:
        program = replace(program, enclosure=replace(enclosure, confinement=confinement))
    protections = (
        *_describe(reason, abi, spec.network, has_filter=bool(code)),
        seccomp,
        *_GIVEN_UP,
    )
    return replace(
        prepared,
        program=program,
        protections=protections,
        warnings=(
            *prepared.warnings,
            *_warnings(writable, protections),
            *_warn_of_names(spec),
            *_warn_of_hidden(program),
        ),
    )


_GIVEN_UP = (
    Protection(name="capabilities", state=ProtectionState.ON, detail="none"),
    Protection(
        name="no_new_privileges",
        state=ProtectionState.ON,
        detail="set-user-ID programs and file capabilities give nothing",
    ),
)


def _take_apart(
    program: Program, spec: RunSpec, workdir: str, place: InPlace, run_id: str
) -> tuple[Program, str | None]:
    """Return the program in namespaces of its own, or on its own and why there are none."""
    uid, gid = os.geteuid(), os.getegid()
    ids = None if uid == 0 else IdMap(uids=((uid, uid, 1),), gids=((gid, gid, 1),))
    environment = {**program.environment}
    environment.pop(os.fsencode(MARKS_VARIABLE), None)  # it reaches no socket of ours
    if not _is_below(
        os.fsdecode(environment.get(b"TMPDIR", b"/tmp")), (*place.writable, *_TEMPORARY)
    ):
        environment[b"TMPDIR"] = b"/tmp"
    apart = replace(
        program,
        environment=environment,
        directory=workdir,
        own_network=_find_network(spec, run_id, ids),
        enclosure=Enclosure(
            in_place=place,
            ids=ids,
            hostname=os.uname().nodename,
            workdir=workdir,
            has_init=spec.wait_all,
            waits_for_all=spec.wait_all,
        ),
    )
    reason = _why_not_apart(apart, ids, (uid, gid))
    if reason is None or apart.enclosure is None:
        return apart, reason
    enclosure = replace(apart.enclosure, in_place=InPlace(is_apart=False), ids=None, has_init=False)
    return replace(apart, enclosure=enclosure, own_network=None), reason


def _find_network(spec: RunSpec, run_id: str, ids: IdMap | None) -> OwnNetwork | None:
    kind = Network(spec.network)
    if kind is Network.NONE:  # as most: there is nothing to find out
        return OwnNetwork(kind=kind, ids=ids)
    from sandbox.environment.network import find_own_network

    return find_own_network(kind, run_id, ids, ports=spec.ports)


def _why_not_apart(program: Program, ids: IdMap | None, own: tuple[int, int]) -> str | None:
    """Return why there can be no namespaces; a plain user's are tried, as much can forbid them."""
    if ids is not None:
        return can_be_apart(flags_of(program), own)
    held = read_held(Path("/proc/self/status").read_text("utf-8", "replace"))
    if held >> NAMES.index("sys_admin") & 1:
        return None
    return "root lacks CAP_SYS_ADMIN here"


def _find_workdir(program: Program) -> str:
    path = os.path.realpath(program.directory or ".")
    try:
        os.stat(path)  # noqa: PTH116 - as the rest
    except OSError as exc:
        from sandbox.kernel.launch_error import directory_error

        raise directory_error(path, exc.errno or 0, program) from None
    return path


def _find_writable(asked: Harden, workdir: str) -> tuple[str, ...]:
    paths = [workdir]
    for path in asked.writable:
        found = os.path.realpath(path)
        if not os.path.exists(found):  # noqa: PTH110 - as the rest
            raise HostError(f"there is nothing to write to at {path}", hint="make it first")
        paths.append(found)
    for path in paths:
        if path == "/":
            raise SpecError(
                "a hardened run cannot write to all of /",
                hint="start in a directory of its own: `cd DIR` first, or `run --workdir DIR`",
            )
        if _is_of_the_kernel(path):
            raise SpecError(
                f"a hardened run cannot write to {path}: the kernel's own files are there",
                hint="start in a directory of its own: `cd DIR` first, or `run --workdir DIR`",
            )
    return tuple(dict.fromkeys(paths))


def _is_of_the_kernel(path: str) -> bool:
    """Return whether files there change the host: settings, groups, devices; wherever mounted."""
    if _is_below(path, _KERNELS) and not _is_below(path, _TEMPORARY):
        return True
    if os.major(os.stat(path).st_dev) != 0:  # noqa: PTH116 - as the rest
        return False  # on a disk, as most are: the list of mounts need not be read
    return find_file_system(Path(path)) in _KERNELS_OWN


def _check_readable(asked: Harden) -> tuple[str, ...]:
    paths = tuple(map(os.path.realpath, asked.readable))
    for path in paths:
        if not os.path.exists(path):  # noqa: PTH110 - as the rest
            raise HostError(f"there is nothing to read at {path}")
    return paths


def _is_below(path: str, directories: tuple[str, ...]) -> bool:
    return any(path == top or path.startswith(f"{top}/") for top in directories)


def _find_kept(spec: RunSpec) -> Iterator[str]:
    """Yield what of /run is shown to be read: the names of the network's servers, if it has one."""
    if spec.network == Network.NONE:
        return
    target = os.path.realpath(_RESOLV_CONF)
    if target.startswith("/run/") and Path(target).is_file():
        yield target


def _find_devices() -> Iterator[str]:
    numbered = (name for name in os.listdir("/dev") if name.removeprefix("nvidia").isdecimal())  # noqa: PTH208
    for name in (*_DEVICES, *numbered):
        path = f"/dev/{name}"
        if os.path.exists(path):  # noqa: PTH110 - many in a row
            yield path


def _describe(
    reason: str | None,
    abi: int,
    network: str,
    *,
    has_filter: bool,
) -> Iterator[Protection]:
    """Yield what holds of files, processes, sockets and the network."""
    on, unavailable = ProtectionState.ON, ProtectionState.UNAVAILABLE
    if abi:
        gaps = describe_gaps(abi)
        detail = f"Landlock {abi}" + (f"; this kernel leaves open: {gaps}" if gaps else "")
        yield Protection(name="landlock", state=on, detail=detail)
    else:
        why = "this kernel has no Landlock (`sandbox doctor landlock`)"
        yield Protection(name="landlock", state=unavailable, detail=why)
    for name, detail in (
        ("mounts", "read-only but for the working directory; /run, /tmp and /dev/shm of its own"),
        ("processes", "those of the host are not seen"),
    ):
        state = on if reason is None else unavailable
        yield Protection(name=name, state=state, detail=reason or detail)
    if network == Network.HOST:
        yield Protection(name="network", state=ProtectionState.OFF, detail="by --network host")
    elif reason is None:
        detail = "one of its own" if network == Network.PRIVATE else "none but a loopback"
        yield Protection(name="network", state=on, detail=detail)
    elif has_filter and network == Network.NONE:
        detail = "sockets other than AF_UNIX are refused, the loopback too"
        yield Protection(name="network", state=on, detail=detail)
    else:
        yield Protection(name="network", state=unavailable, detail=reason)


def _warnings(
    writable: tuple[str, ...], protections: tuple[Protection, ...]
) -> Iterator[RunWarning]:
    for each in protections:
        if each.state is ProtectionState.UNAVAILABLE:
            yield RunWarning(
                code="not_protected",
                text=f"the run was not hardened in all: {each.name} is unavailable: {each.detail}",
                hint="--strict refuses to run without it",
            )
    home = os.path.realpath(os.path.expanduser("~"))  # noqa: PTH111 - no exception without one
    if any(home == path or home.startswith(f"{path}/") for path in writable):
        yield RunWarning(
            code="home_writable",
            text=f"the program can write to all of your home directory {home}",
            hint="start it in a directory of its own: `cd DIR` first, or `run --workdir DIR`",
        )


def _warn_of_names(spec: RunSpec) -> Iterator[RunWarning]:
    if spec.network == Network.PRIVATE:
        from sandbox.environment.network import warn_of_host_names

        yield from warn_of_host_names(Network.PRIVATE)


def _warn_of_hidden(program: Program) -> Iterator[RunWarning]:
    """Yield a warning for arguments that are files of the host, and are not there in the run."""
    base = program.directory or "."
    texts = [text.partition("=")[2] if text[:1] == "-" else text for text in program.argv[1:]]
    paths = [text for text in texts if "/" in text and os.path.exists(os.path.join(base, text))]  # noqa: PTH110, PTH118
    if not paths:
        return
    from sandbox.kernel.launch_error import find_emptied, hint_for_emptied

    hidden = [
        (path, place) for path in paths if (place := find_emptied(program.enclosure, base, path))
    ]
    if hidden:
        path, place = hidden[0]
        more = f" (and {len(hidden) - 1} more arguments)" if len(hidden) > 1 else ""
        yield RunWarning(
            code="not_shown",
            text=f"the program did not see your {path}{more}: a hardened run has a {place} of its "
            "own, which goes with it",
            hint=hint_for_emptied(program.enclosure, base, path),
        )
