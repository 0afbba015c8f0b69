# SPDX-License-Identifier: Apache-2.0
"""Actors and critics of both kinds, dense and recurrent, behind one interface.

Time comes first: observations are [T, B, D], actions [T, B]. A network's memory after a row is [B, H]; dense networks
have one of no elements. Variables are named as the artefact's weights are (policy.mlp, policy.recurrent).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from sagecc.common.tensorflow_runtime import snt, tf
from sagecc.learner.arithmetic import PLAIN, Arithmetic
from sagecc.learner.gru import Gru
from sagecc.learner.mixture import Trunk, parts, rowwise
from sagecc.policy.choice import Chooser
from sagecc.policy.mlp import Mlp
from sagecc.policy.recurrent import Recurrent

LAST_LAYER = 1e-4
"""Scale of the actor's last layer at the start: its first actions are near 0 (Acme's NearZeroInitializedLinear)."""


class ActorNetwork(Protocol):
    """A deterministic policy."""

    memory: int
    """Size H of its memory."""

    def unroll(self, observations: Any, before: Any) -> tuple[Any, Any]:
        """Run the policy over windows.

        Args:
            observations: observations [T, B, D].
            before: memory before the first [B, H].

        Returns:
            Actions from -1 to 1 [T, B], and the memory after each row [T, B, H].
        """

    def weights(self) -> dict[str, Any]:
        """Return every variable by name."""


class Critic(Protocol):
    """Q(s, a)."""

    memory: int
    """Size H of its memory."""

    def remember(self, inputs: Any, actions: Any, before: Any) -> Any:
        """Return the memory after each row [T, B, H].

        Args:
            inputs: observations and global states [T, B, D + G].
            actions: the actions taken [T, B].
            before: memory before the first row [B, H].
        """

    def values(self, inputs: Any, actions: Any, before: Any) -> Any:
        """Return Q of any actions at each row [T, B].

        Args:
            inputs: observations and global states [T, B, D + G].
            actions: the actions to be judged [T, B].
            before: memory before each row [T, B, H].
        """

    def weights(self) -> dict[str, Any]:
        """Return every variable by name."""


class Value(Protocol):
    """V(s)."""

    def unroll(self, inputs: Any, before: Any) -> tuple[Any, Any]:
        """Return the values of windows.

        Args:
            inputs: observations and global states [T, B, D + G].
            before: memory before the first [B, H].

        Returns:
            The values [T, B], and the memory after each row [T, B, H].
        """

    def weights(self) -> dict[str, Any]:
        """Return every variable by name."""


class DenseActor(snt.Module):  # type: ignore[misc]
    """Layers, each followed by the activation, and a last one of one unit followed by tanh."""

    memory = 0

    def __init__(self, sizes: Mlp) -> None:
        super().__init__(name="actor")
        self._activation = _activation(sizes)
        self._layers = [snt.Linear(size) for size in sizes.hidden]
        self._answer = _answer()
        self._apply(tf.zeros([1, sizes.inputs]))

    def unroll(self, observations: Any, before: Any) -> tuple[Any, Any]:
        """Return the actions; see ActorNetwork."""
        return _flat(self._apply, observations), _nothing(observations)

    def weights(self) -> dict[str, Any]:
        """Return every variable by name."""
        return _named(self._layers, self._answer)

    def _apply(self, x: Any) -> Any:
        for layer in self._layers:
            x = self._activation(layer(x))
        return tf.tanh(self._answer(x))


class DenseCritic(snt.Module):  # type: ignore[misc]
    """Layers, each followed by the activation; one of them gets the action too; and a last linear one of one unit.

    Args:
        sizes: the hidden layers and their activation.
        inputs: numbers of observation and state.
        action_layer: the hidden layer that gets the action, from 1.
        normalised: whether each activation is followed by a layer's normalisation (Ba, Kiros and Hinton, 2016).
    """

    memory = 0

    def __init__(self, sizes: Mlp, inputs: int, action_layer: int = 1, normalised: bool = False) -> None:
        super().__init__(name="critic")
        self._activation, self._action_layer = _activation(sizes), action_layer
        self._layers = [snt.Linear(size) for size in sizes.hidden]
        self._norms = [snt.LayerNorm(-1, True, True) for _ in sizes.hidden if normalised]
        self._answer = snt.Linear(1)
        self._apply(tf.zeros([1, inputs + 1]))

    def remember(self, inputs: Any, actions: Any, before: Any) -> Any:
        """Return nothing; see Critic."""
        return _nothing(inputs)

    def values(self, inputs: Any, actions: Any, before: Any) -> Any:
        """Return the values; see Critic."""
        return _flat(self._apply, tf.concat([inputs, actions[..., None]], axis=-1))

    def weights(self) -> dict[str, Any]:
        """Return every variable by name."""
        named = _named(self._layers, self._answer)
        for i, norm in enumerate(self._norms):
            named |= parts(f"layer{i}", norm)
        return named

    def _apply(self, x: Any) -> Any:
        x, action = x[:, :-1], x[:, -1:]
        for number, layer in enumerate(self._layers, start=1):
            x = tf.concat([x, action], axis=-1) if number == self._action_layer else x
            x = self._activation(layer(x))
            x = self._norms[number - 1](x) if self._norms else x
        return self._answer(x)


class DenseValue(snt.Module):  # type: ignore[misc]
    """Layers, each followed by the activation, and a last linear one of one unit."""

    def __init__(self, sizes: Mlp) -> None:
        super().__init__(name="value")
        self._activation = _activation(sizes)
        self._layers, self._answer = [snt.Linear(size) for size in sizes.hidden], snt.Linear(1)
        self._apply(tf.zeros([1, sizes.inputs]))

    def unroll(self, inputs: Any, before: Any) -> tuple[Any, Any]:
        """Return the values; see Value."""
        return _flat(self._apply, inputs), _nothing(inputs)

    def weights(self) -> dict[str, Any]:
        """Return every variable by name."""
        return _named(self._layers, self._answer)

    def _apply(self, x: Any) -> Any:
        for layer in self._layers:
            x = self._activation(layer(x))
        return self._answer(x)


class RecurrentActor(snt.Module):  # type: ignore[misc]
    """Sage's layers around a GRU, and a last one of one unit followed by tanh."""

    def __init__(self, sizes: Recurrent, arithmetic: Arithmetic = PLAIN) -> None:
        super().__init__(name="actor")
        self.memory = sizes.gru
        self._trunk = Trunk(sizes.inputs, sizes, arithmetic)
        self._answer = _answer()
        self._answer(tf.zeros([1, sizes.width]))

    def unroll(self, observations: Any, before: Any) -> tuple[Any, Any]:
        """Return the actions and the memory; see ActorNetwork."""
        states = self._trunk.gru.unroll(self._trunk.before_gru(observations), before)
        return tf.tanh(rowwise(self._answer, self._trunk.after_gru(states)))[..., 0], states

    def weights(self) -> dict[str, Any]:
        """Return every variable by name."""
        return self._trunk.weights() | parts("answer", self._answer)


