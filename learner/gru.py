# SPDX-License-Identifier: Apache-2.0
"""The recurrent core: Sonnet's GRU, unrolled with a hand-written gradient.

Only what must be sequential is in the loops: the input's share of the gates comes in for all ticks at once, and
the gradient of the recurrent weights is one matrix product after the backward loop instead of a sum of T.

With XLA the two loops and the step are compiled: TensorFlow alone starts some fifteen kernels per tick one by one,
which takes longer than a GPU needs for their work.
"""

from __future__ import annotations

from typing import Any

from sagecc.common.tensorflow_runtime import snt, tf
from sagecc.learner.arithmetic import PLAIN, Arithmetic, lowered, product


class Gru(snt.Module):  # type: ignore[misc]
    """A GRU whose weights are Sonnet's (`w_i` [E, 3H], `w_h` [H, 3H], `b` [3H]; gates in the order z, r, a).

    z, r = sigmoid(x W_i + h W_h + b); a = tanh(x W_ia + (r h) W_ha + b_a); h' = (1 - z) h + z a.

    Args:
        input_size: number of inputs E.
        size: size H of the state.
        arithmetic: how it is computed; gates, states and weights are float32.
    """

    def __init__(self, input_size: int, size: int, arithmetic: Arithmetic = PLAIN) -> None:
        super().__init__(name="gru")
        self.size, self.precision = size, arithmetic.precision
        self._forward, self._backward = arithmetic.compiled(_forward), arithmetic.compiled(_backward)
        self._step = arithmetic.compiled(_step)
        self.core = snt.GRU(size)
        self.core(tf.zeros([1, input_size]), self.core.initial_state(1))

    def unroll(self, inputs: Any, state: Any) -> Any:
        """Run the recurrence.

        Args:
            inputs: inputs [T, B, E].
            state: state before the first input [B, H].

        Returns:
            The state after each input [T, B, H].
        """
        weights = tf.convert_to_tensor(self.core.hidden_to_hidden)
        return tf.custom_gradient(self._unroll)(self._gates(inputs), state, weights)

    def step(self, inputs: Any, state: Any) -> Any:
        """Take one step with M alternative inputs from each state.

        Args:
            inputs: inputs [M, N, E].
            state: state before them [N, H].

        Returns:
            The state after each input [M, N, H].
        """
        return self._step(self._gates(inputs), state, lowered(self.core.hidden_to_hidden, self.precision))

    def _gates(self, inputs: Any) -> Any:
        return product(inputs, lowered(self.core.input_to_hidden, self.precision)) + self.core.b

    def _unroll(self, gates: Any, state: Any, weights: Any) -> Any:
        """Run the recurrence, for tf.custom_gradient.

        Args:
            gates: the inputs' share of the gates [T, B, 3H].
            state: state before the first input [B, H].
            weights: recurrent weights [H, 3H].

        Returns:
            The states [T, B, H], and the function from their gradient to those of gates, state and weights.
        """
        size = self.size
        weights = lowered(weights, self.precision)
        zr, a, after = self._forward(gates, state, weights)
        after.set_shape([*gates.shape[:2], size])
        before = tf.concat([state[None], after[:-1]], axis=0)

        def gradient(upstream: Any) -> Any:
            grads, dstate = self._backward(upstream, zr, a, before, weights)
            dgates = tf.ensure_shape(grads, gates.shape)
            reset = zr[..., size:] * before
            flat, h, rh = (lowered(tf.reshape(x, [-1, x.shape[-1]]), self.precision) for x in (dgates, before, reset))
            dw_zr = tf.matmul(h, flat[:, : 2 * size], transpose_a=True)
            dw_a = tf.matmul(rh, flat[:, 2 * size :], transpose_a=True)
            return dgates, dstate, tf.cast(tf.concat([dw_zr, dw_a], axis=1), gates.dtype)

        return after, gradient


