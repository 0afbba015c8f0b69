# SPDX-License-Identifier: Apache-2.0
"""The specification of a training run: data or task, network, algorithm, control; a frozen value, read from YAML."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from sagecc.common.errors import SageccError
from sagecc.learner.architectures import NetworkSettings, read_network
from sagecc.learner.core import Learner, Setting
from sagecc.learner.exploration import Exploring
from sagecc.learner.privileged import States, names_of
from sagecc.learner.reader import LARGEST, WHERE, merged, read, require, shipped, whole_values
from sagecc.learner.selection import EVERYTHING, Selection
from sagecc.policy import artefact
from sagecc.policy.artefact import MAX_SLOW_MBPS, MAX_WINDOW_BOUND
from sagecc.policy.bounds import MAX_BASE, MAX_PERIOD_MS
from sagecc.schemas.pool import FEATURE_NAMES, INPUT_GROUPS
from sagecc.schemas.raw import TICK_S
from sagecc.schemas.schemes import EXPLORERS

__all__ = [
    "Algorithm",
    "ControlSettings",
    "Data",
    "LabSettings",
    "PoolShare",
    "RunSpecification",
    "from_dict",
    "load",
    "shipped",
]

TICK_MS = round(TICK_S * 1000)
"""Time between the pool's rows (ms)."""

MAX_LABS = 4096
"""Guest kernels in step; each takes a processor's time and some 40 MB."""

MAX_ROWS = 2**24
"""Most rows of observations that a step may take at once: gigabytes."""


LATER: Mapping[str, str] = MappingProxyType({"recorded": "where it is set"})
"""Metadata of a field that came later: a record has it where it is not its default, so that older runs stay what they
are."""

_FLAT = {"width", "gru", "hidden", "policy_rate", "critic_rate", "actor_rate", "filter", "inputs", "replay"}
"""Fields of configurations as they were before they had sections."""


class Algorithm:
    """An algorithm's section of a specification: the base of the one dataclass of its module that says its fields."""

    networks: ClassVar[tuple[str, ...]]
    """Kinds of network that it learns."""
    sources: ClassVar[tuple[str, ...]]
    """What it learns from: `data`, `task`."""
    version: ClassVar[int]
    """Of what it comes to (common.versions)."""

    def check(self, whole: RunSpecification) -> None:
        """Raise SageccError where the rest of a specification does not fit it."""

    def seen(self, whole: RunSpecification) -> tuple[int, ...] | None:
        """Return which of a window's observations it looks at where all actions are labels; None, as here, for all."""
        return None

    def exploring(self, warm_up: int) -> Exploring:
        """Return how actors explore whose first `warm_up` decisions are not the policy's; of `task` alone."""
        raise NotImplementedError

    def return_range(self, measured: Callable[[float], tuple[float, float]]) -> tuple[float, float] | None:
        """Return the range of returns that its critics need; None, as here, if they need none.

        Args:
            measured: returns the data's, by the discount per decision.
        """
        return None

    def learner(self, setting: Setting) -> Learner:
        """Return the learner."""
        raise NotImplementedError


def algorithms() -> tuple[str, ...]:
    """Return the names of the algorithms: the modules of learner/algorithms."""
    return tuple(sorted(path.stem for path in Path(__file__).with_name("algorithms").glob("[a-z]*.py")))


def algorithm_of(name: str) -> type[Algorithm]:
    """Return the dataclass of an algorithm's section."""
    module = import_module(f"sagecc.learner.algorithms.{name}")
    kinds = (each for each in vars(module).values() if isinstance(each, type) and each.__module__ == module.__name__)
    return next(kind for kind in kinds if issubclass(kind, Algorithm))


def name_of(algorithm: Algorithm) -> str:
    """Return the name of the algorithm that a section is of."""
    return type(algorithm).__module__.rpartition(".")[2]


