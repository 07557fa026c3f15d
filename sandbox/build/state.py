"""What an image under construction says about itself, changed by one instruction after another."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sandbox.image.ingest import LayerMeta

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SHELL = ("/bin/sh", "-c")
_VERSION = 1
"""Of what the keys of the cache are made of: another one forgets all that was built before."""


class ImageState:
    """One stage: the image's configuration so far, its layers, and the key of its next step."""

    def __init__(
        self,
        document: Mapping[str, Any],
        layers: Sequence[LayerMeta],
        trees: Sequence[Path],
        key: str,
    ) -> None:
        """Begin with a base.

        Args:
            document: The base's configuration as its blob has it; of nothing but a platform for
                `scratch`.
            layers: Of the base, bottom first.
            trees: What is stacked to see the base: its layers, and what they need on top.
            key: Names the base.
        """
        self.document: dict[str, Any] = json.loads(json.dumps(dict(document)))
        self.config: dict[str, Any] = dict(self.document.get("config") or {})
        self.history: list[dict[str, Any]] = list(self.document.get("history") or ())
        self.layers = list(layers)
        self.trees = list(trees)
        self.key = key
        self.created: str | None = self.document.get("created")
        self.arguments: dict[str, str] = {}
        """Build arguments that were declared and have a value."""
        self.has_own_cmd = False
        if not any(entry.startswith("PATH=") for entry in self.config.get("Env") or ()):
            self.config["Env"] = [*(self.config.get("Env") or ()), f"PATH={PATH}"]

    def fork(self) -> ImageState:
        """Return a copy for a stage that begins with this one; it knows its arguments, too."""
        document = json.loads(self.write(self.created or ""))
        copy = ImageState(document, self.layers, self.trees, self.key)
        copy.arguments = dict(self.arguments)
        return copy

    # --- reading ----------------------------------------------------------------------------------

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables of the image."""
        pairs = (entry.partition("=") for entry in self.config.get("Env") or ())
        return {name: value for name, _, value in pairs}

    @property
    def workdir(self) -> str:
        """Return the working directory, absolute."""
        return str(self.config.get("WorkingDir") or "/")

    @property
    def user(self) -> str:
        """Return who the steps run as; empty is root."""
        return str(self.config.get("User") or "")

    @property
    def shell(self) -> tuple[str, ...]:
        """Return what the shell form is given to."""
        return tuple(self.config.get("Shell") or SHELL)

    def variables(self) -> dict[str, str]:
        """Return what the variables of an instruction stand for: ENV wins over ARG."""
        return {**self.arguments, **self.environment}

    # --- changing ---------------------------------------------------------------------------------

    def set_variables(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Set variables of the image, each where it stands already."""
        merged = {**self.environment, **dict(pairs)}
        self.config["Env"] = [f"{name}={value}" for name, value in merged.items()]

    def set_labels(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Set labels."""
        self.config["Labels"] = {**(self.config.get("Labels") or {}), **dict(pairs)}

    def add_names(self, field: str, names: Sequence[str]) -> None:
        """Add to what the configuration has as a set: ExposedPorts, Volumes."""
        have = self.config.get(field) or {}
        self.config[field] = {**have, **{name: {} for name in names}}

    def set_command(self, words: Sequence[str]) -> None:
        """Set CMD."""
        self.config["Cmd"] = list(words)
        self.has_own_cmd = True

    def set_entrypoint(self, words: Sequence[str]) -> None:
        """Set ENTRYPOINT, which takes an inherited CMD away: that was meant for another one."""
        self.config["Entrypoint"] = list(words) or None
        if not self.has_own_cmd:
            self.config["Cmd"] = None

    # --- keys -------------------------------------------------------------------------------------

    def next_key(self, *parts: object) -> str:
        """Return the key of a step: of all before it, and of what it is itself."""
        return key_of(self.key, *parts)

    def advance(
        self,
        key: str,
        created: str,
        text: str,
        layer: tuple[LayerMeta, Path] | None = None,
        *,
        comment: str = "",
    ) -> None:
        """Note a step that is done, with the layer and the tree that it has made."""
        self.key, self.created = key, created
        entry: dict[str, Any] = {"created": created, "created_by": text}
        if comment:
            entry["comment"] = comment
        if layer is None:
            entry["empty_layer"] = True
        else:
            self.layers.append(layer[0])
            self.trees.append(layer[1])
        self.history.append(entry)

    # --- the end ----------------------------------------------------------------------------------

    def write(self, created: str) -> bytes:
        """Return the image's configuration as its blob has it."""
        kept: dict[str, Any] = {
            name: self.document[name]
            for name in ("architecture", "variant", "os", "os.version", "os.features")
            if name in self.document
        }
        if self.document.get("author"):
            kept["author"] = self.document["author"]
        if created:
            kept["created"] = created
        diff_ids = [layer.diff_id for layer in self.layers]
        kept["config"] = {name: value for name, value in self.config.items() if value is not None}
        kept["rootfs"] = {"type": "layers", "diff_ids": diff_ids}
        kept["history"] = self.history
        return json.dumps(kept).encode()


def key_of(*parts: object) -> str:
    """Return the key of some plain values, in the cache of builds."""
    text = json.dumps([_VERSION, *parts], sort_keys=True, default=vars)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
