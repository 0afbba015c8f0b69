# SPDX-License-Identifier: Apache-2.0
"""Measured runs on disk: a file for each, whole or not at all."""

from __future__ import annotations

import json
import random
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from sagecc.common.document import read_document
from sagecc.common.errors import SageccError
from sagecc.common.files import write_atomically
from sagecc.common.inputs import check_regular
from sagecc.common.versions import same_major
from sagecc.execution.measure.client import RunLog
from sagecc.execution.measure.clock import ClockOffset, RunClock
from sagecc.execution.measure.stream import Log
from sagecc.schemas.measured import MEASURE_VERSION, FailedRun, HostVersions, parts

RUNS, FAILED = "runs", "failed.json"
RUN_BYTES = 1 << 30
_ARRAYS = ("sender_samples", "sender_pairs", "receiver_samples", "receiver_pairs")


@dataclass(frozen=True)
class PlannedRun:
    """One run of a plan."""

    direction: str
    """UP or DOWN."""

    scheme: str
    """What sets the window of its sender."""

    number: int
    """Of the round, from 0."""

    @property
    def name(self) -> str:
        """Its name, for messages."""
        return f"{self.direction} {self.scheme} {self.number}"

    def file(self, folder: Path) -> Path:
        """Return the file that it has in a path's folder."""
        return folder / RUNS / f"{self.direction}-{quote(self.scheme, safe='')}-{self.number}.npz"


def planned(cells: Sequence[tuple[str, str]], rounds: int, seed: int) -> list[PlannedRun]:
    """Return the runs in their order: in each round every scheme once in each direction, in random order.

    Args:
        cells: direction and scheme of each.
        rounds: how many rounds.
        seed: of the order.
    """
    runs = []
    for number in range(rounds):
        order = sorted(cells)
        random.Random(f"{seed} {number}").shuffle(order)
        runs += [PlannedRun(direction, scheme, number) for direction, scheme in order]
    return runs


@dataclass(frozen=True)
class RunOrigin:
    """By what a run was measured; None and empty where that is not known: before version 1.1, or of an older server."""

    client: HostVersions | None = None
    """The host that measures."""

    server: HostVersions | None = None
    """The server."""

    command: str = ""
    """What measures such runs, without folder and key."""


@dataclass(frozen=True)
class MeasuredRun(PlannedRun):
    """A finished run."""

    host: str
    """The server."""

    duration_s: float
    """How long data were sent (s)."""

    log: RunLog
    """What both ends recorded."""

    origin: RunOrigin
    """Where it comes from."""

    @property
    def clock(self) -> RunClock:
        """How far the server's clock was ahead."""
        return self.log.clock

    def save(self, folder: Path) -> None:
        """Write it to its file in a path's folder."""
        about = {
            "version": MEASURE_VERSION,
            **{name: getattr(self, name) for name in ("direction", "scheme", "number", "host", "duration_s")},
            "clock": asdict(self.clock),
            "origin": asdict(self.origin),
        }
        logs = (self.log.sender, self.log.receiver)
        parts = [part for log in logs for part in (log.samples, log.pairs)]
        arrays: dict[str, Any] = {
            name: np.frombuffer(part, np.uint8) for name, part in zip(_ARRAYS, parts, strict=True)
        }
        path = self.file(folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
        with write_atomically(path) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, **arrays)


def load(path: Path) -> MeasuredRun:
    """Return the run of a file.

    Raises:
        SageccError: the file is damaged, or of another version.
    """
    check_regular(path, RUN_BYTES)
    try:
        with np.load(path, allow_pickle=False) as stored:
            about = json.loads(stored["about"].tobytes())
            parts = [stored[name].tobytes() for name in _ARRAYS]
        version = str(about["version"])
        before, after = (ClockOffset(**about["clock"][name]) for name in ("before", "after"))
        logs = (Log(*parts[:2]), Log(*parts[2:]))
        origin = about.get("origin", {})
        run = MeasuredRun(
            direction=str(about["direction"]),
            scheme=str(about["scheme"]),
            number=int(about["number"]),
            host=str(about["host"]),
            duration_s=float(about["duration_s"]),
            log=RunLog(*logs, RunClock(before, after)),
            origin=RunOrigin(
                HostVersions.told(origin.get("client")),
                HostVersions.told(origin.get("server")),
                str(origin.get("command", "")),
            ),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, zipfile.BadZipFile) as error:
        raise SageccError(
            f"{path} is no whole run of 'sagecc measure': remove it and measure again ({error})"
        ) from None
    if not same_major(version, MEASURE_VERSION):
        raise SageccError(f"{path} has version {version}, this program reads {MEASURE_VERSION}: measure again")
    return run


def failed(folder: Path) -> tuple[FailedRun, ...]:
    """Return the runs that failed in a path's folder.

    Raises:
        SageccError: the file of them is damaged, or of another version.
    """
    path = folder / RUNS / FAILED
    if not path.exists():
        return ()
    content = read_document(path)
    if not isinstance(content, dict) or not same_major(str(content.get("version")), MEASURE_VERSION):
        raise SageccError(f"{path} is not of version {MEASURE_VERSION}: remove it, and failed runs are forgotten")
    try:
        return parts(FailedRun, content["runs"])
    except (KeyError, TypeError) as error:
        raise SageccError(f"{path} is damaged ({error}): remove it, and failed runs are forgotten") from None


def add_failed(run: FailedRun, folder: Path) -> None:
    """Note a run that failed in a path's folder; errors are those of `failed`."""
    path = folder / RUNS / FAILED
    runs = [asdict(each) for each in (*failed(folder), run)]
    path.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(path) as file:
        file.write_text(json.dumps({"version": MEASURE_VERSION, "runs": runs}, indent=1) + "\n")


def finished(folder: Path) -> list[MeasuredRun]:
    """Return the finished runs in a path's folder; errors are those of `load`."""
    return [load(path) for path in sorted((folder / RUNS).glob("[!.]*.npz"))]
