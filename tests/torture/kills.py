# SPDX-License-Identifier: Apache-2.0
"""A stage, killed at random moments and gone on with until it is done, over and over."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from sagecc.common.errors import SageccError
from sagecc.common.files import write_atomically
from tests.torture.journal import Journal
from tests.torture.material import ENVIRONMENT
from tests.torture.processes import Seen, below, left_behind
from tests.torture.stages import SAGECC, Job, contents, lost

WAYS = {"command": 5, "group": 2, "child": 3}
"""Who is killed, and how often: the command itself, its process group, one process below it."""

GONE_S = 10.0
"""Within this every process below a killed command must have ended."""

END_S = 180.0
"""Within this a command must have ended that lost a child."""


@dataclass(frozen=True)
class Calm:
    """The job undisturbed: what came out, what else lies there, when each command was loaded and when it ended (s)."""

    contents: dict[str, str]
    beside: list[str]
    loaded_s: list[float]
    ended_s: list[float]


def torture(job: Job, folder: Path, material: Path, kills: int, seed: int, bar: tqdm[Any]) -> None:
    """Kill a job's commands until there were so many kills; go on with it each time, and look at what it leaves.

    Rows go to folder/kills.jsonl: one a kill, one a finished job.
    """
    undisturbed = calm(job, folder / "calm", material)
    journal = Journal(folder / "kills.jsonl")
    done = sum("kill" in row for row in journal.rows)
    bar.update(done)
    at = folder / "job"
    while done < kills:
        empty(at, material)
        index, finished, since = 0, job.finished(at), 0
        while index < len(job.commands):
            rng = random.Random(f"{seed} {job.stage} {len(journal.rows)}")
            run = Attempt(job.commands[index], at)
            moment_s = rng.uniform(undisturbed.loaded_s[index], undisturbed.ended_s[index])
            if done >= kills or run.ends_within(moment_s):
                run.ends_within(END_S)
                journal.add({"command": index, "findings": run.findings(0), "seconds": run.seconds})
                if run.status != 0:  # it would end so again
                    break
                index += 1
                continue
            row = run.kill(rng)
            if row["victim"] == "command" and row["status"] == 0:
                continue  # it had ended just before
            now = job.finished(at)
            row["findings"] += [f"lost: {name}" for name in lost(finished, now)]
            finished, since = now, since + 1
            journal.add({"kill": done, "moment_s": round(moment_s, 3), **row, "seconds": run.seconds})
            done += 1
            bar.update()
        else:
            wrong, temporary = differences(job, at, undisturbed)
            journal.add({"kills": since, "findings": wrong, "temporary": temporary})


def calm(job: Job, folder: Path, material: Path) -> Calm:
    """Run the job undisturbed, once."""
    kept, at = folder / "calm.json", folder / "job"
    if not kept.exists():
        empty(at, material)
        took: list[float] = []
        for command in job.commands:
            for arguments in ((command[0], "--help"), command):
                begun = time.monotonic()
                run = Attempt(arguments, at)
                if not run.ends_within(END_S) or run.status != 0:
                    raise SageccError(f"undisturbed, {job.stage} does not work: {' / '.join(run.said)}")
                took.append(time.monotonic() - begun)
        with write_atomically(kept) as beside:
            beside.write_text(json.dumps([contents(at, job.outputs), _beside(at), took[::2], took[1::2]]))
        shutil.rmtree(at)
    return Calm(*json.loads(kept.read_text()))


def _beside(folder: Path) -> list[str]:
    """Return the hidden and the temporary files of a job's folder."""
    temporary = folder / "tmp"
    hidden = (path for path in folder.rglob(".*") if not path.is_relative_to(temporary))
    return sorted(path.relative_to(folder).as_posix() for path in (*hidden, *temporary.iterdir()))


