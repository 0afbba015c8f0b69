# SPDX-License-Identifier: Apache-2.0
"""Commands in bad surroundings: two at once, too little memory, few descriptors, outputs that are no plain files.

What must come of it: the undisturbed bytes, or one line and then, undisturbed, these bytes. Nothing of the user's may
be another than before.
"""

from __future__ import annotations

import random
import shutil
import stat
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tqdm import tqdm

from sagecc.common.files import sha256_file
from tests.torture import special
from tests.torture.journal import Journal
from tests.torture.kills import END_S, Attempt, Calm, calm, differences, empty
from tests.torture.stages import KERNEL, Job, jobs

ADDRESS_SPACE_GB = (0.4, 3.0)
DESCRIPTORS = 40

OUT_OF_MEMORY = {-6: "SIGABRT", -11: "SIGSEGV", -9: "SIGKILL", 127: "the system's loader"}
"""What ends a process that gets no memory before Python can: a library in C++, or the loader of libraries."""

Row = dict[str, Any]


def torture(folder: Path, material: Path, trials: int, seed: int, bar: tqdm[Any]) -> None:
    """Make so many trials, of each kind in turn; a row each goes to folder/trials.jsonl."""
    journal = Journal(folder / "trials.jsonl")
    bar.update(len(journal.rows))
    for index in range(len(journal.rows), trials):
        rng, begun = random.Random(f"{seed} surroundings {index}"), time.monotonic()
        kind = list(KINDS)[index % len(KINDS)]
        row = KINDS[kind](folder, material, rng)
        journal.add({"trial": index, "kind": kind, **row, "seconds": round(time.monotonic() - begun, 2)})
        bar.update()


def _two_at_once(folder: Path, material: Path, rng: random.Random) -> Row:
    """Start a stage twice in one folder, a moment apart."""
    job = rng.choice(list(jobs(material).values()))
    undisturbed, at = calm(job, folder / job.stage, material), folder / "job"
    empty(at, material)
    delay_s = rng.uniform(0, undisturbed.ended_s[0])
    first = Attempt(job.commands[0], at)
    first.ends_within(delay_s)
    second = Attempt(job.commands[0], at, "stderr-2")
    findings = [f for run in (first, second) if not run.ends_within(END_S) for f in ("hangs",)]
    findings += first.findings(0, 2) + second.findings(0, 2)
    if 0 not in (first.status, second.status):
        findings.append("neither ended well")
    return _finish(job, at, undisturbed, findings, f"{job.stage}: {first.status}, {second.status}")


def _limited(prlimit: Callable[[random.Random], str]) -> Callable[[Path, Path, random.Random], Row]:
    def trial(folder: Path, material: Path, rng: random.Random) -> Row:
        """Run a stage under a limit, then without."""
        job, option = rng.choice(list(jobs(material).values())), prlimit(rng)
        undisturbed, at = calm(job, folder / job.stage, material), folder / "job"
        empty(at, material)
        run = Attempt(job.commands[0], at, before=("prlimit", option))
        findings = [] if run.ends_within(END_S) else ["hangs"]
        said, status = run.said, run.status
        findings += run.left_behind()
        if any("Traceback" in line for line in said):
            findings.append(f"traceback: {said[-1]}")
        elif status == 2 and not said[-1].startswith("sagecc: "):
            findings.append(f"not one line: {said}")
        elif status not in (0, 2, *OUT_OF_MEMORY):
            findings.append(f"ended with status {status}: {said[-1:]}")
        how = OUT_OF_MEMORY.get(status or 0, str(status))
        return _finish(job, at, undisturbed, findings, f"{job.stage} {option}: {how}")

    return trial


def _finish(job: Job, at: Path, undisturbed: Calm, findings: list[str], how: str) -> Row:
    """Go on without disturbance and compare."""
    for command in job.commands:
        run = Attempt(command, at)
        run.ends_within(END_S)
        findings += run.findings(0)
    wrong, _ = differences(job, at, undisturbed)
    return {"how": how, "findings": [*findings, *wrong]}


def _link(at: Path) -> None:
    (at.parent / "target").write_text("old")
    at.symlink_to("target")


IN_NO_FOLDER = "a path in no folder"

FILES: Mapping[str, Callable[[Path], object]] = {
    **{
        name: make
        for name, make in special.FILES.items()
        if name not in ("a device without end", "a terabyte of nothing")
    },
    "the null device": lambda at: special.device(at, special.NULL),
    "a full device": lambda at: special.device(at, special.FULL),
    "a link": _link,
    IN_NO_FOLDER: lambda at: None,
}
"""What a file's place may be instead, and who makes it so."""

_RUN = ("run", "--scheme", "cubic", "--bandwidth", "12", "--duration", "1", "--kernel", str(KERNEL))


