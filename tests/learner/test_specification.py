# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ast
import inspect
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from click.testing import CliRunner

from sagecc.commands.train import command as train
from sagecc.common.errors import SageccError
from sagecc.learner.architectures import KINDS
from sagecc.learner.selection import Selection
from sagecc.learner.specification import (
    LATER,
    ControlSettings,
    Data,
    LabSettings,
    PoolShare,
    RunSpecification,
    algorithm_of,
    algorithms,
    from_dict,
    load,
    shipped,
)
from sagecc.schemas.pool import FEATURE_NAMES, INPUT_GROUPS
from tests.helpers.messages import facts
from tests.helpers.specifications import IN_LABS, SMALLEST, placed, spec, varied


def test_shipped_configurations_load() -> None:
    assert {"paper", "small", "tiny", "orca", "sagecc-10"} <= set(shipped())
    for name in shipped():
        assert from_dict(load(name).record()) == load(name)


def test_paper_has_the_published_constants() -> None:
    paper = load("paper")
    assert paper.network.sizes(69).parameters == 4_550_415
    assert (paper.batch, paper.window, paper.steps, paper.burn_in) == (256, 50, 10_000_000, 0)
    crr, network = vars(paper.algorithm), vars(paper.network)
    assert (crr["policy_rate"], crr["critic_rate"]) == (5e-6, 5e-5)
    assert (crr["discount"], crr["beta"], crr["ratio_cap"], crr["gradient_clip"]) == (0.95, 1.0, 20.0, 40.0)
    assert (crr["value_samples"], crr["td_samples"], crr["target_period"]) == (4, 1, 100)
    assert (crr["atoms"], crr["value_range"], crr["filter"]) == (101, (0.0, 500.0), "exp")
    assert (network["mixture"], network["min_scale"], network["input_transform"]) == (5, 1e-4, "none")


SECTIONS: list[Any] = [RunSpecification, Data, Selection, LabSettings, PoolShare, ControlSettings, *KINDS.values()]
SECTIONS += map(algorithm_of, algorithms())


