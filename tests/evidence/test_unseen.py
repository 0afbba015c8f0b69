# SPDX-License-Identifier: Apache-2.0
"""Networks that are drawn for a league: as many as said, within the grid's ranges, of no file; and their page."""

from __future__ import annotations

import json
from pathlib import Path

from evidence.leagues.results import standing_over_seeds
from evidence.leagues.unseen import drawn, identity_of, known
from sagecc.collector.run.grid import PROFILES, profile_environments
from sagecc.common.shipped import BEST_POLICY
from scripts.templates import ROOT, texts


def test_networks_are_drawn_within_the_grids_ranges_and_stand_in_no_profile() -> None:
    networks = drawn(1).environments
    assert [e.set for e in networks] == ["I"] * 24 + ["II"] * 12
    assert all(10 <= e.min_rtt_ms <= 160 and 12 <= e.bandwidth_mbps <= 192 for e in networks)
    assert all(max(step.rate_mbps for step in e.bottleneck.rates) <= 192 for e in networks if e.set == "I")
    assert sum(len(e.bottleneck.rates) > 1 for e in networks) == 12
    known = {e.id for profile in PROFILES for e in profile_environments(profile)}
    assert known.isdisjoint(e.id for e in networks)


def test_a_number_draws_the_same_networks_and_another_others() -> None:
    one, again, other = ({e.id for e in drawn(seed).environments} for seed in (1, 1, 2))
    assert one == again
    assert one.isdisjoint(other)


def test_the_page() -> None:
    def place(rate: float) -> dict[str, object]:
        beside = {"scheme": "bbr2", "rank": 2, "winning_rate": 0.5, "low": 0.4, "high": 0.6}
        own = {"rank": 1, "winning_rate": rate, "low": rate - 0.1, "high": rate + 0.1}
        return {"schemes": 14, "environments": 24, "policy": own, "best_heuristic": beside, "reno": beside}

    harm = {"networks": 36, "floods": ["a"], "starves": [], "loss_worst": 0.1, "goodput_share_least": 0.6}
    runs = [
        {"name": name, "sets": {"I": place(rate), "II": place(0.2)}, "harm": harm}
        for name, rate in ((BEST_POLICY, 0.8), (f"{BEST_POLICY}-1", 0.9))
    ]
    over_seeds = {name: standing_over_seeds([run["sets"][name] for run in runs]) for name in ("I", "II")}  # type: ignore[index]
    most = standing_over_seeds([place(0.9), place(0.9)])
    result = {
        "seed": 7,
        "networks": {"I": 24, "II": 12},
        "ranges": {name: [1.0, 2.5] for name in ("rate_mbps", "rtt_ms", "queue_bdp", "step", "deep_bdp")},
        "recipes": [
            {"recipe": BEST_POLICY, "runs": runs, "over_seeds": over_seeds},
            {"recipe": "offline", "runs": [runs[0] | {"name": "offline"}], "over_seeds": over_seeds | {"I": most}},
        ],
    }
    machine = {"cpu": "Z80", "cores": 1, "memory_gib": 0.1, "kernel": "6.12", "date": "2026-01-01"}
    found = texts(Path(ROOT / "evidence" / "leagues" / "unseen.md.j2"), {"result": result, "machine": machine})
    assert found["unseen"].splitlines()[5].startswith(f"| `{BEST_POLICY}` | 85.0 % [")
    assert found["unseen"].splitlines()[5].endswith("| 1, 1 | 50.0 % | 50.0 % | 1, 1 | 0, 0 |")
    assert (found["unseen_recipe"], found["unseen_first"]) == ("`offline`", "90.0 % [90.0, 90.0]")


def test_a_seed_is_played_again_where_policy_kernel_or_networks_are_others(tmp_path: Path) -> None:
    networks, path = drawn(1), tmp_path / "unseen.json"
    identity = identity_of(networks, "a kernel")
    assert known(path, identity) == {}
    run = {"name": BEST_POLICY, "policy_sha256": "ab"}
    path.write_text(json.dumps({"result": {"identity": identity, "recipes": [{"runs": [run]}]}}))
    assert known(path, identity) == {"ab": run}
    assert known(path, identity_of(networks, "another kernel")) == {}
    assert known(path, identity_of(drawn(2), "a kernel")) == {}