def empty(folder: Path, material: Path) -> None:
    """Make a job's folder anew; all that lies there is the policy."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "policy").symlink_to(material / "policy")


def is_told(said: list[str]) -> bool:
    """Tell whether a command says in one line why it ended, after a line for each episode that failed or each wait."""
    before = all(line.startswith("failed: ") or line.endswith(": waiting for it") for line in said[:-1])
    return bool(said) and said[-1].startswith("sagecc: ") and before


class Attempt:
    """One command in mid-work."""

    def __init__(
        self, command: tuple[str, ...], folder: Path, errors: str = "stderr", before: tuple[str, ...] = ()
    ) -> None:
        """Start it. errors: the file of its words. before: a program that starts it, with its arguments."""
        temporary, self._errors = folder / "tmp", folder / errors
        self._begun = time.monotonic()
        temporary.mkdir(exist_ok=True)
        with self._errors.open("wb") as said:
            self._process = subprocess.Popen(
                [*before, *SAGECC, *command],
                cwd=folder,
                env=ENVIRONMENT | {"TMPDIR": str(temporary)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                start_new_session=True,
            )

    @property
    def seconds(self) -> float:
        """How long ago it was started."""
        return round(time.monotonic() - self._begun, 2)

    @property
    def status(self) -> int | None:
        """Exit status, once it has ended."""
        return self._process.poll()

    def ends_within(self, seconds: float) -> bool:
        """Let it work for so long; return whether it has ended."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self, rng: random.Random) -> dict[str, Any]:
        """Kill it, in one of WAYS; return what was killed, how the command ended, and what is wrong with that."""
        (way,) = rng.choices(list(WAYS), list(WAYS.values()))
        children = below(self._process.pid)
        victim: Seen | None = None
        if way == "child" and children:
            kinds = sorted({seen.kind for seen in children})
            kind = rng.choice(kinds)
            victim = rng.choice([seen for seen in children if seen.kind == kind])
            self._signal(victim.pid)
        elif way == "group":
            os.killpg(self._process.pid, signal.SIGKILL)
        else:
            way = "command"
            self._process.kill()
        if victim is None:
            self._process.wait()
            found = self.findings(-signal.SIGKILL, 0)
        else:
            self.ends_within(END_S)
            found = self.findings(0, 2)
        said = self.said if victim else []
        return {
            "way": way,
            "victim": victim.kind if victim else "command",
            "status": self.status,
            "said": said[-1] if said else "",
            "findings": found,
        }

    def findings(self, *expected: int) -> list[str]:
        """Return what is wrong with how it ended. expected: the statuses that are right."""
        status = self._process.poll()
        found = []
        if status is None:
            found.append("hangs")
            self._process.kill()
            self._process.wait()
        elif status not in expected:
            found.append(f"ended with status {status}: {self.said[-1:]}")
        elif status == 2 and not is_told(self.said):
            found.append(f"not one line: {self.said}")
        return found + self.left_behind()

    @staticmethod
    def left_behind() -> list[str]:
        """Return the processes below this one and the files in memory that have not gone in time; end the former."""
        found = [f"left behind: {seen}" for seen in left_behind(GONE_S)]
        return found + [f"left behind: {path}" for path in Path("/dev/shm").iterdir()]

    @property
    def said(self) -> list[str]:
        """Its words on standard error, line by line."""
        return lines_of(self._errors.read_text(errors="replace"))

    @staticmethod
    def _signal(pid: int) -> None:
        with suppress(ProcessLookupError):  # it has ended just now
            os.kill(pid, signal.SIGKILL)


BAR = re.compile(r"[\w ]+:?\s+\d+%[ |]|[\w ]+: [\d.,]+\w* ?\w* \[")
"""The beginning of a line that shows progress."""


def lines_of(text: str) -> list[str]:
    """Return what was said, line by line, without progress bars."""
    lines = (line.rpartition("\r")[2].strip() for line in text.splitlines())
    return [line for line in lines if line and not BAR.match(line)]


def differences(job: Job, at: Path, undisturbed: Calm) -> tuple[list[str], int]:
    """Hold a finished job against the undisturbed one; return what is wrong, and how many files lie in TMPDIR."""
    found, wanted = contents(at, job.outputs), undisturbed.contents
    wrong = [f"other bytes: {name}" for name in wanted if name in found and found[name] != wanted[name]]
    wrong += [f"lost: {name}" for name in wanted if name not in found]
    left = {*found, *_beside(at)} - {*wanted, *undisturbed.beside}
    wrong += [f"left behind: {name}" for name in sorted(left) if not name.startswith("tmp/")]
    return wrong, sum(name.startswith("tmp/") for name in left)


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of a stage's rows."""
    kills = [row for row in rows if "kill" in row]
    return {
        "kills": len(kills),
        "victims": dict(
            sorted(Counter(row["way"] if row["way"] == "group" else row["victim"] for row in kills).items())
        ),
        "went_on": sum(row["status"] == 0 for row in kills),
        "one_line": sum(row["status"] == 2 for row in kills),
        "finished": sum("kills" in row for row in rows),
        "temporary": sum(row.get("temporary", 0) for row in rows),
        "findings": dict(Counter(finding.partition(":")[0] for row in rows for finding in row["findings"])),
        "minutes": round(sum(row.get("seconds", 0) for row in rows) / 60, 1),
    }