def read_algorithm(values: object) -> Algorithm:
    """Return the section `algorithm` of a specification: its `name` says what its other fields are.

    Raises:
        SageccError: There is no such algorithm, or a field is unknown, missing, of another type or out of range.
    """
    of = dict(values) if isinstance(values, Mapping) else {}
    name = of.pop("name", None)
    if name not in algorithms():
        raise SageccError(f"{WHERE}: algorithm.name must be one of {', '.join(algorithms())}, not {name!r:.60}")
    return read(algorithm_of(name), of, "algorithm")


@dataclass(frozen=True)
class Data:
    """What is learned from a pool."""

    selection: Selection = EVERYTHING
    """Which trajectories of the pool, and their weights: the fields of learner.selection.Selection."""
    inputs: str | tuple[str, ...] = "all"
    """The features that the networks see: a list of names of schemas.pool, or a group, or several (what all have):
    `all` (69), `no-min-max` (33), `no-rtt-var` (51), `no-loss-inflight` (51), `no-acked-rate` (68), `window-s`,
    `window-m`, `window-l` (33 each: the windows of 10, 200 or 1000 ticks alone).
    """
    period_ms: int = TICK_MS
    """Time between decisions, a multiple of 10 ms. An action is the product of a period's ratios, a reward the mean of
    its ticks' rewards, an observation that of its first tick. At work the action is spread over the ticks.
    """
    action_base: float | None = field(default=None, metadata=LATER)
    """An action of 1 multiplies the window by this over a period; actions reach from -1 to 1. `null`: log2 of the
    ratio, from -2 to 2. Networks of kind `mlp` and `recurrent` need a base. 1.0718 = 2**0.1 clips a halving; 2 does
    not.
    """
    states: States = field(default="none", metadata=LATER)
    """Added to what critics see, never to what the policy sees: `none`, whether other `flows` share the link, or the
    `network` and the place in the episode (learner.privileged).
    """
    explorers: tuple[str, ...] = field(default=EXPLORERS, metadata=LATER)
    """Schemes whose actions are random: values learn from them, no policy imitates them. `wander` may be missing."""
    start_share: float = 0.0
    """Share of windows that begin with their episode, where a flow's memory is empty. The others begin anywhere."""
    reward: str = "pool"
    """The reward to learn from, a name of pool.reward; `pool` is that of the pool's rows."""
    validation_share: float = field(default=0.0, metadata=LATER)
    """Share of the environments left out of training, on which the policy is judged. Their ids decide which; 0 judges
    nothing.
    """
    reward_before_action: bool = False
    """Pair action t with the reward measured before it, as Sage's code does; by default with the one after it."""

    def __post_init__(self) -> None:
        require(
            (0 <= self.start_share <= 1, "data.start_share must be from 0 to 1"),
            (0 <= self.validation_share < 1, "data.validation_share must be from 0 to below 1"),
            (
                TICK_MS <= self.period_ms <= MAX_PERIOD_MS and self.period_ms % TICK_MS == 0,
                f"data.period_ms must be a multiple of the pool's tick, {TICK_MS} ms, and at most {MAX_PERIOD_MS:,} ms",
            ),
            (
                self.action_base is None or 1 < self.action_base <= MAX_BASE,
                f"data.action_base must be null or above 1 and at most {MAX_BASE:g}",
            ),
        )
        if isinstance(self.inputs, str):
            if self.inputs not in INPUT_GROUPS:
                raise SageccError(
                    f"{WHERE}: data.inputs '{self.inputs}' is no group of features; known are "
                    f"{', '.join(INPUT_GROUPS)}, or a list of names"
                )
        elif not self._of_groups and (unknown := sorted(set(self.inputs) - set(FEATURE_NAMES))):
            raise SageccError(f"{WHERE}: data.inputs names '{unknown[0]}', which is no feature of the pool")
        elif not self.inputs or len(set(self.inputs)) < len(self.inputs):
            raise SageccError(f"{WHERE}: data.inputs must name at least one feature, and none twice")

    @property
    def period_ticks(self) -> int:
        """Rows of the pool from one decision to the next."""
        return self.period_ms // TICK_MS

    @property
    def state_names(self) -> tuple[str, ...]:
        """Names of what critics see beside them."""
        return names_of(self.states)

    @property
    def observations(self) -> tuple[str, ...]:
        """Names of the features that the networks see, in the network's order."""
        if isinstance(self.inputs, str):
            return INPUT_GROUPS[self.inputs]
        if self._of_groups:
            return tuple(name for name in FEATURE_NAMES if all(name in INPUT_GROUPS[group] for group in self.inputs))
        return self.inputs

    @property
    def _of_groups(self) -> bool:
        return set(self.inputs) <= INPUT_GROUPS.keys()


