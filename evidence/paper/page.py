# SPDX-License-Identifier: Apache-2.0
"""What is there of the paper's figures, as figures.md.j2 is filled with it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evidence.machine import read_json
from evidence.paper import ORDER, RESULTS, VARIANTS, findings, learning, picture, variants
from evidence.training import table

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = Path(__file__).parent / "figures.md.j2"

Values = dict[str, Any]


def context(results: Path = RESULTS, runs: Path = ROOT / table.RESULTS, root: Path = ROOT) -> Values:
    """Return what the template is filled with: `figures`, by name without a hyphen, None where nothing is there.

    Args:
        results: folder of the figures' results.
        runs: the runs' results (evidence/runs.jsonl).
        root: of the pictures' paths.
    """
    figures, results_of_runs = {}, table.read_results(runs)
    for figure in ORDER:
        content = _variants(figure, results_of_runs) if figure in VARIANTS else _result(results / f"{figure}.json")
        if content is not None:
            content |= {
                "findings": [
                    {"sentence": each.claim.sentence, "verdict": each.verdict, "subject": subject(each.measured.told)}
                    for each in findings.of_figure(figure, content["result"])
                ],
                "picture": picture(figure).name if (root / picture(figure)).exists() else None,
            }
        figures[figure.replace("-", "_")] = content
    if figures["fig_7"]:
        figures["fig_7"]["missing"] = missing_curves(figures["fig_7"]["result"])
    return {"figures": figures}


def subject(told: str) -> str:
    """Return what a finding's differences are of, such as "`small`"; its whole text where it has none."""
    return ", ".join(name.strip() for name in re.findall(r"([^:;]+): [+-]\d", told)) or told


def missing_curves(result: Mapping[str, Any]) -> list[str]:
    """Return the trainings that Fig. 7 has not got."""
    there = {(run["recipe"], run["seed"]) for run in result["runs"]}
    return [name for recipe, seed, name in learning.trainings() if (recipe, seed) not in there]


def _variants(figure: str, runs: Mapping[str, Values]) -> Values | None:
    """Return a figure of variants; None where no variant has a result."""
    comparison = variants.compared(figure, runs)
    return {"result": comparison} if {row["recipe"] for row in comparison["rows"]} & VARIANTS[figure].keys() else None


def _result(path: Path) -> Values | None:
    return read_json(path) if path.exists() else None
