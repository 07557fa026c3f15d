"""DOCK_ARGS: each of docker's flags to what it means here, or an error that names it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sandbox.environment.port_flags import parse_publish
from sandbox.environment.root_flags import (
    parse_add_host,
    parse_hostname,
    parse_mount,
    parse_network,
    parse_tmpfs,
    parse_volume,
)
from sandbox.environment.security_flags import (
    parse_capability,
    parse_device,
    parse_device_rule,
    parse_gpus,
    parse_ipc,
    parse_pid,
    parse_security_opts,
)
from sandbox.errors import SpecError
from sandbox.records.enclosure import Mount
from sandbox.records.security import Security
from sandbox.spec import DeviceRate, RateKind, Ulimit, parse_environment, parse_signal
from sandbox.units import (
    UNLIMITED,
    parse_cpu_list,
    parse_cpus,
    parse_duration,
    parse_size,
    parse_size_or_unlimited,
)

_SHORT = {
    "-c": "--cpu-shares",
    "-e": "--env",
    "-m": "--memory",
    "-p": "--publish",
    "-u": "--user",
    "-v": "--volume",
    "-w": "--workdir",
}
_IMAGE_HINT = "without an image the script sees the host's own files: name the host's path in it"

# What is so already: there is no terminal, and nothing is left of a run.
_NO_MEANING = frozenset({"--rm", "-i", "-t", "-it", "-ti", "--interactive", "--tty"})
_HOSTS = frozenset({"--network", "--net"})
_PUBLISH = "--publish"
_MOUNTS: dict[str, Callable[[str], Mount]] = {
    "--volume": parse_volume,
    "--mount": parse_mount,
    "--tmpfs": parse_tmpfs,
}
_SWITCHES = {"--read-only": "read_only", "--init": "has_init"}
_PRIVILEGED = "--privileged"
_SECURITY_LISTS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "--cap-add": ("cap_add", parse_capability),
    "--cap-drop": ("cap_drop", parse_capability),
    "--device": ("devices", parse_device),
    "--device-cgroup-rule": ("device_rules", parse_device_rule),
}
_SECURITY: dict[str, tuple[str, Callable[[str], Any]]] = {
    "--gpus": ("gpus", parse_gpus),
    "--ipc": ("ipc", parse_ipc),
    "--pid": ("pid", parse_pid),
}
_SECURITY_OPT = "--security-opt"
_ADD_HOST = "--add-host"
_CFS = frozenset({"--cpu-quota", "--cpu-period"})
_RATES = {f"--device-{kind.value.replace('_', '-')}": kind for kind in RateKind}
_ROOT: dict[str, tuple[str, Callable[[str], Any]]] = {
    "--entrypoint": ("entrypoint", str),
    "--hostname": ("hostname", parse_hostname),
    "--shm-size": ("shm_bytes", parse_size),
    "--platform": ("platform", str),
}


def _pids(text: str) -> int:
    number = int(text)
    return UNLIMITED if number in {0, -1} else number


_LIMITS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "--cpus": ("cpus", parse_cpus),
    "--cpuset-cpus": ("cpuset_cpus", parse_cpu_list),
    "--cpu-shares": ("cpu_shares", int),
    "--memory": ("memory_bytes", parse_size_or_unlimited),
    "--memory-swap": ("memory_swap_bytes", parse_size_or_unlimited),
    "--memory-reservation": ("memory_reservation_bytes", parse_size),
    "--pids-limit": ("pids", _pids),
    "--blkio-weight": ("blkio_weight", int),
}
_FIELDS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "--user": ("user", str),
    "--workdir": ("workdir", str),
    "--stop-signal": ("stop_signal", parse_signal),
    "--stop-timeout": ("stop_timeout_ns", parse_duration),
}


class DockerArgs:
    """What the flags ask for."""

    def __init__(self, *, in_image: bool = False) -> None:
        """Begin with nothing; some flags have a meaning in an image only."""
        self._in_image = in_image
        self.root: dict[str, Any] = {}
        """What they ask for of the root file system, by the fields of `RootSpec`."""
        self._mounts: list[Mount] = []
        self._add_hosts: list[tuple[str, str]] = []
        self.limits: dict[str, Any] = {}
        self.fields: dict[str, Any] = {}
        self.environment: dict[str, str] = {}
        self._ulimits: list[Ulimit] = []
        self._rates: list[DeviceRate] = []
        self._security: dict[str, Any] = {}
        self._cfs: dict[str, int] = {}

    def take(self, words: Sequence[str]) -> None:
        """Take the words of DOCK_ARGS.

        Raises:
            SpecError: a flag is unknown, has no value, or cannot be had without an image.
        """
        rest = list(words)
        while rest:
            word = rest.pop(0)
            if word in _NO_MEANING:
                continue
            if word in _SWITCHES and self._in_image:
                self.root[_SWITCHES[word]] = True
                continue
            if word == _PRIVILEGED and self._in_image:
                self._security["privileged"] = True
                continue
            flag, value = _split(word, rest)
            try:
                self._take_one(flag, value)
            except ValueError:
                raise SpecError(
                    f"{flag}: `{value}` is not a number", hint="write a whole number"
                ) from None
        if self._in_image:
            self.root |= {"mounts": tuple(self._mounts), "add_hosts": tuple(self._add_hosts)}
            self.root["security"] = Security(**self._security)
        if self._rates:
            self.limits["device_rates"] = tuple(self._rates)
        if self._ulimits:
            self.limits["ulimits"] = tuple(self._ulimits)
        if "--cpu-quota" in self._cfs:
            period = self._cfs.get("--cpu-period", 100_000)
            self.limits["cpus"] = self._cfs["--cpu-quota"] / period

    def _take_one(self, flag: str, value: str) -> None:
        if flag in _LIMITS:
            name, parse = _LIMITS[flag]
            self.limits[name] = parse(value)
        elif flag in _FIELDS:
            name, parse = _FIELDS[flag]
            self.fields[name] = parse(value)
        elif flag in _REPEATED:
            self._add(flag, value)
        elif flag in _CFS:
            self._cfs[flag] = int(value)
            if self._cfs[flag] <= 0:
                raise SpecError(f"{flag} {value}: it is above 0", hint="they are microseconds")
        elif self._in_image:
            self._take_of_image(flag, value)
        elif flag in {"--volume", "--mount"}:
            _check_volume(flag, value)
        elif flag in _HOSTS:
            self.fields["network"] = parse_network(value).value
        else:
            raise SpecError(
                f"the flag {flag} has no meaning for a script that runs without an image",
                hint=f"known are {', '.join(sorted(_ANYWHERE))}",
            )

    def _add(self, flag: str, value: str) -> None:
        """Take one of the flags that may be given again and again."""
        if flag == "--ulimit":
            self._ulimits.append(Ulimit.parse(value))
        elif flag in _RATES:
            self._rates.append(DeviceRate.parse(_RATES[flag], value))
        elif flag == _PUBLISH:
            self.fields["ports"] = (*self.fields.get("ports", ()), *parse_publish(value))
        else:
            self.environment |= parse_environment((value,))[0]

    def _take_of_image(self, flag: str, value: str) -> None:
        if flag in _MOUNTS:
            self._mounts.append(_MOUNTS[flag](value))
        elif flag in _ROOT:
            name, parse = _ROOT[flag]
            self.root[name] = parse(value)
        elif flag in _SECURITY_LISTS:
            name, parse = _SECURITY_LISTS[flag]
            self._security[name] = (*self._security.get(name, ()), parse(value))
        elif flag in _SECURITY:
            name, parse = _SECURITY[flag]
            self._security[name] = parse(value)
        elif flag == _SECURITY_OPT:
            self._security |= parse_security_opts((value,))
        elif flag == _ADD_HOST:
            self._add_hosts.append(parse_add_host(value))
        elif flag in _HOSTS:
            self.root["network"] = parse_network(value)
        else:
            known = sorted(_ANYWHERE | _IN_IMAGE | _IMAGE_SWITCHES)
            raise SpecError(
                f"the flag {flag} has no meaning here", hint=f"known are {', '.join(known)}"
            )


def _split(word: str, rest: list[str]) -> tuple[str, str]:
    """Return flag and value of `--a=b`, `--a b`, `-m b` and `-mb`."""
    if word.startswith("--"):
        flag, equals, value = word.partition("=")
        if equals or flag not in _ANYWHERE | _IN_IMAGE:
            return flag, value
    elif word[:2] in _SHORT:
        flag = _SHORT[word[:2]]
        if len(word) > 2:  # noqa: PLR2004 - the dash and the letter
            return flag, word[2:].removeprefix("=")
    else:
        return word, ""
    if not rest:
        raise SpecError(f"the flag {flag} has no value", hint=f"write `{flag}=VALUE`")
    return flag, rest.pop(0)


_REPEATED = frozenset({"--ulimit", "--env", _PUBLISH, *_RATES})
_ANYWHERE = frozenset({*_LIMITS, *_FIELDS, *_HOSTS, *_REPEATED, *_CFS})
_OF_SECURITY = frozenset({*_SECURITY_LISTS, *_SECURITY, _SECURITY_OPT})
_IN_IMAGE = frozenset({*_MOUNTS, *_ROOT, *_OF_SECURITY, _ADD_HOST})
_IMAGE_SWITCHES = frozenset({*_SWITCHES, _PRIVILEGED})
"""These take no value."""


def _check_volume(flag: str, value: str) -> None:
    """Let pass what is so on the host: a directory under its own name."""
    if flag == "--mount":
        parts: Mapping[str, str] = dict(part.partition("=")[::2] for part in value.split(","))
        source = parts.get("source", parts.get("src", ""))
        target = parts.get("target", parts.get("dst", parts.get("destination", "")))
    else:
        source, _, rest = value.partition(":")
        target = rest.split(":")[0]
    if not source or source.rstrip("/") != target.rstrip("/"):
        raise SpecError(
            f"{flag} {value}: {target or 'a volume'} cannot be another directory without an image",
            hint=_IMAGE_HINT,
        )
