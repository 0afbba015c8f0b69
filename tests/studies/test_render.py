# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sagecc.common.errors import SageccError
from studies.training.render import PAPERS_FOUR, fill, grid_part, main, read_results, runs_part
from studies.training.run import RESULT_VERSION


def standing(rank: int, rate: float, reno: float) -> dict[str, Any]:
    row = {"rank": rank, "winning_rate": rate, "low": rate - 0.05, "high": rate + 0.05}
    best = {"scheme": "vegas", "rank": 1, "winning_rate": 0.4, "low": 0.3, "high": 0.5}
    return {
        "schemes": 14,
        "environments": 24,
        "policy": row,
        "best_heuristic": best,
        "reno": {**best, "scheme": "reno", "winning_rate": reno},
    }


def result(name: str, rate: float, **more: Any) -> dict[str, Any]:
    sets = {"I": standing(1 if rate > 0.4 else 5, rate, 0.1), "II": standing(3, rate, 0.25)}
    return {
        "version": RESULT_VERSION,
        "name": name,
        "base": "small",
        "changes": {"gru": 128, "steps": 20000, "data": {"schemes": ["vegas", "cubic"], "set_weights": {"II": 2}}},
        "seed": 1,
        "pool": {"path": "datasets/pool", "rows": 4_250_000},
        "training": {"cpu_h": 1.5, "wall_h": 0.75},
        "leagues": {"heldout": sets},
        **more,
    }


def test_runs_best_first_with_their_goals() -> None:
    failed = {k: v for k, v in result("wild", 0).items() if k not in ("training", "leagues")} | {"failure": "diverged"}
    lines = runs_part([result("poor", 0.2), failed, result("good", 0.5)]).splitlines()
    assert lines[:4] == [
        "| run | configuration | seed | pool | CPU hours | hours | goal on `heldout` |",
        "|---|---|---|---:|---:|---:|---|",
        "| good | `small`, gru 128, steps 20,000, data.schemes vegas cubic, data.set_weights II 2 | 1 "
        "| datasets/pool, 4.2 M rows | 1.50 | 0.75 | I: yes, II: yes |",
        lines[3],
    ]
    assert lines[3].startswith("| poor |")
    assert lines[3].endswith("| I: no, II: no |")
    assert (
        "| good | 50.0 % [45.0, 55.0] | 1 of 14 | vegas 40.0 % | 10.0 % "
        "| 50.0 % [45.0, 55.0] | 3 of 14 | vegas 40.0 % | 25.0 % |" in lines
    )
    assert lines[-1].startswith("- `wild` (`small`, gru 128")
    assert lines[-1].endswith("has no policy: diverged")
    kept = {"keep_best": {"league": "small", "every": 1000}, "kept_step": 4000, "changes": {}}
    assert "| `small`, best in `small` every 1,000 steps (kept: 4,000) |" in runs_part([result("kept", 0.3, **kept)])
    assert runs_part([]) == "No run yet: `make policies`."


def league() -> dict[str, Any]:
    """Set I in the paper's order; in Set II cubic and reno lead."""
    orders = {
        "I": (*PAPERS_FOUR["I"], "reno", *PAPERS_FOUR["II"]),
        "II": ("cubic", "reno", "vegas", "bbr2", "htcp", "bic", "highspeed", "yeah", "illinois"),
    }
    return {
        "episodes": 18,
        "environments": {"I": 1, "II": 1},
        "windows": {"I": 4, "II": 4},
        "standings": [
            {"set": name, "rank": rank, "scheme": scheme, "winning_rate": 1 / rank, "low": 0.0, "high": 1.0}
            for name, order in orders.items()
            for rank, scheme in enumerate(order, 1)
        ],
        "robustness": [
            {
                "alpha": alpha,
                "margin": margin,
                "set": name,
                "scheme": scheme,
                "rank": rank + round(alpha + 100 * margin),
            }
            for alpha in (2.0, 3.0)
            for margin in (0.1, 0.05)
            for name, order in orders.items()
            for rank, scheme in enumerate(order, 1)
        ],
    }


def test_the_papers_four_beside_ours() -> None:
    text = grid_part(league())
    assert "| 2 | bbr2 | bbr2 | 50.0 % [0.0, 100.0] | htcp | reno | 50.0 % [0.0, 100.0] |" in text
    assert "Set I: 4 of the paper's four are among the first four here (vegas 1, bbr2 2, yeah 3, illinois 4)." in text
    assert "Set II: 1 of the paper's four are among the first four here (cubic 1, htcp 5, bic 6, highspeed 7)." in text
    assert "| vegas | 1 | **100.0 % [0.0, 100.0]** | 3 | 33.3 % [0.0, 100.0] |" in text
    head = "Set I: alpha 2, 10 % | Set I: alpha 2, 5 % | Set I: alpha 3, 10 % | Set I: alpha 3, 5 %"
    assert f"| scheme | {head} | Set II: 10 % | Set II: 5 % |" in text
    league_before = {name: value for name, value in league().items() if name != "robustness"}
    assert "not scored yet" in grid_part(league_before)
    assert "| vegas | 13 | 8 | 14 | 9 | 15 | 10 |" in text


def test_the_page_keeps_its_prose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "studies/training/results").mkdir(parents=True)
    page = "# R\n<!-- grid:begin -->\nformer\n<!-- grid:end -->\nprose\n<!-- runs:begin -->\n<!-- runs:end -->\nmore\n"
    (tmp_path / "docs/results.md").write_text(page)
    (tmp_path / "studies/training/full-grid.json").write_text(json.dumps(league()))
    main()
    text = (tmp_path / "docs/results.md").read_text()
    assert "former" not in text
    assert "among the first four" in text.split("prose")[0]
    assert text.endswith("<!-- runs:begin -->\nNo run yet: `make policies`.\n<!-- runs:end -->\nmore\n")
    main()
    assert (tmp_path / "docs/results.md").read_text() == text


def test_lost_marks_and_damaged_results_are_errors(tmp_path: Path) -> None:
    with pytest.raises(SageccError, match=r"docs/results.md: .*<!-- runs:begin -->"):
        fill("# R\n<!-- runs:begin -->\n", "runs", "")
    (tmp_path / "a.json").write_text('{"version": 0}')
    with pytest.raises(SageccError, match=r"a\.json: version 0, not 1"):
        read_results(tmp_path)
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(SageccError, match=r"a.json: not JSON .*; remove it"):
        read_results(tmp_path)
