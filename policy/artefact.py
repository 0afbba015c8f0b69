# SPDX-License-Identifier: Apache-2.0
"""The policy artefact: a folder with weights, a card, and the network in other runtimes' formats.

Reading one needs no TensorFlow. The card says what the policy sees (where observations come from, their names in
order, their scaling), what it does (the action map), how often, and on top of which scheme; what kind of network it
is; where it came from (configuration, seed, pool) and its final metrics. docs/reference/formats.md describes the
format. Nothing here knows one kind of observation from another: who runs a policy says which it can offer
(execution.agent.sources).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from sagecc.common import shipped
from sagecc.common.arrays import Floats
from sagecc.common.errors import SageccError
from sagecc.common.files import sha256_file, write_atomically
from sagecc.policy.inference import Network, NumpyOps
from sagecc.policy.mlp import Mlp
from sagecc.policy.sage import NetworkSizes
from sagecc.policy.scaling import InputTransform, Scaling
from sagecc.schemas.pool import ACTION_LOG2_LIMIT, POOL_VERSION

FORMAT_VERSION = "2.1"
"""Major.minor: a reader refuses another major version and reads any minor one."""

WEIGHTS, LITERT, ONNX, INT8 = "policy.safetensors", "policy.tflite", "policy.onnx", "policy.int8.tflite"
"""Files beside the card; policy.export writes all but the first."""

OBSERVATION_SOURCE = "sagecc.pool"
"""Who defines the observations' names: schemas/pool.py, under its POOL_VERSION."""

ACTION_MAP = "cwnd *= base**a"
SPREAD_MAP = "cwnd *= base**(a/n) at each of a period's n ticks"
HUNDREDTHS_MAP = "cwnd = floor(cwnd * floor(100 * base**a) / 100)"

_MAPS = (ACTION_MAP, SPREAD_MAP, HUNDREDTHS_MAP)

_AGAIN = "train it again with 'sagecc train' or fetch it again"


@dataclass(frozen=True)
class Control:
    """What an answer a of the policy does: every `period_ms` the window is multiplied by base**a.

    spread: in equal parts, one at each tick of the period, and not all at once.
    hundredths: by base**a cut to hundredths, and the window cut to whole packets: it is the underlying scheme's, and no
    fraction is kept from one decision to the next.
    slow_start: of a policy that is asked only once a flow's ssthresh is below its window. Until then that is multiplied
    by so much, cut to whole packets, at each tick in which something was acknowledged. None: asked from the start.
    limits: a is clipped to these. cwnd_packets: and the window to these, by default those of Sage's public code.
    underlying_scheme: the kernel's scheme whose window that is; `pure` keeps the one it was given last.
    """

    base: float = 2.0
    limits: tuple[float, float] = (-ACTION_LOG2_LIMIT, ACTION_LOG2_LIMIT)
    cwnd_packets: tuple[int, int] = (4, 20_000)
    period_ms: float = 10.0
    underlying_scheme: str = "pure"
    spread: bool = False
    hundredths: bool = False
    slow_start: float | None = None

    def __post_init__(self) -> None:
        numbers = (self.base, self.period_ms, *self.limits, *self.cwnd_packets, self.slow_start or 1)
        if not all(type(x) in (int, float) and math.isfinite(x) for x in numbers):
            raise ValueError("the action's base, limits and period must be numbers")
        if not (self.base > 1 and self.period_ms > 0 and self.limits[0] < self.limits[1]):
            raise ValueError(f"no action has base {self.base}, limits {self.limits} and period {self.period_ms} ms")
        if self.slow_start is not None and not 1 <= self.slow_start <= 2:
            raise ValueError(f"no slow start multiplies a window by {self.slow_start}")
        if self.spread and self.hundredths:
            raise ValueError("an answer cannot be given in parts and in hundredths")
        if not 1 <= self.cwnd_packets[0] <= self.cwnd_packets[1]:
            raise ValueError(f"no window is within {self.cwnd_packets}")

    @classmethod
    def of(cls, card: dict[str, Any]) -> Control:
        """Read the card's fields; raises KeyError, TypeError or ValueError where they are not usable."""
        action = card["action"]
        if action["map"] not in _MAPS:
            raise ValueError(f"action map '{action['map']}' is not known here")
        (low, high), (least, most) = action["limits"], action["cwnd_packets"]
        if not isinstance(card["underlying_scheme"], str):
            raise TypeError("underlying_scheme is no name")
        return cls(
            base=action["base"],
            limits=(low, high),
            cwnd_packets=(least, most),
            period_ms=card["period_ms"],
            underlying_scheme=card["underlying_scheme"],
            spread=action["map"] == SPREAD_MAP,
            hundredths=action["map"] == HUNDREDTHS_MAP,
            slow_start=action.get("slow_start"),
        )

    @property
    def map(self) -> str:
        """The card's name for what an answer does."""
        return HUNDREDTHS_MAP if self.hundredths else SPREAD_MAP if self.spread else ACTION_MAP

    def card(self) -> dict[str, Any]:
        """Return the card's fields."""
        slow_start = {"slow_start": self.slow_start} if self.slow_start else {}
        return {
            "action": {
                "map": self.map,
                "base": self.base,
                "limits": list(self.limits),
                "cwnd_packets": list(self.cwnd_packets),
                **slow_start,
            },
            "period_ms": self.period_ms,
            "underlying_scheme": self.underlying_scheme,
        }


NETWORKS: dict[str, Callable[..., Network]] = {kind.kind: kind for kind in (NetworkSizes, Mlp)}
"""Kinds of networks by the name that a card has for them; called with its other fields."""


@dataclass(frozen=True)
class Exported:
    """Files by name, and for each how far its outputs were from numpy's: largest absolute difference by output."""

    files: dict[str, bytes]
    errors: dict[str, dict[str, float]]


