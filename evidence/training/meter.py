# SPDX-License-Identifier: Apache-2.0
"""What a training costs, over all processes that were at it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evidence.machine import CpuTime, descendants_cpu_s
from sagecc.common.files import write_atomically

METER_EVERY_S = 5.0


class Meter:
    """Adds up CPU time and the time on the clock while it is open, over all processes that had it open.

    CPU time is that of this process and of those it started, whether they run or have ended. What a killed process
    spent is kept up to METER_EVERY_S before its end. A file of another owner starts at 0.
    """

    def __init__(self, path: Path, owner: str) -> None:
        self._path, self._owner = path, owner
        self._closed, self._counting = threading.Event(), threading.Lock()
        self._writer = threading.Thread(target=self._keep_writing, daemon=True)
        try:
            earlier = json.loads(path.read_text())
        except (FileNotFoundError, ValueError):
            earlier = {}
        mine = earlier.get("owner") == owner
        self.cpu_s: float = earlier["cpu_s"] if mine else 0.0
        self.wall_s: float = earlier["wall_s"] if mine else 0.0

    def __enter__(self) -> Meter:
        self._begin()
        self._writer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._writer.join()
        self._write()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave out what is spent meanwhile; `cpu_s` and `wall_s` are as of its beginning."""
        with self._counting:
            self._add()
            try:
                yield
            finally:
                self._begin()

    def _keep_writing(self) -> None:
        while not self._closed.wait(METER_EVERY_S):
            self._write()

    def _write(self) -> None:
        with self._counting:
            self._add()

    def _begin(self) -> None:
        self._cpu_s, self._wall = _spent_s(), time.monotonic()

    def _add(self) -> None:
        cpu_s, wall = _spent_s(), time.monotonic()
        self.cpu_s, self.wall_s = self.cpu_s + cpu_s - self._cpu_s, self.wall_s + wall - self._wall
        self._cpu_s, self._wall = cpu_s, wall
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with write_atomically(self._path) as temporary:
            temporary.write_text(json.dumps({"owner": self._owner, "cpu_s": self.cpu_s, "wall_s": self.wall_s}) + "\n")


def _spent_s() -> float:
    return CpuTime.now().since(CpuTime(0.0, 0.0)) + descendants_cpu_s()
