"""`sandbox image`: images on this machine: pull, build, load, save, list, inspect, rm, prune."""

# Without `from __future__ import annotations`, as in `run`: typer reads the flags' types.

import json
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from sandbox.cli.console import (
    CommandExit,
    Interrupted,
    has_color,
    has_unicode,
    print_error,
    say,
    width_of,
)
from sandbox.cli.image_build import Insecure, build
from sandbox.errors import ImageError

if TYPE_CHECKING:
    from sandbox.image.collect import Removed
    from sandbox.image.manifest import Platform
    from sandbox.image.store import ImageStore, StoredImage
    from sandbox.image.unpack import Bounds

app = typer.Typer(
    help="Fetch, build, list and remove images to run in.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.command("build")(build)

_NAMES = "Names such as `debian:12`, ids or their beginnings."
_PLATFORM = typer.Option(
    "--platform", metavar="OS/ARCH", help="Such as `linux/arm64`, instead of this machine's."
)
_MAX_SIZE = typer.Option(
    "--max-size", metavar="SIZE", help="Most that a layer may unpack to, however small it is."
)
_PIPE = Path("-")
_QUIET = typer.Option("--quiet", "-q", help="Print only ids.")


@app.command("pull")
def pull(
    name: Annotated[
        str, typer.Argument(help="Such as `debian:12` or `ghcr.io/owner/name@sha256:…`.")
    ],
    platform: Annotated[str | None, _PLATFORM] = None,
    insecure: Insecure = None,
    max_size: Annotated[str | None, _MAX_SIZE] = None,
    quiet: Annotated[bool, _QUIET] = False,
) -> None:
    """Fetch an image from a registry; what is here already is not fetched again.

    Logins of docker and podman are used, with their credential helpers.
    """
    from sandbox.cli.progress import ProgressBar
    from sandbox.image import pull as pulling
    from sandbox.image.reference import parse_reference

    store = open_store()
    options = pulling.PullOptions(
        platform=_platform(platform),
        insecure=frozenset(insecure or ()),
        bounds=_bounds(max_size),
    )
    try:
        with ProgressBar(parse_reference(name).short(), quiet=quiet) as progress:
            image_id = pulling.pull(store, name, options, progress)
    except Interrupted as stop:
        stop.hint = f"pull {name} again: it goes on with what was fetched"
        raise
    report_added(store.read(image_id), store, quiet=quiet)


@app.command("load")
def load(
    path: Annotated[
        Path,
        typer.Argument(
            help="What `docker save` writes, an OCI archive or layout, a tree; `-` is the input."
        ),
    ],
    tag: Annotated[
        str | None, typer.Option("--tag", "-t", metavar="NAME", help="What to call the image.")
    ] = None,
    platform: Annotated[str | None, _PLATFORM] = None,
    max_size: Annotated[str | None, _MAX_SIZE] = None,
    quiet: Annotated[bool, _QUIET] = False,
) -> None:
    """Add the images of a file or a directory: docker's, OCI's, or a plain tree of files."""
    from sandbox.image import load as loading

    store = open_store()
    with ExitStack() as stack:
        if path == _PIPE:
            _refuse_terminal(sys.stdin, "docker save NAME | sandbox image load -")
            path = stack.enter_context(loading.spooled(store, sys.stdin.buffer))
        ids = loading.load(
            store, path, name=tag, platform=_platform(platform), bounds=_bounds(max_size)
        )
    for image_id in ids:
        report_added(store.read(image_id), store, quiet=quiet)


@app.command("save")
def save(
    images: Annotated[list[str], typer.Argument(metavar="IMAGE...", help=_NAMES)],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The archive to write; `-` is the output."
        ),
    ],
) -> None:
    """Write images into one archive, for docker, podman or another machine."""
    from sandbox.image import save as saving

    if output == _PIPE:
        _refuse_terminal(sys.stdout, "sandbox image save NAME -o - | ssh HOST sandbox image load -")
        saving.save_to(open_store(), images, sys.stdout.buffer)
        return
    saving.save(open_store(), images, output)
    say(f"wrote {output}")


@app.command("ls")
def list_images(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    quiet: Annotated[bool, _QUIET] = False,
) -> None:
    """List the images on this machine, the last added first."""
    from sandbox.image.reference import parse_reference
    from sandbox.report.images import ImageRow, render_images

    images = open_store().list_images()
    if as_json:
        for image in images:
            typer.echo(json.dumps(_document(image)))
        return
    if quiet:
        for image in images:
            typer.echo(image.id)
        return
    now_ns = time.time_ns()
    rows = [
        ImageRow(
            name=None if name is None else parse_reference(name).short(),
            short_id=image.short_id,
            platform=_platform_text(image),
            size_bytes=image.size_bytes,
            age_ns=now_ns - image.added_utc_ns,
        )
        for image in images
        for name in (image.references or (None,))
    ]
    typer.echo(
        render_images(
            rows,
            width=width_of(sys.stdout),
            color=has_color(sys.stdout),
            unicode=has_unicode(sys.stdout),
        )
    )


