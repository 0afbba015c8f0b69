# SPDX-License-Identifier: Apache-2.0
"""A run's folder and what it leaves beside its policy: which run's they are, tables, whether all of it is there."""

from __future__ import annotations

import csv
import hashlib
import itertools
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sagecc.common.document import DocumentError, read_document
from sagecc.common.errors import SageccError
from sagecc.common.files import remove_stale_temporaries, write_atomically
from sagecc.common.marks import Mark
from sagecc.learner.continuation import CHECKPOINT
from sagecc.policy.artefact import PolicyArtefact
from sagecc.policy.folder import INT8, LITERT, ONNX

CURVES, SCORES = "curves.csv", "scores.csv"
"""Beside the artefact: the metrics by step, for `dvc plots`, and the evaluations' scores by step, if there were any."""

_RUN_ID = re.compile(r"[0-9a-f]{64}")

RUN_MARK = Mark(
    "a training run's",
    r"run\.json|metrics\.jsonl|checkpoint\.safetensors|diverged\.npz|candidates|replay",
    lambda logs: recorded_run_id(logs) is not None,
)

CURVE_ROWS = 1000
"""A longer curve is thinned to this many rows."""


def digest(*parts: object) -> str:
    """Return the SHA-256 of what a run hangs on, all of it values of JSON, in hex."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def write_tables(out: Path, curve: Sequence[Mapping[str, float]], scores: Mapping[int, Mapping[str, float]]) -> None:
    """Write a run's curve and, if there were evaluations, their scores into the artefact's folder; make it."""
    _write_table(_make_folder(out) / CURVES, thinned(curve))
    if scores:
        _write_table(out / SCORES, [{"step": step, **found} for step, found in scores.items()])


def thinned(curve: Sequence[Mapping[str, float]]) -> Sequence[Mapping[str, float]]:
    """Return at most CURVE_ROWS rows at even distances, the last among them."""
    every = -(-len(curve) // CURVE_ROWS)
    return curve[::-1][::every][::-1]


def _write_table(path: Path, rows: Sequence[Mapping[str, float]]) -> None:
    """Write rows as CSV, numbers to six digits."""
    with write_atomically(path) as beside, beside.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(rows[0])
        table.writerows(
            [f"{value:.6g}" if isinstance(value, float) else value for value in row.values()] for row in rows
        )


def finished(out: Path, fingerprint: str, int8: bool) -> PolicyArtefact | None:
    """Return the artefact in `out` if this very run has already written all of it."""
    try:
        policy = PolicyArtefact.load(out)
    except SageccError:
        return None
    formats = {LITERT, ONNX, *([INT8] if int8 else [])}
    whole = formats <= policy.intact_files() and (out / "metrics.json").exists()
    whole = whole and all(isinstance(policy.card.get(name, {}), dict) for name in ("metrics", "kept"))
    return policy if whole and policy.card.get("fingerprint") == fingerprint else None


def recorded_run_id(logs: Path) -> str | None:
    """Return the id of the run whose folder this is; None if it is no run's.

    Raises:
        SageccError: Its run.json is damaged.
    """
    run_file = logs / "run.json"
    try:
        recorded = str(read_document(run_file)["fingerprint"])
        if not _RUN_ID.fullmatch(recorded):  # it becomes part of a path
            raise ValueError("it has no run's fingerprint")
    except FileNotFoundError:
        return None
    except (DocumentError, ValueError, KeyError, TypeError) as error:
        raise SageccError(
            f"{run_file} is not of 'sagecc train', or is damaged ({error}): name another folder, or move it away"
        ) from error
    return recorded


def claim(logs: Path, identity: str, about: Mapping[str, Any]) -> None:
    """Make the run's folder; an older run of the same name moves aside into `earlier-<its id>/`.

    Args:
        logs: the folder.
        identity: the run's (`run_id`).
        about: what else is written of it.
    """
    RUN_MARK.check(logs)
    run_file = _make_folder(logs) / "run.json"
    for name in ("run.json", "metrics.jsonl", CHECKPOINT):
        remove_stale_temporaries(logs / name)
    if earlier_id := recorded_run_id(logs):
        if earlier_id == identity:
            return
        aside = _make_folder(logs / f"earlier-{earlier_id[:12]}")
        for path in list(logs.iterdir()):
            if path != run_file and not path.name.startswith("earlier-"):
                path.replace(_free(aside / path.name))
        run_file.replace(_free(aside / run_file.name))
    write_run(logs, identity, about)


def write_run(folder: Path, identity: str, about: Mapping[str, Any] = MappingProxyType({})) -> None:
    """Write into a folder, which is made, which run's it is; arguments as those of `claim`."""
    with write_atomically(_make_folder(folder) / "run.json") as path:
        path.write_text(json.dumps({"fingerprint": identity, **about}, indent=2) + "\n")


def _free(path: Path) -> Path:
    """Return a path that nothing has: this one, or with a number where the same run was set aside before."""
    numbered = (path.with_name(f"{path.name}.{number}") for number in itertools.count(1))
    return path if not os.path.lexists(path) else next(each for each in numbered if not os.path.lexists(each))


def _make_folder(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
