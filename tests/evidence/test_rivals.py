# SPDX-License-Identifier: Apache-2.0
"""What rivals are held against: numbers within their own ranges, and the page of what was measured."""

from __future__ import annotations

import json

from evidence.rivals.__main__ import checks
from scripts.templates import ROOT, texts


def test_every_published_number_is_within_its_own_range() -> None:
    every = checks()
    assert {"aurora-1", "bbr3", "c2tcp", "copa", "indigo-1", "ledbat", "sprout", "vivace"} <= {c.scheme for c in every}
    assert all(check.low <= check.published <= check.high for check in every)
    assert len({(check.scheme, check.says, check.source) for check in every}) == len(every)


def test_what_was_measured_is_what_is_checked_now_and_what_disagrees_has_its_reason() -> None:
    saved = json.loads((ROOT / "evidence" / "results" / "rivals.json").read_text())
    rows = saved["result"]["checks"]
    assert {(row["scheme"], row["says"], row["published"], row["low"], row["high"], row["why"]) for row in rows} == {
        (check.scheme, check.says, check.published, check.low, check.high, check.why) for check in checks()
    }
    assert all(row["agrees"] == (row["low"] <= row["ours"] <= row["high"]) for row in rows)
    assert all(row["agrees"] or row["why"] for row in rows)
    assert "| `indigo-1` | 2 of 2 |" in texts(ROOT / "evidence" / "rivals" / "rivals.md.j2", saved)["rivals_checks"]
