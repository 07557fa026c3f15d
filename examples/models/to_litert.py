"""A network as a LiteRT (TensorFlow Lite) model: rows and columns before channels.

The flat buffers' schema is the one that the runtime itself brings along.
"""

from __future__ import annotations

from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from architectures import (
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
)

SUFFIX = ".tflite"
_IDENTIFIER = b"TFL3"
_SCHEMA_VERSION = 3
_CHANNEL_AXIS = 3
_OPERATORS = schema.BuiltinOperator
_TYPES = {
    np.dtype(np.float32): schema.TensorType.FLOAT32,
    np.dtype(np.int32): schema.TensorType.INT32,
}
_ALIGNMENT = 16
"""Of values in the file, by the schema: the runtime uses them where they stand."""


def convert(network: Network, name: str) -> bytes:
    """Return the file of a network."""
    writer = _Writer()
    image = writer.tensor(network.image)
    for layer in network.layers:
        writer.put(layer)
    graph = writer.graph
    graph.name = name
    graph.inputs, graph.outputs = [image], [writer.tensor(network.tensor)]
    model = schema.ModelT()
    model.version = _SCHEMA_VERSION
    model.description = name
    model.operatorCodes, model.buffers, model.subgraphs = writer.codes, writer.buffers, [graph]
    builder = flatbuffers.Builder(1 << 20)
    builder.Finish(model.Pack(builder), _IDENTIFIER)
    return bytes(builder.Output())


class _Values(schema.BufferT):
    """A buffer whose values begin where the schema wants them; its generated code does not care."""

    def __init__(self, values: np.ndarray) -> None:
        super().__init__()
        self._bytes = np.ascontiguousarray(values).tobytes()

    def Pack(self, builder: flatbuffers.Builder) -> int:  # noqa: N802 - the schema's name
        builder.StartVector(1, len(self._bytes), _ALIGNMENT)
        builder.head -= len(self._bytes)
        builder.Bytes[builder.head : builder.head + len(self._bytes)] = self._bytes
        data = builder.EndVector()
        schema.BufferStart(builder)
        schema.BufferAddData(builder, data)
        return int(schema.BufferEnd(builder))


