# SPDX-License-Identifier: Apache-2.0
"""What `sagecc bench` says of the policies that are here and of some heuristics; plays are kept in .cache/bench."""

from __future__ import annotations

from pathlib import Path

from evidence.machine import KERNEL, save
from sagecc.cli import errors_in_one_line
from sagecc.common.limits import usable_cores
from sagecc.common.locks import sole_writer
from sagecc.common.shipped import SHIPPED
from sagecc.execution.lab.lockstep import BATCH
from sagecc.leagues.bench import run
from sagecc.schemas.schemes import POLICY_PREFIX

CONTESTANTS = (
    *(f"{POLICY_PREFIX}models/{name}" for name in SHIPPED),
    *("bbr2", "vegas", "cubic", "htcp"),
)
OUT = Path(".cache/bench")


def main() -> None:
    """Score and save."""
    with sole_writer(OUT):
        found = [run(name, KERNEL, OUT, usable_cores(), BATCH, progress=True) for name in CONTESTANTS]
    save("scores", {"scores": [of.document() for of in sorted(found, key=lambda of: -of.score.rate)]})


if __name__ == "__main__":
    with errors_in_one_line("evidence.leagues.scores"):
        main()
