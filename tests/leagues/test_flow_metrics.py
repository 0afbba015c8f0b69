# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from random import Random

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagecc.common.errors import SageccError
from sagecc.leagues.flow_metrics import (
    SERIES_SCHEMA,
    between,
    convergence,
    flow_means,
    flow_series,
    jain_over_time,
    ratio_over_time,
    rebin,
    share_over_time,
    to_arrow,
    utilisation_over_time,
)
from tests.helpers.flows import made_up_flows

RATES = st.lists(st.floats(0, 1000), min_size=1, max_size=8)


def made_up_series(goodputs_mbps: list[list[float]], sent: int = 100) -> pl.DataFrame:
    """Return a series of flows with these goodputs in each second from 0."""
    return pl.concat(
        pl.DataFrame(
            {
                "flow": pl.Series([flow] * len(goodputs), dtype=pl.Int32),
                "scheme": ["cubic"] * len(goodputs),
                "t_s": [float(second) for second in range(len(goodputs))],
                "goodput_mbps": [float(goodput) for goodput in goodputs],
                "srtt_ms": [20.0 + flow] * len(goodputs),
                "cwnd_pkts": [10.0] * len(goodputs),
                "pacing_mbps": [None] * len(goodputs),
                "sent_pkts": [sent] * len(goodputs),
                "lost_pkts": [sent // 10] * len(goodputs),
                "retransmitted_pkts": [sent // 5] * len(goodputs),
                "queue_bytes": [3000.0] * len(goodputs),
                "capacity_mbps": [100.0] * len(goodputs),
            },
            schema_overrides={"pacing_mbps": pl.Float64},
        )
        for flow, goodputs in enumerate(goodputs_mbps)
    )


def test_a_series_has_each_flow_s_growth_per_second() -> None:
    table = made_up_flows({0: [12.0, 24.0], 1: [6.0]}, starts_s={1: 1.0}, schemes=("cubic", "vegas"))
    series = flow_series(table)
    assert series.select("flow", "scheme", "t_s").rows() == [(0, "cubic", 0.0), (0, "cubic", 1.0), (1, "vegas", 1.0)]
    assert series["goodput_mbps"].to_list() == pytest.approx([12.0, 24.0, 6.0])
    assert series["sent_pkts"].to_list() == [1000, 2000, 500]  # 12 Mbps are 1000 packets of 1500 bytes a second
    assert series["lost_pkts"].to_list() == series["retransmitted_pkts"].to_list() == [10, 20, 5]
    assert series["cwnd_pkts"].to_list() == [10.0, 10.0, 20.0]
    assert series["queue_bytes"].to_list() == [3000.0] * 3
    assert series["srtt_ms"].to_list() == [20.0] * 3  # the first row has no sample, and counts for nothing
    assert series["pacing_mbps"].to_list() == pytest.approx([10.0] * 3)  # nor do rows without a limit
    assert series["capacity_mbps"].to_list() == pytest.approx([100.0] * 3)  # of a late flow too


def test_a_flow_that_lives_for_part_of_an_interval_has_less_goodput_in_it() -> None:
    series = flow_series(made_up_flows({0: [12.0, 12.0]}, starts_s={0: 0.5}))
    assert series["t_s"].to_list() == [0.0, 1.0, 2.0]
    assert series["goodput_mbps"].to_list() == pytest.approx([6.0, 12.0, 6.0], rel=1e-6)


def test_the_order_of_rows_is_nothing_to_a_series() -> None:
    table = made_up_flows({0: [12.0, 24.0], 1: [6.0, 3.0]})
    turned = table.take(pa.array(range(table.num_rows - 1, -1, -1)))
    assert flow_series(turned).equals(flow_series(table))


def test_finer_intervals_joined_are_the_coarser_ones() -> None:
    table = made_up_flows({0: [12.0, 24.0, 48.0], 1: [6.0]}, starts_s={1: 1.5})
    fine, coarse = flow_series(table, 0.1), flow_series(table, 1.0)
    joined = rebin(fine, 0.1, 1.0)
    assert joined.columns == coarse.columns == SERIES_SCHEMA.names
    assert joined.select("flow", "t_s", "sent_pkts").equals(coarse.select("flow", "t_s", "sent_pkts"))
    assert joined["goodput_mbps"].to_list() == pytest.approx(coarse["goodput_mbps"].to_list())


def test_intervals_are_joined_only_to_multiples() -> None:
    with pytest.raises(SageccError, match="cannot be joined"):
        rebin(made_up_series([[1.0]]), 0.1, 0.25)
    with pytest.raises(SageccError, match="longer than 0 s"):
        flow_series(made_up_flows({0: [1.0]}), 0)


def test_a_window_has_the_intervals_that_lie_wholly_in_it() -> None:
    series = made_up_series([[1.0, 2.0, 3.0, 4.0]])
    assert between(series, 1.0, 3.0)["goodput_mbps"].to_list() == [2.0, 3.0]
    assert between(series, 0.5, 3.5)["goodput_mbps"].to_list() == [2.0, 3.0]


def test_means_over_a_window() -> None:
    means = flow_means(made_up_series([[10.0, 20.0], [30.0, 50.0]]))
    assert means["goodput_mbps"].to_list() == [15.0, 40.0]
    assert means["srtt_ms"].to_list() == [20.0, 21.0]
    assert means["loss_rate"].to_list() == [0.1, 0.1]
    assert means["retransmission_rate"].to_list() == [0.2, 0.2]
    assert flow_means(made_up_series([[0.0]], sent=0))["loss_rate"].to_list() == [None]


def test_jain_by_hand() -> None:
    # (30 + 10)^2 / (2 (900 + 100)) = 0.8; one that takes all has 1/2; nothing has no index
    index = jain_over_time(made_up_series([[30.0, 50.0, 7.0, 0.0], [10.0, 50.0, 0.0, 0.0]]))
    assert index["jain"].to_list() == [0.8, 1.0, 0.5, None]


def test_ratios_by_hand() -> None:
    series = made_up_series([[30.0, 0.0, 0.2], [60.0, 50.0, 0.1], [90.0, 100.0, 0.0]])
    two = series.filter(pl.col("flow") < 2)
    assert ratio_over_time(two)["ratio"].to_list() == [0.5, 0.0, 0.5]
    assert share_over_time(series)["ratio"].to_list() == pytest.approx([30 / 75, 0.0, 4.0])
    assert share_over_time(series, against="max")["ratio"].to_list() == pytest.approx([1 / 3, 0.0, 2.0])
    assert share_over_time(series, floor_mbps=1.0)["ratio"].to_list() == pytest.approx([0.4, 1 / 75, 1.0])


def test_a_share_needs_both_sides() -> None:
    assert share_over_time(made_up_series([[10.0, 10.0], [5.0]]))["t_s"].to_list() == [0.0]
    assert share_over_time(made_up_series([[10.0], [0.0]]))["ratio"].to_list() == [None]


def test_utilisation_is_goodput_over_capacity() -> None:
    assert utilisation_over_time(made_up_series([[30.0], [60.0]]))["utilisation"].to_list() == [0.9]


def test_there_is_no_utilisation_of_an_outage() -> None:
    """What was on the way arrives in it: any goodput over no capacity."""
    series = made_up_series([[30.0, 1.0, 0.0]]).with_columns(capacity_mbps=pl.Series([60.0, 0.0, 0.0]))
    assert utilisation_over_time(series)["utilisation"].to_list() == [0.5, None, None]


def test_convergence_by_hand() -> None:
    # Half a second each; the share of 25 Mbps is reached at 1 s for half a second only, and at 2 s for good.
    found = convergence([0.0, 10.0, 25.0, 40.0, 24.0, 26.0, 22.5, 27.5], 25.0, 0.5)
    assert found.time_s == 2.0
    assert found.deviation_mbps == pytest.approx(((1 + 1 + 6.25 + 6.25) / 3) ** 0.5)
    assert convergence([0.0, 25.0, 0.0, 25.0], 25.0, 0.5).time_s is None
    assert convergence([25.0], 25.0, 0.5).time_s is None  # half a second does not tell
    assert convergence([25.0], 25.0, 1.0).time_s == 0.0


def test_a_series_is_kept_with_its_units() -> None:
    table = to_arrow(made_up_series([[1.0]]))
    assert table.schema.equals(SERIES_SCHEMA)
    assert table.schema.field("goodput_mbps").metadata[b"unit"] == b"Mbps"


@given(RATES)
def test_jain_lies_between_one_of_n_and_one(rates: list[float]) -> None:
    index = jain_over_time(made_up_series([[rate] for rate in rates]))["jain"][0]
    if index is not None:
        assert 1 / len(rates) - 1e-9 <= index <= 1 + 1e-9


@given(RATES, st.randoms())
def test_which_flow_is_which_changes_no_index(rates: list[float], draws: Random) -> None:
    turned = list(rates)
    draws.shuffle(turned)
    before, after = (made_up_series([[rate] for rate in each]) for each in (rates, turned))
    for metric in (jain_over_time, ratio_over_time, utilisation_over_time):
        one, other = metric(before).to_series(1), metric(after).to_series(1)
        assert one.to_list() == pytest.approx(other.to_list())


@given(st.lists(st.floats(0, 1000), min_size=2, max_size=8), st.floats(0.001, 1000))
def test_a_ratio_needs_no_unit(rates: list[float], factor: float) -> None:
    ratio = ratio_over_time(made_up_series([[rate] for rate in rates]))["ratio"][0]
    scaled = ratio_over_time(made_up_series([[rate * factor] for rate in rates]))["ratio"][0]
    if ratio is not None and min(rates) > 1e-6:
        assert 0 <= ratio <= 1
        assert scaled == pytest.approx(ratio)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=40), st.floats(1, 100))
def test_who_has_converged_was_within_the_tolerance(rates: list[float], fair: float) -> None:
    found = convergence(rates, fair, 0.5)
    if found.time_s is not None:
        first = round(found.time_s / 0.5)
        assert all(abs(rate - fair) <= 0.1 * fair * (1 + 1e-6) for rate in rates[first : first + 2])
