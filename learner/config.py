# SPDX-License-Identifier: Apache-2.0
"""The configuration of a training run: a frozen value, read from YAML."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from sagecc.common.errors import SageccError
from sagecc.learner.fields import MAX_ROWS, Configurations, checked, simple
from sagecc.learner.selection import EVERYTHING, Selection
from sagecc.policy.artefact import ACKED, MAX_WINDOW_BOUND
from sagecc.policy.bounds import MAX_LAYERS, MAX_PERIOD_MS, MAX_UNITS
from sagecc.policy.residual import NetworkSizes
from sagecc.policy.scaling import InputTransform
from sagecc.schemas.pool import FEATURE_NAMES, FEATURES, WINDOWS_TICKS, Column
from sagecc.schemas.raw import TICK_S

Filter = Literal["exp", "binary", "identity"]
Precision = Literal["float32", "bfloat16"]


def _of_window(window: str) -> Callable[[Column], bool]:
    return lambda column: "." not in column.name or f"_{window}." in column.name


INPUT_GROUPS: dict[str, Callable[[Column], bool]] = {
    "all": lambda column: True,
    "no-min-max": lambda column: not column.name.endswith((".min", ".max")),
    "no-rtt-var": lambda column: not 23 <= column.paper_index <= 40,
    "no-loss-inflight": lambda column: not 41 <= column.paper_index <= 58,
    **{f"window-{window}": _of_window(window) for window in WINDOWS_TICKS},
}
"""Which features each named group of inputs keeps: all, those of section 7.3's ablations, and section 7.4's windows."""


TICK_MS = round(TICK_S * 1000)
"""Time between the pool's rows (ms)."""


