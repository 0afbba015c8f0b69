# SPDX-License-Identifier: Apache-2.0
"""Programs of a real-time episode: they print "ready" and end when their standard input does."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType

from sagecc.collector.realtime.endpoint import Specification
from sagecc.common.errors import SageccError

READY_S = 30.0
END_S = 30.0
"""Time in which a program must be ready, and in which it must end (s)."""

ENDPOINT = Path(__file__).with_name("endpoint.py")


def endpoint_command(role: str, specification: Specification) -> list[str]:
    """Return the command of one end of the flows; `role` is `send` or `receive`."""
    return [sys.executable, "-I", "-S", str(ENDPOINT), role, json.dumps(asdict(specification))]


class Program:
    """A program of an episode, which ends when its `with` block is left, in any case."""

    def __init__(self, episode: str, name: str, command: Sequence[str]) -> None:
        """Start the program.

        Args:
            episode: name of the episode, for messages.
            name: name of the program, for messages.
            command: its command line.
        """
        self._episode, self._name = episode, name
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, start_new_session=True
        )

    def __enter__(self) -> Program:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(END_S if kind is None else 2)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        process.stdout.close()
        self._errors.close()

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def wait_ready(self) -> None:
        """Wait until the program has printed "ready".

        Raises:
            SageccError: it ends, or is not ready within READY_S.
        """
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], READY_S)[0]:
            raise self._error(f"was not ready within {READY_S:g} s")
        if self._process.stdout.readline().strip() != b"ready":
            self._process.wait(END_S)
            raise self._error("ended early")

    def send_line(self, line: str) -> None:
        """Send a line to the program's standard input.

        Raises:
            SageccError: the program has ended.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            self._process.wait(END_S)
            raise self._error("ended early") from None

    def finish(self, timeout_s: float = END_S) -> None:
        """Wait until the program ends by itself.

        Args:
            timeout_s: how long to wait (s).

        Raises:
            SageccError: it does not end in time, or ends with a status other than 0.
        """
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise self._error("did not end") from None
        if status:
            raise self._error(f"ended with status {status}")

    def stop(self) -> None:
        """Close the program's standard input and wait for its end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self.finish()

    def _error(self, problem: str) -> SageccError:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        message = f": {lines[-1].strip()}" if lines else ""
        return SageccError(f"episode {self._episode}: the {self._name} {problem}{message}")
