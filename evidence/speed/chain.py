# SPDX-License-Identifier: Apache-2.0
"""`make repro` from nothing: a fresh clone of this checkout with an empty home, its time by kinds of stages."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from evidence.machine import CpuTime, save
from sagecc.cli import errors_in_one_line
from sagecc.common.errors import SageccError

ROOT = Path(__file__).parents[2]
PARTS = ("setup", "kernel", "repro")
KIND = re.compile(r"(?m)^  (\S+) +(\d+\.\d) min  (.+)$")


def main() -> None:
    """Measure and save."""
    load = round(os.getloadavg()[0], 1)
    with TemporaryDirectory() as name:
        clone, home = Path(name) / "sagecc", Path(name) / "home"
        home.mkdir()
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
        parts, said = [], ""
        for target in PARTS:
            figures, said = timed(["make", target], clone, {**environment, "HOME": str(home)})
            parts.append({"name": target, **figures})
    save("chain", {"load_average": load, "parts": parts, "kinds": kinds(said)})


def timed(command: Sequence[str], folder: Path, environment: dict[str, str]) -> tuple[dict[str, float], str]:
    """Run a command, show and return what it says; returns its minutes and CPU-minutes beside.

    Raises:
        SageccError: it fails.
    """
    began, start = time.perf_counter(), CpuTime.now()
    process = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)
    lines = []
    with process:
        for line in process.stderr or ():
            sys.stderr.write(line)
            lines.append(line)
    if process.returncode:
        raise SageccError(f"'{' '.join(command)}' failed: what it said is above")
    minutes, cpu_minutes = (time.perf_counter() - began) / 60, CpuTime.now().since(start) / 60
    return {"minutes": minutes, "cpu_minutes": cpu_minutes}, "".join(lines)


def kinds(said: str) -> list[dict[str, object]]:
    """Return the lines of the table in which `make repro` says where its time went (scripts.dvc_repro.times)."""
    return [{"kind": kind, "minutes": float(minutes), "what": what} for kind, minutes, what in KIND.findall(said)]


if __name__ == "__main__":
    with errors_in_one_line("evidence.speed.chain"):
        main()