@dataclass(frozen=True)
class Config:
    """Every choice of a training run but the pool, its seed and its place on disk.

    The network is that of section 4.2 and Fig. 6 of the paper; policy and critic have the same trunk.
    """

    width: int
    """Neurons of the encoders, the fully connected layer and the residual blocks."""
    gru: int
    """Size of the recurrent state; 0 leaves the GRU out (section 7.3), so that a decision rests on one tick alone."""
    batch: int
    """Windows per step."""
    window: int
    """Decisions per window; a window of T holds T-1 transitions."""
    steps: int
    """Optimiser steps."""
    policy_rate: float
    """Learning rate of the policy's Adam."""
    critic_rate: float
    """Learning rate of the critic's Adam."""
    final_rate: float = 1.0
    """Share of both learning rates that is left at the last step, down to which they fall along a half cosine.

    1 keeps them, as `paper` does. Late steps at the full rate are noise that a policy acting a hundred times per second
    turns into floods with one seed and starvation with the next.
    """
    residual_blocks: int = 2
    """Residual blocks after the fully connected layer."""
    second_encoder: bool = True
    """Whether there is an encoder between the GRU and the fully connected layer; section 7.3 leaves it out."""
    mixture: int = 5
    """Gaussians in the policy's head; 1 is the single Gaussian of section 7.3 ("no GMM")."""
    min_scale: float = 1e-4
    """Smallest standard deviation of a Gaussian, in log2(action).

    Acme and Sage's code have 1e-4. Most ticks leave the window unchanged, so a Gaussian collapses onto 0 and its
    gradients, which grow with 1/scale^2, drown the others: 0.01 (a window change of 0.7 %) trains steadier on a small
    budget.
    """
    atoms: int = 101
    """Support points of the critic's categorical return distribution (C51)."""
    inputs: str | tuple[str, ...] = "all"
    """The features that the networks see: a list of names of schemas.pool, or a group.

    The groups are `all` (69), `no-min-max` (33), `no-rtt-var` (51, without rows 23 to 40 of Table 1),
    `no-loss-inflight` (51, without rows 41 to 58), and `window-s`, `window-m`, `window-l` (33 each: of the three
    windows only the one of 10, 200 or 1000 ticks).
    """
    input_transform: InputTransform = "none"
    """Scaling of the features; the paper has none but division by fixed constants.

    `none` leaves the 69 features unchanged; `linear` shifts and scales each to mean 0 and deviation 1 over the pool;
    `symlog` first takes sign(x)*log(1+|x|), then the same. Delays, losses and ratios have heavy tails (a queue of 16
    BDP after ones of 1/2), which dominate under `linear`, so the configurations for minutes of training have `symlog`;
    `paper` has `none`.
    """
    input_limit: float = 0.0
    """Scaled inputs are clipped to plus or minus this; 0 for no limit."""
    action_scale: float = 0.0
    """The critic sees sign(a)*log(1+|a|/action_scale) of an action a = log2(ratio); 0 for a itself, as in `paper`.

    Nine of ten actions of a pool of kernel schemes change the window by less than 1 %: beside 69 inputs of deviation
    1, a critic that sees the actions unscaled takes long to react to them.
    """
    discount: float = 0.95
    """Discount per decision; with one every 10 ms, 0.95 reaches 0.2 s ahead."""
    filter: Filter = "exp"
    """Weight of a pool action in the policy's loss (Eq. 6), from its advantage A.

    `exp` is min(exp(A/beta), ratio_cap), `binary` is 1 where A > 0 else 0, `identity` is 1 everywhere, which is
    behaviour cloning.
    """
    beta: float = 1.0
    """Temperature of the filter `exp`, in units of return."""
    ratio_cap: float = 20.0
    """Largest weight of the filter `exp`."""
    value_samples: int = 4
    """Actions drawn from the policy to estimate V(s) in A = Q(s, a) - V(s) (m of Eq. 6)."""
    td_samples: int = 1
    """Actions drawn from the target policy for the temporal-difference target (Eq. 5)."""
    n_step: int = 1
    """Rewards in the temporal-difference target before the target critic's value; fewer at a window's end.

    More than 1 propagates rewards faster, but the rewards are those of the pool's actions, not of the policy's.
    """
    average: float = 0.0
    """Decay per step of the moving average of the policy's weights that is exported; 0 exports the last weights.

    `paper` has 0. A policy acts a hundred times per second, so a bias of its mean far below the noise of single steps
    starves or floods a link.
    """
    target_period: int = 100
    """Steps between copies of both networks to their targets."""
    value_range: tuple[float, float] | None = None
    """Lowest and highest return that the critic can represent; None takes them from the pool.

    From the pool's discounted returns it takes the highest and the one that a thousandth of them lie below (a rare
    burst of losses can reach far lower, and would use up most atoms). So hardly a return is clipped and no atoms are
    wasted, whatever the rewards and the discount. Sage's code has [0, 500].
    """
    reward_before_action: bool = False
    """Pair action t with the reward measured before it, as Sage's code does.

    By default the reward is the pool's of row t, measured after action t.
    """
    gradient_clip: float = 40.0
    """Largest global norm of a network's gradient."""
    data: Selection = EVERYTHING
    """Which trajectories of the pool are learned from, and their weights: the fields of learner.selection.Selection."""
    burn_in: int = 0
    """First transitions of a window that only warm up the recurrent states, without loss."""
    period_ms: int = TICK_MS
    """Time between decisions: a multiple of the pool's tick of 10 ms, which is the paper's period.

    An action is the product of a period's ratios, a reward the mean of its ticks' rewards, an observation that of its
    first tick; at run time the policy decides once per period and its action is spread over the ticks. At 10 ms nine of
    ten actions leave the window unchanged, and the slightest bias of a policy is applied a hundred times per second; at
    50 ms decisions matter more, and a window of as many rows covers five times the time.
    """
    slow_start: Literal["acked"] | None = None
    """At run time a flow begins with such a slow start, and the policy decides from its end on; `null`: at once.

    `acked` grows by what is acknowledged (execution.agent.actions.AckedStart). Where a policy begins by itself, what it
    makes of an empty path decides whether it starves or floods. It is written into the policy's card, and changes
    nothing of the training itself.
    """
    window_bound: float | None = None
    """At run time no window is above this times what the path was seen to deliver in an RTT, and 3 packets.

    `null` is no such bound. It is written into the policy's card, and changes nothing of the training itself. A policy
    that goes beyond what its link takes loses at most (k - 1) / k of its packets by a bound of k; with less than 2 it
    starts more slowly.
    """
    window_bound_loss: float | None = None
    """Share of packets lost in a round trip above which that bound tightens, and loosens again while less is lost.

    `null`: it never does. Where it does, a policy that goes beyond what its link takes loses about one packet in a
    hundred, not (k - 1) / k of all. It is written into the policy's card, too.
    """
    start_share: float = 0.0
    """Share of windows that begin with their episode, where a flow's memory is as empty as a window's.

    The others begin anywhere. If all did, starts would be rare, and a policy that fails in its first second continues
    from states that the pool hardly has.
    """
    precision: Precision = "float32"
    """Precision of the matrix products, for a GPU; a run with another precision is another run.

    `bfloat16` gives products 8 bits of mantissa; their sums, weights, losses, gradients and Adam's state stay float32.
    It has float32's exponents, so no loss needs scaling (float16 would).
    """
    xla: bool = False
    """Compile the losses and their gradients into fused kernels, for a GPU; a run with another choice is another run.

    The first step takes about a minute longer.
    """

    def __post_init__(self) -> None:
        counts = ("width", "batch", "steps", "mixture", "value_samples", "td_samples", "n_step", "target_period")
        rates = ("policy_rate", "critic_rate", "min_scale", "beta", "ratio_cap", "gradient_clip")
        transitions = self.window - 1 - int(self.reward_before_action)
        low, high = self.value_range or (0.0, 1.0)
        checks = [
            *((getattr(self, name) <= MAX_UNITS, f"{name} must be at most {MAX_UNITS:,}") for name in _UNITS),
            (self.residual_blocks <= MAX_LAYERS, f"residual_blocks must be at most {MAX_LAYERS}"),
            (self.batch * self.window <= MAX_ROWS, f"batch times window must be at most {MAX_ROWS:,} rows"),
            *((getattr(self, name) >= 1, f"{name} must be at least 1") for name in counts),
            *((getattr(self, name) > 0, f"{name} must be above 0") for name in rates),
            (self.gru >= 0, "gru cannot be negative (0 is no GRU)"),
            (self.atoms >= 2, "atoms must be at least 2"),
            (self.residual_blocks >= 0, "residual_blocks cannot be negative"),
            (self.input_limit >= 0, "input_limit cannot be negative (0 is no limit)"),
            (self.action_scale >= 0, "action_scale cannot be negative (0 leaves actions as they are)"),
            (0 <= self.final_rate <= 1, "final_rate must be from 0 to 1"),
            (0 <= self.average < 1, "average must be from 0 to below 1"),
            (0 <= self.start_share <= 1, "start_share must be from 0 to 1"),
            (
                TICK_MS <= self.period_ms <= MAX_PERIOD_MS and self.period_ms % TICK_MS == 0,
                f"period_ms must be a multiple of the pool's tick, {TICK_MS} ms, and at most {MAX_PERIOD_MS:,} ms",
            ),
            (self.slow_start in (None, ACKED), f"slow_start must be null or {ACKED}"),
            (
                self.window_bound is None or 1 <= self.window_bound <= MAX_WINDOW_BOUND,
                f"window_bound must be null or from 1 to {MAX_WINDOW_BOUND}",
            ),
            (
                self.window_bound_loss is None or bool(self.window_bound and 0 < self.window_bound_loss < 1),
                "window_bound_loss must be null or between 0 and 1, and needs a window_bound",
            ),
            (0 <= self.discount < 1, "discount must be from 0 to below 1"),
            (low < high, "value_range must be [low, high] with low < high"),
            (0 <= self.burn_in < transitions, f"burn_in must leave a transition of the window's {transitions}"),
        ]
        for holds, text in checks:
            if not holds:
                raise SageccError(f"training configuration: {text}")
        if isinstance(self.inputs, str):
            if self.inputs not in INPUT_GROUPS:
                raise SageccError(
                    f"training configuration: inputs '{self.inputs}' is no group of features; known are "
                    f"{', '.join(INPUT_GROUPS)}, or a list of names"
                )
        elif unknown := sorted(set(self.inputs) - set(FEATURE_NAMES)):
            raise SageccError(f"training configuration: inputs names '{unknown[0]}', which is no feature of the pool")
        elif not self.inputs or len(set(self.inputs)) < len(self.inputs):
            raise SageccError("training configuration: inputs must name at least one feature, and none twice")
        try:
            self.sizes(len(self.observations))
        except ValueError as error:
            raise SageccError(f"training configuration: {error}") from None

    def sizes(self, inputs: int) -> NetworkSizes:
        """Return the sizes of the policy's network for this number of features."""
        return NetworkSizes(
            inputs=inputs,
            width=self.width,
            gru=self.gru,
            residual_blocks=self.residual_blocks,
            mixture=self.mixture,
            min_scale=self.min_scale,
            second_encoder=self.second_encoder,
        )

    def record(self) -> dict[str, Any]:
        """Return the fields as a card has them and a run is known by; later ones that are off leave no trace there."""
        values = asdict(self)
        if not values["data"]["shares"]:
            del values["data"]["shares"]
        return {name: value for name, value in values.items() if name not in _LATER or value != _LATER[name]}

    def trained_by(self, evaluated: bool = False) -> dict[str, Any]:
        """Return those fields of the record that the training hangs on; one that plays on the way hangs on all."""
        return {name: value for name, value in self.record().items() if evaluated or name not in _AT_RUN_TIME}

    @property
    def period_ticks(self) -> int:
        """Rows of the pool from one decision to the next."""
        return self.period_ms // TICK_MS

    @property
    def observations(self) -> tuple[str, ...]:
        """Names of the features that the networks see, in the network's order."""
        if isinstance(self.inputs, str):
            return tuple(column.name for column in FEATURES if INPUT_GROUPS[self.inputs](column))
        return self.inputs


