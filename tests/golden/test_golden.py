# SPDX-License-Identifier: Apache-2.0
"""The bytes of every part's golden runs, pinned; a change of them raises the part's version (common.versions)."""

from __future__ import annotations

from pathlib import Path

import pytest

from sagecc.common import versions
from sagecc.execution.schemes.rivals import RIVALS
from tests.golden.digests import Made
from tests.golden.runs import RUNS, SLOW, Golden, check, pinned, pins, processor

LIST = [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in RUNS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("golden")


def test_every_version_has_a_golden_run_and_each_is_pinned_as_it_is() -> None:
    names = {name for name, value in vars(versions).items() if name.isupper() and isinstance(value, int)}
    assert {golden.part for golden in RUNS.values()} == names | {rival.name for rival in RIVALS if rival.schemes}
    assert {name: golden.version for name, golden in RUNS.items()} == {
        name: of["version"] for name, of in pinned().items()
    }, "a version and what is pinned for it differ; run: make golden"


@pytest.mark.parametrize("name", LIST)
def test_a_part_comes_to_what_is_pinned_for_its_version(kernel: Path, folder: Path, name: str) -> None:
    assert not (wrong := check(name, RUNS[name].make(folder))), wrong


def test_bytes_that_move_ask_for_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = Golden("CRR", lambda folder: Made("weights", (1.0, 2.0)))
    before = pins(trained, Made("weights", (1.0, 2.0)), {})
    monkeypatch.setattr("tests.golden.runs.RUNS", {"crr": trained})
    monkeypatch.setattr("tests.golden.runs.pinned", lambda: {"crr": before})
    assert check("crr", Made("weights", (1.0, 2.0))) == ""
    assert "raise CRR in common/versions.py, then run: make golden" in check("crr", Made("others", (1.0, 2.0)))
    monkeypatch.setattr("tests.golden.runs.processor", lambda: "another")
    assert check("crr", Made("others", (1.00001, 2.0))) == ""
    assert "raise CRR" in check("crr", Made("others", (1.1, 2.0)))


def test_another_processor_s_bytes_stand_beside_the_first_s(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = Golden("CRR", lambda folder: Made("weights"))
    here, before = processor(), pins(trained, Made("weights", (1.0,)), {})
    monkeypatch.setattr("tests.golden.runs.processor", lambda: "another")
    assert pins(trained, Made("others", (1.0,)), before)["sha256"].keys() == {here, "another"}
    monkeypatch.setattr(versions, "CRR", 2)
    assert pins(trained, Made("others", (1.0,)), before)["sha256"].keys() == {"another"}
