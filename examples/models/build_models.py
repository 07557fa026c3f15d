"""Build five well-known image classifiers, offline, with random weights.

MobileNetV1 (width 0.75 and 1.0), MobileNetV2, SqueezeNet 1.1 and ShuffleNetV2 1.0, for pictures of
224 x 224, in ONNX format, in that of LiteRT, or in both: the same layers with the same weights.

    python build_models.py [--format onnx|litert|both] [--directory DIR] [--seed N]
"""

from __future__ import annotations

import argparse
import importlib
import os
from pathlib import Path

from architectures import NETWORKS

WRITERS = {"onnx": ("to_onnx",), "litert": ("to_litert",), "both": ("to_onnx", "to_litert")}


def save(data: bytes, path: Path) -> None:
    """Write the file in one step: a build that is cut short leaves no broken model."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def main() -> None:
    """Build all models."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--format", choices=WRITERS, default="onnx")
    parser.add_argument("--directory", type=Path, default=Path(__file__).parent)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    writers = [importlib.import_module(name) for name in WRITERS[arguments.format]]
    for name, build in NETWORKS.items():
        network = build(arguments.seed)
        millions = sum(weight.size for weight in network.weights()) / 1e6
        for writer in writers:
            path = arguments.directory / f"{name}{writer.SUFFIX}"
            save(writer.convert(network, name), path)
            print(f"{path.name:<28} {millions:5.2f} million parameters")


if __name__ == "__main__":
    main()
