"""What a stage begins with: nothing, an image of this machine, or one of a registry."""

from __future__ import annotations

import json
from contextlib import ExitStack
from os import close

from sandbox.build.options import BuildOptions
from sandbox.build.progress import BuildProgress
from sandbox.build.state import ImageState, key_of
from sandbox.errors import ImageError
from sandbox.image.ingest import Ingest, LayerMeta
from sandbox.image.manifest import Platform, host_platform, parse_platform
from sandbox.image.store import StoredImage


class Bases:
    """The images that the stages of one build begin with, held as long as `undo` is open."""

    def __init__(
        self, ingest: Ingest, options: BuildOptions, progress: BuildProgress, undo: ExitStack
    ) -> None:
        """Find them in the store that `ingest` adds to."""
        self._ingest = ingest
        self._options = options
        self._progress = progress
        self._undo = undo
        self._found: dict[tuple[str, str], StoredImage] = {}

    @property
    def platform(self) -> Platform:
        """Return what the image is for."""
        asked = self._options.platform
        return host_platform() if asked is None else parse_platform(asked)

    def scratch(self, platform: str | None) -> ImageState:
        """Return a stage that begins with nothing."""
        wanted = self._wanted(platform)
        document = {"architecture": wanted.architecture, "os": wanted.os}
        if wanted.variant:
            document["variant"] = wanted.variant
        return ImageState(document, (), (), key_of("scratch", str(wanted)))

    def image(self, name: str, platform: str | None) -> ImageState:
        """Return a stage that begins with an image, which is fetched if it is not here.

        Raises:
            SandboxError: it cannot be fetched, or is for another platform.
        """
        image = self._find(name, platform)
        layers = [self._layer(image, blob.diff_id) for blob in image.blobs]
        data = self._ingest.store.blob_path(image.id).read_bytes()
        return ImageState(json.loads(data), layers, image.layers, key_of("image", image.id))

    def _wanted(self, platform: str | None) -> Platform:
        return self.platform if platform is None else parse_platform(platform)

    def _find(self, name: str, platform: str | None) -> StoredImage:
        wanted = self._wanted(platform)
        known = self._found.get((name, str(wanted)))
        if known is not None:
            return known
        image = None if self._options.pull else self._here(name, wanted)
        if image is None:
            image = self._pull(name, wanted)
        self._undo.callback(close, self._ingest.store.hold(image))
        self._found[name, str(wanted)] = image
        return image

    def _here(self, name: str, wanted: Platform) -> StoredImage | None:
        try:
            image = self._ingest.store.find(name)
        except ImageError:
            return None
        config = image.config
        fits = config.architecture in {"", wanted.architecture} and config.os in {"", wanted.os}
        return image if fits else None

    def _pull(self, name: str, wanted: Platform) -> StoredImage:
        from sandbox.image.pull import PullOptions, pull

        self._progress.say(f"pulling {name} for {wanted}")
        options = PullOptions(
            platform=None if wanted == host_platform() else wanted, insecure=self._options.insecure
        )
        return self._ingest.store.read(pull(self._ingest.store, name, options))

    def _layer(self, image: StoredImage, diff_id: str) -> LayerMeta:
        meta = self._ingest.find_layer(diff_id)
        if meta is None:
            raise ImageError(
                f"image {image.short_id} lacks a layer", hint="pull or load the image again"
            )
        return meta
