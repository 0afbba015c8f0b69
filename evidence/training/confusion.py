# SPDX-License-Identifier: Apache-2.0
"""`python -m evidence.training.confusion`: where next to a Cubic critics and their policy disagree about the window.

Critics know the network, the policy does not. Both are asked at states of their pool, and at those in which the policy
itself came in `heldout`. By the flow's share of its fair rate: in how many states critics would raise the window (the
slope of Q in the action, at the policy's), and by how much the policy moves it. And which inputs tell the pool's states
from its own, where the flow has little: by those a policy takes its recorders' past for what the network does. Policies
are seed 0 of RECIPES, as evidence.training.run left them in .cache/training.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from evidence.machine import save
from evidence.training import ARTEFACTS, LOGS
from evidence.training.run import POOL_CACHE, RUNS, policy_folder, say
from evidence.training.runs import Run, read_plan
from sagecc.cli import errors_in_one_line
from sagecc.common.errors import SageccError
from sagecc.learner.continuation import CHECKPOINT, Continuation
from sagecc.learner.pool_source import PoolExperience
from sagecc.learner.privileged import FLOWS, NAMES
from sagecc.pool.derivation import build_pool

NAME = "confusion"
RECIPES = ("offline-kicks", "offline-wander", "offline")
LEAGUE = "heldout"
BATCHES = 60
EDGES = (0.0, 0.3, 0.7, 1.3, 1e9)
"""Of the bins of a flow's goodput over its fair share."""
LITTLE = (0.2, 0.7)
"""Of its fair share: where inputs are compared."""
TOLD = 3
"""Inputs that are named of each recipe, those that differ most."""
LEAST_DEVIATION = 0.05
"""Added to an input's deviation, for some hardly move; inputs have a deviation of 1 over the pool."""
MBPS = 100.0
"""Unit of the feature `thr`."""

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Opinions:
    """What was asked at N states next to others."""

    share: Floats
    """The flow's rate of the last 2 s over its fair share [N]."""
    slope: Floats
    """Slope of Q in the action [N]."""
    action: Floats
    """The policy's, from -1 to 1 [N]."""
    inputs: Floats
    """What the policy sees, scaled [N, observations]."""

    def bins(self) -> list[dict[str, Any]]:
        """Return of each bin its edges, states, share of them in which critics would go up, and mean action."""
        found = []
        for low, high in pairwise(EDGES):
            rows = (self.share >= low) & (self.share < high)
            states = int(rows.sum())
            up, action = (float(np.mean(x[rows])) if states else None for x in (self.slope > 0, self.action))
            found.append({"low": low, "high": high, "states": states, "up": up, "action": action})
        return found


def cues(names: Sequence[str], pool: Opinions, own: Opinions) -> list[dict[str, Any]]:
    """Return the TOLD inputs whose means differ most between two kinds of states of LITTLE share, the most first.

    Args:
        names: of the inputs.
        pool: at states of the pool.
        own: at the policy's own; a difference is own less pool, in deviations of the pool's states.
    """
    low, high = LITTLE
    of_pool, of_own = (of.inputs[(of.share >= low) & (of.share < high)] for of in (pool, own))
    differs = (of_own.mean(0) - of_pool.mean(0)) / (of_pool.std(0) + LEAST_DEVIATION)
    most = np.argsort(-np.abs(differs), kind="stable")[:TOLD]
    return [{"input": names[index], "differs": float(differs[index])} for index in most]


def asked(run: Run, pool: Path, ended: Continuation) -> Opinions:
    """Ask a run's critics and its policy at states of a pool.

    Args:
        run: the run, of an actor and critics that see the network.
        pool: whose states.
        ended: where the run ended.
    """
    from sagecc.common.tensorflow_runtime import tf
    from sagecc.learner.loop import Training
    from sagecc.learner.strategy import connect

    later = run.config.changed(steps=ended.steps + 1, data={"explorers": ()})
    experience = PoolExperience(later, pool, POOL_CACHE, run.seed, ended)
    training = Training(later, experience, run.seed, connect("one", "auto", run.seed), Path(LOGS))
    learner: Any = training.learner()
    for name, variable in learner.state().items():
        variable.assign(ended.state[name])
    judges, critic = learner.judges, learner.networks.critics[0]
    scaling = experience.scaling
    assert run.config.data
    thr = run.config.data.observations.index("thr_m.avg")
    parts = []
    with training.source(0) as source:
        for step in range(1, BATCHES + 1):
            batch = source.example(step)
            assert batch
            actions = judges.actions(batch)
            with tf.GradientTape() as tape:
                tape.watch(actions)
                values = judges.values(critic, batch, actions)
            states = np.asarray(batch.states)[judges.rows]
            inputs = np.asarray(batch.observations)[judges.rows]
            rate_mbps = MBPS * np.expm1(inputs[..., thr] * scaling.scale[thr] + scaling.shift[thr])  # from symlog
            flows, base_mbps = 4 ** states[..., NAMES.index(FLOWS)], 32 * 32 ** states[..., NAMES.index("rate")]
            slope = np.asarray(tape.gradient(values, actions))
            of = (rate_mbps * flows / base_mbps, slope, np.asarray(actions), inputs)
            parts.append([x[flows > 1] for x in of])
    return Opinions(*map(np.concatenate, zip(*parts, strict=True)))


def main() -> None:
    """Ask, and save."""
    from sagecc.common.tensorflow_runtime import configure

    configure(0)
    plan, found = read_plan(RUNS), []
    for run in plan.chosen(RECIPES):
        folder = ARTEFACTS / run.name
        if not (folder / LEAGUE).exists():
            raise SageccError(f"{folder} lacks its policy's plays: run 'make policies ONLY={run.name}' first")
        say(f"{run.name}: asking")
        ended = Continuation.load(policy_folder(run, folder), folder / LOGS / CHECKPOINT)
        assert run.pool
        with tempfile.TemporaryDirectory() as temporary:
            own = Path(temporary) / "pool"
            build_pool(folder / LEAGUE / "raw", own)
            at = {"pool": asked(run, run.pool, ended), "own": asked(run, own, ended)}
        assert run.config.data
        found.append(
            {
                "recipe": run.base,
                "states": {where: of.bins() for where, of in at.items()},
                "cues": cues(run.config.data.observations, **at),
            }
        )
    save(NAME, {"recipes": found})


if __name__ == "__main__":
    with errors_in_one_line("evidence.training.confusion"):
        main()
