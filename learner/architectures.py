# SPDX-License-Identifier: Apache-2.0
"""The kinds of network in a specification; each is a kind of the policy's artefact (policy.residual and so on)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from sagecc.common.errors import SageccError
from sagecc.learner.arithmetic import Arithmetic
from sagecc.learner.reader import WHERE, read, require
from sagecc.policy.bounds import MAX_LAYERS, MAX_UNITS
from sagecc.policy.choice import Chooser
from sagecc.policy.inference import Architecture
from sagecc.policy.mlp import Activation, Mlp
from sagecc.policy.recurrent import Recurrent
from sagecc.policy.residual import NetworkSizes
from sagecc.policy.scaling import InputTransform
from sagecc.policy.steps import ACTIONS

Precision = Literal["float32", "tensorfloat32", "bfloat16"]


@dataclass(frozen=True, kw_only=True)
class NetworkSettings:
    """What every kind of network has."""

    kind: ClassVar[str]

    input_transform: InputTransform = "none"
    """Scaling of the observations: `none`; `linear`, to mean 0 and deviation 1 over the pool; `symlog`,
    sign(x)*log(1+|x|) before that, for heavy tails. In labs nothing more than the logarithm.
    """
    input_limit: float = 0.0
    """Scaled observations are clipped to plus or minus this; 0 for no limit."""

    def __post_init__(self) -> None:
        require((self.input_limit >= 0, "network.input_limit cannot be negative (0 is no limit)"))
        try:
            self.sizes(1)
        except ValueError as error:
            raise SageccError(f"{WHERE}: network: {error}") from None

    @property
    def memory(self) -> int:
        """Size of its recurrent state; 0 for none."""
        return 0

    @property
    def tensorfloat32(self) -> bool:
        """Whether a GPU may round the factors of its float32 products."""
        return False

    def sizes(self, observations: int) -> Architecture:
        """Return the policy's network and its sizes, for so many observations."""
        raise NotImplementedError

    def policy(self, observations: int) -> Any:
        """Return a new policy for so many observations, in TensorFlow."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class TrunkNetwork(NetworkSettings):
    """The layers of section 4.2 and Fig. 6 of the paper before the head; policy and critics have the same."""

    width: int
    """Neurons of the encoders, the fully connected layer and the residual blocks."""
    gru: int
    """Size of the recurrent state; 0 leaves the GRU out (section 7.3)."""
    residual_blocks: int = 2
    """Residual blocks after the fully connected layer."""
    second_encoder: bool = True
    """Whether an encoder follows the GRU; section 7.3 leaves it out."""
    precision: Precision = "float32"
    """Precision of matrix products: `float32`; on a GPU `tensorfloat32` (11 bits of mantissa); on a GPU, or a processor
    with AVX512_BF16 or AMX, `bfloat16` (8). All else stays float32. Another precision is another run.
    """
    xla: bool = False
    """Compile the recurrences with XLA, for a GPU; another run."""

    def __post_init__(self) -> None:
        require(
            (1 <= self.width <= MAX_UNITS, f"network.width must be at least 1 and at most {MAX_UNITS:,}"),
            (self.gru >= 0, "network.gru cannot be negative (0 is no GRU)"),
            (self.gru <= MAX_UNITS, f"network.gru must be at most {MAX_UNITS:,}"),
            (self.residual_blocks >= 0, "network.residual_blocks cannot be negative"),
            (self.residual_blocks <= MAX_LAYERS, f"network.residual_blocks must be at most {MAX_LAYERS}"),
        )
        super().__post_init__()

    @property
    def memory(self) -> int:
        """Size of its recurrent state; 0 for none."""
        return self.gru

    @property
    def tensorfloat32(self) -> bool:
        """Whether a GPU may round the factors of its float32 products."""
        return self.precision == "tensorfloat32"

    @property
    def arithmetic(self) -> Arithmetic:
        """How its networks are computed."""
        return Arithmetic(self.precision, self.xla)


@dataclass(frozen=True, kw_only=True)
class SageNetwork(TrunkNetwork):
    """Sage's: the trunk, and a mixture of Gaussians over log2(action)."""

    kind = "sage"

    mixture: int = 5
    """Gaussians in the policy's head; 1 is the single Gaussian of section 7.3 ("no GMM")."""
    min_scale: float = 1e-4
    """Smallest standard deviation of a Gaussian, in log2(action). Acme and Sage's code have 1e-4; 0.01 trains steadier
    on a small budget.
    """

    def __post_init__(self) -> None:
        require(
            (1 <= self.mixture <= MAX_UNITS, f"network.mixture must be at least 1 and at most {MAX_UNITS:,}"),
            (self.min_scale > 0, "network.min_scale must be above 0"),
        )
        super().__post_init__()

    def sizes(self, observations: int) -> NetworkSizes:
        """Return the policy's network and its sizes; see NetworkSettings."""
        return NetworkSizes(
            observations,
            self.width,
            self.gru,
            self.residual_blocks,
            self.mixture,
            self.min_scale,
            second_encoder=self.second_encoder,
        )

    def policy(self, observations: int) -> Any:
        """Return a new policy; see NetworkSettings."""
        from sagecc.learner.mixture import PolicyNetwork

        return PolicyNetwork(self.sizes(observations), self.arithmetic)

    def critic(self, observations: int, outputs: int = 1, action_scale: float = 0.0) -> Any:
        """Return a new Q(s, a), with as many outputs (learner.mixture.CriticNetwork)."""
        from sagecc.learner.mixture import CriticNetwork

        return CriticNetwork(self.sizes(observations), outputs, action_scale, self.arithmetic)

    def value(self, inputs: int) -> Any:
        """Return a new V(s), for so many numbers of observation and state."""
        from sagecc.learner.mixture import ValueNetwork

        return ValueNetwork(self.sizes(inputs), self.arithmetic)