class _Writer:
    """Tensors, their values and operators, each known by its place in a list."""

    def __init__(self) -> None:
        self.codes: list[Any] = []
        self.buffers = [schema.BufferT()]  # the first is the empty one, by convention
        self.graph = schema.SubGraphT()
        self.graph.tensors, self.graph.operators = [], []
        self._places: dict[int, int] = {}
        self._code_places: dict[int, int] = {}

    def put(self, layer: Layer) -> None:
        sources = [self.tensor(source) for source in layer.sources]
        target = self.tensor(layer.target)
        match layer:
            case Convolution():
                self._convolution(layer, sources[0], target)
            case MaxPool():
                self._operator(_OPERATORS.MAX_POOL_2D, sources, [target], _pool_options())
            case Mean():
                axes = self._constant(np.array([1, 2], np.int32))
                self._operator(
                    _OPERATORS.MEAN, [*sources, axes], [target], schema.ReducerOptionsT()
                )
            case Dense():
                weights = [self._constant(layer.weight), self._constant(layer.bias)]
                options = schema.FullyConnectedOptionsT()
                self._operator(_OPERATORS.FULLY_CONNECTED, [*sources, *weights], [target], options)
            case Softmax():
                options = schema.SoftmaxOptionsT()
                options.beta = 1.0
                self._operator(_OPERATORS.SOFTMAX, sources, [target], options)
            case Add():
                self._operator(_OPERATORS.ADD, sources, [target], schema.AddOptionsT())
            case Concatenate():
                options = schema.ConcatenationOptionsT()
                options.axis = _CHANNEL_AXIS
                self._operator(_OPERATORS.CONCATENATION, sources, [target], options)
            case Halve():
                axis = self._constant(np.array(_CHANNEL_AXIS, np.int32))
                options = schema.SplitOptionsT()
                options.numSplits = 2
                targets = [target, self.tensor(layer.rest)]
                self._operator(_OPERATORS.SPLIT, [axis, *sources], targets, options)
            case Shuffle():
                self._shuffle(layer.target, sources[0], target)

    def tensor(self, tensor: Tensor) -> int:
        """Return the place of what stands between layers."""
        if tensor.number not in self._places:
            points = [] if tensor.side is None else [tensor.side, tensor.side]
            self._places[tensor.number] = self._add(
                f"t{tensor.number}", [1, *points, tensor.channels], np.dtype(np.float32)
            )
        return self._places[tensor.number]

    def _convolution(self, layer: Convolution, source: int, target: int) -> None:
        options: Any
        if layer.is_depthwise:  # one filter for each channel: 1, rows, columns, channels
            kind, options = _OPERATORS.DEPTHWISE_CONV_2D, schema.DepthwiseConv2DOptionsT()
            options.depthMultiplier = 1
            weight = layer.weight.transpose(1, 2, 3, 0)
        else:  # outputs, rows, columns, inputs
            kind, options = _OPERATORS.CONV_2D, schema.Conv2DOptionsT()
            weight = layer.weight.transpose(0, 2, 3, 1)
        options.padding = schema.Padding.SAME
        options.strideH = options.strideW = layer.stride
        options.dilationHFactor = options.dilationWFactor = 1
        options.fusedActivationFunction = {
            None: schema.ActivationFunctionType.NONE,
            UNBOUNDED: schema.ActivationFunctionType.RELU,
            6: schema.ActivationFunctionType.RELU6,
        }[layer.ceiling]
        weights = [self._constant(weight), self._constant(layer.bias)]
        self._operator(kind, [source, *weights], [target], options)

    def _shuffle(self, tensor: Tensor, source: int, target: int) -> None:
        side, half = tensor.side or 1, tensor.channels // 2
        split = self._reshape(source, [1, side, side, 2, half])
        order = np.array([0, 1, 2, 4, 3], np.int32)
        turned = self._add(f"{source}_turned", [1, side, side, half, 2], np.dtype(np.float32))
        inputs = [split, self._constant(order)]
        self._operator(_OPERATORS.TRANSPOSE, inputs, [turned], schema.TransposeOptionsT())
        self._reshape(turned, [1, side, side, tensor.channels], target)

    def _reshape(self, source: int, shape: list[int], target: int | None = None) -> int:
        if target is None:
            target = self._add(f"{source}_split", shape, np.dtype(np.float32))
        options = schema.ReshapeOptionsT()
        options.newShape = shape
        inputs = [source, self._constant(np.array(shape, np.int32))]
        self._operator(_OPERATORS.RESHAPE, inputs, [target], options)
        return target

    def _operator(self, kind: int, inputs: list[int], outputs: list[int], options: Any) -> None:
        operator = schema.OperatorT()
        operator.opcodeIndex = self._code(kind)
        operator.inputs, operator.outputs = inputs, outputs
        name = type(options).__name__.removesuffix("T")
        operator.builtinOptionsType = getattr(schema.BuiltinOptions, name)
        operator.builtinOptions = options
        self.graph.operators.append(operator)

    def _code(self, kind: int) -> int:
        if kind not in self._code_places:
            self._code_places[kind] = len(self.codes)
            code = schema.OperatorCodeT()
            code.builtinCode = code.deprecatedBuiltinCode = kind
            code.version = 1
            self.codes.append(code)
        return self._code_places[kind]

    def _constant(self, values: np.ndarray) -> int:
        self.buffers.append(_Values(values))
        name = f"w{len(self.buffers)}"
        return self._add(name, list(values.shape), values.dtype, len(self.buffers) - 1)

    def _add(self, name: str, shape: list[int], kind: np.dtype[Any], buffer: int = 0) -> int:
        tensor = schema.TensorT()
        tensor.name, tensor.shape, tensor.buffer = name, shape, buffer
        tensor.type = _TYPES[kind]
        self.graph.tensors.append(tensor)
        return len(self.graph.tensors) - 1


def _pool_options() -> Any:
    options = schema.Pool2DOptionsT()
    options.padding = schema.Padding.SAME
    options.filterHeight = options.filterWidth = 3
    options.strideH = options.strideW = 2
    return options
