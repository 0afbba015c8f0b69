# SPDX-License-Identifier: Apache-2.0
"""Processes of this machine that tests start, watch and end."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def sigint(ignored: bool = False) -> Iterator[None]:
    """Let SIGINT do here what it does at a terminal, or be ignored; programs that are started meanwhile inherit it.

    A shell without job control starts what runs in its background with SIGINT ignored.
    """
    before = signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def sighup(ignored: bool = False) -> Iterator[None]:
    """Let SIGHUP end what is started meanwhile, or be ignored by it, as `nohup` has it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def at_terminal(command: Sequence[str]) -> tuple[subprocess.Popen[bytes], int]:
    """Start a command at a terminal of its own; return it and the terminal, which os.close() closes."""
    terminal, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    with sighup():
        process = subprocess.Popen(
            command,
            stdin=side,
            stdout=side,
            stderr=side,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
    os.close(side)
    return process, terminal


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def guests(runner: int) -> set[int]:
    """The guest that `runner` started and its processes; other runners' guests are none of our business."""
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and b"time-travel=inf-cpu" in (entry / "cmdline").read_bytes():
                pid = int(entry.name)
                if runner in (parent(pid), parent(parent(pid))):
                    found.add(pid)
        except (OSError, ValueError):
            continue
    return found


def alive(pids: Iterable[int]) -> set[int]:
    """Those that still run; one that has ended may wait for its new parent to take note (state Z)."""
    found = set()
    for pid in pids:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found.add(pid)
        except OSError:
            continue
    return found
