"""Five image classifiers as lists of layers, as their papers describe them: no file format here.

The weights are random: what an inference costs depends on the layers, not on the values. Pictures
have 224 x 224 points; a convolution keeps their size, or divides it by its stride and rounds up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

SIDE = 224
COLORS = 3
CLASSES = 1000


@dataclass(frozen=True)
class Tensor:
    """What stands between two layers: some channels of a square picture, or of one point."""

    number: int
    channels: int
    side: int | None
    """Points of a side; None once the picture is a row of numbers."""


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One step from tensors to a tensor."""

    sources: tuple[Tensor, ...]
    target: Tensor


@dataclass(frozen=True, kw_only=True)
class Convolution(Layer):
    """A convolution with its bias and what cuts its output off.

    Batch normalization is folded in, as for inference.
    """

    weight: np.ndarray
    """Output channels, input channels of a group, rows, columns."""
    bias: np.ndarray
    stride: int
    is_depthwise: bool
    """Each channel by itself, instead of all of them together."""
    ceiling: float | None
    """None cuts nothing off; else all below zero, and all above this."""


@dataclass(frozen=True, kw_only=True)
class MaxPool(Layer):
    """Halve the picture: the largest of 3 x 3."""


@dataclass(frozen=True, kw_only=True)
class Mean(Layer):
    """The mean of each channel."""


@dataclass(frozen=True, kw_only=True)
class Dense(Layer):
    """A fully connected layer."""

    weight: np.ndarray
    """Outputs, inputs."""
    bias: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Softmax(Layer):
    """Scores to probabilities."""


@dataclass(frozen=True, kw_only=True)
class Add(Layer):
    """The sum of two."""


@dataclass(frozen=True, kw_only=True)
class Concatenate(Layer):
    """The channels of two, one after the other."""


@dataclass(frozen=True, kw_only=True)
class Halve(Layer):
    """The first half of the channels to `target`, the second to `rest`."""

    rest: Tensor


@dataclass(frozen=True, kw_only=True)
class Shuffle(Layer):
    """The channels of both halves in turn."""


UNBOUNDED = float("inf")


