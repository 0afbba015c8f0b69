# SPDX-License-Identifier: Apache-2.0
"""The policy artefact: a folder with `policy.safetensors` and `card.json`, and its inference in plain numpy.

Whoever runs a policy needs this module alone: no TensorFlow. The card says what the policy sees (names of the
observations in order, and their scaling), what it does (the action map), how often, and on top of which scheme;
where it came from (configuration, seed, pool) and its final metrics. docs/learner.md describes the format.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from learner.config import Config
from learner.scaling import Floats, Scaling
from schemas.errors import SageccError
from schemas.files import write_atomically
from schemas.pool import ACTION_LOG2_LIMIT, FEATURE_NAMES

FORMAT_VERSION = "1.0"
"""Major.minor: a reader refuses another major version and reads any minor one."""

PERIOD_MS = 10
UNDERLYING_SCHEME = "pure"
ACTION_MAP = "cwnd *= 2**a"

ZERO, HALF = np.float32(0), np.float32(0.5)
LAYER_NORM_EPSILON = np.float32(1e-5)
"""Sonnet's."""

_AGAIN = "train it again with 'sagecc train' or fetch it again"


@dataclass(frozen=True)
class NetworkSizes:
    """What fixes every weight's shape: inputs F, width, gru H (0: none), residual blocks, mixture K, second encoder."""

    inputs: int
    width: int
    gru: int
    residual_blocks: int
    mixture: int
    min_scale: float
    second_encoder: bool = True

    def __post_init__(self) -> None:
        sizes = (self.inputs, self.width, self.gru, self.residual_blocks, self.mixture)
        if not all(type(size) is int and size >= 0 for size in sizes) or not self.min_scale > 0:
            raise ValueError(f"no network has the sizes {sizes} and min_scale {self.min_scale}")

    @classmethod
    def of(cls, config: Config, inputs: int) -> NetworkSizes:
        """Return the sizes of the policy that a configuration trains."""
        return cls(
            inputs,
            config.width,
            config.gru,
            config.residual_blocks,
            config.mixture,
            config.min_scale,
            config.second_encoder,
        )

    @property
    def state(self) -> int:
        """Size of the hidden state: the GRU's, or without one that of the encoder, whose last output it is."""
        return self.gru or self.width

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every weight by name."""
        width, gru = self.width, self.gru
        shapes: dict[str, tuple[int, ...]] = {}

        def linear(name: str, inputs: int, outputs: int) -> None:
            shapes.update({f"{name}.w": (inputs, outputs), f"{name}.b": (outputs,)})

        def norm(name: str) -> None:
            shapes.update({f"{name}.norm.scale": (width,), f"{name}.norm.offset": (width,)})

        linear("encoder", self.inputs, width)
        norm("encoder")
        if gru:
            shapes.update({"gru.w_i": (width, 3 * gru), "gru.w_h": (gru, 3 * gru), "gru.b": (3 * gru,)})
        if self.second_encoder:
            linear("encoder2", self.state, width)
            norm("encoder2")
        linear("fc", width if self.second_encoder else self.state, width)
        for i in range(self.residual_blocks):
            linear(f"residual{i}.linear0", width, width)
            linear(f"residual{i}.linear1", width, width)
            norm(f"residual{i}")
        for part in ("logits", "loc", "scale"):
            linear(f"head.{part}", width, self.mixture)
        return shapes

    @property
    def parameters(self) -> int:
        """Number of trainable parameters."""
        return sum(int(np.prod(shape)) for shape in self.shapes().values())


@dataclass(frozen=True)
class PolicyArtefact:
    """A trained policy: feed it one observation a tick for each flow, with the hidden state it gave last."""

    path: Path
    card: dict[str, Any]
    observations: tuple[str, ...]
    period_ms: float
    scaling: Scaling
    sizes: NetworkSizes
    weights: dict[str, Floats]

    @classmethod
    def load(cls, path: Path | str) -> PolicyArtefact:
        """Read and check the artefact in folder `path`.

        Raises SageccError, naming the file, where it is missing, damaged, of another version, or inconsistent.
        """
        folder = Path(path)
        card_path, weights_path = folder / "card.json", folder / "policy.safetensors"
        if not folder.is_dir():
            raise SageccError(f"no policy at {folder}: expected a folder with card.json; train one with 'sagecc train'")
        try:
            card = json.loads(card_path.read_text())
            version = str(card["format_version"])
        except FileNotFoundError as error:
            raise SageccError(f"{card_path} is missing: {_AGAIN}") from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SageccError(
                f"{card_path} is not a policy's card ({type(error).__name__}: {error}): {_AGAIN}"
            ) from error
        if version.split(".")[0] != FORMAT_VERSION.split(".")[0]:
            raise SageccError(
                f"{card_path} has format version {version}, this program reads {FORMAT_VERSION}: {_AGAIN}"
            )
        try:
            sizes = NetworkSizes(**card["network"])
            inputs = card["inputs"]
            shift, scale = (np.array(inputs[name], np.float32) for name in ("shift", "scale"))
            scaling = Scaling(inputs["transform"], shift, scale, float(inputs["limit"]))
            names = tuple(inputs["observations"])
            period_ms, digest = float(card["period_ms"]), card["weights_sha256"]
            usable = card["action_map"] == ACTION_MAP and card["underlying_scheme"] == UNDERLYING_SCHEME
            usable = usable and scaling.transform in ("none", "linear", "symlog")
            shapes = sizes.shapes()
        except (KeyError, TypeError, ValueError) as error:
            raise SageccError(f"{card_path} is incomplete ({type(error).__name__}: {error}): {_AGAIN}") from error
        if not usable:
            raise SageccError(f"{card_path} asks for a scaling, an action map or an underlying scheme not known here")
        unknown = sorted(set(names) - set(FEATURE_NAMES))
        if unknown:
            raise SageccError(f"{card_path} names unknown observation '{unknown[0]}': {_AGAIN}")
        if not len(names) == sizes.inputs == shift.size == scale.size:
            raise SageccError(f"{card_path}: observations, shift, scale and network inputs differ in number: {_AGAIN}")
        if not (np.isfinite(shift).all() and np.isfinite(scale).all() and (scale > 0).all() and period_ms > 0):
            raise SageccError(f"{card_path}: shift, scale or period is not a usable number: {_AGAIN}")
        weights = _read_weights(weights_path, digest, shapes)
        return cls(folder, card, names, period_ms, scaling, sizes, weights)

    def initial_state(self, batch: int = 1) -> Floats:
        """Return the hidden state [batch, H] at the start of a flow."""
        return np.zeros((batch, self.sizes.state), np.float32)

    def step(self, observation: Floats, hidden: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Advance one tick.

        observation: unscaled features [B, F] in the order of `observations`. hidden: [B, H].
        Returns the mixture over log2(action), logits, loc and scale, each [B, K], and the next hidden state [B, H].
        """
        w = self.weights
        x: Any = np.tanh(_layer_norm(self.scaling(observation) @ w["encoder.w"] + w["encoder.b"], w, "encoder"))
        x = hidden = self._gru(x, hidden) if self.sizes.gru else x
        if self.sizes.second_encoder:
            x = np.tanh(_layer_norm(x @ w["encoder2.w"] + w["encoder2.b"], w, "encoder2"))
        x = x @ w["fc.w"] + w["fc.b"]
        for i in range(self.sizes.residual_blocks):
            name = f"residual{i}"
            inner = np.maximum(x @ w[f"{name}.linear0.w"] + w[f"{name}.linear0.b"], ZERO)
            x = _layer_norm(x + inner @ w[f"{name}.linear1.w"] + w[f"{name}.linear1.b"], w, name)
        logits, loc, raw = (x @ w[f"head.{part}.w"] + w[f"head.{part}.b"] for part in ("logits", "loc", "scale"))
        return logits, loc, np.logaddexp(raw, ZERO) + np.float32(self.sizes.min_scale), hidden

    def mean_action(self, logits: Floats, loc: Floats) -> Floats:
        """Return the mixture's mean, log2 of the window's ratio, clipped to plus or minus 2: [B, K] -> [B]."""
        weights: Any = np.exp(logits - logits.max(axis=-1, keepdims=True))
        mean = (weights * loc).sum(axis=-1) / weights.sum(axis=-1)
        action: Floats = np.clip(mean, -ACTION_LOG2_LIMIT, ACTION_LOG2_LIMIT)
        return action

    def _gru(self, x: Any, h: Any) -> Any:
        size, w_h = self.sizes.gru, self.weights["gru.w_h"]
        gates = x @ self.weights["gru.w_i"] + self.weights["gru.b"]
        zr = HALF + HALF * np.tanh(HALF * (gates[:, : 2 * size] + h @ w_h[:, : 2 * size]))
        z, r = zr[:, :size], zr[:, size:]
        a = np.tanh(gates[:, 2 * size :] + (r * h) @ w_h[:, 2 * size :])
        return h + z * (a - h)


