# SPDX-License-Identifier: Apache-2.0
"""What a flow's window counts as while orders for it are under way."""

from __future__ import annotations

import pytest

from sagecc.collector.lab.under_way import OrdersUnderWay


def windows(latency_us: int, ticks: list[tuple[int, int]]) -> list[int]:
    """Return the window of each tick, of the kernel's and the order given then."""
    under_way, seen = OrdersUnderWay(latency_us), list[int]()
    for kernel, order in ticks:
        seen.append(under_way.window(kernel))
        under_way.order(order)
    return seen


@pytest.mark.parametrize(
    ("latency_us", "ticks", "expected"),
    [
        # 20 ms: what is ordered at a tick holds at the second one after it
        (20_000, [(10, 11), (10, 12), (11, 13), (12, 14), (13, 15)], [10, 11, 12, 13, 14]),
        # a timeout sets 1; an order of before then holds again
        (20_000, [(10, 10), (10, 11), (10, 12), (1, 2), (12, 13)], [10, 10, 11, 1, 2]),
        # an order older than any under way is another hand's window
        (10_000, [(10, 20), (20, 30), (30, 40), (20, 21)], [10, 20, 30, 20]),
        # 0 leaves the window to the scheme
        (20_000, [(10, 12), (10, 0), (12, 0), (13, 0)], [10, 12, 12, 13]),
    ],
)
def test_the_latest_order_counts_until_another_hand_sets_the_window(
    latency_us: int, ticks: list[tuple[int, int]], expected: list[int]
) -> None:
    assert windows(latency_us, ticks) == expected
