# SPDX-License-Identifier: Apache-2.0
"""Progress of a collection: a bar on a terminal, one line per minute in a log."""

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
    """Count finished episodes and show progress; the time left is estimated from the costs of the remaining tasks.

    Args:
        tasks: the tasks to run.
        show: whether to show anything.
    """

    def __init__(self, tasks: Sequence[Task], show: bool = True) -> None:
        self._episodes, self._cost = len(tasks), sum(task.cost for task in tasks)
        self._done = self._rows = 0
        self._done_cost = self._virtual_s = 0.0
        self._start_s = self._last_line_s = time.monotonic()
        is_terminal = sys.stderr.isatty()
        self._log = show and not is_terminal and bool(tasks)
        self._bar = _Bar(
            total=self._cost,
            bar_format=BAR_FORMAT,
            smoothing=0,
            dynamic_ncols=True,
            disable=not (show and is_terminal and tasks),
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
            self._print_line()

    def add(self, task: Task, rows: int) -> None:
        """Count a finished episode with its rows, 0 if it failed."""
        self._done, self._rows = self._done + 1, self._rows + rows
        self._done_cost = min(self._done_cost + task.cost, self._cost)  # floats do not add up to their sum
        self._virtual_s += task.environment.duration_s
        self._bar.facts = self.facts()
        self._bar.update(self._done_cost - self._bar.n)
        if self._log and time.monotonic() - self._last_line_s >= LOG_EVERY_S:
            self._print_line()

    def facts(self) -> str:
        """Return a text with the numbers of episodes, of rows, and of virtual seconds per second."""
        rate = self._virtual_s / max(time.monotonic() - self._start_s, 1e-9)
        rows = tqdm.format_sizeof(self._rows) if self._rows >= 1000 else str(self._rows)
        return f"{self._done:,}/{self._episodes:,} episodes, {rows} rows, {rate:.0f} virtual s/s"

    def _print_line(self) -> None:
        self._last_line_s = time.monotonic()
        spent_s = self._last_line_s - self._start_s
        left_s = spent_s * (self._cost - self._done_cost) / self._done_cost
        print(
            f"collect {self._done_cost / self._cost:4.0%} {self.facts()},"
            f" {tqdm.format_interval(spent_s)} spent, {tqdm.format_interval(left_s)} left",
            file=sys.stderr,
            flush=True,
        )


class _Bar(tqdm):  # type: ignore[type-arg]
    """A bar whose format may contain {facts}."""

    facts = ""

    @property
    def format_dict(self) -> MutableMapping[str, Any]:
        """The values that BAR_FORMAT can name."""
        return {**super().format_dict, "facts": self.facts}