def write(
    folder: Path,
    weights: dict[str, Floats],
    sizes: NetworkSizes,
    scaling: Scaling,
    observations: tuple[str, ...],
    provenance: dict[str, Any],
) -> None:
    """Write an artefact: the weights first, the card with their digest last, so that a torn one is recognised.

    provenance: what else the card says (training configuration, seed, pool, metrics), JSON values.
    """
    folder.mkdir(parents=True, exist_ok=True)
    data = save_tensors({name: np.ascontiguousarray(weights[name]) for name in sizes.shapes()})
    card = {
        "format_version": FORMAT_VERSION,
        "inputs": {
            "observations": list(observations),
            "transform": scaling.transform,
            "shift": scaling.shift.tolist(),
            "scale": scaling.scale.tolist(),
            "limit": scaling.limit,
        },
        "action_map": ACTION_MAP,
        "action_limits": [-ACTION_LOG2_LIMIT, ACTION_LOG2_LIMIT],
        "period_ms": PERIOD_MS,
        "underlying_scheme": UNDERLYING_SCHEME,
        "network": sizes.__dict__,
        "parameters": sizes.parameters,
        "weights_sha256": hashlib.sha256(data).hexdigest(),
        **provenance,
    }
    with write_atomically(folder / "policy.safetensors") as path:
        path.write_bytes(data)
    with write_atomically(folder / "card.json") as path:
        path.write_text(json.dumps(card, indent=2) + "\n")


