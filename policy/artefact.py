# SPDX-License-Identifier: Apache-2.0
"""The policy artefact: a folder with weights, a card, and the network in other runtimes' formats.

Reading one needs no TensorFlow. The card says what the policy sees (where observations come from, their names in
order, their scaling), what it does (the action map), how often, and on top of which scheme; what kind of network it
is; where it came from (configuration, seed, pool) and its final metrics. docs/reference/formats.md has the format.
Nothing here depends on the kind of observation: what runs a policy decides which kinds it offers
(execution.agent.sources).
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from sagecc.common import shipped
from sagecc.common.arrays import Floats
from sagecc.common.document import DocumentError, parse, read_document
from sagecc.common.errors import SageccError
from sagecc.common.files import sha256_file, write_atomically
from sagecc.common.inputs import check_regular
from sagecc.common.marks import Mark
from sagecc.common.tables import reading_error
from sagecc.common.versions import same_major
from sagecc.policy.bounds import MAX_ACTION, MAX_BASE, MAX_CWND_PACKETS, MAX_PERIOD_MS, NETWORK_BYTES
from sagecc.policy.choice import Chooser
from sagecc.policy.folder import CARD, INT8, LITERT, ONNX, WEIGHTS, PolicyFolder
from sagecc.policy.inference import Architecture, NumpyOps
from sagecc.policy.mlp import Mlp
from sagecc.policy.recurrent import Recurrent
from sagecc.policy.residual import NetworkSizes
from sagecc.policy.scaling import InputTransform, Scaling
from sagecc.schemas.pool import ACTION_LOG2_LIMIT, POOL_VERSION
from sagecc.schemas.schemes import POLICY_PREFIX

FORMAT_VERSION = "2.4"
"""Major.minor: a reader refuses another major version and reads any minor one. A card has the least that has its
fields, so that what is new moves no bytes of policies without it."""

_BEFORE_2_4 = "2.3"

OBSERVATION_SOURCE = "sagecc.pool"
"""The definition of the observations' names: schemas/pool.py, in its POOL_VERSION."""

ACTION_MAP = "cwnd *= base**a"
CEILED_MAP = "cwnd *= base**a, rounded up"
SPREAD_MAP = "cwnd *= base**(a/n) at each of a period's n ticks"
HUNDREDTHS_MAP = "cwnd = floor(cwnd * floor(100 * base**a) / 100)"
LINEAR_MAP = "cwnd *= 1 + (base-1)*a, or /= 1 - (base-1)*a below 0"
RATE_MAP = "rate *= 1 + (base-1)*a, or /= 1 - (base-1)*a below 0; cwnd = 2 * rate * sRTT"
STEPS_MAP = "cwnd /= 2, -= 10, += 0, += 10 or *= 2, for a nearest to -1, -0.5, 0, 0.5 or 1"

MAPS = {
    "power": ACTION_MAP,
    "ceiled": CEILED_MAP,
    "spread": SPREAD_MAP,
    "hundredths": HUNDREDTHS_MAP,
    "linear": LINEAR_MAP,
    "rate": RATE_MAP,
    "steps": STEPS_MAP,
}
"""By its short name, what the card says that an action does."""

MAX_WINDOW_BOUND = 100
"""Largest factor of a bound on windows."""
MAX_SLOW_MBPS = 100.0
"""Highest rate below which a flow may be called slow."""

_NETWORK_FILES = frozenset({WEIGHTS, LITERT, ONNX, INT8})
"""Names that a card may give digests of: a card from elsewhere must name no file outside its folder."""

_LARGEST = float(np.finfo(np.float32).max)

_MAX_FILES = 1000
"""In a policy's folder."""

README = "README.md"
"""What a policy's folder says of it to people."""

_BESIDE = (CARD, "metrics.json", "curves.csv", "scores.csv")
"""What a training writes beside the network."""


def _is_policy(folder: Path) -> bool:
    """Tell whether a folder's card is one of this format, whatever its version and whether all else is whole."""
    try:
        card = read_document(folder / CARD)
    except (FileNotFoundError, DocumentError):
        return False
    return isinstance(card, dict) and {"format_version", "inputs", "files"} <= card.keys()


POLICY_MARK = Mark("a policy's", "|".join(map(re.escape, (*sorted(_NETWORK_FILES), *_BESIDE))), _is_policy)

_REMEDY = "train it again with 'sagecc train' or fetch it again"

ACKED: Literal["acked"] = "acked"
"""The slow start by which a window grows by what was acknowledged."""


