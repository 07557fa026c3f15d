"""The models of a profile: lists of them, and names that keep them apart."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePath

from sandbox.errors import SpecError
from sandbox.records.light import dataclass


@dataclass(frozen=True)
class Model:
    """One model: the script's first argument, and what its row is called."""

    argument: str
    name: str


def parse_model_list(text: str) -> tuple[str, ...]:
    """Return the models of `a,b,c`; blanks around them and empty ones are left out."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def parse_model_file(text: str) -> tuple[str, ...]:
    """Return the models of a file, one a line; empty lines and `#` comments are left out."""
    lines = text.removeprefix("\ufeff").splitlines()
    models = (re.sub(r"(^|\s)#.*", "", line).strip() for line in lines)
    return tuple(model for model in models if model)


def read_model_file(path: Path) -> tuple[str, ...]:
    """Return the models that a file names.

    Raises:
        SpecError: it cannot be read, is no text, or names no model.
    """
    try:
        models = parse_model_file(path.read_text("utf-8"))
    except UnicodeDecodeError:
        raise SpecError(
            f"{path} is no list of models: it is not text", hint="write their names, one a line"
        ) from None
    except OSError as exc:
        raise SpecError(
            f"cannot read the models in {path}: {exc.strerror}", hint="name a file of models"
        ) from None
    if not models:
        raise SpecError(f"{path} names no model", hint="write one a line, or leave the flag out")
    return models


def read_models(model_list: str | None, model_file: Path | None) -> tuple[Model, ...]:
    """Return the models that the flags name; none if there are no flags.

    Raises:
        SpecError: both flags are given, the file cannot be read, or there is no model in it.
    """
    if model_list is None and model_file is None:
        return ()
    if model_list is not None and model_file is not None:
        raise SpecError("-m and -f are both given", hint="name the models by one of them")
    if model_file is not None:
        models = read_model_file(model_file)
    else:
        models = parse_model_list(model_list or "")
        if not models:
            raise SpecError("-m names no model", hint="write `-m a,b`, or leave the flag out")
    return tuple(
        Model(argument, name) for argument, name in zip(models, names_of(models), strict=True)
    )


def names_of(models: Sequence[str]) -> tuple[str, ...]:
    """Return a name for each: its file's, as far as directories and suffixes are not needed.

    `a/net.onnx` and `b/net.onnx` become `a/net` and `b/net`; `net.onnx` and `net.tflite` keep their
    suffixes; the same one again is numbered.
    """
    names = [_stem(model) for model in models]
    for clashing in (_with_suffix, _with_parents):
        counts = Counter(names)
        names = [
            clashing(model, models) if counts[name] > 1 else name
            for model, name in zip(models, names, strict=True)
        ]
    seen: Counter[str] = Counter()
    numbered = []
    for name in names:
        seen[name] += 1
        numbered.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return tuple(numbered)


def _stem(model: str) -> str:
    return PurePath(model).stem or model


def _with_suffix(model: str, models: Sequence[str]) -> str:
    """Return the file's name with its suffix, if that tells it from others of the same stem."""
    same = {PurePath(other).suffix for other in models if _stem(other) == _stem(model)}
    return PurePath(model).name if len(same) > 1 else _stem(model)


def _with_parents(model: str, models: Sequence[str]) -> str:
    """Return the name with as many directories as tell it from the others."""
    path = PurePath(model)
    others = [PurePath(other) for other in models if other != model]
    for count in range(2, len(path.parts) + 1):
        tail = path.parts[-count:]
        if all(other.parts[-count:] != tail for other in others):
            same = {PurePath(other).suffix for other in models if _stem(other) == _stem(model)}
            last = path.name if len(same) > 1 else path.stem
            return "/".join((*tail[:-1], last))
    return model
