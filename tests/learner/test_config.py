# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ast
import inspect
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sagecc.commands.train import command as train
from sagecc.common.errors import SageccError
from sagecc.learner.config import INPUT_GROUPS, Config, from_dict, load, shipped
from sagecc.schemas.pool import FEATURE_NAMES
from tests.helpers.messages import facts
from tests.learner.conftest import SMALLEST


def test_shipped_configurations_load() -> None:
    assert {"paper", "small", "tiny"} <= set(shipped())
    assert all(isinstance(load(name), Config) for name in shipped())


def test_paper_has_the_published_constants() -> None:
    paper = load("paper")
    assert paper.sizes(69).parameters == 4_550_415
    assert (paper.batch, paper.window, paper.steps) == (256, 50, 10_000_000)
    assert (paper.policy_rate, paper.critic_rate) == (5e-6, 5e-5)
    assert (paper.discount, paper.beta, paper.ratio_cap, paper.gradient_clip) == (0.95, 1.0, 20.0, 40.0)
    assert (paper.value_samples, paper.td_samples, paper.target_period) == (4, 1, 100)
    assert (paper.atoms, paper.value_range, paper.mixture, paper.min_scale) == (101, (0.0, 500.0), 5, 1e-4)
    assert (paper.input_transform, paper.filter, paper.burn_in) == ("none", "exp", 0)


def test_every_field_is_documented() -> None:
    (definition,) = ast.parse(inspect.getsource(Config)).body
    assert isinstance(definition, ast.ClassDef)
    documented = {
        node.target.id
        for node, text in pairwise(definition.body)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }
    assert documented == {field.name for field in fields(Config)}


def test_overrides_and_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("\n".join(f"{k}: {v}" for k, v in SMALLEST.items()))
    assert load(str(path), steps=7).steps == 7
    assert load(str(path)).policy_rate == 1e-3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learning_rate": 1}, "unknown field…learning_rate…width,"),
        ({"steps": 0}, "steps…1"),
        ({"steps": 1.5}, "steps …int"),
        ({"width": True}, "width …int"),
        ({"beta": -1}, "beta…above 0"),
        ({"beta": float("nan")}, "beta …number"),
        ({"beta": "hot"}, "beta …float, not 'hot'"),
        ({"filter": "soft"}, "filter…exp, binary, identity"),
        ({"discount": 1}, "discount…0…1"),
        ({"value_range": [5, 5]}, "value_range…low < high"),
        ({"value_range": 500}, "value_range…null…[low, high]"),
        ({"burn_in": 3}, "burn_in…window…3"),
        ({"window": 1}, "burn_in"),
        ({"atoms": 1}, "atoms…2"),
        ({"gru": -1}, "gru…negative"),
        ({"n_step": 0}, "n_step…1"),
        ({"period_ms": 25}, "period_ms…multiple…10 ms"),
        ({"period_ms": 0}, "period_ms…multiple"),
        ({"start_share": 1.5}, "start_share…0…1"),
        ({"inputs": "some"}, "inputs…'some'…all, no-min-max"),
        ({"inputs": ["srtt", "speed"]}, "inputs…'speed'"),
        ({"inputs": ["srtt", "srtt"]}, "feature…twice"),
        ({"inputs": []}, "one feature"),
        ({"inputs": 3}, "inputs…group…list…3"),
        ({"reward_before_action": 1}, "reward_before_action …bool"),
        ({"slow_start": "slow"}, "slow_start…null or acked"),
        ({"slow_start": 1.1}, "slow_start…null or acked"),
    ],
)
def test_bad_fields_are_one_clear_line(change: dict[str, object], message: str) -> None:
    with pytest.raises(SageccError, match=facts(message)) as caught:
        from_dict({**SMALLEST, **change})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "later",
    [
        {"slow_start": "acked"},
        {"window_bound": 2.0},
        {"window_bound": 2.0, "window_bound_loss": 0.01},
        {"final_rate": 0.1},
    ],
)
def test_a_field_that_came_later_and_is_off_changes_no_run(later: dict[str, object]) -> None:
    off, on = from_dict({**SMALLEST}), from_dict({**SMALLEST, **later})
    assert not set(later) & set(off.record()) and on.record() == {**off.record(), **later}


