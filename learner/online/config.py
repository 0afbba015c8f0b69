# SPDX-License-Identifier: Apache-2.0
"""The configuration of online training: a frozen value, read from YAML."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sagecc.common.errors import SageccError
from sagecc.learner.fields import LARGEST, MAX_ROWS, Configurations, checked, simple, whole_numbers
from sagecc.learner.online.exploration import ActionNoise, ExpertFirst, Exploring
from sagecc.policy.artefact import MAX_WINDOW_BOUND
from sagecc.policy.choice import Chooser
from sagecc.policy.inference import Architecture
from sagecc.policy.mlp import Activation, Mlp
from sagecc.policy.recurrent import Recurrent
from sagecc.policy.scaling import InputTransform, Scaling
from sagecc.policy.steps import ACTIONS

WHERE = "training configuration"

MAX_LABS = 4096
"""Guest kernels in step; each takes a processor's time and some 40 MB."""


@dataclass(frozen=True)
class OnlineConfig:
    """Every choice of an online run but its seed, the machine's processes and its place on disk.

    Updates and decisions take turns in rounds.
    """

    task: dict[str, Any]
    """What is learned: `observation`, `control` (action and period), `reward` (and, of Astraea's, `reward_weights`),
    `global_state` for the critics, `expert`, and `networks`, what to learn on: a distribution, or
    names of profiles and sets (a network of two of them is drawn twice as often) and distributions among them; see
    execution.environments.task.LearningTask."""
    hidden: tuple[int, ...]
    """Units of the hidden layers of actor and critics, each followed by `activation`; [] for recurrent networks."""
    batch: int
    """Records per update: transitions, or sequences of a recurrent network."""
    actor_rate: float
    """Learning rate of the actor's Adam."""
    steps: int
    """Updates in all, of the critics where there are any."""
    round_steps: int
    """Updates of a round."""
    round_decisions: int
    """Decisions of a round, of all labs together; the actors use the weights after the round before."""
    labs: int
    """Labs in step, shared among the actor processes."""
    replay: int
    """Records that the replay holds; the oldest make room."""
    warm_up: int
    """Decisions before the first update, all uniform over the actions; with `dagger` all the expert's."""
    algorithm: Literal["td3", "dagger"] = "td3"
    """`td3` (Fujimoto et al., ICML 2018) learns from rewards. `dagger` (Ross et al., AISTATS 2011) learns to do what
    the task's expert would do in the states that the policy gets into: a GRU of `gru` that chooses, without critics and
    noise; of the fields below it heeds those of inputs, records, rates, gradients and giving up."""
    critic_rate: float = 0.0
    """Learning rate of the critics' Adam; 0 without critics."""
    final_rate: float = 1.0
    """Share of the learning rates that is left at the last step, down to which they fall along a half cosine."""
    discount: float = 0.99
    """Discount per decision."""
    activation: Activation = "leaky_relu"
    """What follows each hidden layer: `leaky_relu` or `tanh`."""
    slope: float = 0.2
    """Slope of the leaky ReLU below 0; TensorFlow's default."""
    action_layer: int = 1
    """The critics' hidden layer that the action enters: 1 with the observation, 2 after the first layer."""
    width: int = 0
    """Neurons of recurrent networks' encoders, fully connected layer and residual blocks; their layers are Sage's."""
    gru: int = 0
    """Size of recurrent networks' state."""
    residual_blocks: int = 2
    """Residual blocks of recurrent networks."""
    second_encoder: bool = True
    """Whether recurrent networks have an encoder after the GRU."""
    input_transform: InputTransform = "none"
    """`symlog`: the networks see sign(x)*log(1+|x|) of an observation x; `none`: the observation itself."""
    input_limit: float = 0.0
    """What they see is clipped to plus or minus this; 0 for no limit."""
    window: int = 2
    """Decisions in a record; T hold T - 1 transitions. Recurrent networks begin each with an empty memory."""
    returns: Literal["step", "window"] = "step"
    """What the critics learn from: `step`, an action's reward and the value of the next decision; `window`, all rewards
    up to the record's last decision and the value there."""
    reward_scale: float = 1.0
    """What rewards are multiplied by before the critics learn from them."""
    reward_limit: float = 0.0
    """What they learn of a reward, so multiplied, is clipped to plus or minus this; 0 for no limit."""
    burn_in: int = 0
    """First transitions of a record that only warm up recurrent networks' memory, without loss."""
    tau: float = 0.005
    """Share of the weights that a target network takes over at each of its updates."""
    average: float = 0.0
    """Decay per update of the actor of the moving average of its weights, which is the policy that comes out; 0 takes
    the last weights. What plays to learn has the last weights."""
    final_window_bound: float = 0.0
    """The bound on windows (`window_bound`) of what comes out; 0 takes the task's, within which it learns."""
    policy_delay: int = 2
    """Updates of the critics per update of the actor and of its target."""
    target_noise: float = 0.2
    """Standard deviation of the noise on the target policy's actions; actions reach from -1 to 1."""
    target_noise_clip: float = 0.5
    """Most that this noise moves an action."""
    huber: float = 0.0
    """Temporal-difference error from which the critics' loss is linear (Huber's loss); 0 for the mean square."""
    gradient_clip: float = 0.0
    """Largest global norm of the actor's and of each critic's gradient; 0 for no limit."""
    noise: float = 0.1
    """Standard deviation of the noise on the actors' actions."""
    uniform_first: float = 0.0
    """Probability of an action that is uniform over all, at the first decision."""
    uniform_last: float = 0.0
    """The same after `uniform_decisions`; in between it falls linearly."""
    uniform_decisions: int = 0
    """Decisions over which it falls."""
    uniform_hold: int = 1
    """Decisions for which an agent holds such an action, so that what it does to a window adds up."""
    drop_every: int = 0
    """Decisions of an agent from the end of a drop to the next, on average: it holds the lowest action then, and the
    policy goes on from few packets; 0 for never."""
    drop_hold: int = 1
    """Most decisions for which a drop holds that action; each number from 1 on is as likely."""
    give_up_share: float = 0.2
    """An episode ends early where its links drop more than this share of its agents' packets over
    `give_up_time_s`; 0 plays all to their end."""
    give_up_time_s: float = 5.0
    """The time over which that share is taken."""

    def __post_init__(self) -> None:
        counts = (
            *("batch", "steps", "round_steps", "round_decisions", "labs", "policy_delay", "uniform_hold"),
            "drop_hold",
        )
        td3 = self.algorithm == "td3"
        positive = ("actor_rate", "tau", "reward_scale", *(("critic_rate",) if td3 else ()))
        at_least_0 = (
            *("warm_up", "target_noise", "target_noise_clip", "huber", "gradient_clip", "noise", "input_limit"),
            *("reward_limit", "drop_every"),
        )
        checks = [
            *((getattr(self, name) >= 1, f"{name} must be at least 1") for name in counts),
            *((getattr(self, name) > 0, f"{name} must be above 0") for name in positive),
            *((getattr(self, name) >= 0, f"{name} cannot be negative") for name in at_least_0),
            (self.labs <= MAX_LABS, f"labs must be at most {MAX_LABS:,}"),
            (
                self.round_steps * self.batch * self.window <= MAX_ROWS,
                f"round_steps times batch times window must be at most {MAX_ROWS:,} rows",
            ),
            (self.replay * self.window <= LARGEST, f"replay times window must be at most {LARGEST:,} rows"),
            (self.tau <= 1, "tau must be at most 1"),
            (0 <= self.final_rate <= 1, "final_rate must be from 0 to 1"),
            (0 <= self.discount < 1, "discount must be from 0 to below 1"),
            (0 <= self.average < 1, "average must be from 0 to below 1"),
            (td3 or not self.average, "dagger has no average"),
            (
                not self.final_window_bound or 1 <= self.final_window_bound <= MAX_WINDOW_BOUND,
                f"final_window_bound must be 0 or from 1 to {MAX_WINDOW_BOUND}",
            ),
            (0 <= self.slope < 1, "slope must be from 0 to below 1"),
            (0 <= self.give_up_share < 1, "give_up_share must be from 0 to below 1"),
            (self.give_up_time_s > 0, "give_up_time_s must be above 0"),
            (all(0 <= p <= 1 for p in (self.uniform_first, self.uniform_last)), "uniform_* must be from 0 to 1"),
            (self.replay >= self.batch, "replay must hold a batch at least"),
            (bool(self.hidden) != bool(self.gru), "give either hidden (layers) or gru (a recurrent network's state)"),
            (all(n >= 1 for n in self.hidden), "hidden layers must have at least 1 unit"),
            (not self.gru or not td3 or self.width >= 1, "a recurrent network needs a width"),
            (td3 or (bool(self.gru) and not self.width), "dagger needs gru, and neither hidden layers nor a width"),
            (td3 or not self.critic_rate, "dagger has no critics: leave critic_rate out"),
            (td3 != bool(self.task.get("expert")), "an expert in the task goes with dagger, and dagger with one"),
            (1 <= self.action_layer <= max(1, len(self.hidden)), "action_layer must be one of the hidden layers"),
            (self.window >= 2, "window must be at least 2"),
            (
                bool(self.gru) or self.window == 2 or self.returns == "window",
                "window is for recurrent networks and for returns over it",
            ),
            (td3 or self.returns == "step", "dagger has no returns"),
            (0 <= self.burn_in < self.window - 1, f"burn_in must leave a transition of the window's {self.window - 1}"),
            (
                self.steps % max(self.round_steps, 1) == 0,
                f"steps must be a multiple of round_steps ({self.round_steps})",
            ),
        ]
        for holds, text in checks:
            if not holds:
                raise SageccError(f"{WHERE}: {text}")
        try:
            self.sizes(1)
        except ValueError as error:
            raise SageccError(f"{WHERE}: {error}") from None

    def scaling(self, observations: int) -> Scaling:
        """Return what is done to so many observations before the networks see them."""
        shift, scale = np.zeros(observations, np.float32), np.ones(observations, np.float32)
        return Scaling(self.input_transform, shift, scale, self.input_limit)

    def sizes(self, observations: int) -> Architecture:
        """Return the kind of the actor's network and its sizes, for so many observations."""
        if self.algorithm == "dagger":
            return Chooser(observations, self.gru, ACTIONS)
        if self.hidden:
            return Mlp(observations, self.hidden, self.slope, self.activation)
        return Recurrent(observations, self.width, self.gru, self.residual_blocks, self.second_encoder)

    def record(self) -> dict[str, Any]:
        """Return the fields as a card has them and a run is known by."""
        return asdict(self)

    def trained_by(self, evaluated: bool = False) -> dict[str, Any]:
        """Return the fields that the training hangs on; one that plays on the way hangs on all."""
        return {name: value for name, value in self.record().items() if evaluated or name != "final_window_bound"}

    @property
    def precision(self) -> str:
        """Precision of the matrix products (learner.networks.TrunkSizes)."""
        return "float32"

    @property
    def exploration(self) -> Exploring:
        """How the actors explore."""
        if self.algorithm == "dagger":
            return ExpertFirst(self.warm_up)
        return ActionNoise(
            self.noise,
            self.uniform_first,
            self.uniform_last,
            self.uniform_decisions,
            self.uniform_hold,
            warm_up=self.warm_up,
            drop_every=self.drop_every,
            drop_hold=self.drop_hold,
        )


