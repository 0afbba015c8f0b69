# SPDX-License-Identifier: Apache-2.0
"""`dvc repro`, which leaves the order of its stages where scripts/stage_shell reads it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dvc.cli import main as dvc
from dvc.repo import reproduce

from sagecc.common.files import write_atomically

STAGES = Path(".dvc/tmp/repro.stages")
"""Names of the stages in their order, a line each."""


def main(arguments: Sequence[str]) -> int:
    """Run `dvc repro` with arguments; return its exit status."""
    plan = reproduce.plan_repro

    def planned(*given: Any, **options: Any) -> list[Any]:
        stages: list[Any] = plan(*given, **options)
        STAGES.with_suffix(".stages.ran").unlink(missing_ok=True)
        with write_atomically(STAGES) as temporary:
            temporary.write_text("".join(f"{stage.addressing}\n" for stage in stages))
        os.environ["SAGECC_STAGES"] = str(STAGES.absolute())
        return stages

    reproduce.plan_repro = planned
    return int(dvc(["repro", *arguments]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
