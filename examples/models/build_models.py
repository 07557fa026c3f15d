"""Build five well-known image classifiers in ONNX format, offline, with random weights.

MobileNetV1 (width 0.75 and 1.0), MobileNetV2, SqueezeNet 1.1 and ShuffleNetV2 1.0, as their papers
describe them, for pictures of 224 x 224. What an inference costs depends on the layers, not on the
values of the weights; so random ones serve, and nothing has to be downloaded.

    python build_models.py [--directory DIR] [--seed N]
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

IMAGE = (3, 224, 224)
CLASSES = 1000


class Network:
    """Collects layers one after the other; `image` is the name of the newest tensor."""

    def __init__(self, seed: int) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.image = "image"
        self.channels = IMAGE[0]
        self._random = np.random.default_rng(seed)

    def node(self, kind: str, inputs: list[str], outputs: int = 1, **attributes: object) -> str:
        """Add any operator; return the name of its (first) output."""
        names = [f"t{len(self.nodes)}_{index}" for index in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, names, **attributes))
        return names[0]

    def constant(self, values: np.ndarray) -> str:
        """Add a weight or a shape."""
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def convolve(
        self, channels: int, kernel: int = 1, *, stride: int = 1, groups: int = 1
    ) -> Network:
        """Add a convolution with its bias; batch normalization is folded in, as for inference."""
        fan_in = self.channels // groups * kernel * kernel
        shape = (channels, self.channels // groups, kernel, kernel)
        weight = self._random.standard_normal(shape, dtype=np.float32)
        weight *= np.float32((2 / fan_in) ** 0.5)  # keeps activations in range
        inputs = [self.image, self.constant(weight)]
        inputs.append(self.constant(np.zeros(channels, dtype=np.float32)))
        self.image = self.node(
            "Conv",
            inputs,
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[kernel // 2] * 4,
            group=groups,
        )
        self.channels = channels
        return self

    def depthwise(self, stride: int = 1) -> Network:
        """Add a 3 x 3 convolution of each channel by itself."""
        return self.convolve(self.channels, 3, stride=stride, groups=self.channels)

    def relu(self) -> Network:
        """Cut off what is below zero."""
        self.image = self.node("Relu", [self.image])
        return self

    def relu6(self) -> Network:
        """Cut off what is below zero or above six."""
        bounds = [self.constant(np.array(value, dtype=np.float32)) for value in (0, 6)]
        self.image = self.node("Clip", [self.image, *bounds])
        return self

    def pool(self) -> Network:
        """Halve the picture: the largest of 3 x 3."""
        self.image = self.node(
            "MaxPool", [self.image], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]
        )
        return self

    def classify(self) -> Network:
        """End with the mean of each channel, a fully connected layer and probabilities."""
        self.image = self.node("GlobalAveragePool", [self.image])
        self.image = self.node("Flatten", [self.image])
        weight = self._random.standard_normal((self.channels, CLASSES), dtype=np.float32)
        weight *= np.float32(self.channels**-0.5)
        bias = np.zeros(CLASSES, dtype=np.float32)
        self.image = self.node("Gemm", [self.image, self.constant(weight), self.constant(bias)])
        return self

    def model(self, name: str) -> onnx.ModelProto:
        """Return all of it as a checked model."""
        output = self.node("Softmax", [self.image])
        self.nodes[-1].output[0] = output = "probabilities"
        graph = helper.make_graph(
            self.nodes,
            name,
            [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, *IMAGE])],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, [1, CLASSES])],
            self.weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        onnx.checker.check_model(model)
        return model


def mobilenet_v1(seed: int, width: float) -> Network:
    """Howard et al., "MobileNets", 2017, table 1: 13 depthwise separable blocks."""
    network = Network(seed).convolve(int(32 * width), 3, stride=2).relu6()
    blocks = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)]
    blocks += [(512, 1)] * 5 + [(1024, 2), (1024, 1)]
    for channels, stride in blocks:
        network.depthwise(stride).relu6().convolve(int(channels * width)).relu6()
    return network.classify()


def mobilenet_v2(seed: int) -> Network:
    """Sandler et al., "MobileNetV2", 2018, table 2: inverted residuals."""
    network = Network(seed).convolve(32, 3, stride=2).relu6()
    stages = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)]
    stages += [(6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
    for expansion, channels, repeats, first_stride in stages:
        for repeat in range(repeats):
            stride = first_stride if repeat == 0 else 1
            source, before = network.image, network.channels
            if expansion > 1:
                network.convolve(before * expansion).relu6()
            network.depthwise(stride).relu6().convolve(channels)
            if stride == 1 and before == channels:
                network.image = network.node("Add", [source, network.image])
    return network.convolve(1280).relu6().classify()


def squeezenet(seed: int) -> Network:
    """Iandola et al., "SqueezeNet", 2016, in its authors' later version 1.1: fire modules."""
    network = Network(seed).convolve(64, 3, stride=2).relu().pool()
    for place, (squeeze, expand) in enumerate(
        [(16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256)]
    ):
        if place in {2, 4}:
            network.pool()
        network.convolve(squeeze).relu()
        source = network.image
        small = network.convolve(expand).relu().image
        network.image, network.channels = source, squeeze
        large = network.convolve(expand, 3).relu().image
        network.image = network.node("Concat", [small, large], axis=1)
        network.channels = 2 * expand
    network.convolve(CLASSES).relu()
    network.image = network.node("GlobalAveragePool", [network.image])
    network.image = network.node("Flatten", [network.image])
    return network


