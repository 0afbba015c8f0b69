# SPDX-License-Identifier: Apache-2.0
"""A policy's network as LiteRT and ONNX files: one tick, observation (scaled) and hidden state in, raw head out.

Inputs `observation` [B, F] and `hidden` [B, H]; outputs `logits`, `loc`, `scale` [B, K] and `next_hidden` [B, H]; any
batch B. TensorFlow's converter writes LiteRT. ONNX is written node by node: the same policy gives the same bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sagecc.common.arrays import Floats
from sagecc.common.optional import requires_extra
from sagecc.common.tensorflow_runtime import quietly, tf
from sagecc.policy.artefact import ExportedNetwork
from sagecc.policy.folder import INT8, LITERT, ONNX
from sagecc.policy.inference import LAYER_NORM_EPSILON, Architecture, NumpyOps
from sagecc.policy.runtime import OUTPUTS, Step, litert_network, onnx_network

with requires_extra("train"):
    import onnx
    from onnx import TensorProto, helper, numpy_helper

OPSET = 17
"""ONNX's operator set: the first with LayerNormalization."""
IR_VERSION = 8
"""Version of ONNX's format that came with that operator set: older runtimes read it."""

CHECKED_TICKS, CHECKED_FLOWS = 100, 4

ROUNDING = 1e-5
"""Differences are rounded up to whole steps of this: below it they depend on the order of sums, so on the machine."""


def export(sizes: Architecture, weights: dict[str, Floats], int8: bool = False) -> ExportedNetwork:
    """Write a network in every format, run each, and measure its difference to numpy.

    The differences are the largest over CHECKED_TICKS ticks of CHECKED_FLOWS flows whose inputs are normal variates,
    each flow with the hidden state that its own network returned.

    Args:
        sizes: the kind of network, with its sizes.
        weights: its weights by name.
        int8: also write it with weights of 8 bits (LiteRT's dynamic range quantisation).
    """
    files = {LITERT: litert(sizes, weights), ONNX: onnx_bytes(sizes, weights)}
    if int8:
        files[INT8] = litert(sizes, weights, int8=True)
    networks = {name: onnx_network if name == ONNX else litert_network for name in files}
    with quietly():
        errors = {name: difference(sizes, weights, networks[name](data)) for name, data in files.items()}
    return ExportedNetwork(files, errors)


def difference(sizes: Architecture, weights: dict[str, Floats], network: Step) -> dict[str, float]:
    """Return the largest absolute difference to numpy of each output, rounded up to a step of ROUNDING."""
    inputs = np.random.default_rng(0).normal(size=(CHECKED_TICKS, CHECKED_FLOWS, sizes.inputs)).astype(np.float32)
    expected_hidden = actual_hidden = np.zeros((CHECKED_FLOWS, sizes.state), np.float32)
    largest = np.zeros(len(OUTPUTS))
    for x in inputs:
        expected, actual = sizes.forward(weights, NumpyOps(), x, expected_hidden), network(x, actual_hidden)
        largest = np.maximum(largest, [np.abs(a - b).max(initial=0.0) for a, b in zip(expected, actual, strict=True)])
        expected_hidden, actual_hidden = expected[-1], actual[-1]
    return {
        name: float(f"{value:g}") for name, value in zip(OUTPUTS, np.ceil(largest / ROUNDING) * ROUNDING, strict=True)
    }


def litert(sizes: Architecture, weights: dict[str, Floats], int8: bool = False) -> bytes:
    """Return the network as a LiteRT file."""

    def network(observation: Any, hidden: Any) -> dict[str, Any]:
        outputs = sizes.forward(weights, TensorFlowOps(), observation, hidden)
        return dict(zip(OUTPUTS, (tf.identity(x) for x in outputs), strict=True))

    with quietly():
        signature = [tf.TensorSpec([None, n], tf.float32, name) for name, n in _inputs(sizes).items()]
        module = tf.Module()
        module.step = tf.function(network, input_signature=signature, autograph=False)
        converter = tf.lite.TFLiteConverter.from_concrete_functions([module.step.get_concrete_function()], module)
        if int8:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        return bytes(converter.convert())


def onnx_bytes(sizes: Architecture, weights: dict[str, Floats]) -> bytes:
    """Return the network as an ONNX file."""
    ops = OnnxOps()
    results = sizes.forward(weights, ops, "observation", "hidden")
    for name, result in zip(OUTPUTS, results, strict=True):
        ops.node("Identity", result, output=name)
    outputs = dict.fromkeys(OUTPUTS, sizes.mixture) | {"next_hidden": sizes.state}
    graph = helper.make_graph(
        ops.nodes, "policy", _values(_inputs(sizes)), _values(outputs), initializer=list(ops.constants.values())
    )
    opset = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=IR_VERSION, producer_name="sagecc")
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString(deterministic=True))


def _inputs(sizes: Architecture) -> dict[str, int]:
    return {"observation": sizes.inputs, "hidden": sizes.state}


