# SPDX-License-Identifier: Apache-2.0
"""`python -m evidence.leagues.confusion`: where next to a Cubic critics and their policy disagree about the window.

Critics know the network, the policy does not. Both are asked at states of their pool, and at those in which the policy
itself came in `heldout`. By the flow's share of its fair rate: in how many states critics would raise the window (the
slope of Q in the action, at the policy's), and by how much the policy moves it. The same where flows start together and
the flow has little, with the inputs that tell the pool's states from the policy's own: by those it takes its recorders'
past for what the network does. Policies are seed 0 of RECIPES, trained and played here where they are not yet.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from evidence.leagues.starts import CURES, NETWORKS, order_of
from evidence.machine import KERNEL, save
from evidence.training import ARTEFACTS, LOGS
from evidence.training.run import POOL_CACHE, RUNS, policies_of, policy_folder, say
from evidence.training.runs import Run, networks_of, read_plan
from sagecc.cli import errors_in_one_line
from sagecc.collector.run.set_file import load_set
from sagecc.common.limits import usable_cores
from sagecc.leagues.league import gather, lab_runner
from sagecc.learner.continuation import CHECKPOINT, Continuation
from sagecc.learner.pool_source import PoolExperience
from sagecc.learner.privileged import FLOWS, NAMES
from sagecc.pool.derivation import build_pool
from sagecc.schemas.environment_set import EnvironmentSet
from sagecc.schemas.schemes import POLICY_PREFIX

NAME = "confusion"
RECIPES = {"offline-kicks": RUNS, "offline-wander": RUNS, "lacks-blindness": CURES, "offline": RUNS}
"""Plans by run."""
STARTED, TOGETHER = ("lacks-blindness", "offline"), "together"
"""Those of a pool in which flows start together, and that set of it."""
LEAGUE = "heldout"
BATCHES = 60
EDGES = (0.0, 0.3, 0.7, 1.3, 1e9)
"""Of the bins of a flow's goodput over its fair share."""
LITTLE = (0.15, 0.5)
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

    def between(self, low: float, high: float) -> npt.NDArray[np.bool_]:
        """Return which states have a share from `low` on and below `high` [N]."""
        found: npt.NDArray[np.bool_] = (self.share >= low) & (self.share < high)
        return found

    def bins(self, edges: Sequence[float] = EDGES) -> list[dict[str, Any]]:
        """Return of each bin its edges, states, share of them in which critics would go up, and mean action."""
        found = []
        for low, high in pairwise(edges):
            rows = self.between(low, high)
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
    of_pool, of_own = (of.inputs[of.between(*LITTLE)] for of in (pool, own))
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


def of_sets(run: Run, *sets: str) -> Run:
    """Return the run that looks at these sets of a pool alone, at all if there are none."""
    return replace(run, config=run.config.changed(data={"selection": {"sets": list(sets)}}))


def asked_of_plays(run: Run, ended: Continuation, networks: EnvironmentSet, scheme: str, out: Path) -> Opinions:
    """Let a run's policy play in the folder `out` where it has not, and ask at the states in which it came."""
    gather(networks, (scheme,), out, out, lab_runner(KERNEL, usable_cores()))
    with tempfile.TemporaryDirectory() as temporary:
        own = Path(temporary) / "pool"
        build_pool(out / "raw", own)
        return asked(of_sets(run), own, ended)


def main() -> None:
    """Train and play where that is missing, ask, and save."""
    from sagecc.common.tensorflow_runtime import configure

    configure(0)
    found: list[dict[str, Any]] = []
    league = networks_of(LEAGUE)
    every = load_set(str(NETWORKS))
    starts = replace(every, environments=tuple(each for each in every.environments if order_of(each) == "with"))
    for name, file in RECIPES.items():
        plan = read_plan(file)
        run = plan.runs[name]
        assert run.pool and run.config.data
        folder, scheme = ARTEFACTS / name, f"{POLICY_PREFIX}{policies_of(plan, [name], KERNEL)[name]}"
        say(f"{name}: playing and asking")
        ended = Continuation.load(policy_folder(run, folder), folder / LOGS / CHECKPOINT)
        own = asked_of_plays(run, ended, league, scheme, folder / LEAGUE)
        opinions = {"pool": asked(run, run.pool, ended), "own": own}
        found.append({"recipe": name, "states": {where: of.bins() for where, of in opinions.items()}})
        if name in STARTED:
            at = asked_of_plays(run, ended, starts, scheme, folder / starts.name)
            pool = asked(of_sets(run, TOGETHER), run.pool, ended)
            found[-1]["started"] = {
                "pool": pool.bins(LITTLE)[0],
                "own": at.bins(LITTLE)[0],
                "cues": cues(run.config.data.observations, pool, at),
            }
    save(NAME, {"recipes": found})


if __name__ == "__main__":
    with errors_in_one_line("evidence.leagues.confusion"):
        main()
