# SPDX-License-Identifier: Apache-2.0
"""What is there of the paper's figures, as figures.md.j2 is filled with it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evidence.machine import read_json
from evidence.paper import (
    BASE,
    OFFLINE,
    OFFLINE_VARIANTS,
    ORDER,
    RESULTS,
    VARIANTS,
    findings,
    learning,
    picture,
    variants,
)
from evidence.training import table

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = Path(__file__).parent / "figures.md.j2"

PLAN_OFFLINE = "variants"
"""Name of the plan in evidence/training that has OFFLINE's variants."""

Values = dict[str, Any]


def context(results: Path = RESULTS, runs: Path = ROOT / table.RESULTS, root: Path = ROOT) -> Values:
    """Return what the template is filled with: `figures`, by name without a hyphen, None where nothing is there, and
    `offline`, those of OFFLINE's variants.

    Args:
        results: folder of the figures' results.
        runs: the runs' results (evidence/runs.jsonl); those of OFFLINE's variants lie next to them.
        root: of the pictures' paths.
    """
    figures: dict[str, Values | None] = {}
    offline: dict[str, Values | None] = {}
    known = table.read_results(runs)
    known_offline = known | table.read_results(runs.with_name(f"{PLAN_OFFLINE}.jsonl"))
    for figure in ORDER:
        key = figure.replace("-", "_")
        if figure in VARIANTS:
            figures[key] = _told(figure, _variants(VARIANTS[figure], known, BASE))
            offline[key] = _told(figure, _variants(OFFLINE_VARIANTS[figure], known_offline, OFFLINE))
        else:
            figures[key] = _told(figure, _result(results / f"{figure}.json"))
        if content := figures[key]:
            content["picture"] = picture(figure).name if (root / picture(figure)).exists() else None
    if curves := figures["fig_7"]:
        curves["missing"] = missing_curves(curves["result"])
    return {"figures": figures, "offline": offline}


def _told(figure: str, content: Values | None) -> Values | None:
    """Return a figure's content with what it says of the paper's sentences."""
    if content is None:
        return None
    return content | {
        "findings": [
            {"sentence": each.claim.sentence, "verdict": each.verdict, "subject": subject(each.measured.told)}
            for each in findings.of_figure(figure, content["result"])
        ]
    }


def subject(told: str) -> str:
    """Return what a finding's differences are of, such as "`small`"; its whole text where it has none."""
    return ", ".join(name.strip() for name in re.findall(r"([^:;]+): [+-]\d", told)) or told


def missing_curves(result: Mapping[str, Any]) -> list[str]:
    """Return the trainings that Fig. 7 has not got."""
    there = {(run["recipe"], run["seed"]) for run in result["runs"]}
    return [name for recipe, seed, name in learning.trainings() if (recipe, seed) not in there]


def _variants(recipes: Mapping[str, str], runs: Mapping[str, Values], base: str) -> Values | None:
    """Return a figure of variants; None where no variant has a result."""
    comparison = variants.compared(recipes, runs, base)
    return {"result": comparison} if {row["recipe"] for row in comparison["rows"]} & recipes.keys() else None


def _result(path: Path) -> Values | None:
    return read_json(path) if path.exists() else None
