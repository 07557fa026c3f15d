"""Everything that the checks judge, gathered once; what is not asked for is not gathered twice."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path

from sandbox.kernel.energy import Zones, find_zones
from sandbox.kernel.features import Calls, Features, probe_calls, read_features
from sandbox.kernel.hierarchies import Hierarchies, find_hierarchies
from sandbox.kernel.host import read_host
from sandbox.kernel.network_facts import UNKNOWN_NETWORK, NetworkFacts, read_network
from sandbox.kernel.noise import Noise, read_noise
from sandbox.kernel.place import Place, find_place
from sandbox.kernel.roots import Roots
from sandbox.kernel.sessions import Sessions, read_sessions
from sandbox.records.host import Host
from sandbox.records.light import dataclass
from sandbox.store.home import find_home
from sandbox.store.state import HomeState, look_at_home

DISTRIBUTION = "cgroup-sandbox"


@dataclass(frozen=True, kw_only=True)
class Packages:
    """The Python packages that this installation asks for, and those that are there."""

    required: tuple[str, ...]
    """Requirements as the distribution states them: `psutil>=5.9`."""
    versions: Mapping[str, str]
    """What is installed of them, by name."""


NO_PACKAGES = Packages(required=(), versions={})


@dataclass(frozen=True, kw_only=True)
class Facts:
    """One host as one user sees it."""

    place: Place
    host: Host
    hierarchies: Hierarchies
    features: Features
    sessions: Sessions
    noise: Noise
    energy: Zones
    has_shell: bool
    """Whether `/bin/sh` can be executed."""
    store: HomeState
    packages: Packages
    network: NetworkFacts = UNKNOWN_NETWORK

    @property
    def is_root(self) -> bool:
        """Return whether the user is root."""
        return self.sessions.uid == 0


def gather(
    roots: Roots | None = None,
    *,
    home: Path | None = None,
    environ: Mapping[str, str] | None = None,
    calls: Calls | None = None,
    groups: Collection[str] | None = None,
) -> Facts:
    """Return the facts of this host; what is given is taken instead of looked at.

    Packages and the network are dear to look for: only where the checks of all groups, or of
    theirs, are asked for; the network only where the files are this host's own.

    Raises:
        KernelError: a file of the kernel cannot be understood.
    """
    where = roots or Roots()
    variables = os.environ if environ is None else environ
    place = find_place(where)
    host = read_host(where, place)
    return Facts(
        place=place,
        host=host,
        hierarchies=find_hierarchies(where),
        features=read_features(where, place, calls or probe_calls()),
        sessions=read_sessions(where, variables),
        noise=read_noise(where, len(host.cpus_online)),
        energy=find_zones(where),
        has_shell=os.access(where.top / "bin/sh", os.X_OK),
        store=look_at_home(home or find_home(variables)),
        packages=NO_PACKAGES
        if groups is not None and "packages" not in groups
        else read_packages(),
        network=UNKNOWN_NETWORK
        if roots is not None or (groups is not None and "network" not in groups)
        else read_network(),
    )


def read_packages() -> Packages:
    """Return what this installation requires and what is there of it."""
    from importlib import metadata

    try:
        required = tuple(metadata.requires(DISTRIBUTION) or ())
    except metadata.PackageNotFoundError:  # run from a checkout: nothing states what it takes
        return NO_PACKAGES
    versions = {}
    for requirement in required:
        name = requirement_name(requirement)
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return Packages(required=required, versions=versions)


def requirement_name(requirement: str) -> str:
    """Return the package that a requirement asks for: `psutil` of `psutil>=5.9`."""
    for place, character in enumerate(requirement):
        if not (character.isalnum() or character in "._-"):
            return requirement[:place]
    return requirement