@dataclass(frozen=True)
class LabSettings:
    """How what a policy learns from is played in labs. Updates and decisions take turns in rounds."""

    count: int
    """Labs in step, shared among the actor processes."""
    replay: int
    """Records that the replay holds; the oldest make room."""
    warm_up: int
    """Decisions before the first update, all uniform over the actions; with `dagger` all the expert's. A run from a
    policy plays that one there, and explores as at its first decision.
    """
    round_steps: int
    """Updates of a round."""
    round_decisions: int
    """Decisions of a round, of all labs together, with the weights after the round before."""
    give_up_share: float = 0.2
    """An episode ends early where its links drop more than this share over `give_up_time_s`; 0 plays to the end."""
    give_up_time_s: float = 5.0
    """The time over which that share is taken."""

    def __post_init__(self) -> None:
        counts = ("count", "round_steps", "round_decisions")
        require(
            *((getattr(self, name) >= 1, f"labs.{name} must be at least 1") for name in counts),
            (self.count <= MAX_LABS, f"labs.count must be at most {MAX_LABS:,}"),
            (self.warm_up >= 0, "labs.warm_up cannot be negative"),
            (0 <= self.give_up_share < 1, "labs.give_up_share must be from 0 to below 1"),
            (self.give_up_time_s > 0, "labs.give_up_time_s must be above 0"),
        )


@dataclass(frozen=True)
class PoolShare:
    """A pool's windows among those of the replay, for a run in labs."""

    share: float
    """Share of a batch's windows that are the pool's, at the first update. None of them holds a kick."""
    share_steps: int
    """Updates over which that share falls linearly."""
    last_share: float = 0.0
    """The share from then on."""

    def __post_init__(self) -> None:
        require(
            (0 < self.share <= 1, "pool.share must be above 0 and at most 1"),
            (0 <= self.last_share <= self.share, "pool.last_share must be from 0 to pool.share"),
            (self.share_steps >= 1, "pool.share_steps must be at least 1"),
        )

    def windows(self, step: int, batch: int) -> int:
        """Return how many windows of a batch are the pool's at an update, from 0."""
        passed = min(step / self.share_steps, 1.0)
        return round(batch * (self.share + (self.last_share - self.share) * passed))


