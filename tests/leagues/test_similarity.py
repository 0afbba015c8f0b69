# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import sagecc.commands.similarity as similarity_command
import sagecc.sets
from sagecc.common.errors import SageccError
from sagecc.leagues.distance import Query
from sagecc.leagues.similarity import SIMILARITY_SCHEMA, similarities
from sagecc.leagues.trajectories import choose
from sagecc.leagues.transitions import unit
from tests.helpers.league_episodes import set_one, set_two, smoke
from tests.helpers.lively import lively, make_pool

Vectors = list[list[float]]


def trajectory(vectors: Vectors, t_s: npt.ArrayLike) -> Query:
    return Query("I", "e", "s", np.array(t_s), unit(np.array(vectors, np.float32)))


def compare(own: Query, others: Mapping[str, Query]) -> pl.DataFrame:
    trajectories = {("e", "own"): own} | {("e", name): other for name, other in others.items()}
    return similarities(trajectories, "own", list(others), ["e"])


def test_by_hand() -> None:
    own = trajectory([[1, 0], [0, 1], [3, 4]], [0.01, 0.02, 0.03])
    other = trajectory([[0, 1], [2, 0], [4, 3]], [0.01, 0.02, 0.03])
    # At the same tick 0, 0 and 24/25; the nearest of each are 1, 1 and 24/25.
    (row,) = compare(own, {"other": other}).to_dicts()
    assert row["index"] == pytest.approx(24 / 25 / 3, abs=1e-6)
    assert row["nearest"] == pytest.approx((1 + 1 + 24 / 25) / 3, abs=1e-6)
    assert (row["transitions"], row["ticks"]) == (3, 3)


def test_ticks_are_paired_by_time() -> None:
    own = trajectory([[1, 0], [0, 1], [1, 1]], [0.05, 0.06, 0.0700001])
    late = trajectory([[0, 1], [1, 1], [1, 0]], [0.06, 0.07, 0.08])
    never = trajectory([[0, 1]], [9.0])
    rows = {row["other"]: row for row in compare(own, {"late": late, "never": never}).to_dicts()}
    assert rows["late"]["index"] == pytest.approx(1, abs=1e-6)
    assert rows["late"]["ticks"] == 2
    assert rows["never"]["index"] is None
    assert rows["never"]["nearest"] == pytest.approx((0 + 1 + 0.5**0.5) / 3, abs=1e-6)


def test_missing_trajectories_have_no_row() -> None:
    own = trajectory([[1, 0]], [0.01])
    table = similarities({("e", "own"): own, ("f", "other"): own}, "own", ["other"], ["e", "f"])
    assert table.is_empty()
    assert dict(table.schema) == SIMILARITY_SCHEMA


VECTORS = st.lists(
    st.lists(st.floats(-10, 10, width=32), min_size=3, max_size=3).filter(lambda v: sum(x * x for x in v) > 0.01),
    min_size=1,
    max_size=5,
)


@given(VECTORS, VECTORS)
def test_bounds(mine: Vectors, theirs: Vectors) -> None:
    own, other = (trajectory(v, 0.01 * np.arange(1, len(v) + 1)) for v in (mine, theirs))
    row, itself = compare(own, {"other": other, "itself": own}).to_dicts()
    assert -1 - 1e-6 <= row["index"] <= 1 + 1e-6
    assert itself["index"] == pytest.approx(1, abs=1e-5)
    assert itself["nearest"] == pytest.approx(1, abs=1e-5)
    if len(mine) <= len(theirs):  # every tick has its counterpart, which is no nearer than the nearest
        assert row["nearest"] >= row["index"] - 1e-5


def test_environments_are_drawn_by_seed() -> None:
    environments = [set_one(mbps) for mbps in (12, 24, 48, 96)] + [set_two(mbps) for mbps in (12, 24)]
    drawn = choose(environments, [], 3, 0)
    assert len(set(drawn)) == 3
    assert drawn == choose(environments, [], 3, 0)
    assert any(choose(environments, [], 3, seed) != drawn for seed in range(1, 5))
    assert choose(environments, [], 9, 0, "II") == tuple(environments[4:])
    assert choose(environments, [environments[2].id] * 2, 3, 0) == (environments[2],)
    with pytest.raises(SageccError, match="nowhere"):
        choose(environments, ["nowhere"], 3, 0)
    with pytest.raises(SageccError, match="Set III"):
        choose(environments, [], 3, 0, "III")


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environments = (set_one(12), set_one(24), set_two(12))
    games = {(e, s): lively(e, s, 120, 7 * i + j) for i, e in enumerate(environments)
             for j, s in enumerate(("cubic", "vegas", "bic"))}  # fmt: skip
    raw, pool = make_pool(tmp_path, games)
    monkeypatch.setattr(sagecc.sets, "profile_set", lambda name: smoke(*environments))
    options = ["--scheme", "cubic", "--schemes", "vegas,bic,cubic", "--draw", "2", "--raw", str(raw)]
    options += ["--pool", str(pool), "--cache", str(tmp_path / "cache"), "--league", str(tmp_path / "none")]

    def run(name: str) -> dict[str, bytes]:
        result = CliRunner().invoke(
            similarity_command.command, [*options, "--out", str(tmp_path / name)], catch_exceptions=False
        )
        assert result.exit_code == 0
        assert result.output.count("most like") == 2
        return {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}

    files = run("one")
    assert set(files) == {"similarity.parquet", "similarity.json", "similarity.png"}
    known = json.loads(files["similarity.json"])
    assert len(known["environments"]) == 2
    assert {row["other"] for row in known["similarities"]} == {"vegas", "bic"}
    assert run("two") == files
