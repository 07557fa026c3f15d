"""The program as it will run in a root file system of its own: what is mounted, and who it is.

Of the host's environment nothing is passed on, as in a container: a PATH or a HOME of the host
means nothing inside.
"""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from sandbox.environment.accounts import Account, find_account
from sandbox.environment.host import (
    RUN_ID_VARIABLE,
    Prepared,
    find_thread_hints,
    prepare_ulimits,
)
from sandbox.environment.network import (
    find_own_network,
    find_resolv_conf,
    read_host_file,
    warn_of_names,
)
from sandbox.environment.security import resolve_security
from sandbox.errors import HostError, SpecError
from sandbox.kernel.hierarchies import find_hierarchies
from sandbox.kernel.in_root import read_file_in
from sandbox.kernel.namespaces import find_ids
from sandbox.kernel.roots import Roots
from sandbox.records.enclosure import (
    CgroupMount,
    Enclosure,
    IdMap,
    Mount,
    MountKind,
    Network,
    RootSpec,
)
from sandbox.records.host import Host, Mode
from sandbox.records.light import dataclass, replace
from sandbox.records.program import MARKS_VARIABLE, Program, mark_name
from sandbox.records.result import RunWarning
from sandbox.records.security import Sharing
from sandbox.spec import RunSpec
from sandbox.units import UNLIMITED

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
IMAGES = "images"
_LARGEST_FILE_BYTES = 1 << 20
_HOSTS = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
FILE_PLACES = {
    "hosts": "/etc/hosts",
    "hostname": "/etc/hostname",
    "resolv.conf": "/etc/resolv.conf",
}


@dataclass(frozen=True, kw_only=True)
class Root:
    """A root file system and what it says about how it wants to be run."""

    layers: tuple[str, ...]
    """Bottom first."""
    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    workdir: str = "/"
    user: str = ""
    userxattr: bool = False
    volumes: tuple[str, ...] = ()
    """Places that can be written to even if the rest cannot."""
    stop_signal: int | None = None
    images: Path | None = None
    """The store that the layers are in."""
    held_fd: int | None = None
    """Keeps the layers on the disk as long as it is open."""


def prepare_in_root(
    spec: RunSpec, root_spec: RootSpec, host: Host, run_id: str, home: Path
) -> Prepared:
    """Resolve all names and return what can be executed once the root is made.

    Args:
        spec: What was asked for.
        root_spec: The part of it that is about the root file system.
        host: Where it will run.
        run_id: The run's.
        home: Where images are, among other things of ours.

    Raises:
        ImageError: there is no such image.
        SpecError: what was asked for does not go together.
        HostError: this host cannot make such a root, or there is none at the path.
        LaunchError: the root file system knows no such user (126).
    """
    roots = Roots()
    if root_spec.image is not None:
        from sandbox.environment.image_root import find_image_root

        root = find_image_root(spec, root_spec, home / IMAGES)
    else:
        root = _find_root(spec, root_spec)
    account = _find_account(spec.user or root.user, root.layers)
    ids = _find_ids(account, roots)
    layers, beyond = root.layers, tuple[RunWarning, ...]()
    if root.images is not None and ids is not None and not ids.is_single:
        from sandbox.environment.image_root import lend_layers

        layers, beyond = lend_layers(root.images, root.layers, ids)
    hints = find_thread_hints(spec, host, inherits=False)
    rlimits, reports = prepare_ulimits(spec.limits.ulimits)
    security = root_spec.security
    resolved = resolve_security(
        security, roots, is_plain=ids is not None, has_group=host.mode is not Mode.NONE
    )
    hostname = root_spec.hostname or run_id
    enclosure = Enclosure(
        layers=layers,
        files=tuple((place, name) for name, place in FILE_PLACES.items()),
        mounts=in_order((*root_spec.mounts, *resolved.mounts), root.volumes),
        cgroups=tuple(_find_cgroups(host.mode)),
        ids=ids,
        hostname=hostname,
        network=root_spec.network,
        read_only=root_spec.read_only,
        userxattr=root.userxattr or ids is not None,
        writes_to=root_spec.writes_to,
        shm_bytes=_shm_bytes(spec, root_spec),
        workdir=_absolute(spec.workdir or root.workdir, "working directory"),
        # With a first process all others end; so one of ours has to wait for them.
        has_init=_has_init(spec, root_spec),
        waits_for_all=spec.wait_all,
        confinement=resolved.confinement,
        devices=resolved.devices,
        device_rules=resolved.device_rules,
        is_open=security.privileged,
        ipc=security.ipc,
        pid=security.pid,
    )
    own = {"HOSTNAME": hostname, "HOME": account.home}
    if resolved.paths:
        root = replace(root, environment=_prepend(resolved.paths, dict(root.environment)))
    program = Program(
        argv=root.command,
        environment=_environment(spec, root, own, run_id=run_id, hints=hints),
        directory=enclosure.workdir,
        user=_user(account, ids),
        rlimits=rlimits,
        enclosure=enclosure,
        own_network=find_own_network(root_spec.network, run_id, ids, ports=spec.ports),
    )
    root_files = _files(hostname, root_spec)
    return Prepared(
        program=program,
        thread_hints=hints,
        reports=reports,
        warnings=(
            *_warnings(ids),
            *beyond,
            *resolved.warnings,
            *warn_of_names(root_spec.network, root_files["resolv.conf"]),
        ),
        root_files=root_files,
        protections=resolved.protections,
        spec=_completed(spec, root),
        images=root.images,
        copies=_why_copied(root_spec),
        held=() if root.held_fd is None else (root.held_fd,),
    )