@dataclass(frozen=True)
class ControlSettings:
    """What is set around the policy that comes out, in its card; it changes nothing of the training itself.

    What a field leaves out is the task's in labs, within which it learns, and nothing for a policy of a pool.
    """

    slow_start: Literal["acked"] | None = None
    """A slow start before the policy decides; `null`: none. `acked` grows by what is acknowledged
    (execution.agent.actions.AckedStart).
    """
    window_bound: float | None = None
    """No window is above this times what an RTT delivers, and 3 packets; `null`: no bound. A policy that floods loses
    at most (k - 1) / k of its packets; below 2 it starts more slowly.
    """
    window_bound_loss: float | None = None
    """Share of packets lost in a round trip above which that bound tightens until less is lost; `null`: never."""
    window_bound_drains: bool | None = field(default=None, metadata=LATER)
    """Whether a round trip after such a loss goes without the 3 packets, so that short paths drain."""
    window_bound_slow_mbps: float | None = field(default=None, metadata=LATER)
    """Rate of delivery below which that bound takes the lowest RTT: a few packets are a long queue; `null`: none."""
    recovery_floor: float | None = field(default=None, metadata=LATER)
    """While losses are repaired, no window is below this share of what an RTT delivered as that began; `null`: none."""

    def __post_init__(self) -> None:
        require(
            (
                self.window_bound is None or 1 <= self.window_bound <= MAX_WINDOW_BOUND,
                f"control.window_bound must be null or from 1 to {MAX_WINDOW_BOUND}",
            ),
            (
                self.window_bound_loss is None or bool(self.window_bound and 0 < self.window_bound_loss < 1),
                "control.window_bound_loss must be null or between 0 and 1, and needs a window_bound",
            ),
            (
                not self.window_bound_drains or bool(self.window_bound_loss),
                "control.window_bound_drains needs a window_bound_loss",
            ),
            (
                self.window_bound_slow_mbps is None
                or bool(self.window_bound and 0 < self.window_bound_slow_mbps <= MAX_SLOW_MBPS),
                f"control.window_bound_slow_mbps must be null or up to {MAX_SLOW_MBPS:g}, and needs a window_bound",
            ),
            (
                self.recovery_floor is None or 0 < self.recovery_floor <= 1,
                "control.recovery_floor must be null or above 0 and at most 1",
            ),
        )

    def around(self, control: artefact.Control) -> artefact.Control:
        """Return how a policy is controlled, with what is set here in place of its own."""
        return replace(control, **{name: value for name, value in asdict(self).items() if value is not None})