@dataclass(frozen=True)
class PolicyArtefact:
    """A policy: feed it one observation a period for each flow, with the hidden state it gave last.

    source: who defines the observations, and which version of that; the runtime must offer it.
    """

    path: Path
    card: dict[str, Any]
    source: tuple[str, str]
    observations: tuple[str, ...]
    control: Control
    scaling: Scaling
    sizes: Network
    weights: dict[str, Floats]

    @classmethod
    def load(cls, path: Path | str) -> PolicyArtefact:
        """Read and check the artefact in folder `path`, or the one of that name that comes with sagecc.

        Raises SageccError, naming the file, where it is missing, damaged, of another version, or inconsistent.
        """
        folder = shipped.policy(path)
        card_path, weights_path = folder / "card.json", folder / WEIGHTS
        if not folder.is_dir():
            raise SageccError(
                f"no policy at {folder}: expected a folder with card.json; train one with 'sagecc train', or name"
                " sagecc-1, which comes with sagecc"
            )
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
            kind, fields = card["network"]["kind"], {k: v for k, v in card["network"].items() if k != "kind"}
            if kind not in NETWORKS:
                raise ValueError(f"network of kind '{kind}' is not known here")
            sizes = NETWORKS[kind](**fields)
            inputs = card["inputs"]
            shift, scale = (np.array(inputs[name], np.float32) for name in ("shift", "scale"))
            if inputs["transform"] not in get_args(InputTransform):
                raise ValueError(f"transform '{inputs['transform']}' of inputs is not known here")
            scaling = Scaling(inputs["transform"], shift, scale, float(inputs["limit"]))
            source, names = (str(inputs["source"]), str(inputs["source_version"])), tuple(inputs["observations"])
            control, digest = Control.of(card), dict(card["files"])[WEIGHTS]
            shapes = sizes.shapes()
        except (KeyError, TypeError, ValueError) as error:
            raise SageccError(
                f"{card_path} is incomplete or not for this program ({type(error).__name__}: {error}): {_AGAIN}"
            ) from error
        if not len(names) == sizes.inputs == shift.size == scale.size:
            raise SageccError(f"{card_path}: observations, shift, scale and network inputs differ in number: {_AGAIN}")
        if not (np.isfinite(shift).all() and np.isfinite(scale).all() and (scale > 0).all() and scaling.limit >= 0):
            raise SageccError(f"{card_path}: shift, scale or limit is not a usable number: {_AGAIN}")
        weights = _read_weights(weights_path, digest, shapes)
        return cls(folder, card, source, names, control, scaling, sizes, weights)

    def intact_files(self) -> set[str]:
        """Return the names of the files beside the card that are there and are what it describes."""
        described: dict[str, str] = self.card["files"]
        there = ((name, digest) for name, digest in described.items() if (self.path / name).is_file())
        return {name for name, digest in there if sha256_file(self.path / name) == digest}

    def initial_state(self, batch: int = 1) -> Floats:
        """Return the hidden state [batch, H] at the start of a flow."""
        return np.zeros((batch, self.sizes.state), np.float32)

    def step(self, observation: Floats, hidden: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Advance one period, in numpy: the reference (policy.runtime has others).

        observation: unscaled features [B, F] in the order of `observations`. hidden: [B, H].
        Returns the mixture over log2(action), logits, loc and scale, each [B, K], and the next hidden state [B, H].
        """
        return self.sizes.forward(self.weights, NumpyOps(), self.scaling(observation), hidden)


def write(
    folder: Path,
    weights: dict[str, Floats],
    sizes: Network,
    scaling: Scaling,
    observations: tuple[str, ...],
    provenance: dict[str, Any],
    exported: Exported | None = None,
    control: Control | None = None,
    source: tuple[str, str] = (OBSERVATION_SOURCE, POOL_VERSION),
) -> None:
    """Write an artefact: the card, which holds every other file's digest, last, so that a torn one is recognised.

    provenance: what else the card says (training configuration, seed, pool, metrics), JSON values.
    exported: the network in other formats (policy.export); such files of an earlier artefact are removed without it.
    control: what an answer does; Sage's by default.
    """
    folder.mkdir(parents=True, exist_ok=True)
    data = save_tensors({name: np.ascontiguousarray(weights[name]) for name in sizes.shapes()})
    card = {
        "format_version": FORMAT_VERSION,
        "inputs": {
            "source": source[0],
            "source_version": source[1],
            "observations": list(observations),
            "transform": scaling.transform,
            "shift": scaling.shift.tolist(),
            "scale": scaling.scale.tolist(),
            "limit": scaling.limit,
        },
        **(control or Control()).card(),
        "network": {"kind": sizes.kind, **sizes.__dict__},
        "parameters": sizes.parameters,
        **provenance,
    }
    _write_files(folder, card, {WEIGHTS: data}, exported or Exported({}, {}))


def add_exports(policy: PolicyArtefact, exported: Exported) -> None:
    """Write the network's other formats beside a policy's weights, in place of those that are there."""
    _write_files(policy.path, policy.card, {WEIGHTS: (policy.path / WEIGHTS).read_bytes()}, exported)


def _write_files(folder: Path, card: dict[str, Any], weights: dict[str, bytes], exported: Exported) -> None:
    files = weights | exported.files
    for name in {LITERT, ONNX, INT8} - files.keys():
        (folder / name).unlink(missing_ok=True)
    for name, content in files.items():
        with write_atomically(folder / name) as path:
            path.write_bytes(content)
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    with write_atomically(folder / "card.json") as path:
        text = card | {"files": digests, "export_errors": exported.errors}
        path.write_text(json.dumps(text, indent=2) + "\n")


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
