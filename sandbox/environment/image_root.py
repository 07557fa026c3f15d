"""An image of this machine as a root file system: its layers, and what it says about its run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox.environment.rootfs import Root
from sandbox.errors import HostError, SpecError, StoreError
from sandbox.image.config import ImageConfig
from sandbox.image.store import ImageStore
from sandbox.records.enclosure import IdMap, RootSpec
from sandbox.records.result import RunWarning
from sandbox.spec import RunSpec, parse_signal

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}
"""The kernel's words and those of images."""


def find_image_root(spec: RunSpec, root_spec: RootSpec, images: Path) -> Root:
    """Return the root file system of an image, held until its descriptor is closed.

    Raises:
        ImageError: there is no such image on this machine.
        HostError: it is for other machines.
        SpecError: neither the user nor the image says what to execute.
        StoreError: the place of images cannot be used.
    """
    store = ImageStore(images)
    with _told_of(images.parent):
        image = store.find(root_spec.image or "")
    config = image.config
    _check_platform(config, root_spec)
    command = _command(config, spec, root_spec)
    signal_number = None if config.stop_signal is None else parse_signal(config.stop_signal)
    with _told_of(images.parent):
        held_fd = store.hold(image)
    return Root(
        layers=tuple(map(str, image.layers)),
        command=command,
        environment=config.env,
        workdir=os.path.normpath("/" + config.working_dir.lstrip("/")),
        user=config.user,
        userxattr=image.userxattr,
        volumes=tuple(at for at in map(_place, config.volumes) if at is not None),
        stop_signal=signal_number,
        held_fd=held_fd,
        images=images,
    )


@contextmanager
def _told_of(home: Path) -> Iterator[None]:
    """Say of a home that is another user's, or that cannot be written, what to do."""
    try:
        yield
    except OSError as exc:
        raise StoreError(
            f"cannot use {home}: {exc.strerror}", hint="set SANDBOX_HOME to a directory of your own"
        ) from exc


def _command(config: ImageConfig, spec: RunSpec, root_spec: RootSpec) -> tuple[str, ...]:
    """Return what is executed, as docker puts it together."""
    if root_spec.entrypoint is not None:  # the image's command was meant for its own
        command = (*filter(None, (root_spec.entrypoint,)), *spec.command)
    else:
        command = (*config.entrypoint, *(spec.command or config.cmd))
    if not command or not command[0]:
        raise SpecError(
            f"image `{root_spec.image}` does not say what to execute",
            hint="write a command after `--`",
        )
    return command


def _check_platform(config: ImageConfig, root_spec: RootSpec) -> None:
    machine = os.uname().machine
    ours = _ARCHITECTURES.get(machine, machine)
    wanted_os, _, rest = (root_spec.platform or f"linux/{ours}").partition("/")
    wanted = rest.partition("/")[0]
    if not wanted_os or not wanted:
        raise SpecError(
            f"`{root_spec.platform}` is not a platform", hint="write it as in `linux/amd64`"
        )
    found_os, found = config.os or "linux", config.architecture or wanted
    if (found_os, found) != (wanted_os, wanted):
        raise HostError(
            f"image `{root_spec.image}` is for {found_os}/{found}, not {wanted_os}/{wanted}",
            hint=f"`sandbox image pull --platform {wanted_os}/{wanted}` fetches the other, "
            "if there is one",
        )


def _place(path: str) -> str | None:
    """Return where a volume of the image is; None for what cannot be a place of its own."""
    place = os.path.normpath("/" + path.lstrip("/"))
    return None if place == "/" or place.startswith(("/proc", "/sys", "/dev")) else place


def lend_layers(
    images: Path, layers: tuple[str, ...], ids: IdMap
) -> tuple[tuple[str, ...], tuple[RunWarning, ...]]:
    """Return layers whose files belong to their owners, and a warning of those that cannot.

    Raises:
        ImageError: the user's ids cannot be used.
        OSError: the store cannot be written.
    """
    from sandbox.image.lend import lend

    lent = lend(ImageStore(images), map(Path, layers), ids)
    if not lent.beyond:
        return tuple(map(str, lent.trees)), ()
    path, uid, gid = lent.beyond[0]
    warning = RunWarning(
        code="owners_beyond",
        text=f"{len(lent.beyond)} files of the image are root's inside, such as /{path}, which "
        f"is {uid}:{gid}'s: these ids are beyond yours",
        hint="a larger range in /etc/subuid and /etc/subgid makes room",
    )
    return tuple(map(str, lent.trees)), (warning,)
