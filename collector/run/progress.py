# SPDX-License-Identifier: Apache-2.0
# Not followed as an import: what is shown meanwhile is in no file.
"""How far a collection is: a bar for who watches, a line a minute for a log."""

from __future__ import annotations

import sys
import time
from collections.abc import MutableMapping, Sequence
from types import TracebackType
from typing import Any

from tqdm import tqdm

from sagecc.collector.run.task import Task

LOG_EVERY_S = 60.0
BAR_FORMAT = "collect {percentage:3.0f}% |{bar}| {facts}, {remaining} left"


class Progress:
    """Counts finished episodes. The time left is judged by the CPU time that each of the rest will take."""

    def __init__(self, tasks: Sequence[Task], show: bool = True) -> None:
        self._episodes, self._cost = len(tasks), sum(task.cost for task in tasks)
        self._done = self._rows = 0
        self._done_cost = self._virtual_s = 0.0
        self._began = self._said = time.monotonic()
        watched = sys.stderr.isatty()
        self._log = show and not watched and bool(tasks)
        self._bar = _Bar(
            total=self._cost,
            bar_format=BAR_FORMAT,
            smoothing=0,
            dynamic_ncols=True,
            disable=not (show and watched and tasks),
        )

    def __enter__(self) -> Progress:
        self._bar.facts = self.facts()
        self._bar.refresh()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()
        if self._log and self._done:
            self._say()

    def add(self, task: Task, rows: int) -> None:
        """Count one more; rows: 0 for one that failed."""
        self._done, self._rows = self._done + 1, self._rows + rows
        self._done_cost, self._virtual_s = self._done_cost + task.cost, self._virtual_s + task.environment.duration_s
        self._bar.facts = self.facts()
        self._bar.update(min(task.cost, self._cost - self._bar.n))  # floats do not add up to their sum
        if self._log and time.monotonic() - self._said >= LOG_EVERY_S:
            self._say()

    def facts(self) -> str:
        """Episodes, rows, and virtual seconds a second."""
        rate = self._virtual_s / max(time.monotonic() - self._began, 1e-9)
        rows = tqdm.format_sizeof(self._rows) if self._rows >= 1000 else str(self._rows)
        return f"{self._done:,}/{self._episodes:,} episodes, {rows} rows, {rate:.0f} virtual s/s"

    def _say(self) -> None:
        self._said = time.monotonic()
        spent = self._said - self._began
        left = spent * (self._cost - self._done_cost) / self._done_cost
        print(
            f"collect {self._done_cost / self._cost:4.0%} {self.facts()},"
            f" {tqdm.format_interval(spent)} spent, {tqdm.format_interval(left)} left",
            file=sys.stderr,
            flush=True,
        )


class _Bar(tqdm):  # type: ignore[type-arg]
    """A bar whose format may say {facts}."""

    facts = ""

    @property
    def format_dict(self) -> MutableMapping[str, Any]:
        """What BAR_FORMAT can name."""
        return {**super().format_dict, "facts": self.facts}
