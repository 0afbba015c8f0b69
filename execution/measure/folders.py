# SPDX-License-Identifier: Apache-2.0
"""Folders of measured paths as a page takes them: whole, and each measured by one version on either end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from sagecc.common.errors import SageccError
from sagecc.execution.measure.runs import RUNS, failed, finished
from sagecc.schemas.measured import SUMMARY_FILE, MeasuredHost, path_folders, read_measurement


def load_measured(folders: Iterable[Path]) -> list[MeasuredHost]:
    """Return measured paths; a host that several folders have is named with its folder.

    Args:
        folders: each a path's or one of paths'.

    Raises:
        SageccError: a folder has no measured path, a run that is not whole or that its numbers leave out, or runs that
            were measured by several versions.
    """
    folders = list(folders)
    for folder in folders:
        _check_begun(folder)
    found = [(folder, _checked(folder)) for folder in path_folders(folders)]
    times = Counter(each.host for _, each in found)
    return [replace(each, host=f"{each.host} in {folder}") if times[each.host] > 1 else each for folder, each in found]


def _check_begun(folder: Path) -> None:
    """Raise SageccError where measuring began, and no run has come to numbers."""
    if (folder / SUMMARY_FILE).exists() or not (folder / RUNS).exists():
        return
    failures = failed(folder)
    if failures and not finished(folder):
        raise SageccError(f"{folder}: each of its {len(failures)} runs failed, the last because: {failures[-1].reason}")
    raise SageccError(f"{folder} has runs but no {SUMMARY_FILE}: {_AGAIN}")


def _checked(folder: Path) -> MeasuredHost:
    found = read_measurement(folder / SUMMARY_FILE)
    if not found.runs:
        raise SageccError(f"{folder}/{SUMMARY_FILE} has no run: {_AGAIN}")
    listed = {(run.direction, run.scheme, run.number) for run in found.runs}
    if (folder / RUNS).exists():  # a copy may be without
        there = {(run.direction, run.scheme, run.number) for run in finished(folder)}
        if odd := sorted(there ^ listed):
            name = " ".join(map(str, odd[0]))
            where = f"is not in {SUMMARY_FILE}" if odd[0] in there else f"is in {SUMMARY_FILE} and not in {RUNS}/"
            raise SageccError(f"{folder}: run '{name}' {where}: {_AGAIN}")
    for side, versions in (("the host that measures", found.clients), ("the server", found.servers)):
        if len(versions) > 1:
            raise SageccError(
                f"{folder}: its runs are of several versions of {side}: {'; '.join(map(str, versions))}; measure each"
                " into a folder of its own"
            )
    return found


_AGAIN = "let the same 'sagecc measure' run to its end"
