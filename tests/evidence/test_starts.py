# SPDX-License-Identifier: Apache-2.0
"""Flows that start after, with and before Cubic: the networks, and shares worked out by hand."""

from __future__ import annotations

from collections import Counter

import pytest

from evidence.leagues.starts import NETWORKS, ORDERS, order_of, shares
from sagecc.collector.run.grid import profile_environments
from sagecc.collector.run.set_file import load_set

ENVIRONMENTS = list(load_set(str(NETWORKS)).environments)


def test_each_order_has_eight_networks() -> None:
    assert Counter(map(order_of, ENVIRONMENTS)) == dict.fromkeys(ORDERS, 8)


def test_in_set_two_a_flow_starts_after_cubic() -> None:
    assert {order_of(each) for each in profile_environments("full") if each.set == "II"} == {"after"}


def test_a_share_is_of_what_cubic_gets_in_the_same_place() -> None:
    cubics = dict.fromkeys((each.id for each in ENVIRONMENTS), 10.0)
    goodputs = {each.id: {"after": 15.0, "with": 2.0, "before": 5.0}[order_of(each)] for each in ENVIRONMENTS}
    found = shares(goodputs, cubics, ENVIRONMENTS)
    assert found == {
        order: pytest.approx([share] * 8) for order, share in (("after", 1.5), ("with", 0.2), ("before", 0.5))
    }
