# SPDX-License-Identifier: Apache-2.0
"""The processes below this one: what they are, how to kill one in mid-work, whether any stays behind."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
POLL_S = 0.01


def adopt_orphans() -> None:
    """Become the parent of every process below this one whose own has ended: none escapes `below`."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


@dataclass(frozen=True)
class Seen:
    """A process. state: as in /proc/PID/stat (t: in a tracing stop, T: stopped). kind: what it is to sagecc."""

    pid: int
    parent: int
    state: str
    command: str
    kind: str

    def __str__(self) -> str:
        return f"{self.kind} in state {self.state} ({self.command[:60]})"


_Table = dict[int, tuple[int, str, str]]
"""Parent, state and command line by process id."""


def below(root: int | None = None) -> list[Seen]:
    """Return every process below `root` (by default this one) that has not ended."""
    found, own = _all(), root or os.getpid()
    return [
        Seen(pid, parent, state, command, _kind(command, found.get(parent, (0, "", ""))[2]))
        for pid, (parent, state, command) in sorted(found.items())
        if state not in "ZX" and _is_below(pid, own, found)
    ]


def left_behind(within_s: float, mine: Sequence[int] = ()) -> list[Seen]:
    """Wait until no process is below this one but those of `mine` and what is below them; return, and end, the rest."""
    until = time.monotonic() + within_s
    while True:
        _reap(mine)
        kept = {seen.pid for pid in mine for seen in below(pid)} | set(mine)
        left = [seen for seen in below() if seen.pid not in kept]
        if not left or time.monotonic() > until:
            break
        time.sleep(POLL_S)
    for seen in left:
        with suppress(ProcessLookupError):
            os.kill(seen.pid, signal.SIGKILL)
    return left


def _all() -> _Table:
    found: _Table = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):  # it has ended meanwhile
                state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                found[int(folder.name)] = (int(parent), state, command)
    return found


def _is_below(pid: int, root: int, found: _Table) -> bool:
    while pid in found:
        pid = found[pid][0]
        if pid == root:
            return True
    return False


def _kind(command: str, parent: str) -> str:
    if "time-travel=inf-cpu" in command:
        return "guest's process" if "time-travel=inf-cpu" in parent else "guest"
    for word, kind in (("spawn_main", "worker"), ("resource_tracker", "tracker"), ("execution.driver", "agent")):
        if word in command:
            return kind
    return "other"


def _reap(mine: Sequence[int]) -> None:
    """Take note of the end of adopted processes."""
    for pid, (parent, state, _) in _all().items():
        if parent == os.getpid() and state == "Z" and pid not in mine:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
