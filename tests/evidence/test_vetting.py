# SPDX-License-Identifier: Apache-2.0
"""What is said of conditions was measured."""

from __future__ import annotations

from evidence.machine import RESULTS, read_json
from sagecc.leagues.vetting.conditions import CONDITIONS


def test_every_condition_was_measured() -> None:
    measured = read_json(RESULTS / "vetting.json")["result"]["conditions"]
    assert [each["name"] for each in measured] == list(CONDITIONS)
    assert [each["limit"] for each in measured] == [each.limit for each in CONDITIONS.values()]
    assert [each["networks"] for each in measured] == [len(each.networks) for each in CONDITIONS.values()]