@dataclass(frozen=True)
class Control:
    """What an action a of the policy does: once a period the window, or the pacing rate, is changed by it."""

    base: float = 2.0
    """What a = 1 multiplies the window by; above 1."""
    limits: tuple[float, float] = (-ACTION_LOG2_LIMIT, ACTION_LOG2_LIMIT)
    """Lowest and highest a: the policy's output is clipped to these."""
    cwnd_packets: tuple[int, int] = (4, 20_000)
    """Smallest and largest window in packets; by default those of Sage's public code."""
    period_ms: float = 10.0
    """Time from one decision to the next; with `period_min_rtts` the shortest."""
    underlying_scheme: str = "pure"
    """The kernel's scheme whose window is multiplied; `pure` keeps the window that it was given last."""
    period_min_rtts: float = 0.0
    """Time from one decision to the next in minimum RTTs of the flow, rounded to ticks; 0: `period_ms` alone."""
    map: str = ACTION_MAP
    """What is multiplied by what, one of MAPS' values: base**a at once; the same, rounded up in the kernel and not
    down; the same in equal parts, one at each tick of the period; base**a cut to hundredths and the window to whole
    packets, so that no fraction is kept between decisions and the window is the underlying scheme's; 1 + (base-1)*a,
    for a below 0 the inverse of 1 - (base-1)*a; the pacing rate by that, with a window that does not hold it back; one
    of five steps of the window (policy.steps)."""
    slow_start: float | Literal["acked"] | None = None
    """How a flow's window grows until the policy decides, from the moment at which its ssthresh is below its window.

    A factor: at each tick with an acknowledgement the window is multiplied by it and cut to whole packets. `acked`: it
    grows by what was acknowledged, as TCP's does, and the first loss or an sRTT above 1.25 lowest RTTs halves it
    and ends it too, so that it serves `pure`, which knows no ssthresh. None: the policy decides from the start."""
    window_bound: float | None = None
    """No window is above this times what the path was seen to deliver in an RTT, and 3 packets
    (execution.agent.bound). None: no such bound."""
    window_bound_loss: float | None = None
    """Share of packets lost in a round above which that bound tightens for a while. None: it never does."""
    window_bound_drains: bool = False
    """Whether a round after such a loss goes without the 3 packets, so that a short path drains too."""
    window_bound_slow_mbps: float | None = None
    """Rate of delivery below which that bound takes the lowest RTT: a few packets are a long queue. None: none."""
    recovery_floor: float | None = None
    """While losses are repaired, no window is below this share of what was delivered in an sRTT as that began
    (execution.agent.recovery). None: no such floor."""
    decimals: int | None = None
    """Decimals that an action is rounded to, in single precision. None: it is not rounded."""
    paced: bool = True
    """Whether a flow is paced at one window per sRTT; else it sends what its window allows at once."""

    def __post_init__(self) -> None:
        if not isinstance(self.underlying_scheme, str) or not self.underlying_scheme.isprintable():
            raise TypeError("underlying_scheme is no name")
        if self.map not in MAPS.values():
            raise ValueError(f"action map '{self.map}' is not known here")
        factor = 1 if self.slow_start is None or self.slow_start == ACKED else self.slow_start
        shares = (self.window_bound, self.window_bound_loss, self.window_bound_slow_mbps, self.recovery_floor)
        optional = (factor, *(x for x in shares if x is not None))
        periods = (self.period_ms, self.period_min_rtts)
        numbers = (self.base, *periods, *self.limits, *self.cwnd_packets, *optional)
        if not all(_is_number(x) for x in numbers):
            raise ValueError("the action's base, limits and period must be numbers")
        low, high = self.limits
        if not (1 < self.base <= MAX_BASE and -MAX_ACTION <= low < high <= MAX_ACTION):
            raise ValueError(f"no action has base {self.base:g} and limits {low:g} and {high:g}")
        if not 0 < self.period_ms <= MAX_PERIOD_MS:
            raise ValueError(f"no policy decides every {self.period_ms:g} ms")
        if not 1 <= factor <= 2:
            raise ValueError(f"no slow start multiplies a window by {self.slow_start}")
        if not 0 <= self.period_min_rtts <= 100:
            raise ValueError(f"no policy decides every {self.period_min_rtts} minimum RTTs")
        if self.window_bound is not None and not 1 <= self.window_bound <= MAX_WINDOW_BOUND:
            raise ValueError(
                f"a window's bound is 1 to {MAX_WINDOW_BOUND} times what is delivered, not {self.window_bound}"
            )
        if self.window_bound_loss is not None and not (self.window_bound and 0 < self.window_bound_loss < 1):
            raise ValueError(f"no bound on the window tightens at a loss of {self.window_bound_loss}")
        drains = self.window_bound_drains
        if not isinstance(drains, bool) or (drains and not self.window_bound_loss):
            raise ValueError(f"no bound on the window drains as {drains!r} where it does not tighten with loss")
        slow_mbps = self.window_bound_slow_mbps
        if slow_mbps is not None and not (self.window_bound and 0 < slow_mbps <= MAX_SLOW_MBPS):
            raise ValueError(f"no bound on the window is for flows slower than {slow_mbps} Mbps")
        if self.recovery_floor is not None and not 0 < self.recovery_floor <= 1:
            raise ValueError(f"no window is at least {self.recovery_floor} of what is delivered in an RTT")
        if self.decimals is not None and (type(self.decimals) is not int or not 0 <= self.decimals <= 6):
            raise ValueError(f"no action is rounded to {self.decimals!r} decimals")
        if not isinstance(self.paced, bool) or (self.map == RATE_MAP and not self.paced):
            raise ValueError(f"no flow is paced as {self.paced!r} with the map '{self.map}'")
        if self.map == RATE_MAP and self.underlying_scheme != "pure":
            raise ValueError(f"a rate is set on top of pure alone, not of {self.underlying_scheme}")
        least, most = self.cwnd_packets
        if not 1 <= least <= most <= MAX_CWND_PACKETS:
            raise ValueError(f"no windows are from {least} to {most} packets; {MAX_CWND_PACKETS:,} are the most")

    @classmethod
    def of(cls, card: dict[str, Any]) -> Control:
        """Read a card's fields.

        Raises:
            KeyError: A field is missing.
            TypeError: A field has another type.
            ValueError: A field's value is unknown or out of range.
        """
        action = card["action"]
        _refuse_unknown("action", action, _ACTION_FIELDS)
        (low, high), (least, most) = action["limits"], action["cwnd_packets"]
        return cls(
            base=action["base"],
            limits=(low, high),
            cwnd_packets=(least, most),
            period_ms=card["period_ms"],
            period_min_rtts=card.get("period_min_rtts", 0.0),
            underlying_scheme=card["underlying_scheme"],
            map=action["map"],
            slow_start=action.get("slow_start"),
            window_bound=action.get("window_bound"),
            window_bound_loss=action.get("window_bound_loss"),
            window_bound_drains=action.get("window_bound_drains", False),
            window_bound_slow_mbps=action.get("window_bound_slow_mbps"),
            recovery_floor=action.get("recovery_floor"),
            decimals=action.get("decimals"),
            paced=action.get("paced", True),
        )

    def card(self) -> dict[str, Any]:
        """Return these as a card's fields."""
        bound = ("window_bound", "window_bound_loss", "window_bound_slow_mbps")
        optional = {name: getattr(self, name) for name in ("slow_start", *bound, "recovery_floor", "decimals")}
        min_rtts = {"period_min_rtts": self.period_min_rtts} if self.period_min_rtts else {}
        return {
            "action": {
                "map": self.map,
                "base": self.base,
                "limits": list(self.limits),
                "cwnd_packets": list(self.cwnd_packets),
                **{name: value for name, value in optional.items() if value is not None},
                **({"window_bound_drains": True} if self.window_bound_drains else {}),
                **({} if self.paced else {"paced": False}),
            },
            "period_ms": self.period_ms,
            **min_rtts,
            "underlying_scheme": self.underlying_scheme,
        }


