# SPDX-License-Identifier: Apache-2.0
"""What rivals are held against: numbers within their own ranges, and the page of what was measured."""

from __future__ import annotations

import json

from evidence.rivals.__main__ import checks
from scripts.templates import ROOT, texts


def test_every_published_number_is_within_its_own_range() -> None:
    every = checks()
    assert {"aurora-1", "bbr3", "c2tcp", "copa", "indigo-1", "ledbat", "sprout", "vivace"} <= {
        c.measure.scheme for c in every
    }
    assert all(check.bounds.have(check.measure.published) for check in every)
    assert len({(check.measure.scheme, check.sentence, check.source) for check in every}) == len(every)


def test_what_was_measured_is_what_is_checked_now_and_what_disagrees_has_its_reason() -> None:
    saved = json.loads((ROOT / "evidence" / "results" / "rivals.json").read_text())
    rows = saved["result"]["checks"]
    kept = ("scheme", "says", "published", "low", "high", "why")
    assert {tuple(row[name] for name in kept) for row in rows} == {
        (of.scheme, check.sentence, of.published, check.bounds.low, check.bounds.high, of.why)
        for check in checks()
        for of in [check.measure]
    }
    assert all(row["agrees"] == (row["low"] <= row["ours"] <= row["high"]) for row in rows)
    assert all(row["agrees"] or row["why"] for row in rows)
    assert "| `indigo-1` | 2 of 2 |" in texts(ROOT / "evidence" / "rivals" / "rivals.md.j2", saved)["rivals_checks"]
