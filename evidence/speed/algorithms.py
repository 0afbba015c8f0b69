# SPDX-License-Identifier: Apache-2.0
"""Steps a second of each algorithm that learns from a pool, as its configuration has it, on one core, fed by that core.

All learn in one process, pinned to a core, and take their steps in turn, so that all meet the same moments of a busy
machine; how fast the core multiplies large matrices between them tells how busy. Beside a step's CPU time stands what
of it reading and scaling its batch takes, measured by itself.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from tqdm import tqdm

from evidence.machine import save
from evidence.speed.learner import matrix_rate
from sagecc.cli import errors_in_one_line
from sagecc.learner.pool_source import PoolExperience
from sagecc.learner.specification import load, name_of

POOL, CACHE = Path("datasets/kicked/pool"), Path(".cache/pool")
CONFIGS = ("bc-mean", "awr", "td3-bc", "rebrac", "cql", "small", "iql")
ROUNDS = 5
ROUND_STEPS = 60
RUN_STEPS = 20_000
"""Steps of a run whose time is told."""


def main() -> None:
    """Measure and save."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    from sagecc.common.tensorflow_runtime import configure

    configure(0)
    with ExitStack() as opened:
        learners = [TimedLearner(name, opened) for name in tqdm(CONFIGS, desc="build", disable=None)]
        rates = []
        for _ in tqdm(range(ROUNDS), desc="rounds", disable=None):
            for each in learners:
                each.take(ROUND_STEPS)
            rates.append(matrix_rate())
        result = {
            "rows": [each.result() for each in learners],
            "run_steps": RUN_STEPS,
            "matrix_gflop_per_s": median(rates),
            "load_average": round(os.getloadavg()[0], 1),
        }
    save("algorithms", result)


class TimedLearner:
    """A configuration's learner, fed as in training.

    Args:
        name: the configuration.
        opened: closes its source in the end.
    """

    def __init__(self, name: str, opened: ExitStack) -> None:
        from sagecc.learner.loop import Training
        from sagecc.learner.strategy import SingleDevice

        self._name, self._config = name, load(name)
        experience = PoolExperience(self._config, POOL, CACHE, 0)
        training = Training(self._config, experience, 0, SingleDevice(), Path())
        step = training.stepper(training.learner())
        self._source = opened.enter_context(training.source(0))
        self._step: Callable[[], object] = lambda: step(self._source.next(dict), lambda: False)
        self._step()
        self._step_s: list[float] = []
        self._feeding_s: list[float] = []

    def take(self, steps: int) -> None:
        """Take steps, then draw as many batches alone."""
        self._step_s.append(cpu_s(self._step, steps))
        self._feeding_s.append(cpu_s(lambda: self._source.example(len(self._step_s)), steps))

    def result(self) -> dict[str, Any]:
        """Return the medians of the rounds."""
        config, step_s = self._config, median(self._step_s)
        ahead = getattr(config.algorithm, "n_step", 1)
        return {
            "config": self._name,
            "algorithm": name_of(config.algorithm),
            "network": config.network.kind,
            "batch": config.batch,
            "window": config.window,
            "rows": config.batch * (config.transitions + 1 - config.burn_in - ahead),
            "steps_per_cpu_s": 1 / step_s,
            "feeding_share": median(self._feeding_s) / step_s,
            "run_minutes": RUN_STEPS * step_s / 60,
        }


def cpu_s(take: Callable[[], object], count: int) -> float:
    """Return the CPU seconds that this process spends on each of so many calls."""
    spent = time.process_time()
    for _ in range(count):
        take()
    return (time.process_time() - spent) / count


if __name__ == "__main__":
    with errors_in_one_line("evidence.speed.algorithms"):
        main()
