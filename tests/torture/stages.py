# SPDX-License-Identifier: Apache-2.0
"""The stages as small jobs of real `sagecc` processes: their commands, what must come out, what must not be lost."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from safetensors import SafetensorError, safe_open

from sagecc.collector.run.store import SPOOL
from sagecc.common.errors import SageccError
from sagecc.common.files import sha256_file
from sagecc.schemas.partitions import EPISODES_FILE, LISTINGS, PARTS

ROOT = Path(__file__).resolve().parents[2]
SAGECC = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-P", "-m", "sagecc"]
"""The commands die with this benchmark: one that is killed leaves none of its own."""
KERNEL = ROOT / "build" / "sagecc-linux"
LEAST = ("cubic", "vegas")
"""The heuristics of short jobs."""

Finished = Mapping[str, int]
"""What is finished, by name: a name may not go, nor its number sink."""


@dataclass(frozen=True)
class Job:
    """Commands that are run one after another, in a folder of their own.

    outputs: what must be the same bytes however often they were killed. finished: what in the folder is done for good.
    """

    stage: str
    commands: tuple[tuple[str, ...], ...]
    outputs: tuple[str, ...]
    finished: Callable[[Path], Finished]


def jobs(material: Path) -> dict[str, Job]:
    """Return the jobs by stage. material: the folder of tests.torture.material."""
    kernel = ("--kernel", str(KERNEL))
    policy = ("--policy", "policy")
    collect = ("collect", "--profile", "smoke", "--schemes", "vegas,cubic", "--jobs", "2", "--out", "raw", *kernel)
    league = ("league", "--profile", "smoke", "--schemes", ",".join(LEAST), *policy, "--jobs", "2")
    train = ("train", "--config", "tiny", "--steps", "40", "--checkpoint-steps", "5", "--device", "cpu")
    return {
        job.stage: job
        for job in (
            # the second command adds episodes to partitions that the first has finished
            Job("collect", (collect, (*collect, "--seed", "1")), ("raw",), lambda at: _episodes(at / "raw")),
            Job(
                "pool",
                (("pool", "--raw", str(material / "raw"), "--out", "pool", "--jobs", "2"),),
                ("pool",),
                lambda at: _partitions(at / "pool"),
            ),
            Job(
                "train",
                ((*train, "--pool", str(material / "pool"), "--out", "model", "--logs", "logs", "--cache", "cache"),),
                ("model",),
                lambda at: _steps(at / "logs"),
            ),
            Job(
                "league",
                ((*league, "--raw", str(material / "raw"), "--out", "results", *kernel),),
                ("results",),
                lambda at: _episodes(at / "results" / "raw"),
            ),
        )
    }


def contents(folder: Path, outputs: tuple[str, ...]) -> dict[str, str]:
    """Return the SHA-256 of every file of the outputs, by its path in the folder; folders are there by name."""
    found = (path for name in outputs for path in (folder / name).rglob("*"))
    return {
        path.relative_to(folder).as_posix(): sha256_file(path) if path.is_file() else "a folder"
        for path in sorted(found)
    }


def lost(before: Finished, after: Finished) -> list[str]:
    """Return what was finished before and is not any more."""
    return [name for name, number in before.items() if after.get(name, -1) < number]


def _episodes(raw: Path) -> Finished:
    """Finished episodes: those that wait in the spool, and those in partitions."""
    names = [path.stem for path in (raw / SPOOL).rglob("[!.]*.arrow")]
    between = raw.glob(f"set=*/.tmp-scheme=*/{EPISODES_FILE}")  # killed between the two renames
    for listing in (*raw.glob(LISTINGS), *between):
        ids = pq.read_table(listing, columns=["episode_id"], partitioning=None)[0]
        names += [name.replace("/", "_") for name in ids.to_pylist()]
    return dict.fromkeys(names, 0)


def _partitions(pool: Path) -> Finished:
    """Finished partitions' files, each with what tells it from one that was written anew."""
    parts = ((path, path.stat()) for path in pool.glob(PARTS))
    return {f"{path.relative_to(pool)} {at.st_ino} {at.st_mtime_ns}": 0 for path, at in parts}


def _steps(logs: Path) -> Finished:
    """Steps of the checkpoint."""
    path = logs / "checkpoint.safetensors"
    if not path.exists():
        return {}
    try:
        with safe_open(path, "numpy") as file:
            return {"steps": int(file.get_tensor("steps"))}
    except SafetensorError as error:
        raise SageccError(f"{path}: {error}") from error


def digest(found: Mapping[str, str]) -> str:
    """Return one hash of `contents`."""
    return hashlib.sha256(repr(sorted(found.items())).encode()).hexdigest()