CONFIGURATIONS = Configurations("sagecc.learner.online")
"""Those that come with the package, and users' files."""
shipped = CONFIGURATIONS.shipped


def is_online(name: str) -> bool:
    """Tell whether a configuration is one of online training: a shipped one, or a file with a `task` or such a base."""
    if name in shipped() or not Path(name).is_file():
        return name in shipped()
    values = CONFIGURATIONS.read(name)
    return "task" in values or values.get("base") in shipped()


def values_of(name: str) -> dict[str, Any]:
    """Return the fields that a configuration names, and those that its base has in their place.

    Args:
        name: A shipped configuration, or the path of a YAML file.

    Raises:
        SageccError: The file or its base is missing, or not YAML.
    """
    values = CONFIGURATIONS.read(name)
    base = values.pop("base", None)
    if base is None:
        return values
    if base not in shipped():
        raise SageccError(f"{name}: no training configuration '{base}' to be its base: {', '.join(shipped())}")
    return {**values_of(str(base)), **values}


def load(name: str, **overrides: Any) -> OnlineConfig:
    """Read a configuration.

    A file with `base: NAME` takes every field that it does not name itself from that shipped configuration.

    Args:
        name: A shipped configuration, or the path of a YAML file.
        overrides: Fields that replace the file's.

    Raises:
        SageccError: The file is missing or not YAML, or a field is unknown, missing, of another type or out of range.
    """
    values = values_of(name)
    try:
        return from_dict({**values, **overrides})
    except SageccError as error:
        raise SageccError(f"{name}: {error}") from error


def from_dict(values: dict[str, Any]) -> OnlineConfig:
    """Build a configuration from its fields.

    Raises:
        SageccError: A field is unknown, missing, of another type or out of range.
    """
    types = checked(OnlineConfig, values)
    return OnlineConfig(**{name: _convert(name, value, types[name]) for name, value in values.items()})


def _convert(name: str, value: Any, kind: Any) -> Any:
    """Check one field."""
    if name == "hidden":
        return whole_numbers(name, value)
    if name == "task":
        if not isinstance(value, dict):
            raise SageccError(f"{WHERE}: task must have fields, not {value!r:.60}")
        return value
    return simple(name, value, kind)