_ACTION_FIELDS = {
    *("map", "base", "limits", "cwnd_packets", "slow_start"),
    *("window_bound", "window_bound_loss", "window_bound_drains", "window_bound_slow_mbps", "recovery_floor"),
    *("decimals", "paced"),
}
_INPUT_FIELDS = {"source", "source_version", "without", "observations", "transform", "shift", "scale", "limit"}


def _refuse_unknown(name: str, fields: Mapping[str, Any], known: Set[str]) -> None:
    """Raise ValueError for a field of a card that would decide something, and is not known here."""
    if unknown := fields.keys() - known:
        raise ValueError(f"{name} has a field {min(unknown)!r} that is not known here")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


NETWORKS: dict[str, Callable[..., Architecture]] = {kind.kind: kind for kind in (NetworkSizes, Mlp, Recurrent, Chooser)}
"""Kinds of networks by their name in a card; called with the card's other fields of the network."""


@dataclass(frozen=True)
class ExportedNetwork:
    """A network in other runtimes' formats."""

    files: dict[str, bytes]
    """Each file's content by name."""
    errors: dict[str, dict[str, float]]
    """For each file, the largest absolute difference of each output to numpy's."""


@dataclass(frozen=True)
class PolicyArtefact:
    """A policy: feed it one observation per period for each flow, with the hidden state it returned last."""

    folder: PolicyFolder
    """Where its files are read."""
    card: dict[str, Any]
    """The whole card."""
    source: tuple[str, str]
    """The definition of the observations and its version; what runs the policy must offer it."""
    without: tuple[str, ...]
    """Rules of that definition that do not hold for this policy."""
    observations: tuple[str, ...]
    """Names of the observations, in the network's order."""
    control: Control
    """What the policy's actions do."""
    scaling: Scaling
    """Scaling of the observations before the network."""
    sizes: Architecture
    """The kind of network, with its sizes."""
    weights: dict[str, Floats]
    """The network's weights by name."""

    @property
    def path(self) -> Path:
        """The artefact's folder."""
        return self.folder.path

    @classmethod
    def load(cls, path: Path | str | PolicyFolder) -> PolicyArtefact:
        """Read and check an artefact.

        Args:
            path: its folder, or as a text the name of one that comes with sagecc.

        Raises:
            SageccError: It is missing, damaged, of another version, or inconsistent.
        """
        folder = path if isinstance(path, PolicyFolder) else PolicyFolder.find(path)
        card_path = folder.path / CARD
        try:
            data = folder.read(CARD)
        except FileNotFoundError as error:
            raise SageccError(f"{card_path} is missing: {_REMEDY}") from error
        except OSError as error:
            raise reading_error(card_path, error, _REMEDY) from error
        try:
            card = parse(data, str(card_path))
            version = str(card["format_version"])
        except SageccError as error:
            raise SageccError(f"{error}: {_REMEDY}") from error
        except (KeyError, TypeError) as error:
            raise SageccError(
                f"{card_path} is not a policy's card ({type(error).__name__}: {error}): {_REMEDY}"
            ) from error
        if not same_major(version, FORMAT_VERSION):
            raise SageccError(
                f"{card_path} has format version {version}, this program reads {FORMAT_VERSION}: {_REMEDY}"
            )
        try:
            kind, fields = card["network"]["kind"], {k: v for k, v in card["network"].items() if k != "kind"}
            if kind not in NETWORKS:
                raise ValueError(f"network of kind '{kind}' is not known here")
            if type(fields.get("min_scale")) is int:  # JSON's 1 is 1.0
                fields["min_scale"] = float(fields["min_scale"])
            sizes = NETWORKS[kind](**fields)
            inputs = card["inputs"]
            _refuse_unknown("inputs", inputs, _INPUT_FIELDS)
            scaling, names = _scaling(inputs, sizes.inputs), _names(inputs["observations"], sizes.inputs)
            source = str(inputs["source"]), str(inputs["source_version"])
            without = _rules(inputs.get("without", []))
            control, digest = Control.of(card), dict(card["files"])[WEIGHTS]
            if strangers := card["files"].keys() - _NETWORK_FILES:
                raise ValueError(f"{min(strangers)!r} is no file of a network")
            shapes = sizes.shapes()
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SageccError(
                f"{card_path} is incomplete or not for this program ({type(error).__name__}: {error}): {_REMEDY}"
            ) from error
        weights = _read_weights(folder, digest, shapes)
        return cls(
            folder=folder,
            card=card,
            source=source,
            without=without,
            observations=names,
            control=control,
            scaling=scaling,
            sizes=sizes,
            weights=weights,
        )

    def intact_files(self) -> set[str]:
        """Return the names of the files beside the card that exist with the digest it gives."""
        digests: dict[str, str] = self.card["files"]
        entries = ((name, digest) for name, digest in digests.items() if (self.path / name).is_file())
        return {name for name, digest in entries if hashlib.sha256(self.folder.read(name)).hexdigest() == digest}

    def initial_state(self, batch: int = 1) -> Floats:
        """Return the hidden state [batch, H] at the start of a flow."""
        return np.zeros((batch, self.sizes.state), np.float32)

    def step(self, observation: Floats, hidden: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Advance one period, in numpy: the reference (policy.runtime has others).

        Args:
            observation: unscaled features [B, F] in the order of `observations`.
            hidden: hidden state [B, H].

        Returns:
            The mixture over actions (logits, loc and scale, each [B, K]) and the next hidden state [B, H].
        """
        return self.sizes.forward(self.weights, NumpyOps(), self.scaling(observation), hidden)


def _scaling(inputs: Mapping[str, Any], count: int) -> Scaling:
    """Return the scaling of a card's inputs; raises KeyError, TypeError or ValueError where it has none that serves."""
    shift, scale = (_vector(name, inputs[name], count) for name in ("shift", "scale"))
    _vector("limit", [inputs["limit"]], 1)
    if not ((scale > 0).all() and inputs["limit"] >= 0):
        raise ValueError("scale must be above 0, and limit not below")
    if inputs["transform"] not in get_args(InputTransform):
        raise ValueError(f"transform '{inputs['transform']}' of inputs is not known here")
    return Scaling(inputs["transform"], shift, scale, float(inputs["limit"]))


def _vector(name: str, numbers: Sequence[float], count: int) -> Floats:
    if len(numbers) != count:
        raise ValueError(f"{name} has {len(numbers)} numbers, not {count}")
    if not all(_is_number(number) and abs(number) <= _LARGEST for number in numbers):
        raise ValueError(f"{name} holds what is no usable number")
    return np.array(numbers, np.float32)


def _names(observations: Sequence[str], count: int) -> tuple[str, ...]:
    """Return the names of a card's inputs; raises TypeError or ValueError where they are none."""
    if len(observations) != count or not all(isinstance(name, str) and name.isprintable() for name in observations):
        raise ValueError(f"observations are not the names of the network's {count} inputs")
    return tuple(observations)


def _rules(names: object) -> tuple[str, ...]:
    """Return the names of the rules that a card is without; raises TypeError where they are none."""
    if not isinstance(names, list) or not all(isinstance(name, str) and name.isprintable() for name in names):
        raise TypeError("without is no list of rules' names")
    return tuple(names)


def policy_sha256(scheme: str) -> str:
    """Hash a policy's files, so that a retrained one is not taken for the one whose trajectories there are.

    A README is for people, and no part of it. An export that the card names counts by its digest there where it is
    missing: nothing plays otherwise without it.

    Args:
        scheme: `policy:PATH`.

    Returns:
        SHA-256 over the files' names and bytes, in hex.

    Raises:
        SageccError: there is no policy.
    """
    path = shipped.policy(scheme.removeprefix(POLICY_PREFIX))
    if not (path / CARD).is_file():
        raise SageccError(f"{scheme}: there is no policy at {path}; train one with 'sagecc train'")
    found = (file for file in path.rglob("*") if file.is_file() and file != path / README)
    files = sorted(islice(found, _MAX_FILES + 1))
    if len(files) > _MAX_FILES:
        raise SageccError(f"{scheme}: {path} holds more than {_MAX_FILES:,} files, which no policy does")
    for file in files:
        check_regular(file, NETWORK_BYTES)
    named = _named_exports(path / CARD)
    digests = {path / name: sha256 for name, sha256 in named.items()} | {file: sha256_file(file) for file in files}
    lines = (f"{file.relative_to(path)} {digests[file]}\n" for file in sorted(digests))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _named_exports(card: Path) -> dict[str, str]:
    """Return name and digest of the exports that a card names, as far as it is one."""
    try:
        document = read_document(card)
    except DocumentError:  # whoever loads the policy says what is wrong with it
        return {}
    files = document.get("files") if isinstance(document, dict) else None
    entries = files.items() if isinstance(files, dict) else ()
    return {name: sha256 for name, sha256 in entries if name in _NETWORK_FILES - {WEIGHTS} and isinstance(sha256, str)}


def write(
    folder: Path,
    weights: dict[str, Floats],
    sizes: Architecture,
    scaling: Scaling,
    observations: tuple[str, ...],
    provenance: dict[str, Any],
    *,
    exported: ExportedNetwork | None = None,
    control: Control | None = None,
    source: tuple[str, str] = (OBSERVATION_SOURCE, POOL_VERSION),
    without: Sequence[str] = (),
) -> None:
    """Write an artefact; the card, which holds every other file's digest, comes last: a torn artefact is recognised.

    Args:
        folder: where to write it; made if it does not exist.
        weights: the network's weights by name.
        sizes: the kind of network, with its sizes.
        scaling: scaling of the observations before the network.
        observations: names of the observations, in the network's order.
        provenance: the card's other fields (training configuration, seed, pool, metrics), JSON values.
        exported: the network in other formats (policy.export); None removes such files of an earlier artefact.
        control: what an action does; Sage's by default.
        source: the definition of the observations and its version; the pool's by default.
        without: rules of that definition that do not hold for this policy.

    Raises:
        SageccError: A weight is not finite; nothing is written.
    """
    for name in sizes.shapes():
        if not np.isfinite(weights[name]).all():
            raise SageccError(f"{folder} is not written: its weight '{name}' holds values that are not finite")
    data = save_tensors({name: np.ascontiguousarray(weights[name]) for name in sizes.shapes()})
    control = control or Control()
    card = {
        "format_version": _version(control, _BEFORE_2_4),
        "inputs": {
            "source": source[0],
            "source_version": source[1],
            **({"without": list(without)} if without else {}),
            "observations": list(observations),
            "transform": scaling.transform,
            "shift": scaling.shift.tolist(),
            "scale": scaling.scale.tolist(),
            "limit": scaling.limit,
        },
        **control.card(),
        "network": {"kind": sizes.kind, **sizes.__dict__},
        "parameters": sizes.parameters,
        **provenance,
    }
    _write_files(folder, card, {WEIGHTS: data}, exported or ExportedNetwork({}, {}))


def add_exports(policy: PolicyArtefact, exported: ExportedNetwork) -> None:
    """Write the network's other formats beside a policy's weights, in place of earlier ones."""
    _write_files(policy.path, policy.card, {WEIGHTS: policy.folder.read(WEIGHTS)}, exported)


def write_with_control(policy: PolicyArtefact, folder: Path, control: Control) -> None:
    """Write a policy to another folder, with other actions: its network stays, in all its formats."""
    intact = policy.intact_files()
    files = {name: policy.folder.read(name) for name in policy.card["files"] if name in intact}  # a set has no order
    weights = {WEIGHTS: files.pop(WEIGHTS)}
    errors = policy.card.get("export_errors")
    known = errors if isinstance(errors, dict) else {}
    exported = ExportedNetwork(files, {name: known[name] for name in files if name in known})
    version = _version(control, policy.card["format_version"])
    _write_files(folder, policy.card | {"format_version": version} | control.card(), weights, exported)


def _version(control: Control, version: str) -> str:
    """Return the version of a card with this control, where another of its version has not what 2.4 brought."""
    if control.window_bound_slow_mbps is not None or control.recovery_floor is not None:
        return FORMAT_VERSION
    return _BEFORE_2_4 if version == FORMAT_VERSION else version


def _write_files(folder: Path, card: dict[str, Any], weights: dict[str, bytes], exported: ExportedNetwork) -> None:
    files = weights | exported.files
    with POLICY_MARK.filling(folder):
        for name in _NETWORK_FILES - files.keys():
            (folder / name).unlink(missing_ok=True)
        for name, content in files.items():
            with write_atomically(folder / name) as path:
                path.write_bytes(content)
        digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
        with write_atomically(folder / CARD) as path:
            text = card | {"files": digests, "export_errors": exported.errors}
            path.write_text(json.dumps(text, indent=2) + "\n")


def _read_weights(folder: PolicyFolder, digest: str, shapes: dict[str, tuple[int, ...]]) -> dict[str, Floats]:
    path = folder.path / WEIGHTS
    try:
        data = folder.read(WEIGHTS)
        weights = load_tensors(data)
    except FileNotFoundError as error:
        raise SageccError(f"{path} is missing: {_REMEDY}") from error
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        raise reading_error(path, error, _REMEDY) from error
    for name, shape in shapes.items():
        if name not in weights:
            raise SageccError(f"{path} lacks weight '{name}': {_REMEDY}")
        if weights[name].shape != shape or weights[name].dtype != np.float32:
            raise SageccError(
                f"{path}: weight '{name}' is {weights[name].dtype} {weights[name].shape}, the card asks for "
                f"float32 {shape}: {_REMEDY}"
            )
        if not np.isfinite(weights[name]).all():
            raise SageccError(f"{path}: weight '{name}' holds values that are not finite: {_REMEDY}")
    if hashlib.sha256(data).hexdigest() != digest:
        raise SageccError(f"{path} is not the file that its card.json describes (SHA-256 differs): {_REMEDY}")
    return {name: weights[name] for name in shapes}
