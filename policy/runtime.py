# SPDX-License-Identifier: Apache-2.0
"""Runtimes of a policy, by name; none needs TensorFlow or a GPU, each uses one core.

`exact` is the default: the same bits on any x86-64 processor and for any batch, as the lab promises. `numpy` is
the readable reference. `litert` and `onnx` are the fastest, `litert-int8` faster still where the artefact has it
and its error, which the card states, is acceptable; their last bits depend on processor, version and batch. These three
read the network's structure from its file in native code, which a crafted file can break: they are for files that one
trusts, and are never chosen by themselves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np

from sagecc.common.arrays import Floats
from sagecc.common.errors import SageccError
from sagecc.common.optional import requires_extra
from sagecc.policy.artefact import PolicyArtefact
from sagecc.policy.exact import ExactOps, scaled
from sagecc.policy.folder import CARD, INT8, LITERT, ONNX, WEIGHTS

Step = Callable[[Floats, Floats], tuple[Floats, Floats, Floats, Floats]]
"""Observation [B, F], unscaled, and hidden state [B, H] -> logits, loc, scale [B, K], next hidden state [B, H]."""

OUTPUTS = ("logits", "loc", "scale", "next_hidden")
DEFAULT = "exact"
FILES = {"litert": LITERT, "litert-int8": INT8, "onnx": ONNX}
"""The file that a runtime takes the network from, instead of the card and the weights."""


def exact(policy: PolicyArtefact) -> Step:
    """Return the policy's step in arithmetic of fixed order (policy.exact)."""
    ops = ExactOps()

    def step(observation: Floats, hidden: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        return policy.sizes.forward(policy.weights, ops, scaled(policy.scaling, observation), hidden)

    return step


def litert_network(data: bytes) -> Step:
    """Return the step of the network in a LiteRT file's bytes; it takes scaled observations."""
    # Imported here because loading takes half a second and only this runtime needs it.
    with requires_extra("litert"):
        from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=data, num_threads=1)
    run = interpreter.get_signature_runner()
    inputs = {name: detail["index"] for name, detail in run.get_input_details().items()}
    outputs = {name: detail["index"] for name, detail in run.get_output_details().items()}
    allocated = 0

    def step(observation: Floats, hidden: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        nonlocal allocated
        if len(observation) != allocated:
            allocated = len(observation)
            for name, value in (("observation", observation), ("hidden", hidden)):
                interpreter.resize_tensor_input(inputs[name], value.shape)
            interpreter.allocate_tensors()
        interpreter.set_tensor(inputs["observation"], observation)
        interpreter.set_tensor(inputs["hidden"], hidden)
        interpreter.invoke()
        logits, loc, scale, next_hidden = (interpreter.get_tensor(outputs[name]) for name in OUTPUTS)
        return logits, loc, scale, next_hidden

    return step


def onnx_network(data: bytes) -> Step:
    """Return the step of the network in an ONNX file's bytes; it takes scaled observations."""
    from sagecc.common.onnx_runtime import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])

    def step(observation: Floats, hidden: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        logits, loc, scale, next_hidden = session.run(OUTPUTS, {"observation": observation, "hidden": hidden})
        return logits, loc, scale, next_hidden

    return step


def _from_file(policy: PolicyArtefact, runtime: str, network: Callable[[bytes], Step]) -> Step:
    """Read and check an exported file, and put the artefact's scaling before its network."""
    name = FILES[runtime]
    path = policy.path / name
    digest = policy.card["files"].get(name)
    remedy = f"write it with 'sagecc export {policy.path}{' --int8' if name == INT8 else ''}'"
    if digest is None:
        raise SageccError(f"policy {policy.path} has no {name}: {remedy}")
    try:
        data = policy.folder.read(name)
    except OSError as error:
        raise SageccError(f"{path} cannot be read ({error.strerror}): {remedy}") from error
    if hashlib.sha256(data).hexdigest() != digest:
        raise SageccError(f"{path} is truncated, or not the file that its card.json describes: {remedy}")
    widths = (*[policy.sizes.mixture] * 3, policy.sizes.state)

    def refusal(reason: object) -> SageccError:
        return SageccError(f"{path} is no network that {runtime} can run for this policy ({reason}): {remedy}")

    def step(observation: Floats, hidden: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        try:
            outputs = run(np.asarray(policy.scaling(observation), np.float32), hidden)
        except Exception as error:  # whatever a library raises
            raise refusal(_first_line(error)) from error
        kinds = [((len(hidden), width), "float32") for width in widths]
        if [(output.shape, output.dtype.name) for output in outputs] != kinds:
            raise refusal("its outputs have other shapes")
        return outputs

    try:
        run = network(data)
    except SageccError:
        raise
    except Exception as error:
        raise refusal(_first_line(error)) from error
    return step


def _first_line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line), type(error).__name__)


RUNTIMES: dict[str, Callable[[PolicyArtefact], Step]] = {
    "exact": exact,
    "numpy": lambda policy: policy.step,
    "litert": lambda policy: _from_file(policy, "litert", litert_network),
    "litert-int8": lambda policy: _from_file(policy, "litert-int8", litert_network),
    "onnx": lambda policy: _from_file(policy, "onnx", onnx_network),
}


def files(name: str) -> tuple[str, ...]:
    """Return the names of the files from which a policy is loaded in a runtime."""
    return (CARD, WEIGHTS, *([FILES[name]] if name in FILES else ()))


def load(policy: PolicyArtefact, name: str = DEFAULT) -> Step:
    """Return the step of a policy in a runtime.

    Args:
        policy: the policy.
        name: one of RUNTIMES.

    Raises:
        SageccError: There is no such runtime, or its library or the policy's file for it is missing or damaged.
    """
    if name not in RUNTIMES:
        raise SageccError(f"no runtime '{name}' for policies: choose one of {', '.join(RUNTIMES)}")
    return RUNTIMES[name](policy)
