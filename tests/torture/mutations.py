# SPDX-License-Identifier: Apache-2.0
"""Damaged inputs, each tried in a process that may hang, crash or eat memory; a verdict on each."""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
import shutil
import subprocess
import time
import traceback
from collections import Counter
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tqdm import tqdm

from sagecc.common.errors import SageccError
from tests.torture.inputs import KINDS, Damage, Kind, RefusedError, answer, hurt, in_process, kind_of
from tests.torture.journal import Journal
from tests.torture.material import ENVIRONMENT
from tests.torture.stages import SAGECC

RIGHT = ("one line", "equal", "different")
"""Right verdicts: refused in one line, the sound file's result, another result of a file that is still a valid one."""

LIMIT_S = 60.0
LIMIT_BYTES = 8 << 30
"""Of an input: time, and address space of the process that tries it."""

A_PROCESS = 50
"""One in so many inputs goes through the command line as a process of its own, where its way in is a command."""


def torture(folder: Path, material: Path, inputs: int, seed: int, bar: tqdm[Any]) -> None:
    """Try so many inputs. A row each goes to folder/inputs.jsonl."""
    journal = Journal(folder / "inputs.jsonl")
    bar.update(len(journal.rows))
    worker: _Worker | None = None
    try:
        for index in range(len(journal.rows), inputs):
            worker = worker or _Worker(folder / "work", material, seed)
            begun = time.monotonic()
            row = worker.attempt(index)
            journal.add(row | {"seconds": round(time.monotonic() - begun, 2)})
            bar.update()
            if row["verdict"] in ("hang", "crash"):
                worker = None
    finally:
        if worker:
            worker.end()


class _Worker:
    """A process that tries inputs one by one."""

    def __init__(self, work: Path, material: Path, seed: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._end, other = context.Pipe()
        self._process = context.Process(target=_try_all, args=(other, work, material, seed), daemon=True)
        self._process.start()
        other.close()
        self._end.recv()  # it has loaded everything: that counts for no input

    def attempt(self, index: int) -> dict[str, Any]:
        """Return the row of an input."""
        self._end.send(index)
        verdict, said = "hang", f"more than {LIMIT_S:g} s"
        try:
            if self._end.poll(LIMIT_S):
                row: dict[str, Any] = self._end.recv()
                return row
        except (EOFError, OSError):
            self._process.join()
            verdict, said = "crash", f"exit status {self._process.exitcode}"
        self.end()
        return {"index": index, "kind": kind_of(index).name, "process": False, "verdict": verdict, "said": said}

    def end(self) -> None:
        """End it."""
        self._process.kill()
        self._process.join()


def _try_all(end: Connection, work: Path, material: Path, seed: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    end.send("ready")
    while True:
        try:
            index = end.recv()
        except EOFError:
            return
        end.send(attempt(index, work, material, seed))


def attempt(index: int, work: Path, material: Path, seed: int) -> dict[str, Any]:
    """Try one input; return its row."""
    kind, rng = kind_of(index), random.Random(f"{seed} {index}")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    damage = hurt(kind, material, work / "input", rng)
    os.chdir(work)
    processes: list[int] = []

    def as_process(*arguments: object) -> str:
        processes.append(index)
        return _as_process(*arguments)

    try:
        result = kind.enter(work / "input", damage.file, in_process if index % A_PROCESS else as_process)
    except RefusedError as refusal:
        verdict, said = refused(refusal, damage, work)
    except SageccError as error:
        verdict, said = refused(RefusedError([f"sagecc: {' '.join(str(error).split())}"]), damage, work)
    except OSError as error:  # as the command line says it
        named = f"sagecc: {error.filename}: {error.strerror}"
        verdict, said = refused(RefusedError([named if error.filename else repr(error)]), damage, work)
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        verdict, said = "traceback", f"{type(error).__name__}: {str(error)[:300]} ({where.filename}:{where.lineno})"
    else:
        sound = _sound(kind, damage.file, material, work.parent)
        verdict, said = ("equal", "") if result == sound else judged(damage)
    left = [path.name for path in (work / "input").rglob(".tmp-*")]
    if left and verdict in RIGHT:
        verdict, said = "half-written", left[0]
    about = {"index": index, "kind": kind.name, "file": damage.file.as_posix(), "how": damage.how}
    return about | {"process": bool(processes), "verdict": verdict, "said": said[:400]}


def _as_process(*arguments: object) -> str:
    """Run `sagecc` as a process of its own."""
    done = subprocess.run(
        [*SAGECC, *map(str, arguments)],
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=LIMIT_S,
    )
    return answer(done.returncode, done.stdout, done.stderr)


def refused(refusal: RefusedError, damage: Damage, work: Path) -> tuple[str, str]:
    """Judge what was said: one line, and in it the damaged file, its folder, or the folder of all."""
    said = " / ".join(refusal.lines)
    if not refusal.found and (len(refusal.lines) != 1 or not refusal.lines[0].startswith("sagecc")):
        return "several lines", said
    places = (damage.file.name, damage.file.parent.name, f"{work / 'input'}", "'sagecc pool check' says which")
    if not any(place and place in said for place in places):
        return "no file named", said
    return "one line", said


def judged(damage: Damage) -> tuple[str, str]:
    """Judge a result that is not the sound one."""
    guarded = damage.kind.guarded is True or (damage.kind.guarded == "bytes" and not damage.anew)
    guarded = guarded and not damage.put_right
    return ("accepted", "the result is another than that of the sound file") if guarded else ("different", "")


@cache
def _sound(kind: Kind, file: Path, material: Path, folder: Path) -> str:
    """Return the result of the undamaged file."""
    work = folder / "sound-work" / "input"
    shutil.rmtree(work.parent, ignore_errors=True)
    shutil.copytree(material / kind.folder, work)
    return kind.enter(work, file, in_process)


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the figures of each kind."""
    found = []
    for kind in KINDS:
        mine = [row for row in rows if row["kind"] == kind.name]
        verdicts = Counter(row["verdict"] for row in mine)
        found.append(
            {
                "kind": kind.name,
                "inputs": len(mine),
                **{name: verdicts[name] for name in RIGHT},
                "findings": {name: count for name, count in sorted(verdicts.items()) if name not in RIGHT},
            }
        )
    return found