_UNITS = ("width", "gru", "mixture", "atoms", "value_samples", "td_samples")
"""Fields that say how many of something a network, or its loss, has for each row."""

_LATER: dict[str, Any] = {"slow_start": None, "window_bound": None, "window_bound_loss": None, "final_rate": 1.0}
"""Fields that came later, and their values that change no run of before."""

_AT_RUN_TIME = ("slow_start", "window_bound", "window_bound_loss")
"""Fields that a policy's card takes over."""


CONFIGURATIONS = Configurations("sagecc.learner")
"""Those that come with the package, and users' files."""
shipped = CONFIGURATIONS.shipped


def load(name: str, **overrides: Any) -> Config:
    """Read a configuration.

    A file with `base: NAME` takes every field that it does not name itself from that configuration.

    Args:
        name: A shipped configuration, or the path of a YAML file. `paper+no-gru` is the first with the second's own
            fields in place of its own, whatever base the second names.
        overrides: Fields that replace the file's.

    Raises:
        SageccError: The file is missing or not YAML, or a field is unknown, missing, of another type or out of range.
    """
    first, *others = [name] if Path(name).exists() else name.split("+")
    values = _with_base(first, ())
    for other in others:
        values |= CONFIGURATIONS.read(other)
    values.pop("base", None)
    try:
        return from_dict({**values, **overrides})
    except SageccError as error:
        raise SageccError(f"{name}: {error}") from error


