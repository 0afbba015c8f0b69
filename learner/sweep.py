# SPDX-License-Identifier: Apache-2.0
"""Trainings of one configuration with several seeds and several values of its fields, each a run of its own."""

from __future__ import annotations

import csv
import itertools
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from sagecc.common.document import parse, read_document
from sagecc.common.errors import SageccError
from sagecc.common.files import write_atomically
from sagecc.common.processes import end_with_parent
from sagecc.common.suggestions import did_you_mean
from sagecc.learner.reader import merged, whole_values
from sagecc.learner.runs import SCORES
from sagecc.learner.specification import from_dict

UNCHANGED = "unchanged"
"""Name of the cell of a sweep over seeds alone."""

RESULTS_MARK = "cell,seed,"
"""How a table of results begins."""

LOOK_S = 0.1
"""Time between two looks at trainings that run."""

_COMMA = re.compile(r",(?![^\[]*\])")


@dataclass(frozen=True)
class Combination:
    """One choice of values."""

    name: str
    """`alpha=1,steps=5000`."""
    values: Mapping[str, Any]
    """The whole configuration."""


@dataclass(frozen=True)
class SweepRun:
    """One training."""

    cell: str
    """Its cell's name."""
    seed: int
    """The training's."""
    folder: Path
    """The cell's, which has the configuration; absolute."""
    options: tuple[str, ...]
    """Further ones of `sagecc train`."""

    @property
    def id(self) -> str:
        """Its name, for messages."""
        return f"{self.cell}, seed {self.seed}"

    @property
    def policy(self) -> Path:
        """Folder of its policy."""
        return self.folder / f"seed-{self.seed}"

    @property
    def said(self) -> Path:
        """File of what the training says."""
        return self.folder / f"seed-{self.seed}.log"

    def command(self) -> list[str]:
        """Return the training's command line."""
        config, logs = self.folder / "config.yaml", self.folder / "logs" / f"seed-{self.seed}"
        places = ("--config", config, "--seed", self.seed, "--out", self.policy, "--logs", logs)
        return [sys.executable, "-m", "sagecc", "train", *map(str, places), *self.options]


def combinations(config: str, over: Sequence[str]) -> list[Combination]:
    """Return every combination of values of a configuration's fields.

    Args:
        config: name or file of the configuration.
        over: `FIELD=VALUE,VALUE`, the field by its path (`algorithm.alpha`) or, where that is unambiguous, its last
            name; a list is `[1, 2]`.

    Raises:
        SageccError: there is no such field, or a value is bad.
    """
    values = whole_values(config)
    known = from_dict(values).record()
    axes = [_axis(known, text) for text in over]
    if twice := sorted({path for path, _ in axes if [of for of, _ in axes].count(path) > 1}):
        raise SageccError(f"--over names {twice[0]} twice: give it all its values at once")
    found = []
    for choice in itertools.product(*(options for _, options in axes)):
        pairs = [(path, text, value) for (path, _), (text, value) in zip(axes, choice, strict=True)]
        name = ",".join(f"{path.rpartition('.')[2]}={text}" for path, text, _ in pairs) or UNCHANGED
        whole = dict(values)
        for path, _, value in pairs:
            whole = merged(whole, _nested(path.split("."), value))
        try:
            from_dict(whole)
        except SageccError as error:
            raise SageccError(f"{config} with {name}: {error}") from error
        found.append(Combination(name, whole))
    return found


def _axis(known: Mapping[str, Any], text: str) -> tuple[str, list[tuple[str, Any]]]:
    """Return a field's path, and its values as they are written and read."""
    field, equals, values = text.partition("=")
    written = [value.strip() for value in _COMMA.split(values)]
    if not equals or not all(written):
        raise SageccError(f"--over takes FIELD=VALUE,VALUE, not '{text}'")
    if unsafe := [value for value in written if "/" in value]:
        raise SageccError(f"--over {text}: '{unsafe[0]}' has a slash, and values name folders")
    return _path(known, field), [(value, parse(value.encode(), f"--over {text}")) for value in written]


def _path(known: Mapping[str, Any], field: str) -> str:
    """Return the path of a field that is named by it, or by its last name."""
    paths = list(_paths(known, ""))
    found = [field] if field in paths else [path for path in paths if path.rpartition(".")[2] == field]
    if len(found) != 1:
        which = f"is one of {', '.join(found)}: name one" if found else f"is no field{did_you_mean(field, paths)}"
        raise SageccError(f"--over: {field} {which}")
    return found[0]


def _paths(values: Mapping[str, Any], inside: str) -> Iterator[str]:
    for name, value in values.items():
        yield inside + name
        if isinstance(value, Mapping):
            yield from _paths(value, f"{inside}{name}.")