def _why_copied(root_spec: RootSpec) -> str | None:
    """Return why nothing is stacked, if that was asked for.

    Raises:
        SpecError: the setting is none of its values, or what is written is wanted for itself.
    """
    wanted = os.environ.get("SANDBOX_OVERLAY") or "auto"
    if wanted not in {"auto", "off"}:
        raise SpecError(f"SANDBOX_OVERLAY is `{wanted}`", hint="it is `auto` or `off`")
    if wanted == "auto":
        return None
    if root_spec.writes_to is not None:
        raise SpecError(
            "SANDBOX_OVERLAY=off: a build's changes are told by overlays only", hint="unset it"
        )
    return "SANDBOX_OVERLAY=off"


def _completed(spec: RunSpec, root: Root) -> RunSpec:
    stop_signal = root.stop_signal if spec.stop_signal == signal.SIGTERM else None
    return replace(spec, command=root.command, stop_signal=stop_signal or spec.stop_signal)


def _find_root(spec: RunSpec, root_spec: RootSpec) -> Root:
    if root_spec.layers:
        return Root(layers=root_spec.layers, command=spec.command, userxattr=root_spec.userxattr)
    path = Path(root_spec.rootfs or "").absolute()
    if not root_spec.rootfs or not path.is_dir():
        raise HostError(
            f"there is no root file system at {path}: {'not a' if path.exists() else 'no such'} "
            "directory",
            hint="--rootfs takes a directory that has `bin`, `lib`, `usr` and so on",
        )
    entrypoint = filter(None, (root_spec.entrypoint,))
    return Root(layers=(str(path),), command=(*entrypoint, *spec.command))


# Who


def _find_account(text: str, layers: tuple[str, ...]) -> Account:
    contents = (find_file(layers, name) for name in ("/etc/passwd", "/etc/group"))
    passwd, group = (data.decode("utf-8", "surrogateescape") for data in contents)
    return find_account(text, passwd, group)