@app.command("inspect")
def inspect(
    images: Annotated[list[str], typer.Argument(metavar="IMAGE...", help=_NAMES)],
) -> None:
    """Show all that is known of images, as JSON."""
    store = open_store()
    documents = [_document(store.find(image)) for image in images]
    typer.echo(json.dumps(documents, indent=2))


@app.command("rm")
def remove(
    images: Annotated[list[str], typer.Argument(metavar="IMAGE...", help=_NAMES)],
    force: Annotated[
        bool, typer.Option("--force", "-f", help="By its id, also an image of several names.")
    ] = False,
) -> None:
    """Remove names, and images with their last one; one that is in use is refused."""
    from sandbox.image import collect

    store = open_store()
    failed = False
    for image in images:
        try:
            _report_removed(collect.remove(store, image, force=force))
        except ImageError as error:
            print_error(error)
            failed = True
    if failed:
        raise CommandExit(1)


@app.command("prune")
def prune(
    every: Annotated[
        bool, typer.Option("--all", "-a", help="Also images with names; never one in use.")
    ] = False,
) -> None:
    """Remove images without a name, and whatever no image needs."""
    from sandbox.image import collect
    from sandbox.units import format_size

    removed = collect.prune(open_store(), every=every)
    _report_removed(removed)
    if removed.freed_bytes is not None:
        say(f"freed {format_size(removed.freed_bytes)}")


def _refuse_terminal(stream: TextIO, example: str) -> None:
    if stream.isatty():
        raise ImageError("an archive is nothing for a terminal", hint=f"`{example}`")


def open_store() -> "ImageStore":
    """Return the store of images; the home is made, and has to be the user's own."""
    import os

    from sandbox.errors import StoreError
    from sandbox.image.store import ImageStore
    from sandbox.store.home import find_home, open_home

    home = find_home()
    try:
        os.close(open_home(home, make=True))
    except OSError as exc:
        raise StoreError(
            f"cannot use {home}: {exc.strerror}", hint="set SANDBOX_HOME to a directory of your own"
        ) from exc
    return ImageStore(home / "images")


def report_added(image: "StoredImage", store: "ImageStore", *, quiet: bool) -> None:
    """Print an image's id on stdout, and what people want to know on stderr."""
    from sandbox.image.reference import parse_reference
    from sandbox.units import format_size

    typer.echo(image.id)
    if quiet:
        return
    record = store.read_record(image.id)
    names = ", ".join(parse_reference(name).short() for name in image.references)
    count, size = len(image.blobs), format_size(image.size_bytes)
    say(f"{names or image.short_id}: {count} layer{'s' * (count != 1)}, {size}")
    if record["devices"]:
        say(f"{record['devices']} device nodes were left out: a run has its own /dev")
    if record["xattrs"]:
        say(f"{record['xattrs']} extended attributes were left out")
    _warn_of_platform(image)


def _warn_of_platform(image: "StoredImage") -> None:
    from sandbox.image.manifest import host_platform

    host, config = host_platform(), image.config
    if config.architecture not in {"", host.architecture} or config.os not in {"", host.os}:
        say(f"warning: the image is for {_platform_text(image)}, this machine is {host}")


def _report_removed(removed: "Removed") -> None:
    from sandbox.image.reference import parse_reference

    for name in removed.untagged:
        typer.echo(f"untagged {parse_reference(name).short()}")
    for image_id in removed.deleted:
        typer.echo(f"deleted {image_id}")
    if removed.freed_bytes is None:
        say("an image is being added: `sandbox image prune` frees the space later")


def _platform(text: str | None) -> "Platform | None":
    from sandbox.image.manifest import parse_platform

    return None if text is None else parse_platform(text)


def _bounds(max_size: str | None) -> "Bounds":
    from sandbox.image.unpack import Bounds
    from sandbox.units import parse_size

    if max_size is None:
        return Bounds()
    size = parse_size(max_size)
    return Bounds(size_bytes=size, ratio=max(size, 1))


def _platform_text(image: "StoredImage") -> str:
    config = image.config
    return "/".join(filter(None, (config.os, config.architecture, config.variant)))


def _document(image: "StoredImage") -> dict[str, Any]:
    config = dict(image.config.__dict__)
    diff_ids = config.pop("diff_ids")
    for name in ("env", "labels"):
        config[name] = dict(config[name])
    return {
        "id": image.id,
        "references": image.references,
        "manifest": image.manifest_digest,
        "size_bytes": image.size_bytes,
        "added_utc_ns": image.added_utc_ns,
        **config,
        "layers": [
            {"diff_id": diff_id, "digest": blob.digest, "size_bytes": blob.size_bytes}
            for diff_id, blob in zip(diff_ids, image.blobs, strict=True)
        ],
        "trees": [str(layer) for layer in image.layers],
        "userxattr": image.userxattr,
    }
