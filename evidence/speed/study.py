# SPDX-License-Identifier: Apache-2.0
"""What the evaluation study costs: CPU time of `sagecc study all --quick` with six schemes, and the whole study's.

Every run of the quick grid is timed, guest and host side together, in one process: those of kernel schemes by
themselves, those of policies a few in step, as the study plays them (more of them, there). The whole study, its 6,270
runs of six schemes and five repeats, is projected by what each experiment's virtual second took with each scheme. What
was timed is kept, a killed run goes on. SAGECC_ORCA names the folder of Orca's published checkpoint.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tqdm import tqdm

from evidence.machine import KERNEL, CpuTime, save
from sagecc.cli import errors_in_one_line
from sagecc.common.errors import SageccError
from sagecc.common.files import write_atomically
from sagecc.execution.schemes.orca.checkpoint import import_checkpoint
from sagecc.leagues.study.catalogue import chosen, plan
from sagecc.leagues.study.collect import lab_identity, run_key
from sagecc.leagues.study.experiments import StudyRun, distinct, study_runs
from sagecc.leagues.study.runner import in_batches, play
from sagecc.schemas.schemes import POLICY_PREFIX, is_driven

CACHE = Path(".cache/bench-study")
SCHEMES = ("cubic", "bbr2", "vegas", "illinois", "policy:models/sagecc-1")

IN_STEP = 4
"""Runs of a policy that are timed together."""

Costs = Mapping[StudyRun, float]
"""CPU seconds of each run."""


def main() -> None:
    """Measure and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=math.inf, help="after which no run is started; then a sample")
    until = time.monotonic() + 60 * parser.parse_args().minutes
    checkpoint = os.environ.get("SAGECC_ORCA")
    if not checkpoint:
        raise SageccError("SAGECC_ORCA names no checkpoint: set it to the folder of Orca's published actor")
    orca = f"{POLICY_PREFIX}{import_checkpoint(Path(checkpoint), CACHE / 'policy').folder}"
    schemes = (*SCHEMES, orca)
    quick, whole = distinct(plan(chosen(("all",)), schemes, quick=True)), distinct(study_runs(schemes))
    costs = timed(groups(quick), until)
    parts = {"timed": list(costs), "quick": quick, "whole": whole}
    rates = Rates(costs)
    save(
        "study",
        {
            "timed": totals(costs, rates) | {"of": len(quick)},
            "schemes": [
                {"scheme": "orca" if scheme == orca else scheme.rpartition("/")[2]}
                | {name: totals([run for run in runs if run.scheme == scheme], rates) for name, runs in parts.items()}
                for scheme in schemes
            ],
            "experiments": [
                {"experiment": name}
                | {part: totals([run for run in runs if run.experiment == name], rates) for part, runs in parts.items()}
                for name in dict.fromkeys(run.experiment for run in whole)
            ],
            "quick": totals(quick, rates),
            "whole": totals(whole, rates) | {"counted": len(study_runs(schemes))},
            "load_average": round(os.getloadavg()[0], 1),
        },
    )


class Rates:
    """CPU seconds of a virtual second by experiment and scheme, as far as they were timed."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._sums: dict[tuple[str, ...], tuple[float, float]] = {}
        for run, cpu_s in costs.items():
            for key in ((run.experiment, run.scheme), (run.scheme,)):
                spent, virtual = self._sums.get(key, (0.0, 0.0))
                self._sums[key] = spent + cpu_s, virtual + run.environment.duration_s

    def cpu_s(self, run: StudyRun) -> float:
        """Return what a run took, or else by its experiment's and scheme's rate, or else by its scheme's."""
        if run in self._costs:
            return self._costs[run]
        key = (run.experiment, run.scheme)
        spent, virtual = self._sums[key if key in self._sums else key[1:]]
        return run.environment.duration_s * spent / virtual


def totals(runs: Iterable[StudyRun], rates: Rates) -> dict[str, float]:
    """Return how many runs these are, their virtual hours, and their CPU hours."""
    sample = list(runs)
    return {
        "runs": len(sample),
        "virtual_h": virtual_s(sample) / 3600,
        "cpu_h": sum(map(rates.cpu_s, sample)) / 3600,
    }


def groups(runs: Sequence[StudyRun]) -> list[tuple[StudyRun, ...]]:
    """Return the runs by what is timed at once, so that any first part has all experiments and schemes alike."""
    alike: dict[tuple[str, str], list[StudyRun]] = {}
    for run in runs:
        alike.setdefault((run.experiment, run.scheme), []).append(run)
    rounds = []
    for (_, scheme), some in alike.items():
        size = IN_STEP if is_driven(scheme) else 1
        ordered = middle_first(some)
        rounds += list(enumerate(tuple(ordered[i : i + size]) for i in range(0, len(ordered), size)))
    return [group for _, group in sorted(rounds, key=lambda each: (each[0], virtual_s(each[1])))]


def virtual_s(runs: Iterable[StudyRun]) -> float:
    """Return their virtual time."""
    return sum(run.environment.duration_s for run in runs)


def middle_first(runs: Sequence[StudyRun]) -> list[StudyRun]:
    """Return the runs of a grid by how far from its middle they are."""
    middle = len(runs) // 2
    return [runs[place] for place in sorted(range(len(runs)), key=lambda place: abs(place - middle))]


def timed(together: Sequence[Sequence[StudyRun]], until: float) -> Costs:
    """Play what was not timed yet while there is time (time.monotonic); return each run's CPU seconds.

    Runs that are played in step share theirs by their virtual time.
    """
    identity = lab_identity(KERNEL)
    costs: dict[StudyRun, float] = {}
    (CACHE / "runs").mkdir(parents=True, exist_ok=True)
    for runs in tqdm(together, desc="study", disable=None):
        files = {run: CACHE / "runs" / f"{run_key(run, identity(run))}.json" for run in runs}
        if not all(path.exists() for path in files.values()):
            if time.monotonic() > until:
                continue
            begin = CpuTime.now()
            played = dict(in_batches(KERNEL, runs, 1)) if len(runs) > 1 else {runs[0]: play(KERNEL, runs[0])}
            rate = CpuTime.now().since(begin) / virtual_s(runs)
            for run, outcome in played.items():
                if isinstance(outcome, SageccError):
                    raise outcome
                with write_atomically(files[run]) as temporary:
                    temporary.write_text(json.dumps({"cpu_s": rate * run.environment.duration_s}))
        costs |= {run: float(json.loads(path.read_text())["cpu_s"]) for run, path in files.items()}
    return costs


if __name__ == "__main__":
    with errors_in_one_line("evidence.speed.study"):
        main()
