# SPDX-License-Identifier: Apache-2.0
"""Conditions before deployment: what is measured of a run, what decides, and the shipped policy's verdicts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

from sagecc.commands import vet as command_module
from sagecc.commands.vet import command
from sagecc.common import shipped
from sagecc.common.errors import SageccError
from sagecc.leagues.vetting import suite
from sagecc.leagues.vetting.conditions import CONDITIONS, Condition, outage_network
from sagecc.leagues.vetting.measures import INTERVAL_S, fair_shares, jain_index, lost_percent, recovery_s
from tests.helpers.networks import network

SAFEST, SHIPPED = (f"policy:{shipped.POLICIES / name}" for name in (shipped.SAFEST_POLICY, shipped.BEST_POLICY))
FEW = replace(CONDITIONS["outage"], networks=tuple(CONDITIONS["outage"].networks[:3]))


def series(goodputs: Sequence[Sequence[float]], lost: int = 0) -> pl.DataFrame:
    """Return the series of flows by their goodputs in each interval, 100 packets sent in each."""
    rows = [
        {"flow": flow, "t_s": number * INTERVAL_S, "goodput_mbps": mbps, "sent_pkts": 100, "lost_pkts": lost}
        for flow, of_flow in enumerate(goodputs)
        for number, mbps in enumerate(of_flow)
    ]
    return pl.DataFrame(rows)


def test_shares_by_hand() -> None:
    link = network(duration_s=2)
    both = series([[6.0] * 4, [2.0] * 4], lost=3)
    assert fair_shares(both, link) == pytest.approx(1.5)
    assert jain_index(both, link) == pytest.approx(64 / 80)
    assert lost_percent(both, link) == pytest.approx(3)
    silent = series([[0.0] * 4, [0.0] * 4])
    assert fair_shares(silent, link) == jain_index(silent, link) == 0


def test_recovery_by_hand() -> None:
    link = outage_network(12, 1, 2, after_s=4)
    before, down = [10.0] * 20, [0.0] * 4
    assert recovery_s(series([[*before, *down, *[0.0] * 2, 4.9, 5.0, *[10.0] * 4]]), link) == 2.0
    assert recovery_s(series([[*before, *down, *[4.9] * 8]]), link) == float("inf")


def test_conditions_can_be_told_apart() -> None:
    for condition in CONDITIONS.values():
        assert len({place.label for place in condition.networks}) == len(condition.networks)
        assert condition.against != "undisturbed" or all(place.undisturbed for place in condition.networks)


def test_the_worst_network_decides() -> None:
    most, least = CONDITIONS["outage"], CONDITIONS["own-kind"]
    assert suite.Verdict(most, {"a": 1.0, "b": float("inf")}, {}).where == "b"
    assert suite.Verdict(most, {"a": 1.0, "b": 3.0}, {}).met
    worst = suite.Verdict(least, {"a": 0.94, "b": 1.0}, {})
    assert (worst.where, worst.value, worst.met) == ("a", 0.94, False)
    assert not suite.Verdict(least, {"a": 1.0}, {"b": "the guest died"}).met


def test_a_verdict_in_json_has_no_infinity() -> None:
    most = CONDITIONS["outage"]
    never = suite.Verdict(most, {"a": 1.0, "b": float("inf")}, {}).as_json()
    assert never == {"value": None, "where": "b", "met": False, "failures": {}}
    failed = suite.Verdict(most, {"a": 1.0}, {"b": "the guest died"}).as_json()
    assert failed == {"value": None, "where": "b", "met": False, "failures": {"b": "the guest died"}}
    assert suite.Verdict(most, {"a": 1.0}, {}).as_json()["value"] == 1.0


def test_shipped_policies_recover_and_bear_lost_acks(kernel: Path, tmp_path: Path) -> None:
    both, schemes = [FEW, CONDITIONS["ack-loss"]], [SHIPPED, SAFEST, "cubic"]
    found = suite.vet(kernel, schemes, both, tmp_path, 1, progress=False)
    for scheme in schemes:
        assert [(each.condition.name, each.met) for each in found[scheme]] == [("outage", True), ("ack-loss", True)]


def test_the_safest_policy_bears_loss_and_what_holds_it_back(kernel: Path, tmp_path: Path) -> None:
    asked = [CONDITIONS[name] for name in ("random-loss", "ack-thinning", "receive-window", "pauses")]
    found = suite.vet(kernel, [SAFEST], asked, tmp_path, 1, progress=False)
    assert [each.condition.name for each in found[SAFEST] if not each.met] == []


def test_runs_are_kept_and_heuristics_are_not_late(
    kernel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = suite.vet(kernel, ["cubic"], [FEW, CONDITIONS["late"]], tmp_path, 1, progress=False)
    assert [each.condition.name for each in first["cubic"]] == ["outage"]
    monkeypatch.setattr(suite, "lab_runner", lambda kernel, jobs: pytest.fail)
    again = suite.vet(kernel, ["cubic"], [FEW, CONDITIONS["late"]], tmp_path, 1, progress=False)
    assert first == again


def vetted(monkeypatch: pytest.MonkeyPatch, kernel: Path, folder: Path, value: float, *options: str) -> tuple[int, str]:
    """Run the command where every network of a condition has one value."""

    def vet(
        kernel: Path, schemes: Sequence[str], conditions: Sequence[Condition], *_: object, **__: object
    ) -> dict[str, list[suite.Verdict]]:
        return {
            scheme: [suite.Verdict(each, {place.label: value for place in each.networks}, {}) for each in conditions]
            for scheme in schemes
        }

    monkeypatch.setattr(command_module, "vet", vet)
    given = ["sagecc-10", *options, "--runs", str(folder), "--kernel", str(kernel)]
    done = CliRunner().invoke(command, given, catch_exceptions=False)
    return done.exit_code, done.stdout


def test_the_command_says_what_fails(monkeypatch: pytest.MonkeyPatch, kernel: Path, tmp_path: Path) -> None:
    status, text = vetted(
        monkeypatch, kernel, tmp_path, 0.9, "--beside", "cubic,bbr", "--only", "late", "--only", "own-kind"
    )
    assert status == 1
    title, late, own = text.splitlines()
    assert title.split() == ["condition", "limit", "sagecc-10", "worst", "network", "cubic", "bbr"]
    assert late.split()[:8] == ["late", "at", "least", "0.8", "of", "in", "time", "0.90"]
    assert "NOT MET" in own and "NOT MET" not in late
    status, text = vetted(monkeypatch, kernel, tmp_path, 1.0, "--only", "outage", "--json")
    (found,) = json.loads(text).values()
    assert (status, found[0]["met"], found[0]["at_most"], found[0]["value"]) == (0, True, 3, 1.0)


def test_an_unknown_condition_is_named(kernel: Path) -> None:
    with pytest.raises(SageccError, match="no condition 'outages'; did you mean outage"):
        CliRunner().invoke(command, ["sagecc-10", "--only", "outages", "--kernel", str(kernel)], catch_exceptions=False)
