# SPDX-License-Identifier: Apache-2.0
"""Sage's policy and critics, named as in Fig. 6 of the paper: encoder, GRU, encoder, FC, residual blocks, head.

Time comes first: observations are [T, B, F], actions (log2 of the window's ratio) [T, B]. Layers without memory
see all T*B rows at once; only the GRU's recurrence loops.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from sagecc.common.tensorflow_runtime import snt, tf
from sagecc.learner.acme_compat import continuous as acme
from sagecc.learner.acme_compat import uniform_initializer
from sagecc.learner.arithmetic import PLAIN, Arithmetic, lowered, product
from sagecc.learner.core import WHOLE, Share
from sagecc.learner.gru import Gru, Memoryless
from sagecc.policy.recurrent import Recurrent
from sagecc.policy.residual import NetworkSizes


class Trunk(snt.Module):  # type: ignore[misc]
    """The layers before the head, the same in the policy and the critic (weights are not shared).

    Args:
        inputs: number of inputs F.
        sizes: of the policy whose trunk it is, or is like.
        arithmetic: how it is computed.
    """

    def __init__(self, inputs: int, sizes: NetworkSizes | Recurrent, arithmetic: Arithmetic = PLAIN) -> None:
        super().__init__(name="trunk")
        width = sizes.width
        self.encoder = acme.LayerNormMLP([width])
        self.gru = Gru(width, sizes.gru, arithmetic) if sizes.gru else Memoryless(width)
        self.encoder2 = acme.LayerNormMLP([width]) if sizes.second_encoder else None
        self.fc = snt.Linear(width, w_init=uniform_initializer())
        self.blocks = [
            acme.ResidualLayernormWrapper(snt.nets.MLP([width, width], w_init=uniform_initializer()))
            for _ in range(sizes.residual_blocks)
        ]
        self.encoder(tf.zeros([1, inputs]))
        self.after_gru(tf.zeros([1, self.gru.size]))
        _lower(self, arithmetic.precision)

    def before_gru(self, inputs: Any) -> Any:
        """Return the GRU's inputs: [..., F] -> [..., width]."""
        return rowwise(self.encoder, inputs)

    def after_gru(self, states: Any) -> Any:
        """Return the last hidden layer: states [..., H] -> [..., width]."""

        def layers(rows: Any) -> Any:
            rows = self.fc(rows if self.encoder2 is None else self.encoder2(rows))
            for block in self.blocks:
                rows = block(rows)
            return rows

        return rowwise(layers, states)

    def weights(self) -> dict[str, Any]:
        """Return every variable by the name it has in checkpoints and in the artefact."""
        named = parts("encoder", self.encoder)
        if isinstance(self.gru, Gru):
            core = self.gru.core
            named |= {"gru.w_i": core.input_to_hidden, "gru.w_h": core.hidden_to_hidden, "gru.b": core.b}
        if self.encoder2 is not None:
            named |= parts("encoder2", self.encoder2)
        named |= parts("fc", self.fc)
        for i, block in enumerate(self.blocks):
            named |= parts(f"residual{i}", block)
        return named


class Mixture(NamedTuple):
    """A mixture of K Gaussians over log2(action)."""

    logits: Any
    """Unnormalised log weights [..., K]."""
    loc: Any
    """Means [..., K]."""
    scale: Any
    """Standard deviations [..., K]."""

    def log_prob(self, action: Any) -> Any:
        """Return the log density of `action` [...]."""
        normal = -0.5 * tf.square((action[..., None] - self.loc) / self.scale) - tf.math.log(self.scale)
        weighted = tf.nn.log_softmax(self.logits) + normal - 0.5 * math.log(2 * math.pi)
        return tf.reduce_logsumexp(weighted, axis=-1)

    def mean(self) -> Any:
        """Return the mean of the mixture [...]."""
        return tf.reduce_sum(tf.nn.softmax(self.logits) * self.loc, axis=-1)

    def sample(self, count: int, seed: Any, share: Share = WHOLE) -> Any:
        """Draw actions of a mixture of [T, B, K]; no gradient flows.

        Args:
            count: actions at each row.
            seed: two integers; the same draw the same.
            share: which share of a batch the rows are; the shares draw what the whole batch would.

        Returns:
            The actions [count, T, B].
        """
        seeds = tf.random.split(seed, 2)
        shape = tf.concat([[count], tf.shape(self.loc)], axis=0)
        uniform = share.part_of(lambda x: tf.random.stateless_uniform(x, seeds[0], minval=1e-7), shape, axis=2)
        component = tf.argmax(self.logits - tf.math.log(-tf.math.log(uniform)), axis=-1)
        chosen = tf.one_hot(component, self.loc.shape[-1])
        loc = tf.reduce_sum(chosen * self.loc, axis=-1)
        scale = tf.reduce_sum(chosen * self.scale, axis=-1)
        normal = share.part_of(lambda x: tf.random.stateless_normal(x, seeds[1]), tf.shape(loc), axis=2)
        return tf.stop_gradient(loc + scale * normal)