def _with_base(name: str, above: tuple[str, ...]) -> dict[str, Any]:
    """Return the fields of a configuration and of its bases; `above` names those that are based on it."""
    if name in above:
        raise SageccError(f"training configuration {name} is its own base: {' -> '.join((*above, name))}")
    values = CONFIGURATIONS.read(name, f", the base of {above[-1]}" if above else "")
    base = values.pop("base", None)
    return values if base is None else {**_with_base(str(base), (*above, name)), **values}


def from_dict(values: dict[str, Any]) -> Config:
    """Build a Config from its fields.

    Raises:
        SageccError: A field is unknown, missing, of another type or out of range.
    """
    types = checked(Config, values)
    return Config(**{name: _convert(name, value, types[name]) for name, value in values.items()})


def _convert(name: str, value: Any, kind: Any) -> Any:
    """Check one field."""
    if name == "data":
        return Selection.of(value)
    if name in ("window_bound", "window_bound_loss"):
        return None if value is None else _convert(f"{name}'s number", value, float)
    if name == "slow_start":
        return value  # Config knows its values
    if name == "value_range":
        if value is None:
            return None
        if not isinstance(value, list | tuple) or len(value) != 2:
            raise SageccError(f"training configuration: value_range must be null or [low, high], not {value!r:.60}")
        return tuple(_convert("value_range's bound", bound, float) for bound in value)
    if name == "inputs":
        if isinstance(value, list | tuple) and all(isinstance(x, str) for x in value):
            return tuple(value)
        if isinstance(value, str):
            return value
        raise SageccError(
            f"training configuration: inputs must be a group's name or a list of names, not {value!r:.60}"
        )
    return simple(name, value, kind)
