# SPDX-License-Identifier: Apache-2.0
"""How large `sagecc report`'s page is and how long it takes: `make repro`'s league, and `make grid-league`'s."""

from __future__ import annotations

from pathlib import Path

from evidence.machine import CpuTime, save
from sagecc.cli import errors_in_one_line
from sagecc.common.errors import SageccError
from sagecc.leagues.report.folder import load
from sagecc.leagues.report.page import render
from sagecc.leagues.report.series import MAX_TRAJECTORIES

LEAGUES = (
    ("small", Path("leagues/results"), Path("datasets/raw"), Path("leagues/analysis")),
    ("full", Path(".cache/training/full-grid"), Path("datasets/full/raw"), Path("none")),
)
"""Profile, league, heuristics' trajectories, analyses."""

EVERY = 1_000_000


def main() -> None:
    """Measure and save."""
    rows = []
    for profile, league, raw, analysis in LEAGUES:
        if not (league / "league.json").exists():
            raise SageccError(f"no league in {league}: 'make repro' and 'make grid-league' play what is measured here")
        for most in (MAX_TRAJECTORIES, EVERY):
            begun = CpuTime.now()
            contents = load(league, raw, analysis)
            page = render(contents, trajectories=most)
            rows.append(
                {
                    "profile": profile,
                    "environments": len(contents.environments),
                    "schemes": len(contents.schemes),
                    "episodes": len(contents.episodes),
                    "trajectories": "all" if most == EVERY else f"at most {most:,}",
                    "bytes": len(page.encode()),
                    "cpu_s": CpuTime.now().since(begun),
                }
            )
    save("report", {"rows": rows})


if __name__ == "__main__":
    with errors_in_one_line("evidence.speed.report"):
        main()