class MixtureHead(snt.Module):  # type: ignore[misc]
    """Three linear layers that return a Mixture; all components begin alike, near a standard deviation of ln 2."""

    def __init__(self, sizes: NetworkSizes, arithmetic: Arithmetic) -> None:
        super().__init__(name="mixture_head")
        self.min_scale = sizes.min_scale
        self.logits, self.loc, self.scale = (
            snt.Linear(sizes.mixture, w_init=snt.initializers.VarianceScaling(1e-5), name=name)
            for name in ("logits", "loc", "scale")
        )
        self(tf.zeros([1, sizes.width]))
        _lower(self, arithmetic.precision)

    def __call__(self, hidden: Any) -> Mixture:
        """Return the mixture: [..., width] -> Mixture of [..., K]."""
        return Mixture(
            rowwise(self.logits, hidden),
            rowwise(self.loc, hidden),
            tf.nn.softplus(rowwise(self.scale, hidden)) + self.min_scale,
        )


class PolicyNetwork(snt.Module):  # type: ignore[misc]
    """pi(a | s): scaled observations to a mixture over log2(action)."""

    def __init__(self, sizes: NetworkSizes, arithmetic: Arithmetic = PLAIN) -> None:
        super().__init__(name="policy")
        self.trunk = Trunk(sizes.inputs, sizes, arithmetic)
        self.head = MixtureHead(sizes, arithmetic)

    def unroll(self, observation: Any, state: Any) -> tuple[Mixture, Any]:
        """Run the policy over windows.

        Args:
            observation: scaled observations [T, B, F].
            state: state before the first [B, H].

        Returns:
            The Mixture of [T, B, K], and the state after each observation [T, B, H].
        """
        states = self.trunk.gru.unroll(self.trunk.before_gru(observation), state)
        return self.head(self.trunk.after_gru(states)), states

    def weights(self) -> dict[str, Any]:
        """Return every variable by name."""
        head = {"head.logits": self.head.logits, "head.loc": self.head.loc, "head.scale": self.head.scale}
        return self.trunk.weights() | {k: v for name, layer in head.items() for k, v in parts(name, layer).items()}