def _nested(path: Sequence[str], value: Any) -> dict[str, Any]:
    return {path[0]: _nested(path[1:], value) if path[1:] else value}


def sweep_runs(
    folder: Path, chosen: Sequence[Combination], seeds: Sequence[int], options: Sequence[str]
) -> list[SweepRun]:
    """Write the cells' configurations and return their trainings, seed by seed.

    Args:
        folder: of the sweep, with a folder for each cell.
        chosen: the cells.
        seeds: of the trainings.
        options: further ones of `sagecc train`.

    Raises:
        SageccError: a cell's folder has another configuration.
    """
    texts = {folder.absolute() / cell.name: yaml.safe_dump(dict(cell.values), sort_keys=False) for cell in chosen}
    for of, text in texts.items():
        if (config := of / "config.yaml").exists() and config.read_text() != text:
            raise SageccError(f"{config} is of another sweep: name another folder with --out")
    for of, text in texts.items():
        of.mkdir(parents=True, exist_ok=True)
        with write_atomically(of / "config.yaml") as temporary:
            temporary.write_text(text)
    every = itertools.product(seeds, zip(chosen, texts, strict=True))
    return [SweepRun(cell.name, seed, of, tuple(options)) for seed, (cell, of) in every]


def attempt(kernel: Path, run: SweepRun) -> SageccError | None:
    """Train; return what went wrong, if anything. A killed training continues where its checkpoint is.

    Args:
        kernel: the labs' kernel.
        run: the training.
    """
    with _started(kernel, run) as process:
        return _outcome(run, process.wait())


def attempt_all(kernel: Path, every: Sequence[SweepRun], jobs: int) -> Iterator[tuple[SweepRun, SageccError | None]]:
    """Train on this machine, `jobs` at a time; yield each as it ends. All write a checkpoint where this is closed."""
    waiting, running = list(every), dict[int, tuple[SweepRun, subprocess.Popen[bytes]]]()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                run = waiting.pop(0)
                process = _started(kernel, run)
                running[process.pid] = run, process
            time.sleep(LOOK_S)
            for number in [number for number, (_, process) in running.items() if process.poll() is not None]:
                run, process = running.pop(number)
                yield run, _outcome(run, process.returncode)
    finally:
        for _, process in running.values():
            process.send_signal(signal.SIGTERM)
        for _, process in running.values():
            process.wait()


def _started(kernel: Path, run: SweepRun) -> subprocess.Popen[bytes]:
    with run.said.open("wb") as said:
        return subprocess.Popen(
            [*run.command(), "--kernel", str(kernel)], stdout=said, stderr=said, preexec_fn=_end_at_once
        )


def _end_at_once() -> None:
    """End with what started this, at once: where that runs again, nothing else may hold the run."""
    end_with_parent(signal.SIGKILL)


def _outcome(run: SweepRun, status: int) -> SageccError | None:
    if status == 0:
        return None
    lines = run.said.read_text(errors="replace").strip().splitlines() or [f"exit status {status}"]
    return SageccError(f"{run.id}: {lines[-1].removeprefix('sagecc: ')}")


def results(every: Sequence[SweepRun]) -> list[dict[str, Any]]:
    """Return a row of each training that is done: `cell`, `seed`, then its last metrics, and scores if it has any."""
    found = []
    for run in every:
        metrics, scores = run.policy / "metrics.json", run.policy / SCORES
        if not metrics.exists():
            continue
        row = {"cell": run.cell, "seed": run.seed, **read_document(metrics)}
        if scores.exists():
            with scores.open(newline="") as file:
                row |= {name: float(value) for name, value in list(csv.DictReader(file))[-1].items() if name != "step"}
        found.append(row)
    return found


def write_results(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write the rows as CSV, with the names of all.

    Raises:
        SageccError: another file is there.
    """
    if path.exists() and not path.read_bytes().startswith(RESULTS_MARK.encode()):
        raise SageccError(f"{path} is no sweep's: name another folder with --out, or move it away")
    names = list(dict.fromkeys(name for row in rows for name in row))
    with write_atomically(path) as temporary, temporary.open("w", newline="") as file:
        table = csv.DictWriter(file, names, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def summary(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row of each cell: `cell`, `seeds`, and of each value `mean`, `low` and `high` over the seeds."""
    found: list[dict[str, Any]] = []
    for name in dict.fromkeys(row["cell"] for row in rows):
        of = [row for row in rows if row["cell"] == name]
        names = [each for each in of[0] if each not in ("cell", "seed", "step")]
        values = {each: [row[each] for row in of if each in row] for each in names}
        spans = {
            each: {"mean": float(np.mean(all_of)), "low": min(all_of), "high": max(all_of)}
            for each, all_of in values.items()
        }
        found.append({"cell": name, "seeds": len(of), **spans})
    return found