def shufflenet_v2(seed: int) -> Network:
    """Ma et al., "ShuffleNet V2", 2018, table 5, the 1 x column."""
    network = Network(seed).convolve(24, 3, stride=2).relu().pool()
    for channels, repeats in ((116, 4), (232, 8), (464, 4)):
        for repeat in range(repeats):
            _shuffle_unit(network, channels, halves=repeat == 0)
    return network.convolve(1024).relu().classify()


def _shuffle_unit(network: Network, channels: int, *, halves: bool) -> None:
    """Add one unit: half of the channels pass by, or both halves shrink the picture."""
    half = channels // 2
    source, before = network.image, network.channels
    if halves:
        network.depthwise(2).convolve(half).relu()
        aside, network.image, network.channels = network.image, source, before
    else:
        aside = network.node("Split", [source], outputs=2, axis=1)
        network.image, network.channels = aside.replace("_0", "_1"), half
    network.convolve(half).relu().depthwise(2 if halves else 1).convolve(half).relu()
    network.image = network.node("Concat", [aside, network.image], axis=1)
    network.channels = channels
    side = IMAGE[1] // {116: 8, 232: 16, 464: 32}[channels]
    shapes = [[1, 2, half, side, side], [1, channels, side, side]]
    first, last = (network.constant(np.array(shape, dtype=np.int64)) for shape in shapes)
    split = network.node("Reshape", [network.image, first])
    turned = network.node("Transpose", [split], perm=[0, 2, 1, 3, 4])
    network.image = network.node("Reshape", [turned, last])


MODELS: dict[str, Callable[[int], Network]] = {
    "mobilenet_v1_0.75_224": lambda seed: mobilenet_v1(seed, 0.75),
    "mobilenet_v1_1.0_224": lambda seed: mobilenet_v1(seed, 1.0),
    "mobilenet_v2_1.0_224": mobilenet_v2,
    "squeezenet_1.1_224": squeezenet,
    "shufflenet_v2_1.0_224": shufflenet_v2,
}


def save(model: onnx.ModelProto, path: Path) -> None:
    """Write the file in one step: a build that is cut short leaves no broken model."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(model.SerializeToString())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def main() -> None:
    """Build all models."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--directory", type=Path, default=Path(__file__).parent)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    for name, build in MODELS.items():
        network = build(arguments.seed)
        path = arguments.directory / f"{name}.onnx"
        save(network.model(name), path)
        parameters = sum(int(np.prod(weight.dims)) for weight in network.weights)
        print(f"{path.name:<28} {parameters / 1e6:5.2f} million parameters")


if __name__ == "__main__":
    main()