def test_a_missing_field_is_named() -> None:
    with pytest.raises(SageccError, match=facts("gru, batch…missing")):
        from_dict({k: v for k, v in SMALLEST.items() if k not in ("gru", "batch")})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a: [", r"bad\.yaml, line 1: no YAML"),
        (b"just words", r"bad\.yaml: expected 'field: value' lines"),
        (b"gru: 3\xc3", r"bad\.yaml: cannot be read"),
        (b"base: paper\ngru: 2024-12-01", r"bad\.yaml.*gru must be of type int, not '2024-12-01'"),
        (b"a: " + b"[" * 2000, r"bad\.yaml, line 1: no YAML: .*levels deep"),
        (b"base: paper\n1: 2\nnull: 3", r"bad\.yaml.*unknown field 1, None"),
        (b"base: huge", r"'huge'.*bad\.yaml"),
    ],
)
def test_a_file_that_is_no_configuration(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes(data)
    with pytest.raises(SageccError, match=message):
        load(str(path))


def test_no_such_configuration() -> None:
    with pytest.raises(SageccError, match=r"'huge'.*paper, small, tiny"):
        load("huge")


def test_count_parameters_of_the_paper() -> None:
    done = CliRunner().invoke(train, ["--config", "paper", "--count-parameters"])
    assert (done.exit_code, done.output) == (0, "4550415\n")


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("no-gru", {"gru": 0}),
        ("no-encoder", {"second_encoder": False}),
        ("no-gmm", {"mixture": 1}),
        ("bc", {"filter": "identity"}),
        *((group, {"inputs": group}) for group in INPUT_GROUPS if group != "all"),
    ],
)
@pytest.mark.parametrize("base", ["small", "paper"])
def test_an_ablation_changes_one_thing(base: str, name: str, changes: dict[str, Any]) -> None:
    assert load(name if base == "small" else f"{base}+{name}") == replace(load(base), **changes)


@pytest.mark.parametrize(
    ("group", "kept"),
    [
        ("all", [*range(1, 70)]),
        ("no-min-max", [*range(1, 5), *range(5, 59, 3), *range(59, 70)]),
        ("no-rtt-var", [*range(1, 23), *range(41, 70)]),
        ("no-loss-inflight", [*range(1, 41), *range(59, 70)]),
        ("window-s", [*range(1, 5), *(i for a in range(5, 59, 9) for i in range(a, a + 3)), *range(59, 70)]),
        ("window-m", [*range(1, 5), *(i for a in range(8, 59, 9) for i in range(a, a + 3)), *range(59, 70)]),
        ("window-l", [*range(1, 5), *(i for a in range(11, 59, 9) for i in range(a, a + 3)), *range(59, 70)]),
    ],
)
def test_groups_of_inputs_keep_these_rows_of_table_1(group: str, kept: list[int]) -> None:
    observations = from_dict({**SMALLEST, "inputs": group}).observations
    assert [FEATURE_NAMES.index(name) + 1 for name in observations] == kept


def test_inputs_by_name_keep_their_order() -> None:
    assert from_dict({**SMALLEST, "inputs": ["dr_max", "srtt"]}).observations == ("dr_max", "srtt")


def test_a_base_gives_what_a_file_does_not_name(tmp_path: Path) -> None:
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text("base: tiny\nsteps: 7\ngru: 9\n")
    second.write_text(f"base: {first}\nsteps: 8\n")
    assert load(str(second)) == replace(load("tiny"), steps=8, gru=9)
    assert load(f"tiny+{second}") == replace(load("tiny"), steps=8)


def test_a_base_that_leads_back_is_one_clear_line(tmp_path: Path) -> None:
    path = tmp_path / "round.yaml"
    path.write_text(f"base: {path}")
    with pytest.raises(SageccError, match="is its own base"):
        load(str(path))
