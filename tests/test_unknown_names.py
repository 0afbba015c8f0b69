# SPDX-License-Identifier: Apache-2.0
"""A name that is none is an error, wherever it stands: nothing falls back to what happens to come last."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast, get_args

import polars as pl
import pytest
import yaml
from click.testing import CliRunner

from sagecc.commands.collect import command as collect
from sagecc.common.errors import SageccError
from sagecc.execution.agent.actions import ACTION_MAPS, action_map
from sagecc.execution.environments.networks import agents
from sagecc.leagues.flow_metrics import SERIES_SCHEMA, share_over_time
from sagecc.leagues.league import Rules
from sagecc.leagues.report.pictures import analysis_picture
from sagecc.leagues.scores import METRICS, SCORE_SCHEMA, rescore
from sagecc.policy.artefact import MAPS, STEPS_MAP, Control, PolicyArtefact
from sagecc.policy.ratios import RATIOS
from sagecc.pool.exports.episodes import Choice, open_pool
from sagecc.pool.exports.export import export
from sagecc.schemas.environment import Environment, RewardKind
from tests.conftest import ROOT
from tests.helpers.networks import network
from tests.helpers.policies import save_policy

NAME: Any = "else"


@pytest.mark.parametrize(
    "call",
    [
        lambda: agents(network(), NAME),
        lambda: Rules(friendly_margin=NAME),
        lambda: rescore(pl.DataFrame({"metric": [NAME]}), 2.0),
        lambda: open_pool(Path("nowhere"), Choice(), NAME),
        lambda: export(Path("out"), NAME, Path("nowhere")),
        lambda: analysis_picture(NAME, cast("Any", SimpleNamespace(summary={"environments": {}}))),
    ],
)
def test_a_function_refuses_it(call: Callable[[], object]) -> None:
    with pytest.raises(SageccError, match="'else'"):
        call()


def test_nor_does_a_value_take_it() -> None:
    with pytest.raises(KeyError):
        share_over_time(pl.DataFrame(pl.from_arrow(SERIES_SCHEMA.empty_table())), against=NAME)


def test_each_choice_is_worked_out_somewhere() -> None:
    """A new name without its formula, its class or its measure is not taken for another's."""
    assert set(ACTION_MAPS) == set(MAPS.values())
    assert set(RATIOS) == set(MAPS.values()) - {STEPS_MAP}
    assert all(action_map(Control(map=each), 1) for each in MAPS.values())
    assert set(METRICS) == set(get_args(RewardKind))
    assert "metric" in SCORE_SCHEMA


@pytest.mark.parametrize("part", ["action", "inputs", "network"])
def test_a_card_has_no_field_that_would_decide_something_and_is_not_known(tmp_path: Path, part: str) -> None:
    folder = save_policy(tmp_path / "policy")
    card = json.loads((folder / "card.json").read_text())
    card[part]["slow_strat"] = 2
    (folder / "card.json").write_text(json.dumps(card))
    with pytest.raises(SageccError, match=r"card\.json .*'slow_strat'"):
        PolicyArtefact.load(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: raw["cross"][0].update(stop_s=3),
        lambda raw: raw["cross"][0]["flow"].update(begin_s=3),
        lambda raw: raw["links"][0].update(queue=3),
        lambda raw: raw["links"][0]["rates"][0].update(rate=3),
        lambda raw: raw["links"][0].update(trace={"name": "a", "opportunities_ms": [1], "period_ms": 3}, rates=[]),
        lambda raw: raw.update(rtt_ms=3),
    ],
)
def test_an_environments_own_json_has_its_fields_alone(change: Callable[[dict[str, Any]], None]) -> None:
    raw = json.loads(network(cross=("cubic",)).to_json())
    raw["cross"][0]["flow"] = {"start_s": 1}
    assert Environment.from_json(json.dumps(raw)).cross[0].flow.start_s == 1
    change(raw)
    with pytest.raises(SageccError, match="environment: not its JSON"):
        Environment.from_json(json.dumps(raw))


def test_a_list_of_schemes_that_names_none_is_no_empty_collection() -> None:
    with pytest.raises(SageccError, match="--schemes names none"):
        CliRunner().invoke(collect, ["--schemes", " ,"], catch_exceptions=False)


def test_every_parameter_of_the_stages_is_one_of_a_stage() -> None:
    """DVC takes a name that no stage has without a word."""
    stages = "\n".join(path.read_text() for path in ROOT.glob("**/dvc.yaml") if ".venv" not in path.parts)
    used = set(re.findall(r"\$\{([a-z_.]+)", stages))

    def names(values: Any, above: str = "") -> set[str]:
        if above in used or not isinstance(values, dict):
            return {above}
        return set().union(*(names(value, f"{above}.{name}" if above else name) for name, value in values.items()))

    assert names(yaml.safe_load((ROOT / "params.yaml").read_text())) <= used