def _read_weights(path: Path, digest: str, shapes: dict[str, tuple[int, ...]]) -> dict[str, Floats]:
    try:
        data = path.read_bytes()
        weights = load_tensors(data)
    except FileNotFoundError as error:
        raise SageccError(f"{path} is missing: {_AGAIN}") from error
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        raise SageccError(f"{path} is truncated or corrupt ({error}): {_AGAIN}") from error
    for name, shape in shapes.items():
        if name not in weights:
            raise SageccError(f"{path} lacks weight '{name}': {_AGAIN}")
        if weights[name].shape != shape or weights[name].dtype != np.float32:
            raise SageccError(
                f"{path}: weight '{name}' is {weights[name].dtype} {weights[name].shape}, the card asks for "
                f"float32 {shape}: {_AGAIN}"
            )
        if not np.isfinite(weights[name]).all():
            raise SageccError(f"{path}: weight '{name}' holds values that are not finite: {_AGAIN}")
    if hashlib.sha256(data).hexdigest() != digest:
        raise SageccError(f"{path} is not the file that its card.json describes (SHA-256 differs): {_AGAIN}")
    return {name: weights[name] for name in shapes}


def _layer_norm(x: Any, w: dict[str, Floats], name: str) -> Any:
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = np.square(centred).mean(axis=-1, keepdims=True)
    normal = centred / np.sqrt(variance + LAYER_NORM_EPSILON)
    return normal * w[f"{name}.norm.scale"] + w[f"{name}.norm.offset"]
