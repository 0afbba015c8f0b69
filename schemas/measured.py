# SPDX-License-Identifier: Apache-2.0
"""A measured path: its folder's `measure.json`, which 'sagecc measure' writes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sagecc.common.document import read_document
from sagecc.common.errors import SageccError
from sagecc.common.files import write_atomically
from sagecc.common.versions import same_major

MEASURE_VERSION = "1.0"
"""Major.minor of a path's folder: a reader refuses another major version and reads any minor one."""

SUMMARY_FILE = "measure.json"

UP, DOWN = "up", "down"
"""Directions of data: from the host that measures to the one that serves, and back."""


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


@dataclass(frozen=True)
class MeasuredHost:
    """What was measured between two hosts."""

    host: str
    """The server."""

    paths: tuple[MeasuredPath, ...]
    """One or both directions."""

    runs: tuple[MeasuredNumbers, ...]
    """Finished runs."""

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
    version = str(content["version"])
    if not same_major(version, MEASURE_VERSION):
        raise SageccError(f"{path} has version {version[:20]}, this program reads {MEASURE_VERSION}: measure again")
    try:
        return MeasuredHost(
            host=str(content["host"]),
            paths=tuple(_checked(MeasuredPath(**each)) for each in content["paths"]),
            runs=tuple(_checked(MeasuredNumbers(**each)) for each in content["runs"]),
        )
    except (KeyError, TypeError) as error:
        raise SageccError(f"{path} is not what 'sagecc measure' writes ({error}): measure again") from None


def _checked(value: Any) -> Any:
    """Return a value whose fields are of their types; raises TypeError."""
    kinds: dict[str, Any] = {"str": str, "int": int, "float": (int, float), "str | None": (str, type(None))}
    for name, kind in type(value).__annotations__.items():
        if isinstance(getattr(value, name), bool) or not isinstance(getattr(value, name), kinds[kind]):
            raise TypeError(f"{name} is no {kind}")
    return value


def measurements(folders: Iterable[Path]) -> list[MeasuredHost]:
    """Return the measured paths in some folders, each a path's or one of paths'.

    Raises:
        SageccError: a folder has none, or what is there is damaged.
    """
    found = []
    for folder in folders:
        files = (
            [folder / SUMMARY_FILE] if (folder / SUMMARY_FILE).exists() else sorted(folder.glob(f"*/{SUMMARY_FILE}"))
        )
        if not files:
            raise SageccError(f"{folder} has no {SUMMARY_FILE}: 'sagecc measure HOST --out {folder}' writes one")
        found += [read_measurement(file) for file in files]
    return found
