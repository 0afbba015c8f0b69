# SPDX-License-Identifier: Apache-2.0
"""What the parts of a long run add up to."""

from __future__ import annotations

from typing import Any

from evidence.speed.attach_soak import WARM_S, summary


def sample(s: float, rss_mib: float, cpu_s: float) -> dict[str, Any]:
    process = {"rss_mib": rss_mib, "descriptors": 13, "bpf_maps": 4, "bpf_links": 1, "cpu_s": cpu_s}
    return {"s": s, "attach": process, "agent": process}


def part(samples: list[dict[str, Any]], kills: list[dict[str, int]]) -> dict[str, Any]:
    flows = {"begun": 10, "ended": 5, "failed": 0, "stuck": 1, "sent_bytes": 100, "longest_wait_s": 2.0}
    return {"minutes": 5.0, "load": 1.0, "flows": flows, "samples": samples, "kills": kills}


def test_parts_add_up_and_the_beginning_of_each_is_left_out() -> None:
    steady = [sample(10, 5, 0), sample(WARM_S, 50, 10), sample(WARM_S + 100, 52, 60)]
    kills = [{"status": 2, "sent_bytes": 1}, {"status": 2, "sent_bytes": 0}, {"status": 0, "sent_bytes": 1}]
    found = summary([part(steady, []), part([sample(10, 5, 0)], kills)])
    assert (found["parts"], found["minutes"], found["flows"]["begun"], found["flows"]["stuck"]) == (2, 10, 20, 2)
    assert found["processes"]["agent"] == {
        "rss_mib": [50, 52],
        "growth_mib": 2,
        "descriptors": [13],
        "bpf": [5],
        "cores": 0.5,
    }
    assert (found["kills"], found["kills_without_progress"]) == (3, 2)


def test_one_look_after_the_beginning_says_nothing_yet() -> None:
    """Parts that were kept before may end with the last sample twice."""
    found = summary([part([sample(10, 5, 0), sample(WARM_S, 50, 10), sample(WARM_S, 50, 10)], [])])
    assert (found["processes"]["agent"]["rss_mib"], found["processes"]["agent"]["cores"]) == ([], None)
