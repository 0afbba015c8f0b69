# SPDX-License-Identifier: Apache-2.0
"""What a figure was measured on, and where it is kept."""

from __future__ import annotations

import datetime
import json
import os
import platform
import resource
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sagecc.common.errors import SageccError
from sagecc.common.files import write_atomically

RESULTS = Path(__file__).parent / "results"
KERNEL = Path("build/sagecc-linux")
"""The lab's, where `make kernel` leaves it."""


def describe() -> dict[str, object]:
    """Return processor, cores, memory, kernel and date."""
    cpu = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "memory_gib": round(memory_gib, 1),
        "kernel": platform.release().split("-")[0],
        "python": platform.python_version(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


@dataclass(frozen=True)
class CpuTime:
    """CPU seconds spent so far by this process and by its ended children."""

    own_s: float
    children_s: float

    @classmethod
    def now(cls) -> CpuTime:
        """Read both clocks."""
        spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return cls(*(usage.ru_utime + usage.ru_stime for usage in spent))

    def since(self, start: CpuTime) -> float:
        """Return the CPU seconds of both since `start`."""
        return self.own_s - start.own_s + self.children_s - start.children_s


def descendants_cpu_s() -> float:
    """Return the CPU seconds of this process's descendants so far: those that run, and those waited for by them."""
    spent: dict[int, int] = {}
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            fields = stat.read_text().rpartition(")")[2].split()  # from the third field of proc(5) on
            parents[int(stat.parent.name)] = int(fields[1])
            spent[int(stat.parent.name)] = sum(map(int, fields[11:15]))
    family = {os.getpid()}
    while more := {process for process, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(spent[process] for process in family - {os.getpid()}) / os.sysconf("SC_CLK_TCK")


def read_json(path: Path) -> dict[str, Any]:
    """Return what a file holds; raises SageccError where it is damaged."""
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except ValueError as error:
        raise SageccError(f"{path}: not JSON ({error}); remove it and make it again") from None
    return content


def earlier_result(path: Path, identity: str) -> dict[str, Any]:
    """Return the result that a file holds; nothing where there is no file, or its result has another `identity`."""
    result: dict[str, Any] = read_json(path)["result"] if path.exists() else {}
    return result if result.get("identity") == identity else {}


def save(name: str, result: Mapping[str, object], folder: Path = RESULTS) -> None:
    """Write <folder>/<name>.json with the machine beside the result."""
    folder.mkdir(exist_ok=True)
    with write_atomically(folder / f"{name}.json") as temporary:
        temporary.write_text(json.dumps({"machine": describe(), "result": result}, indent=1) + "\n")