class Network:
    """Layers that are put one after the other; `tensor` is what the newest has made."""

    def __init__(self, seed: int) -> None:
        self.layers: list[Layer] = []
        self._random = np.random.default_rng(seed)
        self._tensors = 0
        self.image = self.tensor = self._new(COLORS, SIDE)

    def convolve(
        self,
        channels: int,
        kernel: int = 1,
        *,
        stride: int = 1,
        is_depthwise: bool = False,
        ceiling: float | None = UNBOUNDED,
    ) -> Network:
        """Add a convolution."""
        source = self.tensor
        inputs = 1 if is_depthwise else source.channels
        shape = (channels, inputs, kernel, kernel)
        weight = self._random.standard_normal(shape, dtype=np.float32)
        weight *= np.float32((2 / (inputs * kernel * kernel)) ** 0.5)  # activations stay in range
        layer = Convolution(
            sources=(source,),
            target=self._new(channels, -(-(source.side or 1) // stride)),
            weight=weight,
            bias=np.zeros(channels, dtype=np.float32),
            stride=stride,
            is_depthwise=is_depthwise,
            ceiling=ceiling,
        )
        return self._put(layer)

    def depthwise(self, stride: int = 1, *, ceiling: float | None = UNBOUNDED) -> Network:
        """Add a 3 x 3 convolution of each channel by itself."""
        return self.convolve(
            self.tensor.channels, 3, stride=stride, is_depthwise=True, ceiling=ceiling
        )

    def pool(self) -> Network:
        """Halve the picture."""
        side = -(-(self.tensor.side or 1) // 2)
        target = self._new(self.tensor.channels, side)
        return self._put(MaxPool(sources=(self.tensor,), target=target))

    def mean(self) -> Network:
        """Take the mean of each channel."""
        target = self._new(self.tensor.channels, None)
        return self._put(Mean(sources=(self.tensor,), target=target))

    def classify(self) -> Network:
        """End with the mean of each channel, a fully connected layer and probabilities."""
        source = self.mean().tensor
        shape = (CLASSES, source.channels)
        weight = self._random.standard_normal(shape, dtype=np.float32)
        weight *= np.float32(source.channels**-0.5)
        bias = np.zeros(CLASSES, dtype=np.float32)
        target = self._new(CLASSES, None)
        return self._put(
            Dense(sources=(source,), target=target, weight=weight, bias=bias)
        ).probabilities()

    def probabilities(self) -> Network:
        """Turn scores to probabilities."""
        target = self._new(self.tensor.channels, None)
        return self._put(Softmax(sources=(self.tensor,), target=target))

    def add(self, other: Tensor) -> Network:
        """Add what another layer has made."""
        target = self._new(other.channels, other.side)
        return self._put(Add(sources=(other, self.tensor), target=target))

    def after(self, other: Tensor) -> Network:
        """Put the channels of `other` before the own ones."""
        target = self._new(other.channels + self.tensor.channels, other.side)
        return self._put(Concatenate(sources=(other, self.tensor), target=target))

    def halve(self) -> Tensor:
        """Go on with the second half of the channels; return the first."""
        source = self.tensor
        first, rest = (self._new(source.channels // 2, source.side) for _ in range(2))
        self._put(Halve(sources=(source,), target=first, rest=rest))
        self.tensor = rest
        return first

    def shuffle(self) -> Network:
        """Mix the halves of the channels."""
        target = self._new(self.tensor.channels, self.tensor.side)
        return self._put(Shuffle(sources=(self.tensor,), target=target))

    def weights(self) -> list[np.ndarray]:
        """Return all that would be learnt."""
        return [
            array
            for layer in self.layers
            if isinstance(layer, Convolution | Dense)
            for array in (layer.weight, layer.bias)
        ]

    def _new(self, channels: int, side: int | None) -> Tensor:
        self._tensors += 1
        return Tensor(self._tensors - 1, channels, side)

    def _put(self, layer: Layer) -> Network:
        self.layers.append(layer)
        self.tensor = layer.target
        return self


def same_padding(side: int, kernel: int, stride: int) -> tuple[int, int]:
    """Return how many zeros stand before and after a row, so that `ceil(side / stride)` come out.

    TensorFlow's rule "SAME": the odd one stands behind.
    """
    total = max((-(-side // stride) - 1) * stride + kernel - side, 0)
    return total // 2, total - total // 2


def mobilenet_v1(seed: int, width: float) -> Network:
    """Howard et al., "MobileNets", 2017, table 1: 13 depthwise separable blocks."""
    network = Network(seed).convolve(int(32 * width), 3, stride=2, ceiling=6)
    blocks = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)]
    blocks += [(512, 1)] * 5 + [(1024, 2), (1024, 1)]
    for channels, stride in blocks:
        network.depthwise(stride, ceiling=6).convolve(int(channels * width), ceiling=6)
    return network.classify()


def mobilenet_v2(seed: int) -> Network:
    """Sandler et al., "MobileNetV2", 2018, table 2: inverted residuals."""
    network = Network(seed).convolve(32, 3, stride=2, ceiling=6)
    stages = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)]
    stages += [(6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
    for expansion, channels, repeats, first_stride in stages:
        for repeat in range(repeats):
            stride = first_stride if repeat == 0 else 1
            source = network.tensor
            if expansion > 1:
                network.convolve(source.channels * expansion, ceiling=6)
            network.depthwise(stride, ceiling=6).convolve(channels, ceiling=None)
            if stride == 1 and source.channels == channels:
                network.add(source)
    return network.convolve(1280, ceiling=6).classify()


def squeezenet(seed: int) -> Network:
    """Iandola et al., "SqueezeNet", 2016, in its authors' later version 1.1: fire modules."""
    network = Network(seed).convolve(64, 3, stride=2).pool()
    for place, (squeeze, expand) in enumerate(
        [(16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256)]
    ):
        if place in {2, 4}:
            network.pool()
        squeezed = network.convolve(squeeze).tensor
        small = network.convolve(expand).tensor
        network.tensor = squeezed
        network.convolve(expand, 3).after(small)
    return network.convolve(CLASSES).mean().probabilities()


def shufflenet_v2(seed: int) -> Network:
    """Ma et al., "ShuffleNet V2", 2018, table 5, the 1 x column."""
    network = Network(seed).convolve(24, 3, stride=2).pool()
    for channels, repeats in ((116, 4), (232, 8), (464, 4)):
        for repeat in range(repeats):
            _shuffle_unit(network, channels // 2, shrinks=repeat == 0)
    return network.convolve(1024).classify()


def _shuffle_unit(network: Network, half: int, *, shrinks: bool) -> None:
    """Add one unit: half of the channels pass by, or both halves shrink the picture."""
    source = network.tensor
    if shrinks:
        aside = network.depthwise(2, ceiling=None).convolve(half).tensor
        network.tensor = source
    else:
        aside = network.halve()
    network.convolve(half).depthwise(2 if shrinks else 1, ceiling=None).convolve(half)
    network.after(aside).shuffle()


NETWORKS: dict[str, Callable[[int], Network]] = {
    "mobilenet_v1_0.75_224": lambda seed: mobilenet_v1(seed, 0.75),
    "mobilenet_v1_1.0_224": lambda seed: mobilenet_v1(seed, 1.0),
    "mobilenet_v2_1.0_224": mobilenet_v2,
    "squeezenet_1.1_224": squeezenet,
    "shufflenet_v2_1.0_224": shufflenet_v2,
}
