# SPDX-License-Identifier: Apache-2.0
"""`dvc repro`, which leaves the order of its stages where scripts/stage_shell reads it and says where the time went."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dvc.cli import main as dvc
from dvc.repo import reproduce
from dvc.stage import run

from sagecc.common.files import write_atomically
from scripts import lock_file

STAGES = Path(".dvc/tmp/repro.stages")
"""Names of the stages in their order, a line each."""

KINDS: Mapping[str, str] = MappingProxyType(
    {
        "widen": "explore",
        "pool": "pools",
        "kicked-pool": "pools",
        "compile": "pools",
        "specification": "train",
        "distance": "analysis",
        "similarity": "analysis",
        "tsne": "analysis",
    }
)
"""By stage the kind that its time counts for, where that is not its own name."""


def main(arguments: Sequence[str]) -> int:
    """Run `dvc repro` with arguments and print the time of its stages; return its exit status."""
    plan, command = reproduce.plan_repro, run.cmd_run
    spent_s: dict[str, float] = {}

    def planned(*given: Any, **options: Any) -> list[Any]:
        stages: list[Any] = plan(*given, **options)
        STAGES.with_suffix(".stages.ran").unlink(missing_ok=True)
        with write_atomically(STAGES) as temporary:
            temporary.write_text("".join(f"{stage.addressing}\n" for stage in stages))
        os.environ["SAGECC_STAGES"] = str(STAGES.absolute())
        return stages

    def timed(stage: Any, *given: Any, **options: Any) -> None:
        start = time.monotonic()
        try:
            command(stage, *given, **options)
        finally:
            spent_s[stage.addressing] = time.monotonic() - start

    reproduce.plan_repro, run.cmd_run = planned, timed
    lock_file.install()
    start = time.monotonic()
    status = int(dvc(["repro", *arguments]))
    print(times(spent_s, time.monotonic() - start), file=sys.stderr)
    return status


def times(spent_s: Mapping[str, float], total_s: float) -> str:
    """Return a table of where the time went: a line for each kind of stage, the last for DVC.

    Args:
        spent_s: seconds that the command of each stage took, by its name, in the order of running.
        total_s: seconds that all of `dvc repro` took.
    """
    kinds: dict[str, list[float]] = {}
    for name, seconds in spent_s.items():
        stage = name.rpartition(":")[2].partition("@")[0]
        kinds.setdefault(KINDS.get(stage, stage), []).append(seconds)
    rows = [(kind, sum(each), f"{len(each)} stage{'s' * (len(each) > 1)}") for kind, each in kinds.items()]
    rows.append(("DVC", total_s - sum(spent_s.values()), "hashes, lock files"))
    lines = [f"  {kind:<10}{seconds / 60:6.1f} min  {what}" for kind, seconds, what in rows]
    return "\n".join([f"make repro: {total_s / 60:.1f} min, of which", *lines])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