class RecurrentValue(snt.Module):  # type: ignore[misc]
    """Sage's layers around a GRU, and a last linear one of one unit."""

    def __init__(self, sizes: Recurrent, arithmetic: Arithmetic = PLAIN) -> None:
        super().__init__(name="value")
        self._trunk, self._answer = Trunk(sizes.inputs, sizes, arithmetic), snt.Linear(1)
        self._answer(tf.zeros([1, sizes.width]))

    def unroll(self, inputs: Any, before: Any) -> tuple[Any, Any]:
        """Return the values and the memory; see Value."""
        states = self._trunk.gru.unroll(self._trunk.before_gru(inputs), before)
        return rowwise(self._answer, self._trunk.after_gru(states))[..., 0], states

    def weights(self) -> dict[str, Any]:
        """Return every variable by name."""
        return self._trunk.weights() | parts("answer", self._answer)


class RecurrentCritic(snt.Module):  # type: ignore[misc]
    """Sage's layers around a GRU on observation, global state and action, and a last linear one of one unit."""

    def __init__(self, sizes: Recurrent, inputs: int, arithmetic: Arithmetic = PLAIN) -> None:
        super().__init__(name="critic")
        self.memory = sizes.gru
        self._trunk = Trunk(inputs + 1, sizes, arithmetic)
        self._answer = snt.Linear(1)
        self._answer(tf.zeros([1, sizes.width]))

    def remember(self, inputs: Any, actions: Any, before: Any) -> Any:
        """Return the memory; see Critic."""
        return self._trunk.gru.unroll(self._encode(inputs, actions), before)

    def values(self, inputs: Any, actions: Any, before: Any) -> Any:
        """Return the values: one step of the GRU from the memory before each row; see Critic."""
        encoded = self._encode(inputs, actions)
        shape, width = tf.shape(encoded), encoded.shape[-1]
        states = self._trunk.gru.step(
            tf.reshape(encoded, [1, -1, width]), tf.reshape(before, [-1, self._trunk.gru.size])
        )
        answers = self._answer(self._trunk.after_gru(states[0]))
        return tf.reshape(answers, shape[:-1])

    def weights(self) -> dict[str, Any]:
        """Return every variable by name."""
        return self._trunk.weights() | parts("answer", self._answer)

    def _encode(self, inputs: Any, actions: Any) -> Any:
        return self._trunk.before_gru(tf.concat([inputs, actions[..., None]], axis=-1))


