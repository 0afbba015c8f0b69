# SPDX-License-Identifier: Apache-2.0
"""What a policy would have done at recorded decisions: the exact runtime (policy.exact), in the recorder's place."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sagecc.common.arrays import Bools, Doubles, Floats
from sagecc.common.errors import SageccError
from sagecc.common.versions import same_major
from sagecc.learner.compiled import CompiledPool
from sagecc.learner.judging.decisions import RecordedDecisions
from sagecc.policy import exact, runtime
from sagecc.policy.artefact import LINEAR_MAP, OBSERVATION_SOURCE, RATE_MAP, STEPS_MAP, Control, PolicyArtefact
from sagecc.policy.ratios import ratios
from sagecc.policy.residual import NetworkSizes
from sagecc.schemas.pool import FEATURE_NAMES, POOL_VERSION

AT_LIMIT = 0.01
"""Share of the range of actions within which one counts as at its end: tanh comes near it and never there."""


@dataclass(frozen=True)
class Predictions:
    """A policy's actions at decisions [N]."""

    actions: Doubles
    """log2 of what it would multiply the window by until the next decision [N]."""
    at_limits: Bools
    """Whether that is as far as it can go [N]."""
    log_densities: Doubles | None
    """Log of its mixture's density at the recorded actions, per log2 [N]; None for a policy without mixture."""


def check(policy: PolicyArtefact, pool: CompiledPool, tick_ms: float) -> int:
    """Return the rows of a pool from one decision of a policy to the next.

    Raises:
        SageccError: The policy sees, decides or acts by what a pool does not tell.
    """
    who, control = f"policy {policy.path}", policy.control
    if policy.source[0] != OBSERVATION_SOURCE or not same_major(policy.source[1], POOL_VERSION):
        raise SageccError(f"{who} sees {' '.join(policy.source)}, not a pool's features: let it play instead")
    if unknown := sorted(set(policy.observations) - set(FEATURE_NAMES)):
        raise SageccError(f"{who} sees '{unknown[0]}', which is no feature of a pool: let it play instead")
    if control.map in (RATE_MAP, STEPS_MAP):
        raise SageccError(f"{who} does not multiply windows ({control.map}): let it play instead")
    ticks = control.period_ms / tick_ms
    if control.period_min_rtts or ticks < 1 or ticks != int(ticks):
        raise SageccError(f"{who} does not decide every so many ticks of {tick_ms:g} ms: let it play instead")
    learned = policy.card.get("pool")
    for what, key, has in (
        ("observation windows", "windows", pool.windows),
        ("effective windows of", "effective_windows", pool.effective),
    ):
        if isinstance(learned, dict) and learned.get(key, has if key == "windows" else "") != has:
            raise SageccError(
                f"{who} learned from a pool with {what} {learned.get(key) or 'no scheme'}, this one has"
                f" {has or 'none'}: derive it likewise with 'sagecc pool'"
            )
    return int(ticks)


def predict(policy: PolicyArtefact, decisions: RecordedDecisions) -> Predictions:
    """Let a policy decide at every recorded decision, its memory being that of the trajectory so far.

    Args:
        policy: one that `check` has passed.
        decisions: of the policy's period.

    Raises:
        SageccError: An action is not a number.
    """
    control, step = policy.control, runtime.load(policy)
    columns = [FEATURE_NAMES.index(name) for name in policy.observations]
    longest_first = np.argsort(-decisions.lengths, kind="stable")
    starts, lengths = decisions.starts[longest_first], decisions.lengths[longest_first]
    count = len(decisions.actions)
    densities = isinstance(policy.sizes, NetworkSizes) and control.map != LINEAR_MAP
    actions, log_densities = np.empty(count), np.empty(count)
    hidden = policy.initial_state(len(starts))
    for time in range(int(lengths[0])):
        rows = starts[: int(np.searchsorted(-lengths, -time))] + time
        seen = np.ascontiguousarray(decisions.features[rows][:, columns])
        logits, loc, scale, hidden = step(seen, hidden[: len(rows)])
        actions[rows] = exact.mean(logits, loc)
        if densities:
            log_densities[rows] = _log_density(control, decisions.actions[rows], logits, loc, scale)
    if not np.isfinite(actions).all():
        raise SageccError(f"policy {policy.path} computed an action that is not a number: train it again")
    low, high = control.limits
    clipped = np.clip(actions, low, high)
    margin = AT_LIMIT * (high - low)
    return Predictions(
        np.log2(ratios(control, clipped)),
        (clipped <= low + margin) | (clipped >= high - margin),
        log_densities if densities else None,
    )


def _log_density(control: Control, recorded: Doubles, logits: Floats, loc: Floats, scale: Floats) -> Doubles:
    """Return the log of mixtures' densities at recorded actions [B], per log2 of the ratio, not per action.

    Args:
        control: of a map of powers; what a recorder did beyond its limits counts as at the limit.
        recorded: log2 of ratios [B].
        logits: of the mixtures [B, K].
        loc: means [B, K].
        scale: standard deviations [B, K].
    """
    unit = math.log2(control.base)
    action = np.clip(recorded / unit, *control.limits)[:, None]
    weights, means, deviations = (np.asarray(x, np.float64) for x in (logits, loc, scale))
    weights = weights - np.logaddexp.reduce(weights, axis=1, keepdims=True)
    each = weights - 0.5 * np.square((action - means) / deviations) - np.log(deviations) - 0.5 * math.log(2 * math.pi)
    return np.asarray(np.logaddexp.reduce(each, axis=1) - math.log(unit))