class CriticNetwork(snt.Module):  # type: ignore[misc]
    """Q(s, a): a number, or the logits of the return's distribution over some points.

    Args:
        sizes: of the policy's network, like whose its trunk is.
        outputs: numbers Z that come out.
        action_scale: it sees sign(a)*log(1+|a|/action_scale) of an action a; 0 for a itself.
        arithmetic: how it is computed.
    """

    def __init__(
        self, sizes: NetworkSizes, outputs: int = 1, action_scale: float = 0.0, arithmetic: Arithmetic = PLAIN
    ) -> None:
        super().__init__(name="critic")
        self.action_scale = action_scale
        self.trunk = Trunk(sizes.inputs + 1, sizes, arithmetic)
        self.head = snt.Linear(outputs)
        self.head(tf.zeros([1, sizes.width]))
        _lower(self, arithmetic.precision)

    def states(self, observation: Any, action: Any, state: Any) -> Any:
        """Run the recurrence over windows.

        Args:
            observation: scaled observations s [T, B, F].
            action: actions a [T, B].
            state: state before the first [B, H].

        Returns:
            The state after each (s, a) [T, B, H].
        """
        return self.trunk.gru.unroll(self._encode(observation, action), state)

    def logits(self, states: Any) -> Any:
        """Return the outputs: states after (s, a) [..., H] -> [..., Z]."""
        return rowwise(self.head, self.trunk.after_gru(states))

    def alternatives(self, observation: Any, actions: Any, before: Any) -> Any:
        """Return the outputs for M other actions at each row.

        Args:
            observation: scaled observations [T, B, F].
            actions: the other actions [M, T, B].
            before: state before each row [T, B, H].

        Returns:
            The outputs [M, T, B, Z].
        """
        count = actions.shape[0]
        shape = tf.shape(actions)
        rows = tf.broadcast_to(observation[None], tf.concat([shape, observation.shape[-1:]], axis=0))
        encoded = tf.reshape(self._encode(rows, actions), [count, -1, self.trunk.fc.output_size])
        after = self.trunk.gru.step(encoded, tf.reshape(before, [-1, before.shape[-1]]))
        return tf.reshape(self.logits(after), tf.concat([shape, [-1]], axis=0))

    def weights(self) -> dict[str, Any]:
        """Return every variable by name."""
        return self.trunk.weights() | parts("head", self.head)

    def _encode(self, observation: Any, action: Any) -> Any:
        if self.action_scale:
            action = tf.sign(action) * tf.math.log1p(tf.abs(action) / self.action_scale)
        return self.trunk.before_gru(tf.concat([observation, action[..., None]], axis=-1))


class ValueNetwork(snt.Module):  # type: ignore[misc]
    """V(s), a number."""

    def __init__(self, sizes: NetworkSizes, arithmetic: Arithmetic = PLAIN) -> None:
        super().__init__(name="value")
        self.trunk = Trunk(sizes.inputs, sizes, arithmetic)
        self.head = snt.Linear(1)
        self.head(tf.zeros([1, sizes.width]))
        _lower(self, arithmetic.precision)

    def unroll(self, observation: Any, state: Any) -> tuple[Any, Any]:
        """Return the values of windows [T, B], and the state after each row; see PolicyNetwork."""
        states = self.trunk.gru.unroll(self.trunk.before_gru(observation), state)
        return rowwise(self.head, self.trunk.after_gru(states))[..., 0], states

    def weights(self) -> dict[str, Any]:
        """Return every variable by name."""
        return self.trunk.weights() | parts("head", self.head)


class LowLinear(snt.Linear):  # type: ignore[misc]
    """A linear layer whose product has fewer bits; weights, bias and outputs are float32."""

    precision: str
    """Precision of the product."""

    def __call__(self, inputs: Any) -> Any:
        """Return the layer's outputs: [N, F] -> [N, outputs]."""
        return product(inputs, lowered(self.w, self.precision)) + self.b


def _lower(module: Any, precision: str) -> None:
    """Give every linear layer in a built module, including those that Acme made, a precision."""
    if precision != PLAIN.precision:
        for layer in module.submodules:
            if type(layer) is snt.Linear:
                layer.__class__, layer.precision = LowLinear, precision


def rowwise(module: Any, inputs: Any) -> Any:
    """Apply a module of [N, F] to [..., F]: Acme's LayerNormMLP normalises over every axis but the first."""
    leading = tf.shape(inputs)[:-1]
    outputs = module(tf.reshape(inputs, [-1, inputs.shape[-1]]))
    shaped = tf.reshape(outputs, tf.concat([leading, outputs.shape[-1:]], axis=0))
    shaped.set_shape([*inputs.shape[:-1], outputs.shape[-1]])
    return shaped


def parts(prefix: str, module: Any) -> dict[str, Any]:
    """Name the variables of a module's linear and normalisation layers, in the order they are applied."""
    layers = [module, *module.submodules]
    linear = [m for m in layers if isinstance(m, snt.Linear)]
    norms = [m for m in layers if isinstance(m, snt.LayerNorm)]
    named: dict[str, Any] = {}
    for i, layer in enumerate(linear):
        suffix = f".linear{i}" if len(linear) > 1 else ""
        named |= {f"{prefix}{suffix}.w": layer.w, f"{prefix}{suffix}.b": layer.b}
    for norm in norms:
        named |= {f"{prefix}.norm.scale": norm.scale, f"{prefix}.norm.offset": norm.offset}
    return named
