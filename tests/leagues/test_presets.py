# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import sagecc.commands.league as league_command
import sagecc.sets
from sagecc.common.errors import SageccError
from sagecc.leagues.presets import PRESETS, preset_schemes
from sagecc.schemas.schemes import OTHERS, SCHEMES, USER_SPACE
from tests.helpers.league_episodes import StubLab, rows, set_one, set_two, smoke, write

pytestmark = pytest.mark.heavy

ENVIRONMENTS = (set_one(12), set_two(12))

Play = Callable[..., set[str]]


@pytest.fixture
def league(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Run the command in a folder with two policies and every heuristic's trajectories; return who played."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sagecc.sets, "profile_set", lambda name: smoke(*ENVIRONMENTS))
    monkeypatch.setattr(league_command, "lab_runner", lambda *_: StubLab())
    for name in ("sage", "bc"):
        (tmp_path / "models" / name).mkdir(parents=True)
        (tmp_path / "models" / name / "card.json").write_text(name)
    write(
        tmp_path / "raw",
        {
            (e, s): rows(e, s, [7, 7], [12, 12])
            for e in ENVIRONMENTS
            for s in (*SCHEMES, "nv", "copa", "c2tcp", "ledbat")
        },
    )

    def run(*options: str) -> set[str]:
        result = CliRunner().invoke(league_command.command, [*options, "--raw", "raw", "--out", "out", "--no-report"])
        if result.exception:
            raise result.exception
        return {row["scheme"] for row in json.loads((tmp_path / "out/league.json").read_text())["ranking"]}

    return run


def test_presets_name_schemes() -> None:
    assert all(set(preset.schemes) <= {*SCHEMES, *OTHERS, *USER_SPACE} for preset in PRESETS.values())
    assert PRESETS["heuristics"].schemes == tuple(SCHEMES)


def test_who_plays(league: Play) -> None:
    delay = {"bbr2", "vegas", "copa", "c2tcp", "ledbat", "sprout", "cdg"}
    assert league("--preset", "heuristics") == set(SCHEMES)
    assert league("--preset", "delay-based", "--policy", "models/sage") == delay | {"policy:models/sage"}
    assert league("--preset", "delay-based", "--schemes", "nv") == delay | {"nv"}
    two = ("--policy", "models/sage", "--policy", "models/bc")
    assert league("--preset", "ml-based", *two) == {"vivace", "policy:models/sage", "policy:models/bc"}
    assert league() == set(SCHEMES)


def test_a_league_of_policies_needs_one(league: Play) -> None:
    assert preset_schemes("ml-based", ["policy:a"]) == ("vivace",)
    with pytest.raises(SageccError, match="1 or more with --policy"):
        league("--preset", "ml-based")