def find_file(layers: Iterable[str], path: str) -> bytes:
    """Return what the topmost layer with that file has in it; nothing if there is none.

    Raises:
        HostError: a layer cannot be read.
    """
    for layer in reversed([*layers]):
        try:
            fd = os.open(layer, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                data = read_file_in(fd, path.encode(), _LARGEST_FILE_BYTES)
            finally:
                os.close(fd)
        except OSError as exc:
            raise HostError(f"cannot read {path} in {layer}: {exc.strerror}") from exc
        if data is not None or _is_hidden(layer, path):
            return data or b""
    return b""


def _is_hidden(layer: str, path: str) -> bool:
    """Return whether a layer says that the file of those below it is gone."""
    try:
        found = os.lstat(layer + path)
    except OSError:
        return False
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def _find_ids(account: Account, roots: Roots) -> IdMap | None:
    """Return the map of a user namespace; root needs none."""
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0:
        return None
    ids = find_ids(uid, gid, as_user=(account.uid, account.gid), roots=roots)
    if not ids.holds(account.uid, account.gid):
        raise HostError(
            f"user {account.uid}:{account.gid} is beyond the ids that you may use",
            hint="a larger range in /etc/subuid and /etc/subgid makes room",
        )
    return ids


def _user(account: Account, ids: IdMap | None) -> tuple[int, int, tuple[int, ...]] | None:
    if ids is not None and ids.is_single:
        return None  # there is nobody else to become
    # With the group itself, as docker: no set-group-id program can make one drop it then.
    return account.uid, account.gid, tuple(dict.fromkeys((account.gid, *account.groups)))


def _warnings(ids: IdMap | None) -> Iterator[RunWarning]:
    if ids is not None and ids.is_single:
        yield RunWarning(
            code="single_user",
            text="there is one user only inside: changing owners or users fails",
            hint="ranges in /etc/subuid and /etc/subgid, and `newuidmap`, give more",
        )


# What it finds


def _environment(
    spec: RunSpec,
    root: Root,
    own: dict[str, str],
    *,
    run_id: str,
    hints: dict[str, str],
) -> dict[bytes, bytes]:
    values = {"PATH": _PATH, **own, **dict(root.environment)}
    for name in spec.environment_unset:
        values.pop(name, None)
    if "TERM" in os.environ and os.isatty(0):
        values.setdefault("TERM", os.environ["TERM"])
    ours = {**hints, RUN_ID_VARIABLE: run_id}
    ours[MARKS_VARIABLE] = f"@{mark_name(run_id)}"
    merged = {**values, **ours, **spec.environment}
    return {os.fsencode(name): os.fsencode(value) for name, value in merged.items()}


def _has_init(spec: RunSpec, root_spec: RootSpec) -> bool:
    """Return whether a process of ours comes before the program.

    Raises:
        SpecError: it could not be the first one.
    """
    if root_spec.security.pid is not Sharing.HOST:
        return root_spec.has_init or spec.wait_all
    if root_spec.has_init:
        raise SpecError(
            "--init reaps as the first process: the host's with --pid host", hint="leave one out"
        )
    return False


def _prepend(
    paths: tuple[tuple[str, str], ...], values: dict[str, str]
) -> tuple[tuple[str, str], ...]:
    """Return variables with what is found first in the lists of some of them."""
    usual = {"PATH": _PATH}
    for name, path in paths:
        values[name] = ":".join(filter(None, (path, values.get(name, usual.get(name)))))
    return tuple(values.items())


def _shm_bytes(spec: RunSpec, root_spec: RootSpec) -> int | None:
    if root_spec.shm_bytes is not None:
        return root_spec.shm_bytes
    limit = spec.limits.memory_bytes
    return None if limit == UNLIMITED else limit


def in_order(mounts: tuple[Mount, ...], volumes: tuple[str, ...]) -> tuple[Mount, ...]:
    """Return the mounts and the image's volumes, with what is above before what is below it.

    Raises:
        SpecError: two are at one place.
        HostError: there is nothing to bind.
    """
    seen: set[str] = set()
    for mount in mounts:
        if mount.target in seen:
            raise SpecError(f"two mounts are at {mount.target}", hint="leave one of them out")
        seen.add(mount.target)
    found = [_with_source(mount) for mount in mounts]
    found += [Mount(kind=MountKind.VOLUME, target=at) for at in volumes if at not in seen]
    return tuple(sorted(found, key=lambda mount: mount.target.count("/")))


def _with_source(mount: Mount) -> Mount:
    if mount.kind is not MountKind.BIND:
        return mount
    source = Path(mount.source or "").absolute()
    if not source.exists():
        raise HostError(
            f"there is nothing to mount at {source}",
            hint="make it first: a mistyped path would leave a directory behind",
        )
    return replace(mount, source=str(source))


def _absolute(path: str, what: str) -> str:
    if not path.startswith("/"):
        raise SpecError(
            f"the {what} `{path}` is not absolute", hint="inside there is nothing it could start at"
        )
    return path


def _find_cgroups(mode: Mode) -> Iterator[CgroupMount]:
    """Yield the hierarchies that the program may look at: its own group is the top of each."""
    if mode is not Mode.HYBRID:
        yield CgroupMount(name="", kind="cgroup2")
        return
    hierarchies = find_hierarchies(Roots())
    seen: dict[Path, list[str]] = {}
    for name, hierarchy in hierarchies.v1.items():
        seen.setdefault(hierarchy.mount, []).append(name)
    for mount, names in seen.items():
        yield CgroupMount(name=mount.name, kind="cgroup", options=tuple(names))
    if hierarchies.v2 is not None:
        yield CgroupMount(name=hierarchies.v2.mount.name, kind="cgroup2")


def _files(hostname: str, root_spec: RootSpec) -> dict[str, str]:
    hosts = _HOSTS
    if root_spec.network is Network.HOST:
        hosts = read_host_file("/etc/hosts") or _HOSTS
    if not hosts.endswith("\n"):
        hosts += "\n"
    extra = [(hostname, "127.0.1.1"), *root_spec.add_hosts]
    hosts += "".join(f"{address}\t{name}\n" for name, address in extra)
    return {
        "hosts": hosts,
        "hostname": f"{hostname}\n",
        "resolv.conf": find_resolv_conf(root_spec.network),
    }
