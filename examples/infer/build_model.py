"""Build a small image classifier in ONNX format, offline: same seed, same bytes of weights.

Four convolution blocks and two fully connected layers, a shape that many edge models have: most
of the arithmetic in the convolutions, most of the weights (about 104 MiB) in the last layers.
The weights are random. That changes nothing about what an inference costs.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

IMAGE = (3, 96, 96)
CHANNELS = (32, 64, 128, 256)
HIDDEN = 2688
CLASSES = 1000


class Graph:
    """Collects nodes and weights; each layer method takes and returns the name of a tensor."""

    def __init__(self, seed: int) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(seed)

    def _weight(self, name: str, shape: tuple[int, ...], fan_in: int) -> str:
        values = self._random.standard_normal(shape, dtype=np.float32)
        values *= np.float32((2 / fan_in) ** 0.5)  # keeps activations in range, layer after layer
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def _node(self, kind: str, inputs: list[str], **attributes: object) -> str:
        output = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def convolution(self, source: str, channels: tuple[int, int]) -> str:
        """Add a 3x3 convolution, a ReLU and a pooling that halves the picture."""
        before, after = channels
        weight = self._weight(f"conv{after}", (after, before, 3, 3), 9 * before)
        image = self._node("Conv", [source, weight], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        image = self._node("Relu", [image])
        return self._node("MaxPool", [image], kernel_shape=[2, 2], strides=[2, 2])

    def dense(self, source: str, sizes: tuple[int, int]) -> str:
        """Add a fully connected layer."""
        weight = self._weight(f"dense{sizes[1]}", sizes, sizes[0])
        return self._node("MatMul", [source, weight])

    def flatten(self, source: str) -> str:
        """Turn the picture into one row of numbers."""
        return self._node("Flatten", [source])

    def relu(self, source: str) -> str:
        """Add a ReLU."""
        return self._node("Relu", [source])

    def softmax(self, source: str, output: str) -> None:
        """Add the last node, which names the output."""
        self.nodes.append(helper.make_node("Softmax", [source], [output]))


def build(seed: int) -> onnx.ModelProto:
    """Return the whole model."""
    graph = Graph(seed)
    tensor, side = "image", IMAGE[1]
    for channels in zip((IMAGE[0], *CHANNELS), CHANNELS, strict=False):
        tensor = graph.convolution(tensor, channels)
        side //= 2
    tensor = graph.flatten(tensor)
    tensor = graph.relu(graph.dense(tensor, (CHANNELS[-1] * side * side, HIDDEN)))
    graph.softmax(graph.dense(tensor, (HIDDEN, CLASSES)), "probabilities")
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "classifier",
            [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", *IMAGE])],
            [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", CLASSES])],
            graph.weights,
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,  # old enough for every onnxruntime since 2022
    )
    onnx.checker.check_model(model)
    return model


def main() -> None:
    """Write the model; a file that exists is whole, because it is renamed into place."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("path", nargs="?", type=Path, default=Path(__file__).parent / "model.onnx")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    partial = arguments.path.with_suffix(f".{os.getpid()}.part")
    try:
        partial.write_bytes(build(arguments.seed).SerializeToString())
        partial.replace(arguments.path)
    finally:
        partial.unlink(missing_ok=True)
    print(f"wrote {arguments.path}: {arguments.path.stat().st_size / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