def _values(sizes: dict[str, int]) -> list[Any]:
    return [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", n]) for name, n in sizes.items()]


class TensorFlowOps:
    """policy.inference's Ops on TensorFlow tensors, of operations that LiteRT has."""

    def linear(self, x: Any, w: Floats, b: Floats) -> Any:
        """X w + b."""
        return tf.matmul(x, w) + b

    def layer_norm(self, x: Any, scale: Floats, offset: Floats) -> Any:
        """Each row to mean 0 and deviation 1, then scaled and shifted."""
        centred = x - tf.reduce_mean(x, axis=-1, keepdims=True)
        variance = tf.reduce_mean(tf.square(centred), axis=-1, keepdims=True)
        return centred * tf.math.rsqrt(variance + LAYER_NORM_EPSILON) * scale + offset

    def tanh(self, x: Any) -> Any:
        """Tanh."""
        return tf.tanh(x)

    def relu(self, x: Any) -> Any:
        """Max(x, 0)."""
        return tf.nn.relu(x)

    def leaky_relu(self, x: Any, slope: float) -> Any:
        """Max(x, slope x)."""
        return tf.maximum(x, slope * x)

    def zeros_like(self, x: Any) -> Any:
        """0 for each element of x."""
        return tf.zeros_like(x)

    def add(self, x: Any, y: Any) -> Any:
        """X + y."""
        return x + y

    def greatest(self, x: Any) -> Any:
        """1 at each row's greatest element, the first of several, and 0 elsewhere."""
        return tf.one_hot(tf.argmax(x, axis=-1, output_type=tf.int32), x.shape[-1])

    def softplus(self, x: Any, least: float) -> Any:
        """Log(1 + exp(x)) + least."""
        return tf.nn.relu(x) + tf.math.log(1.0 + tf.exp(-tf.abs(x))) + least

    def gru(self, x: Any, h: Any, w_i: Floats, w_h: Floats, b: Floats) -> Any:
        """Return the next hidden state."""
        size = len(w_h)
        gates = tf.matmul(x, w_i) + b
        zr = tf.sigmoid(gates[:, : 2 * size] + tf.matmul(h, w_h[:, : 2 * size]))
        z, r = zr[:, :size], zr[:, size:]
        a = tf.tanh(gates[:, 2 * size :] + tf.matmul(r * h, w_h[:, 2 * size :]))
        return h + z * (a - h)


class OnnxOps:
    """policy.inference's Ops as nodes of an ONNX graph; tensors are names."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}

    def node(self, kind: str, *inputs: Any, output: str = "", **attributes: Any) -> str:
        """Append a node; arrays among its inputs become constants.

        Args:
            kind: ONNX's operator.
            inputs: names of tensors, or arrays.
            output: name of its output; made up by default.
            attributes: attributes of the operator.

        Returns:
            The output's name.
        """
        names = [self._constant(x) if isinstance(x, np.ndarray) else x for x in inputs]
        output = output or f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, names, [output], **attributes))
        return output

    def _constant(self, value: Floats) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(value), name)
        return name

    def linear(self, x: Any, w: Floats, b: Floats) -> Any:
        """X w + b."""
        return self.node("Gemm", x, w, b)

    def layer_norm(self, x: Any, scale: Floats, offset: Floats) -> Any:
        """Each row to mean 0 and deviation 1, then scaled and shifted."""
        return self.node("LayerNormalization", x, scale, offset, axis=-1, epsilon=LAYER_NORM_EPSILON)

    def tanh(self, x: Any) -> Any:
        """Tanh."""
        return self.node("Tanh", x)

    def relu(self, x: Any) -> Any:
        """Max(x, 0)."""
        return self.node("Relu", x)

    def leaky_relu(self, x: Any, slope: float) -> Any:
        """Max(x, slope x)."""
        return self.node("LeakyRelu", x, alpha=slope)

    def zeros_like(self, x: Any) -> Any:
        """0 for each element of x."""
        return self.node("Mul", x, np.array(0, np.float32))

    def add(self, x: Any, y: Any) -> Any:
        """X + y."""
        return self.node("Add", x, y)

    def greatest(self, x: Any) -> Any:
        """1 at each row's greatest element, the first of several, and 0 elsewhere."""
        place = self.node("ArgMax", x, axis=1, keepdims=0)
        count = self.node("Gather", self.node("Shape", x), np.array([1]))
        return self.node("OneHot", place, count, np.array([0, 1], np.float32))

    def softplus(self, x: Any, least: float) -> Any:
        """Log(1 + exp(x)) + least."""
        return self.node("Add", self.node("Softplus", x), np.array(least, np.float32))

    def gru(self, x: Any, h: Any, w_i: Floats, w_h: Floats, b: Floats) -> Any:
        """Return the next hidden state, with one product per gate: nothing to be cut apart at run time."""
        size = len(w_h)
        parts = [slice(i * size, (i + 1) * size) for i in range(3)]

        def gate(kind: str, part: slice, state: str) -> str:
            from_input = self.node("Gemm", x, w_i[:, part], b[part])
            return self.node(kind, self.add(from_input, self.node("MatMul", state, w_h[:, part])))

        z, r = gate("Sigmoid", parts[0], h), gate("Sigmoid", parts[1], h)
        a = gate("Tanh", parts[2], self.node("Mul", r, h))
        return self.add(h, self.node("Mul", z, self.node("Sub", a, h)))
