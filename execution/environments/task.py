# SPDX-License-Identifier: Apache-2.0
"""A learning task: everything that an environment for reinforcement learning and the policy learned in it share.

`observations`, `source` and `control` are what the policy's artefact carries, so what was trained is what runs; reward
and networks are the environment's alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from types import MappingProxyType
from typing import Any

from sagecc.common.errors import SageccError
from sagecc.execution.schemes.rivals import RIVALS, expert, global_state, rewards
from sagecc.policy.artefact import MAPS, OBSERVATION_SOURCE, STEPS_MAP, Control
from sagecc.pool.reward import Reward, reward_of
from sagecc.schemas.network_distribution import NetworkDistribution
from sagecc.schemas.pool import FEATURE_NAMES, INPUT_GROUPS, POOL_VERSION

OBSERVATIONS: Mapping[str, tuple[tuple[str, str], tuple[str, ...]]] = MappingProxyType(
    {
        **{
            "pool" if group == "all" else group: ((OBSERVATION_SOURCE, POOL_VERSION), names)
            for group, names in INPUT_GROUPS.items()
        },
        **{r.name: (r.observation.source, r.observation.names) for r in RIVALS if r.observation},
    }
)
"""By its name in a configuration, an observation's source and the names of its numbers."""

CONTROLS: Mapping[str, Control] = MappingProxyType(
    {"pool": Control(), **{rival.name: rival.control for rival in RIVALS if rival.control}}
)
"""By a scheme's name, how it decides: what a configuration's `control` begins from."""


@dataclass(frozen=True)
class LearningTask:
    """What a policy observes and does, what that earns, and on which networks."""

    control: Control = CONTROLS["pool"]
    """What an action does, how often, on top of which scheme, within which bounds."""
    source: tuple[str, str] = OBSERVATIONS["pool"][0]
    """The definition of the observations and its version."""
    observations: tuple[str, ...] = OBSERVATIONS["pool"][1]
    """Their names, in order."""
    reward: str = "pool"
    """What an action earns, measured over the period after it: a name of execution.schemes.rivals.rewards."""
    reward_weights: Any = None
    """Of the terms of a reward that has weights (pool.reward.Reward); None for its own."""
    global_state: bool = False
    """Whether each step gives the state of all flows of a network beside the observations, for a critic."""
    expert: bool = False
    """Whether each step gives what an expert would do beside the observations, to be imitated."""
    networks: NetworkDistribution | tuple[str | NetworkDistribution, ...] | None = None
    """What episodes' networks are drawn from: a distribution; all networks of profiles or sets by their names, one
    that is in two of them twice as often, and distributions among them as often as they count; None: what the
    environment is given."""

    def __post_init__(self) -> None:
        checked_reward(self.reward)
        if self.expert and (self.global_state or self.control.map != STEPS_MAP):
            raise SageccError("task: an expert goes with the map steps, and with no global_state")

    @property
    def states(self) -> tuple[str, ...]:
        """Names of what a step gives beside the observations."""
        return expert().names if self.expert else global_state().names if self.global_state else ()

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> LearningTask:
        """Read a configuration: `observation`, `control`, `reward`, `reward_weights`, `global_state`, `expert`,
        `networks`.

        `observation` is a name of OBSERVATIONS, or a list of the pool's features. `control` is one of the same names,
        or the fields of Control; `like` among them names one of these to take the others from, and `map` is a short
        name of artefact.MAPS. `reward_weights` has those of the reward's weights that are to be others.

        Raises:
            SageccError: a field is unknown or its value out of range.
        """
        names = ("observation", "control", "reward", "reward_weights", "global_state", "expert", "networks")
        if unknown := sorted(set(map(str, plain)) - set(names)):
            raise SageccError(f"task: unknown field {unknown[0]}; known are {', '.join(names)}")
        for name in ("global_state", "expert"):
            if not isinstance(plain.get(name, False), bool):
                raise SageccError(f"task: {name} must be true or false, not {plain[name]!r}")
        source, observations = _observation(plain.get("observation", "pool"))
        reward = checked_reward(plain.get("reward", "pool"))
        return cls(
            control=_control(plain.get("control", "pool")),
            source=source,
            observations=observations,
            reward=plain.get("reward", "pool"),
            reward_weights=_weights(plain.get("reward_weights", {}), reward),
            global_state=plain.get("global_state", False),
            expert=plain.get("expert", False),
            networks=_networks(plain.get("networks")),
        )


def checked_reward(name: object) -> Reward:
    """Return the reward that a task names; raises SageccError where there is none."""
    if not isinstance(name, str):
        raise SageccError(f"task: reward must be a name, not {name!r}")
    try:
        return reward_of(name, rewards())
    except SageccError as error:
        raise SageccError(f"task: {error}") from None


def _networks(choice: object) -> NetworkDistribution | tuple[str | NetworkDistribution, ...] | None:
    if choice is None:
        return None
    if isinstance(choice, Mapping):
        return NetworkDistribution.of(choice)
    items = (choice,) if isinstance(choice, str) else choice
    if isinstance(items, list | tuple) and items and all(isinstance(item, str | Mapping) for item in items):
        return tuple(item if isinstance(item, str) else NetworkDistribution.of(item) for item in items)
    raise SageccError(
        f"task: networks must have fields, or be names of profiles or sets, or a list of both, not {choice!r}"
    )


def _observation(choice: object) -> tuple[tuple[str, str], tuple[str, ...]]:
    if isinstance(choice, str) and choice in OBSERVATIONS:
        return OBSERVATIONS[choice]
    if isinstance(choice, list | tuple) and choice:
        if strangers := [name for name in choice if name not in FEATURE_NAMES]:
            raise SageccError(f"task: observation names {strangers[0]!r}, which is no feature of the pool")
        return OBSERVATIONS["pool"][0], tuple(choice)
    raise SageccError(f"task: observation must be one of {', '.join(OBSERVATIONS)} or a list of features")


def _weights(given: object, reward: Reward) -> Any:
    if not isinstance(given, Mapping) or (given and reward.weights is None):
        holders = ", ".join(name for name, each in rewards().items() if each.weights is not None)
        raise SageccError(f"task: reward_weights are fields, and of the reward {holders} only")
    if reward.weights is None:
        return None
    names = [field.name for field in fields(reward.weights)]
    if unknown := sorted(set(map(str, given)) - set(names)):
        raise SageccError(f"task: reward_weights has no {unknown[0]}; known are {', '.join(names)}")
    return replace(reward.weights, **given)


def _control(choice: object) -> Control:
    values = {"like": choice} if isinstance(choice, str) else dict(choice) if isinstance(choice, Mapping) else {}
    like = values.pop("like", "pool")
    if not isinstance(like, str) or like not in CONTROLS or not isinstance(choice, str | Mapping):
        raise SageccError(f"task: control must be one of {', '.join(CONTROLS)}, or fields")
    names = {field.name for field in fields(Control) if field.default is not MISSING}
    if unknown := sorted(set(map(str, values)) - names):
        raise SageccError(f"task: control has no field {unknown[0]}; known are like, {', '.join(sorted(names))}")
    if "map" in values:
        if not isinstance(values["map"], str) or values["map"] not in MAPS:
            raise SageccError(f"task: map must be one of {', '.join(MAPS)}, not {values['map']!r}")
        values["map"] = MAPS[values["map"]]
    choices: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
    }
    try:
        return replace(CONTROLS[like], **choices)
    except (TypeError, ValueError) as error:
        raise SageccError(f"task: control: {error}") from None