@dataclass(frozen=True, kw_only=True)
class RecurrentNetwork(TrunkNetwork):
    """Sage's layers, and one action from -1 to 1."""

    kind = "recurrent"

    def __post_init__(self) -> None:
        require((self.gru, "network.gru must be at least 1"))
        super().__post_init__()

    def sizes(self, observations: int) -> Recurrent:
        """Return the policy's network and its sizes; see NetworkSettings."""
        return Recurrent(observations, self.width, self.gru, self.residual_blocks, self.second_encoder)

    def policy(self, observations: int) -> Any:
        """Return a new policy; see NetworkSettings."""
        from sagecc.learner.deterministic import RecurrentActor

        return RecurrentActor(self.sizes(observations), self.arithmetic)

    def critic(self, inputs: int) -> Any:
        """Return a new Q(s, a), for so many numbers of observation and state."""
        from sagecc.learner.deterministic import RecurrentCritic

        return RecurrentCritic(self.sizes(inputs), inputs, self.arithmetic)

    def value(self, inputs: int) -> Any:
        """Return a new V(s), for so many numbers of observation and state."""
        from sagecc.learner.deterministic import RecurrentValue

        return RecurrentValue(self.sizes(inputs), self.arithmetic)


@dataclass(frozen=True, kw_only=True)
class MlpNetwork(NetworkSettings):
    """Dense layers, and one action from -1 to 1."""

    kind = "mlp"

    hidden: tuple[int, ...]
    """Units of the hidden layers of actor and critics, each followed by `activation`."""
    activation: Activation = "leaky_relu"
    """What follows each hidden layer."""
    slope: float = 0.2
    """Slope of the leaky ReLU below 0; TensorFlow's default."""
    action_layer: int = 1
    """The critics' hidden layer that the action enters."""

    def __post_init__(self) -> None:
        require(
            (self.hidden and all(n >= 1 for n in self.hidden), "network.hidden needs layers of at least 1 unit"),
            (0 <= self.slope < 1, "network.slope must be from 0 to below 1"),
            (1 <= self.action_layer <= len(self.hidden), "network.action_layer must be one of the hidden layers"),
        )
        super().__post_init__()

    def sizes(self, observations: int) -> Mlp:
        """Return the policy's network and its sizes; see NetworkSettings."""
        return Mlp(observations, self.hidden, self.slope, self.activation)

    def policy(self, observations: int) -> Any:
        """Return a new policy; see NetworkSettings."""
        from sagecc.learner.deterministic import DenseActor

        return DenseActor(self.sizes(observations))

    def critic(self, inputs: int, normalised: bool = False) -> Any:
        """Return a new Q(s, a), for so many numbers of observation and state, perhaps with normalised layers."""
        from sagecc.learner.deterministic import DenseCritic

        return DenseCritic(self.sizes(inputs), inputs, self.action_layer, normalised)

    def value(self, inputs: int) -> Any:
        """Return a new V(s), for so many numbers of observation and state."""
        from sagecc.learner.deterministic import DenseValue

        return DenseValue(self.sizes(inputs))


@dataclass(frozen=True, kw_only=True)
class ChoiceNetwork(NetworkSettings):
    """A GRU, and a score for each of Indigo's actions."""

    kind = "choice"

    gru: int
    """Size of the recurrent state."""

    def __post_init__(self) -> None:
        require((1 <= self.gru <= MAX_UNITS, f"network.gru must be at least 1 and at most {MAX_UNITS:,}"))
        super().__post_init__()

    @property
    def memory(self) -> int:
        """Size of its recurrent state."""
        return self.gru

    def sizes(self, observations: int) -> Chooser:
        """Return the policy's network and its sizes; see NetworkSettings."""
        return Chooser(observations, self.gru, ACTIONS)

    def policy(self, observations: int) -> Any:
        """Return a new policy; see NetworkSettings."""
        from sagecc.learner.deterministic import ChoiceActor

        return ChoiceActor(self.sizes(observations))


KINDS: Mapping[str, type[NetworkSettings]] = MappingProxyType(
    {kind.kind: kind for kind in (SageNetwork, RecurrentNetwork, MlpNetwork, ChoiceNetwork)}
)


def read_network(values: object) -> NetworkSettings:
    """Return the section `network` of a specification: its `kind` says what its other fields are.

    Raises:
        SageccError: There is no such kind, or a field is unknown, missing, of another type or out of range.
    """
    if isinstance(values, NetworkSettings):
        return values
    of = dict(values) if isinstance(values, Mapping) else {}
    kind = of.pop("kind", None)
    if not isinstance(kind, str) or kind not in KINDS:
        raise SageccError(f"{WHERE}: network.kind must be one of {', '.join(KINDS)}, not {kind!r:.60}")
    return read(KINDS[kind], of, "network")
