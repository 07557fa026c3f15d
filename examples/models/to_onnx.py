"""A network as an ONNX model: channels before rows and columns."""

from __future__ import annotations

import numpy as np
import onnx
from architectures import (
    CLASSES,
    COLORS,
    SIDE,
    UNBOUNDED,
    Add,
    Concatenate,
    Convolution,
    Dense,
    Halve,
    Layer,
    MaxPool,
    Mean,
    Network,
    Shuffle,
    Softmax,
    Tensor,
    same_padding,
)
from onnx import TensorProto, helper, numpy_helper

SUFFIX = ".onnx"


def convert(network: Network, name: str) -> bytes:
    """Return the file of a network."""
    writer = _Writer(network)
    for layer in network.layers:
        writer.put(layer)
    graph = helper.make_graph(
        writer.nodes,
        name,
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, COLORS, SIDE, SIDE])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [1, CLASSES])],
        writer.constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    data: bytes = model.SerializeToString()
    return data


class _Writer:
    """Nodes and constants, in the order of the layers."""

    def __init__(self, network: Network) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._names = {network.image.number: "image", network.tensor.number: "probabilities"}

    def put(self, layer: Layer) -> None:
        sources = [self._name(source) for source in layer.sources]
        target = self._name(layer.target)
        match layer:
            case Convolution():
                self._convolution(layer, sources[0], target)
            case MaxPool():
                pads = _pads(layer.sources[0], 3, 2)
                shape = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": pads}
                self._node("MaxPool", sources, target, **shape)
            case Mean():
                self._node("GlobalAveragePool", sources, f"{target}_points")
                self._node("Flatten", [f"{target}_points"], target)
            case Dense():
                weights = [self._constant(layer.weight), self._constant(layer.bias)]
                self._node("Gemm", [*sources, *weights], target, transB=1)
            case Softmax():
                self._node("Softmax", sources, target)
            case Add():
                self._node("Add", sources, target)
            case Concatenate():
                self._node("Concat", sources, target, axis=1)
            case Halve():
                self._node("Split", sources, target, self._name(layer.rest), axis=1)
            case Shuffle():
                self._shuffle(layer.target, sources[0], target)

    def _convolution(self, layer: Convolution, source: str, target: str) -> None:
        kernel = layer.weight.shape[-1]
        plain = target if layer.ceiling is None else f"{target}_plain"
        self._node(
            "Conv",
            [source, self._constant(layer.weight), self._constant(layer.bias)],
            plain,
            kernel_shape=[kernel, kernel],
            strides=[layer.stride, layer.stride],
            pads=_pads(layer.sources[0], kernel, layer.stride),
            group=len(layer.weight) if layer.is_depthwise else 1,
        )
        if layer.ceiling == UNBOUNDED:
            self._node("Relu", [plain], target)
        elif layer.ceiling is not None:
            bounds = [self._constant(np.array(end, np.float32)) for end in (0, layer.ceiling)]
            self._node("Clip", [plain, *bounds], target)

    def _shuffle(self, tensor: Tensor, source: str, target: str) -> None:
        side, channels = tensor.side or 1, tensor.channels
        shapes = [[1, 2, channels // 2, side, side], [1, channels, side, side]]
        first, last = (self._constant(np.array(shape, dtype=np.int64)) for shape in shapes)
        self._node("Reshape", [source, first], f"{target}_split")
        self._node("Transpose", [f"{target}_split"], f"{target}_turned", perm=[0, 2, 1, 3, 4])
        self._node("Reshape", [f"{target}_turned", last], target)

    def _node(self, kind: str, inputs: list[str], *outputs: str, **attributes: object) -> None:
        self.nodes.append(helper.make_node(kind, inputs, outputs, **attributes))

    def _constant(self, values: np.ndarray) -> str:
        name = f"w{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(values, name))
        return name

    def _name(self, tensor: Tensor) -> str:
        return self._names.get(tensor.number, f"t{tensor.number}")


def _pads(source: Tensor, kernel: int, stride: int) -> list[int]:
    before, after = same_padding(source.side or 1, kernel, stride)
    return [before, before, after, after]
