# SPDX-License-Identifier: Apache-2.0
"""Fig. 7: the winning rates of policies in training, over the CPU time that was spent on them.

Each is judged in `heldout`, at even distances. So is a run whose result has a curve of its own (keep_best in
evidence/training/runs.yaml), which is not trained again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from evidence.machine import save
from evidence.paper import BASE, FOLDER, OFFLINE, RESULTS, SEEDS
from evidence.training import METER, table
from evidence.training.judging import Judge, read_points
from evidence.training.meter import Meter
from evidence.training.run import policy_folder, say, source_of, trained
from evidence.training.runs import Plan, seed_name
from sagecc.collector.kernel.identity import kernel_identity
from sagecc.common.errors import SageccError
from sagecc.common.locks import locked
from sagecc.learner.compiled import CompiledPool
from sagecc.learner.evaluation import Evaluation
from sagecc.learner.runs import SCORES
from sagecc.schemas.schemes import POLICY_PREFIX, SCHEMES

NAME = "fig-7"
LEAGUE = "heldout"
IN_LABS = "sagecc-11"
"""Of those that learn in labs the one that wins most."""
RECIPES = (BASE, OFFLINE, IN_LABS)
POINTS = 10
"""Evaluations of a training."""


def trainings() -> list[tuple[str, int, str]]:
    """Return recipe, seed and name of each training."""
    return [(recipe, seed, seed_name(recipe, seed)) for recipe in RECIPES for seed in SEEDS]


def make(plan: Plan, kernel: Path, jobs: int) -> None:
    """Train and judge what is not done, and keep it in evidence/results/fig-7.json after each training.

    Raises:
        SageccError: trainings failed; the others are kept.
    """
    identity = kernel_identity(kernel, (*SCHEMES, POLICY_PREFIX))
    raw = plan.leagues[LEAGUE]
    there, own = kept(RESULTS / f"{NAME}.json"), own_curves(plan)
    if any(there.get(name) != run for name, run in own.items()):
        there |= own
        _save(there, own)
    pools: dict[Path, CompiledPool] = {}
    failed = []
    for recipe, seed, name in trainings():
        run = replace(plan.runs[recipe], name=name, seed=seed, actors=1, keep_best=None)
        source = source_of(run, kernel, pools)
        every = run.config.steps // POINTS
        fingerprint = f"{run.fingerprint(source.identity, identity, Plan({}, {LEAGUE: raw}))}/{every}"
        if there.get(name, {}).get("fingerprint") == fingerprint:
            say(f"{NAME}, {name}: done")
            continue
        folder = FOLDER / NAME / name
        folder.mkdir(parents=True, exist_ok=True)
        say(f"{NAME}, {name}: training")
        try:
            with locked(folder / ".lock"), Meter(folder / METER, fingerprint) as meter:
                judge = Judge({LEAGUE: raw}, kernel, folder / "league", jobs, meter, curve=LEAGUE)
                trained(run, source, folder, Evaluation(judge, every, judge.identity), kernel, jobs)
        except BlockingIOError:
            failed.append(f"{name} (another process is at it)")
            continue
        except SageccError as error:
            failed.append(f"{name} ({error})")
            continue
        there[name] = {
            "name": name,
            "recipe": recipe,
            "seed": seed,
            "fingerprint": fingerprint,
            "steps": run.config.steps,
            "points": read_points(policy_folder(run, folder) / SCORES),
        }
        _save(there, own)
    if failed:
        raise SageccError(f"{NAME}: {'; '.join(failed)}")


def own_curves(plan: Plan) -> dict[str, Any]:
    """Return by name the runs that are done and have a curve of the league themselves, as they stand in the figure."""
    curves, results = {}, table.read_results(table.RESULTS)
    for name, run in plan.runs.items():
        if run.keep_best and run.keep_best.curve == LEAGUE:
            result = results.get(name, {})
            if "curve" in result:
                of_result = {field: result[field] for field in ("name", "seed", "fingerprint", "steps")}
                curves[name] = {**of_result, "recipe": name, "points": result["curve"]["points"]}
    return curves


def _save(there: Mapping[str, Any], own: Iterable[str]) -> None:
    names = [name for _, _, name in trainings()] + list(own)
    save(NAME, {"league": LEAGUE, "runs": [there[name] for name in names if name in there]}, RESULTS)


def kept(path: Path) -> dict[str, Any]:
    """Return the runs of an earlier result by name; none where there is no such file."""
    try:
        return {run["name"]: run for run in json.loads(path.read_text())["result"]["runs"]}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError) as error:
        raise SageccError(f"{path}: cannot be read ({error}); remove it and make the figure again") from None
