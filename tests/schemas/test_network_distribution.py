# SPDX-License-Identifier: Apache-2.0
"""Networks and arrivals that are drawn: their ranges, their laws, their plain form, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sagecc.common.errors import SageccError
from sagecc.schemas.environment import MTU_BYTES, Environment
from sagecc.schemas.network_distribution import NetworkDistribution, Quantity

ASTRAEA: dict[str, Any] = {
    "rate_mbps": {"uniform": [40, 160]},
    "rtt_ms": {"log_uniform": [10, 140]},
    "queue_bdp": {"choice": [0.1, 1, 16]},
    "duration_s": 60,
    "flows": {"choice": [2, 3, 4, 5]},
    "gap_s": {"exponential": 4},
    "lifetime_s": {"exponential": 20},
    "extra_rtt_ms": {"uniform": [0, 30]},
}


def drawn(plain: dict[str, Any], count: int = 300) -> list[Environment]:
    distribution, random = NetworkDistribution.of(plain), np.random.default_rng(0)
    return [distribution.draw(random) for _ in range(count)]


@pytest.mark.parametrize(
    ("plain", "quantiles"),
    [
        ({"uniform": [2, 6]}, (3.2, 4.4, 5.6)),
        ({"log_uniform": [1, 16]}, (16**0.3, 16**0.6, 16**0.9)),
        ({"exponential": 10}, (-10 * np.log(0.7), -10 * np.log(0.4), -10 * np.log(0.1))),
        ({"choice": [1, 2, 3, 4]}, (2, 3, 4)),
        (7, (7, 7, 7)),
    ],
)
def test_a_quantity_follows_its_law(plain: object, quantiles: tuple[float, ...]) -> None:
    quantity, random = Quantity.of(plain), np.random.default_rng(1)
    values = np.array([quantity.draw(random) for _ in range(20_000)])
    assert np.quantile(values, (0.3, 0.6, 0.9)).tolist() == pytest.approx(quantiles, rel=0.06)
    assert Quantity.of(quantity.plain()) == quantity


def test_a_loss_is_drawn_after_all_else() -> None:
    """So that the networks without one are what they were."""
    plain = {"rate_mbps": {"uniform": [1, 6]}, "rtt_ms": {"uniform": [10, 90]}, "queue_bdp": 1}
    (lossy,), (clean,) = drawn({**plain, "loss": {"uniform": [0, 0.05]}}, 1), drawn(plain, 1)
    assert 0 < lossy.links[0].loss < 0.05
    assert clean.links[0].loss == 0
    assert (lossy.bandwidth_mbps, lossy.min_rtt_ms, lossy.queue_bytes) == (
        clean.bandwidth_mbps,
        clean.min_rtt_ms,
        clean.queue_bytes,
    )


def test_networks_are_within_what_was_asked_for() -> None:
    environments = drawn(ASTRAEA)
    assert len({environment.id for environment in environments}) == 300
    for environment in environments:
        assert 40 <= environment.bandwidth_mbps <= 160
        assert 10 <= environment.min_rtt_of(environment.flow) - environment.flow.extra_rtt_ms <= 140.001
        limits = [max(MTU_BYTES, int(bdps * bdp(environment))) for bdps in (0.1, 1, 16)]
        assert environment.queue_bytes in [limit + rounding for limit in limits for rounding in (-1, 0, 1)]
        flows = environment.all_flows
        assert 1 <= len(flows) <= 5
        assert flows[0].start_s == 0
        assert [flow.start_s for flow in flows] == sorted(flow.start_s for flow in flows)
        assert all(environment.stop_of(flow) - flow.start_s >= 0.999 for flow in flows)
        assert all(0 <= flow.extra_rtt_ms <= 30 for flow in flows)
    assert NetworkDistribution.of(ASTRAEA).max_flows == 5


def bdp(environment: Environment) -> float:
    return environment.bandwidth_mbps * (environment.min_rtt_ms - environment.flow.extra_rtt_ms) * 125


def test_arrivals_are_poissons_and_lives_exponential() -> None:
    """Gaps of one mean, and about as many flows as the time has room for."""
    many = drawn(ASTRAEA | {"flows": 32, "duration_s": 100, "gap_s": {"exponential": 10}}, 200)
    gaps = np.concatenate([np.diff([flow.start_s for flow in environment.all_flows]) for environment in many])
    assert gaps.mean() == pytest.approx(10, rel=0.1)
    assert gaps.std() == pytest.approx(10, rel=0.15)
    lives = [
        environment.stop_of(f) - f.start_s for environment in many for f in environment.all_flows if f.start_s < 10
    ]
    assert np.median(lives) == pytest.approx(20 * np.log(2), rel=0.15)


def test_the_same_random_numbers_give_the_same_networks_and_plain_data_come_back() -> None:
    distribution = NetworkDistribution.of(ASTRAEA)
    assert NetworkDistribution.of(distribution.plain()) == distribution
    assert [e.to_json() for e in drawn(ASTRAEA, 5)] == [e.to_json() for e in drawn(distribution.plain(), 5)]
    alone = NetworkDistribution.of({"rate_mbps": 12, "rtt_ms": 20, "queue_bytes": 3000})
    assert alone.plain() == {"rate_mbps": 12.0, "rtt_ms": 20.0, "queue_bytes": 3000.0}
    (flow,) = alone.draw(np.random.default_rng(0)).all_flows
    assert (flow.start_s, flow.stop_s) == (0, None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rate": 12}, "unknown field rate; known are rate_mbps"),
        ({"rate_mbps": None}, "None is no quantity"),
        ({"rate_mbps": {"uniform": [3]}}, "is no quantity to draw"),
        ({"rate_mbps": {"normal": [3, 1]}}, "is no quantity: give a number, or one of choice, uniform"),
        ({"rate_mbps": {"uniform": [3, 1]}}, "give the lower value first"),
        ({"rate_mbps": {"log_uniform": [0, 1]}}, "must be above 0"),
        ({"queue_bytes": 3000}, "either queue_bdp or queue_bytes"),
        ({"flows": {"uniform": [1, 3]}}, "flows must be a whole number from 1"),
        ({"flows": 2.5}, "flows must be a whole number"),
        ({"duration_s": "long"}, "duration_s must be a number, not 'long'"),
        ({"duration_s": 0.5}, "duration_s must be at least 1"),
        ({"count": 0}, "count must be a whole number from 1"),
        ({"count": 2.5}, "count must be a whole number from 1"),
        ({"reward": "r3"}, "reward must be one of power, friendliness"),
    ],
)
def test_what_is_no_distribution_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SageccError, match=f"networks: .*{message}"):
        NetworkDistribution.of(ASTRAEA | change)


def test_a_missing_field_is_named() -> None:
    with pytest.raises(SageccError, match="field rtt_ms is missing"):
        NetworkDistribution.of({"rate_mbps": 12, "queue_bdp": 1})
