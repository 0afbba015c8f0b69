# SPDX-License-Identifier: Apache-2.0
"""What the models' README says of conditions is what was measured."""

from __future__ import annotations

import re
from pathlib import Path

from evidence.machine import RESULTS, read_json
from sagecc.leagues.vetting.conditions import CONDITIONS

README = Path(__file__).parents[2] / "models" / "README.md"


def test_the_readme_names_the_conditions_that_are_not_met() -> None:
    (sentence,) = re.findall(r"`sagecc vet` it does not meet (.*?):", README.read_text(), re.DOTALL)
    rows = read_json(RESULTS / "vetting.json")["result"]["rows"]
    unmet = [row["condition"] for row in rows if row["scheme"] == "models/sagecc-10" and not row["met"]]
    assert re.findall(r"`([\w-]+)`", sentence) == unmet


def test_every_condition_was_measured() -> None:
    measured = read_json(RESULTS / "vetting.json")["result"]["conditions"]
    assert [each["name"] for each in measured] == list(CONDITIONS)
    assert [each["limit"] for each in measured] == [each.limit for each in CONDITIONS.values()]
    assert [each["networks"] for each in measured] == [len(each.networks) for each in CONDITIONS.values()]
