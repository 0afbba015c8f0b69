# SPDX-License-Identifier: Apache-2.0
"""What can run a policy, by name; none needs TensorFlow or a GPU, each uses one core.

`exact` is the default: the same bits on any x86-64 processor and for any batch, as the lab promises. `numpy` is
the readable reference. `litert` and `onnx` are the fastest, `litert-int8` faster still where the artefact has it
and its error, which the card states, is acceptable; their last bits depend on processor, version and batch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np

from sagecc.common.arrays import Floats
from sagecc.common.errors import SageccError
from sagecc.common.optional import brought_by
from sagecc.policy.artefact import INT8, LITERT, ONNX, PolicyArtefact
from sagecc.policy.exact import ExactOps, scaled

Step = Callable[[Floats, Floats], tuple[Floats, Floats, Floats, Floats]]
"""Observation [B, F], unscaled, and hidden state [B, H] -> logits, loc, scale [B, K], next hidden state [B, H]."""

OUTPUTS = ("logits", "loc", "scale", "next_hidden")
DEFAULT = "exact"


def exact(policy: PolicyArtefact) -> Step:
    """Return the policy's step in arithmetic of fixed order (policy.exact)."""
    ops = ExactOps()

    def step(observation: Floats, hidden: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        return policy.sizes.forward(policy.weights, ops, scaled(policy.scaling, observation), hidden)

    return step


def litert_network(data: bytes) -> Step:
    """Return the network in a LiteRT file's bytes; its observations are scaled already."""
    # Half a second to load, and only who asks for LiteRT needs it.
    with brought_by("litert"):
        from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=data, num_threads=1)
    run = interpreter.get_signature_runner()
    inputs = {name: detail["index"] for name, detail in run.get_input_details().items()}
    outputs = {name: detail["index"] for name, detail in run.get_output_details().items()}
    held = 0

    def step(observation: Floats, hidden: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        nonlocal held
        if len(observation) != held:
            held = len(observation)
            for name, value in (("observation", observation), ("hidden", hidden)):
                interpreter.resize_tensor_input(inputs[name], value.shape)
            interpreter.allocate_tensors()
        interpreter.set_tensor(inputs["observation"], observation)
        interpreter.set_tensor(inputs["hidden"], hidden)
        interpreter.invoke()
        logits, loc, scale, after = (interpreter.get_tensor(outputs[name]) for name in OUTPUTS)
        return logits, loc, scale, after

    return step


def onnx_network(data: bytes) -> Step:
    """Return the network in an ONNX file's bytes; its observations are scaled already."""
    with brought_by("onnx"):
        import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])

    def step(observation: Floats, hidden: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        logits, loc, scale, after = session.run(OUTPUTS, {"observation": observation, "hidden": hidden})
        return logits, loc, scale, after

    return step


def _from_file(policy: PolicyArtefact, name: str, network: Callable[[bytes], Step]) -> Step:
    """Read and check an exported file, and put the artefact's scaling before its network."""
    path = policy.path / name
    wanted = policy.card["files"].get(name)
    again = f"write it with 'sagecc export {policy.path}{' --int8' if name == INT8 else ''}'"
    if wanted is None:
        raise SageccError(f"policy {policy.path} has no {name}: {again}")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SageccError(f"{path} cannot be read ({error.strerror}): {again}") from error
    if hashlib.sha256(data).hexdigest() != wanted:
        raise SageccError(f"{path} is truncated, or not the file that its card.json describes: {again}")
    run = network(data)

    def step(observation: Floats, hidden: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        return run(np.asarray(policy.scaling(observation), np.float32), hidden)

    return step


RUNTIMES: dict[str, Callable[[PolicyArtefact], Step]] = {
    "exact": exact,
    "numpy": lambda policy: policy.step,
    "litert": lambda policy: _from_file(policy, LITERT, litert_network),
    "litert-int8": lambda policy: _from_file(policy, INT8, litert_network),
    "onnx": lambda policy: _from_file(policy, ONNX, onnx_network),
}


def load(policy: PolicyArtefact, name: str = DEFAULT) -> Step:
    """Return the step of a policy in the runtime `name`; raises SageccError where there is none, or its file is bad."""
    if name not in RUNTIMES:
        raise SageccError(f"no runtime '{name}' for policies: choose one of {', '.join(RUNTIMES)}")
    return RUNTIMES[name](policy)
