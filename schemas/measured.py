# SPDX-License-Identifier: Apache-2.0
"""A measured path: its folder's `measure.json`, which 'sagecc measure' writes."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from sagecc.common.document import read_document
from sagecc.common.errors import SageccError
from sagecc.common.files import write_atomically
from sagecc.common.terminals import one_line
from sagecc.common.versions import same_major

MEASURE_VERSION = "1.1"
"""Major.minor of a path's folder: a reader refuses another major version and reads any minor one. Since 1.1 it says
when, by which command and on what a run was measured, and which runs failed."""

SUMMARY_FILE = "measure.json"

VERSION_CHARACTERS = 100
"""Longest version that another host may tell."""

UP, DOWN = "up", "down"
"""Directions of data: from the host that measures to the one that serves, and back."""


Part = TypeVar("Part")


@dataclass(frozen=True)
class HostVersions:
    """What a host measures by."""

    kernel: str
    """Name and release of its kernel."""

    sagecc: str
    """Version of sagecc."""

    @classmethod
    def here(cls) -> HostVersions:
        """Return those of this host."""
        return cls(f"{platform.system()} {platform.release()}", version("sagecc"))

    @classmethod
    def told(cls, content: object) -> HostVersions | None:
        """Return what another host or a file says; None where it is none."""
        if not isinstance(content, dict):
            return None
        kernel, sagecc = (one_line(str(content.get(name)))[:VERSION_CHARACTERS] for name in ("kernel", "sagecc"))
        return cls(kernel, sagecc)

    def __str__(self) -> str:
        return f"{self.kernel} with sagecc {self.sagecc}"


@dataclass(frozen=True)
class FailedRun:
    """A run that was begun, and of which nothing is kept."""

    direction: str
    """UP or DOWN."""

    scheme: str
    """What set the window of its sender."""

    number: int
    """Of its round, from 0."""

    began_unix_s: float
    """When it was begun, by the clock of the host that measures (s since 1970, UTC)."""

    reason: str
    """Why it failed."""


@dataclass(frozen=True)
class MeasuredPath:
    """A path in one direction."""

    direction: str
    """UP or DOWN."""

    environment_id: str
    """Of the environment that stands for it in raw trajectories."""

    most_mbps: float
    """The most that a run got through in a second (Mbps)."""

    least_rtt_ms: float
    """The least round trip (ms)."""

    least_delay_ms: float
    """The least one-way delay of a data packet (ms)."""


@dataclass(frozen=True)
class MeasuredNumbers:
    """The numbers of a run."""

    direction: str
    """UP or DOWN."""

    scheme: str
    """What set the window of its sender."""

    number: int
    """Of its round, from 0."""

    duration_s: float
    """How long data were sent (s)."""

    goodput_mbps: float
    """In-order bytes at the receiver (Mbps)."""

    delay_mean_ms: float
    """Mean one-way delay of data packets, wrong by `clock_error_ms` at most for the clocks' sake (ms)."""

    delay_p95_ms: float
    """95th percentile of the same delay (ms)."""

    loss_rate: float
    """Ratio of lost to sent data packets, as the sender counts them."""

    clock_offset_ms: float
    """How far the server's clock was ahead before the run (ms)."""

    clock_moved_ms: float
    """How much further it was after the run (ms)."""

    clock_error_ms: float
    """By how much the offset is wrong at most: half a round trip (ms)."""

    missed_ticks: float
    """Share of the ticks of 10 ms at which its sender, on a busy host, was not sampled."""

    notice: str | None
    """What limited the sender besides its window, or None."""

    sha256: str
    """Of the sender's samples."""

    began_unix_s: float | None = None
    """When it began, by the clock of the host that measures (s since 1970, UTC); None before version 1.1."""


@dataclass(frozen=True)
class MeasuredHost:
    """What was measured between two hosts."""

    host: str
    """The server."""

    paths: tuple[MeasuredPath, ...]
    """One or both directions."""

    runs: tuple[MeasuredNumbers, ...]
    """Finished runs."""

    clients: tuple[HostVersions, ...] = ()
    """What the host that measures measured by: one, unless runs of several are mixed; none before version 1.1."""

    servers: tuple[HostVersions, ...] = ()
    """The same of the server."""

    commands: tuple[str, ...] = ()
    """What measured the runs, in its order."""

    failures: tuple[FailedRun, ...] = ()
    """In their order; a run that failed may have been measured later."""

    def write(self, folder: Path) -> None:
        """Write SUMMARY_FILE in a folder."""
        with write_atomically(folder / SUMMARY_FILE) as file:
            file.write_text(json.dumps({"version": MEASURE_VERSION, **asdict(self)}, indent=1) + "\n")


def read_measurement(path: Path) -> MeasuredHost:
    """Read a SUMMARY_FILE.

    Raises:
        SageccError: it is damaged, or of another version.
        OSError: it is missing, or out of reach.
    """
    content = read_document(path)
    if not isinstance(content, dict) or "version" not in content:
        raise SageccError(f"{path} is not what 'sagecc measure' writes: name its folder, or measure again")
    major_minor = str(content["version"])
    if not same_major(major_minor, MEASURE_VERSION):
        raise SageccError(f"{path} has version {major_minor[:20]}, this program reads {MEASURE_VERSION}: measure again")
    try:
        return MeasuredHost(
            host=str(content["host"]),
            paths=parts(MeasuredPath, content["paths"]),
            runs=parts(MeasuredNumbers, content["runs"]),
            clients=parts(HostVersions, content.get("clients", ())),
            servers=parts(HostVersions, content.get("servers", ())),
            commands=tuple(str(command) for command in content.get("commands", ())),
            failures=parts(FailedRun, content.get("failures", ())),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise SageccError(f"{path} is not what 'sagecc measure' writes ({error}): measure again") from None


def parts(kind: type[Part], entries: Iterable[dict[str, Any]]) -> tuple[Part, ...]:
    """Return entries as instances of a class, without what a newer minor version adds; raises TypeError."""
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    return tuple(_checked(kind(**{name: each[name] for name in each if name in known})) for each in entries)


def _checked(value: Part) -> Part:
    """Return a value whose fields are of their types; raises TypeError."""
    none = type(None)
    kinds: dict[str, Any] = {
        "str": str,
        "int": int,
        "float": (int, float),
        "str | None": (str, none),
        "float | None": (int, float, none),
    }
    for name, kind in type(value).__annotations__.items():
        of = getattr(value, name)
        if isinstance(of, bool) or not isinstance(of, kinds[kind]) or (isinstance(of, float) and not math.isfinite(of)):
            raise TypeError(f"{name} is no {kind}")
    return value


def measurements(folders: Iterable[Path]) -> list[MeasuredHost]:
    """Return the measured paths in some folders; arguments and errors are those of `path_folders`."""
    return [read_measurement(folder / SUMMARY_FILE) for folder in path_folders(folders)]


def path_folders(folders: Iterable[Path]) -> list[Path]:
    """Return the folders of measured paths, each once.

    Args:
        folders: each a path's or one of paths'.

    Raises:
        SageccError: a folder has none.
    """
    found: dict[Path, Path] = {}
    for folder in folders:
        files = (
            [folder / SUMMARY_FILE] if (folder / SUMMARY_FILE).exists() else sorted(folder.glob(f"*/{SUMMARY_FILE}"))
        )
        if not files:
            raise SageccError(f"{folder} has no {SUMMARY_FILE}: 'sagecc measure HOST --out {folder}' writes one")
        for file in files:
            found.setdefault(file.parent.resolve(), file.parent)
    return list(found.values())