@pytest.mark.parametrize("section", SECTIONS, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_every_field_is_documented(section: Any) -> None:
    documented = set()
    for kind in section.__mro__[:-1]:
        (definition,) = ast.parse(inspect.getsource(kind)).body
        assert isinstance(definition, ast.ClassDef)
        documented |= {
            node.target.id
            for node, text in pairwise(definition.body)
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
            if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
        }
    assert {field.name for field in fields(section)} <= documented


def test_overrides_and_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(SMALLEST))
    assert load(str(path), steps=7) == spec(SMALLEST, steps=7)
    assert load(str(path), network={"gru": 0}) == spec(SMALLEST, gru=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learning_rate": 1}, "unknown field learning_rate; known are steps, batch"),
        ({"steps": 0}, "steps…1"),
        ({"steps": 1.5}, "steps …int"),
        ({"width": True}, "width …int"),
        ({"beta": -1}, "beta…above 0"),
        ({"beta": float("nan")}, "beta …number"),
        ({"beta": "hot"}, "beta …float, not 'hot'"),
        ({"filter": "soft"}, "filter…exp, binary, identity"),
        ({"discount": 1}, "discount…0…1"),
        ({"value_range": [5, 5]}, "value_range…low < high"),
        ({"value_range": 500}, "value_range must be a list of 2, not 500"),
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
        ({"inputs": 3}, "inputs must be a list, not 3"),
        ({"reward_before_action": 1}, "reward_before_action …bool"),
        ({"slow_start": "slow"}, "control.slow_start must be one of acked, not 'slow'"),
        ({"slow_start": 1.1}, "control.slow_start must be one of acked, not 1.1"),
    ],
)
def test_bad_fields_are_one_clear_line(change: dict[str, object], message: str) -> None:
    with pytest.raises(SageccError, match=facts(message)) as caught:
        from_dict(placed(SMALLEST, change))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({**SMALLEST, "network": {"kind": "sage"}}, "network: field width, gru is missing"),
        ({k: v for k, v in SMALLEST.items() if k != "network"}, "field network is missing"),
        ({**SMALLEST, "network": {"kind": "lstm", "width": 8}}, "network.kind must be one of sage, recurrent, mlp"),
        (
            {**SMALLEST, "algorithm": {"name": "ppo"}},
            "algorithm.name must be one of .*crr, .*dagger, .*td3, .*not 'ppo'",
        ),
        ({**SMALLEST, "algorithm": {}}, "algorithm.name must be one of"),
        ({**SMALLEST, "network": 3}, "network.kind must be one of"),
        ({**SMALLEST, "data": 3}, "data must have fields, not 3"),
        ({**SMALLEST, "data": {"selection": {"scheme": 1}}}, "data.selection: unknown field scheme"),
        ({**SMALLEST, "data": None}, "give either data, of a pool, or a task"),
        ({**SMALLEST, "task": {}}, "give either data, of a pool, or a task"),
        ({**SMALLEST, "labs": IN_LABS["labs"]}, "a task needs labs"),
        ({**SMALLEST, "algorithm": IN_LABS["algorithm"]}, "td3 learns from task alone"),
        ({**SMALLEST, "network": IN_LABS["network"]}, "crr needs a network of kind sage, not mlp"),
        ({"width": 8, "steps": 1}, "width now belong to a section .*configuration.md"),
        ({**SMALLEST, "control": {"window_bound_loss": 0.1}}, "needs a window_bound"),
    ],
)
def test_what_does_not_go_together_is_one_clear_line(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SageccError, match=message) as caught:
        from_dict(values)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a: [", r"bad\.yaml, line 1: no YAML"),
        (b"just words", r"bad\.yaml: expected 'field: value' lines"),
        (b"gru: 3\xc3", r"bad\.yaml: cannot be read"),
        (b"base: paper\nnetwork: {gru: 2024-12-01}", r"bad\.yaml.*gru must be of type int, not '2024-12-01'"),
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
    with pytest.raises(SageccError, match=r"'huge'.*paper.*small.*tiny"):
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
    assert load(name if base == "small" else f"{base}+{name}") == varied(load(base), **changes)


@pytest.mark.parametrize(
    ("group", "kept"),
    [
        ("all", [*range(1, 70)]),
        ("no-min-max", [*range(1, 5), *range(5, 59, 3), *range(59, 70)]),
        ("no-rtt-var", [*range(1, 23), *range(41, 70)]),
        ("no-loss-inflight", [*range(1, 41), *range(59, 70)]),
        ("no-acked-rate", [*range(1, 62), *range(63, 70)]),
        ("window-s", [*range(1, 5), *(i for a in range(5, 59, 9) for i in range(a, a + 3)), *range(59, 70)]),
        ("window-m", [*range(1, 5), *(i for a in range(8, 59, 9) for i in range(a, a + 3)), *range(59, 70)]),
        ("window-l", [*range(1, 5), *(i for a in range(11, 59, 9) for i in range(a, a + 3)), *range(59, 70)]),
    ],
)
def test_groups_of_inputs_keep_these_rows_of_table_1(group: str, kept: list[int]) -> None:
    observations = Data(inputs=group).observations
    assert [FEATURE_NAMES.index(name) + 1 for name in observations] == kept


def test_several_groups_of_inputs_keep_what_all_of_them_have() -> None:
    small, blind = (Data(inputs=group).observations for group in ("window-s", "no-acked-rate"))
    assert Data(inputs=("window-s", "no-acked-rate")).observations == tuple(name for name in small if name in blind)
    assert len(small) - 1 == len(Data(inputs=("no-acked-rate", "window-s")).observations)


def test_groups_and_names_are_not_mixed() -> None:
    with pytest.raises(SageccError, match="names 'window-s', which is no feature of the pool"):
        Data(inputs=("window-s", "srtt"))


def test_inputs_by_name_keep_their_order() -> None:
    assert Data(inputs=("dr_max", "srtt")).observations == ("dr_max", "srtt")


def test_a_base_gives_what_a_file_does_not_say_section_by_section(tmp_path: Path) -> None:
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text("base: tiny\nsteps: 7\nnetwork: {gru: 9}\ndata: {selection: {scheme_weights: {vegas: 2}}}\n")
    second.write_text(f"base: {first}\nsteps: 8\ndata: {{selection: {{scheme_weights: {{cubic: 3}}}}}}\n")
    found = load(str(second))
    assert found == varied(load("tiny"), steps=8, gru=9, selection={"scheme_weights": {"cubic": 3}})
    assert load(f"tiny+{second}") == varied(found, gru=32)


def test_another_algorithm_takes_nothing_from_the_bases(tmp_path: Path) -> None:
    path = tmp_path / "other.yaml"
    path.write_text("base: tiny\nalgorithm: {name: dagger, policy_rate: 1}")
    with pytest.raises(SageccError, match="dagger learns from task alone"):
        load(str(path))
    path.write_text("base: tiny\nalgorithm: {name: crr, policy_rate: 1}")
    assert load(str(path)) == varied(load("tiny"), policy_rate=1.0)


def test_a_base_that_leads_back_is_one_clear_line(tmp_path: Path) -> None:
    path = tmp_path / "round.yaml"
    path.write_text(f"base: {path}")
    with pytest.raises(SageccError, match="is its own base"):
        load(str(path))


def test_fields_that_came_later_are_recorded_where_they_are_set() -> None:
    """Else every run of before would be another, and what it came to that of no run."""
    run = load("small")
    for name, section in (("data", run.data), ("control", run.control), ("algorithm", run.algorithm)):
        later = {field.name for field in fields(cast("Any", section)) if field.metadata == LATER}
        assert later and not later & run.record()[name].keys()
    changed = run.changed(data={"states": "flows"}, algorithm={"trace": 0.5})
    assert changed.record()["data"]["states"] == "flows" and changed.record()["algorithm"]["trace"] == 0.5
    assert from_dict(changed.record()) == changed