class ChoiceActor(snt.Module):  # type: ignore[misc]
    """A GRU and a score for each action: policy.choice in training."""

    def __init__(self, sizes: Chooser) -> None:
        super().__init__(name="chooser")
        self._gru, self._scores = Gru(sizes.inputs, sizes.gru), snt.Linear(len(sizes.actions))
        self._scores(tf.zeros([1, sizes.gru]))

    def scores(self, observations: Any) -> Any:
        """Return the scores at each row of windows, which begin with an empty memory: [T, B, D] -> [T, B, K]."""
        before = tf.zeros([tf.shape(observations)[1], self._gru.size])
        return rowwise(self._scores, self._gru.unroll(observations, before))

    def weights(self) -> dict[str, Any]:
        """Return every variable by name."""
        core = self._gru.core
        gru = {"gru.w_i": core.input_to_hidden, "gru.w_h": core.hidden_to_hidden, "gru.b": core.b}
        return {**gru, "scores.w": self._scores.w, "scores.b": self._scores.b}


def _activation(sizes: Mlp) -> Callable[[Any], Any]:
    return tf.tanh if sizes.activation == "tanh" else lambda x: tf.nn.leaky_relu(x, sizes.slope)


def _named(layers: list[Any], answer: Any) -> dict[str, Any]:
    """Return the variables of dense layers and the last one by name."""
    named = {**{f"layer{i}": layer for i, layer in enumerate(layers)}, "answer": answer}
    return {f"{name}.{part}": v for name, layer in named.items() for part, v in (("w", layer.w), ("b", layer.b))}


def _answer() -> Any:
    return snt.Linear(1, w_init=snt.initializers.VarianceScaling(LAST_LAYER))


def _nothing(rows: Any) -> Any:
    """Return a memory of no elements for rows [T, B, ...]."""
    return tf.zeros(tf.concat([tf.shape(rows)[:2], [0]], axis=0))


def _flat(layers: Any, rows: Any) -> Any:
    """Apply layers of [N, F] -> [N, 1] to rows [T, B, F]; returns [T, B]."""
    return tf.reshape(layers(tf.reshape(rows, [-1, rows.shape[-1]])), tf.shape(rows)[:-1])
