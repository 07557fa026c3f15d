"""What of a root file system can be told before there is an image to run in."""

from __future__ import annotations

import os

from sandbox.environment.rootfs import in_order
from sandbox.environment.security import resolve_security
from sandbox.kernel.roots import Roots
from sandbox.records.enclosure import RootSpec


def check_root(root_spec: RootSpec) -> None:
    """Refuse what is not on this host, whatever image it is that the rest comes from.

    Raises:
        SpecError: two mounts are at one place, or a profile or a GPU cannot be meant.
        HostError: there is nothing to bind, no such device, or not the rights for it.
    """
    resolved = resolve_security(root_spec.security, Roots(), is_plain=os.geteuid() != 0)
    in_order((*root_spec.mounts, *resolved.mounts), ())