def _hostile_file(folder: Path, material: Path, rng: random.Random) -> Row:
    """Name something that is no file as a command's output."""
    at = folder / "job"
    empty(at, material)
    what, make = rng.choice(list(FILES.items()))
    place = at / "no" / "folder" / "output" if what == IN_NO_FOLDER else at / "output"
    command = rng.choice(
        [
            *((*_RUN, option) for option in ("--out", "--flows", "--plot", "--plot-flows")),
            ("compile", "--pool", str(material / "least/pool"), "--cache", "cache", "--summary"),
            ("report", "--league", str(material / "least/results"), "--raw", str(material / "least/raw"), "--out"),
        ]
    )
    make(place)
    before = _nodes(at)
    is_read = what == "a pipe" and rng.random() < 0.7
    reader = subprocess.Popen(["cat", place], stdout=subprocess.DEVNULL) if is_read else None
    run = Attempt((*command, str(place)), at)
    findings = [] if run.ends_within(END_S) else ["hangs"]
    findings += run.findings(0, 2)
    if reader:
        reader.kill()
        reader.wait()
    after = _nodes(at)
    findings += [f"replaced: {name}" for name, node in before.items() if after.get(name) != node]
    return {"how": f"{' '.join(command[:1])} {command[-1]} {what}: {run.status}", "findings": findings}


def _nodes(folder: Path) -> dict[str, int]:
    """Return what kind of thing each path of a folder is."""
    return {path.name: stat.S_IFMT(path.lstat().st_mode) for path in folder.iterdir()}


THEIRS = (
    *("thesis.tex", "card.json", "metrics.json", "metrics.jsonl", "run.json", "league.json", "scores.parquet"),
    *("manifest.json", "episodes.parquet", "set=I/scheme=cubic/part-000.parquet", "raw/set=I/scheme=vegas/x.parquet"),
    *("replay/ring-0.f32", "counters", "checkpoint.safetensors", "report.html", "standings.csv", "candidates/step-1/x"),
    *("policy.safetensors", "distance.json", ".bashrc", "raw/policies.json", "source/main.c", "kernel-identity/cubic"),
)
"""Files of a user's, some called as ours are."""


def _hostile_folder(folder: Path, material: Path, rng: random.Random) -> Row:
    """Point a command at a folder with files of the user's."""
    at = folder / "job"
    empty(at, material)
    theirs = at / "theirs"
    for name in rng.sample(THEIRS, rng.randint(1, 8)):
        (theirs / name).parent.mkdir(parents=True, exist_ok=True)
        (theirs / name).write_text(f"years of work: {name}")
    if rng.random() < 0.2:
        shutil.copytree(material / "least/raw", theirs / "raw", dirs_exist_ok=True)
    before = {path: sha256_file(path) for path in theirs.rglob("*") if path.is_file()}
    place = theirs
    if rng.random() < 0.2:
        (at / "link").symlink_to("theirs")
        place = at / "link"
    train = ("train", "--config", "tiny", "--steps", "3", "--pool", str(material / "least/pool"), "--cache", "cache")
    kernel, two = ("--kernel", str(KERNEL)), ("--profile", "smoke", "--schemes", "cubic,vegas")
    command = rng.choice(
        [
            ("collect", *two, *kernel, "--out"),
            ("pool", "--raw", str(material / "least/raw"), "--out"),
            ("league", *two, "--policy", "policy", "--raw", str(material / "least/raw"), *kernel, "--out"),
            ("league", *two, "--policy", "policy", *kernel, "--raw", str(theirs / "raw"), "--out"),
            (*train, "--logs", "logs", "--out"),
            (*train, "--out", "model", "--logs"),
            (*train[:-1], str(theirs), "--logs", "logs", "--out", "model", "--cache"),
            ("bound", "policy", "--window-bound", "2", "--out"),
        ]
    )
    run = Attempt((*command, str(place)), at)
    findings = [] if run.ends_within(END_S) else ["hangs"]
    findings += run.findings(0, 2)
    for path, digest in before.items():
        if not path.is_file() or sha256_file(path) != digest:
            findings.append(f"destroyed: {path.relative_to(theirs)}")
    return {"how": f"{command[0]} {command[-1]}: {run.status}", "findings": findings}


KINDS: Mapping[str, Callable[[Path, Path, random.Random], Row]] = {
    "two at once": _two_at_once,
    "address space of 0.4 to 3 GB": _limited(lambda rng: f"--as={rng.uniform(*ADDRESS_SPACE_GB) * 1e9:.0f}"),
    f"{DESCRIPTORS} descriptors": _limited(lambda rng: f"--nofile={DESCRIPTORS}"),
    "an output that is no file": _hostile_file,
    "a folder of the user's": _hostile_folder,
}


def summary(rows: list[Row]) -> list[Row]:
    """Return the figures of each kind."""
    found = []
    for kind in KINDS:
        mine = [row for row in rows if row["kind"] == kind]
        ended = Counter(row["how"].rpartition(": ")[2] for row in mine)
        found.append(
            {
                "kind": kind,
                "trials": len(mine),
                "ended": dict(sorted(ended.items())),
                "findings": dict(Counter(finding.partition(":")[0] for row in mine for finding in row["findings"])),
                "minutes": round(sum(row["seconds"] for row in mine) / 60, 1),
            }
        )
    return found