class Memoryless(snt.Module):  # type: ignore[misc]
    """Replaces the GRU where there is none (section 7.3): a tick's input is its "state"."""

    def __init__(self, size: int) -> None:
        super().__init__(name="memoryless")
        self.size = size

    def unroll(self, inputs: Any, state: Any) -> Any:
        """Return the inputs [T, B, E]."""
        return inputs

    def step(self, inputs: Any, state: Any) -> Any:
        """Return the inputs [M, N, E]."""
        return inputs


def _step(gates: Any, state: Any, weights: Any) -> Any:
    """Return the states [M, N, H] after gates [M, N, 3H] from states [N, H], by lowered weights [H, 3H]."""
    size = weights.shape[0]
    zr = tf.sigmoid(gates[..., : 2 * size] + product(state, weights[:, : 2 * size]))
    z, r = zr[..., :size], zr[..., size:]
    a = tf.tanh(gates[..., 2 * size :] + product(r * state, weights[:, 2 * size :]))
    return state + z * (a - state)


def _forward(gates: Any, state: Any, weights: Any) -> tuple[Any, Any, Any]:
    """Return z and r [T, B, 2H], the candidates [T, B, H] and the states [T, B, H] of a recurrence.

    Args:
        gates: the inputs' share of the gates [T, B, 3H].
        state: state before the first input [B, H].
        weights: recurrent weights [H, 3H], lowered.
    """
    size, length = weights.shape[0], tf.shape(gates)[0]
    w_zr, w_a = weights[:, : 2 * size], weights[:, 2 * size :]
    # Split here and not at each tick: XLA takes the wrong part of gates[t, :, 2 * size :].
    gates_zr, gates_a = gates[..., : 2 * size], gates[..., 2 * size :]

    def array() -> Any:
        return tf.TensorArray(gates.dtype, size=length)

    def tick(t: Any, h: Any, zrs: Any, candidates: Any, states: Any) -> Any:
        zr = tf.sigmoid(gates_zr[t] + product(h, w_zr))
        z, r = zr[:, :size], zr[:, size:]
        a = tf.tanh(gates_a[t] + product(r * h, w_a))
        h = h + z * (a - h)
        return t + 1, h, zrs.write(t, zr), candidates.write(t, a), states.write(t, h)

    _, _, zrs, candidates, states = tf.while_loop(
        lambda t, *_: t < length, tick, (0, state, array(), array(), array()), maximum_iterations=length
    )
    return zrs.stack(), candidates.stack(), states.stack()


def _backward(upstream: Any, zr: Any, a: Any, before: Any, weights: Any) -> tuple[Any, Any]:
    """Return the gradients of a recurrence's gates [T, B, 3H] and of its first state [B, H].

    Args:
        upstream: gradient of the states [T, B, H].
        zr: z and r [T, B, 2H].
        a: candidates [T, B, H].
        before: states before each tick [T, B, H].
        weights: recurrent weights [H, 3H], lowered.
    """
    size, length = weights.shape[0], tf.shape(upstream)[0]
    z, r = zr[..., :size], zr[..., size:]
    slope_zr, slope_a, reach = zr * (1 - zr), z * (1 - a * a), a - before
    # Products with few rows are slow with a transposed matrix: transpose once, not at each tick.
    back_zr, back_a = tf.transpose(weights[:, : 2 * size]), tf.transpose(weights[:, 2 * size :])

    def tick(t: Any, dh: Any, grads: Any) -> Any:
        dh = dh + upstream[t]
        da = dh * slope_a[t]
        drh = product(da, back_a)
        dzr = tf.concat([dh * reach[t], drh * before[t]], axis=-1) * slope_zr[t]
        dh = dh * (1 - z[t]) + drh * r[t] + product(dzr, back_zr)
        return t - 1, dh, grads.write(t, tf.concat([dzr, da], axis=-1))

    first = (length - 1, tf.zeros_like(before[0]), tf.TensorArray(upstream.dtype, size=length))
    _, dstate, grads = tf.while_loop(lambda t, *_: t >= 0, tick, first, maximum_iterations=length)
    return grads.stack(), dstate