@dataclass(frozen=True, kw_only=True)
class RunSpecification:
    """Every choice of a training run but the pool, its seed, the machine's processes and its place on disk."""

    steps: int
    """Updates in all."""
    batch: int
    """Windows per update."""
    window: int = 2
    """Decisions per window; T of them hold T - 1 transitions. Recurrent networks begin each with an empty memory."""
    burn_in: int = 0
    """First transitions of a window that only warm up recurrent networks' memory."""
    network: NetworkSettings
    """The policy's network; critics have the same layers."""
    algorithm: Algorithm
    """The learner."""
    data: Data | None = None
    """Learning from a pool; `null` learns in labs."""
    task: Mapping[str, Any] | None = None
    """The task in labs: `observation`, `control` (action and period), `reward` and `reward_weights`, `global_state` for
    the critics, `expert`, `networks` (execution.environments.task.LearningTask).
    """
    labs: LabSettings | None = None
    """Playing in labs."""
    pool: PoolShare | None = None
    """A pool's windows in the replay (`--pool`); `null`: none. Critics learn from its reward of the task's name."""
    control: ControlSettings = ControlSettings()
    """Rules around the exported policy."""

    def __post_init__(self) -> None:
        name, source = name_of(self.algorithm), "task" if self.data is None else "data"
        require(
            *((getattr(self, count) >= 1, f"{count} must be at least 1") for count in ("steps", "batch")),
            ((self.data is None) != (self.task is None), "give either data, of a pool, or a task, for labs"),
            ((self.task is None) == (self.labs is None), "a task needs labs, and labs a task"),
            (self.pool is None or self.labs is not None, "pool is for a run in labs; data says what is learned of one"),
            (source in self.algorithm.sources, f"{name} learns from {' or '.join(self.algorithm.sources)} alone"),
            (
                self.network.kind in self.algorithm.networks,
                f"{name} needs a network of kind {' or '.join(self.algorithm.networks)}, not {self.network.kind}",
            ),
            (
                not self.data or self.data.action_base or self.network.kind not in ("mlp", "recurrent"),
                f"a network of kind {self.network.kind} has actions from -1 to 1: give data.action_base",
            ),
            (self.batch * self.window <= MAX_ROWS, f"batch times window must be at most {MAX_ROWS:,} rows"),
            (
                0 <= self.burn_in < self.transitions,
                f"burn_in must leave a transition of the window's {self.transitions}",
            ),
        )
        if self.labs:
            self._check_labs(self.labs)
        self.algorithm.check(self)
        if self.data:
            try:
                self.network.sizes(len(self.data.observations))
            except ValueError as error:
                raise SageccError(f"{WHERE}: network: {error}") from None

    def _check_labs(self, labs: LabSettings) -> None:
        require(
            (
                labs.round_steps * self.batch * self.window <= MAX_ROWS,
                f"labs.round_steps times batch times window must be at most {MAX_ROWS:,} rows",
            ),
            (labs.replay * self.window <= LARGEST, f"labs.replay times window must be at most {LARGEST:,} rows"),
            (labs.replay >= self.batch, "labs.replay must hold a batch at least"),
            (
                self.steps % labs.round_steps == 0,
                f"steps must be a multiple of labs.round_steps ({labs.round_steps})",
            ),
        )

    @property
    def transitions(self) -> int:
        """Transitions of a window."""
        return self.window - 1 - int(self.data is not None and self.data.reward_before_action)

    @property
    def round_steps(self) -> int:
        """Updates between two looks at what else is due."""
        return self.labs.round_steps if self.labs else 1

    def record(self) -> dict[str, Any]:
        """Return every choice as plain values, as a card has them and `from_dict` reads them."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        found = {name: _values(x) if hasattr(x, "__dataclass_fields__") else x for name, x in values.items()}
        found["network"] = {"kind": self.network.kind, **found["network"]}
        found["algorithm"] = {"name": name_of(self.algorithm), **found["algorithm"]}
        return {name: value for name, value in found.items() if value is not None}

    def trained_by(self, evaluated: bool = False) -> dict[str, Any]:
        """Return what of the record the training hangs on; one that plays on the way hangs on all."""
        return {name: value for name, value in self.record().items() if evaluated or name != "control"}

    def changed(self, **changes: Any) -> RunSpecification:
        """Return it with other values of some fields; those of a section are given as a mapping."""
        return from_dict(merged(self.record(), changes))


def _values(section: Any) -> dict[str, Any]:
    """Return a section's fields as plain values, those of LATER only where they are set."""
    values = asdict(section)
    unset = {of.name for of in fields(section) if of.metadata == LATER and values[of.name] == of.default}
    return {name: value for name, value in values.items() if name not in unset}


def load(name: str, **changes: Any) -> RunSpecification:
    """Read a specification.

    A file with `base: NAME` takes what it does not say itself from that configuration, section by section.

    Args:
        name: a shipped configuration, or the path of a YAML file; `paper+no-gru` is the first with the second's own
            values (learner.reader.whole_values).
        changes: values in place of the file's, those of sections as mappings.

    Raises:
        SageccError: The file is missing or not YAML, or a field is unknown, missing, of another type or out of range.
    """
    values = whole_values(name)
    try:
        return from_dict(merged(values, changes))
    except SageccError as error:
        raise SageccError(f"{name}: {error}") from error


def from_dict(values: Mapping[str, Any]) -> RunSpecification:
    """Build a specification from plain values.

    Raises:
        SageccError: A field is unknown, missing, of another type or out of range.
    """
    read_of: dict[str, Callable[[object], Any]] = {"network": read_network, "algorithm": read_algorithm}
    if old := sorted(_FLAT & values.keys()):
        raise SageccError(
            f"{WHERE}: {', '.join(old)} now belong to a section (network, algorithm, data, labs or control): see "
            "docs/reference/configuration.md"
        )
    sections = {name: reader(values[name]) for name, reader in read_of.items() if name in values}
    return read(RunSpecification, {**values, **sections})
