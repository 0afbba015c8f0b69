# SPDX-License-Identifier: Apache-2.0
"""The 69 features: against a slow second implementation, by hand, and by their properties."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sagecc.common.errors import SageccError
from sagecc.pool.features import MAX_WINDOW_TICKS, FeatureTracker, Windows, derive
from sagecc.schemas import wire
from sagecc.schemas.pool import FEATURE_NAMES
from tests.helpers.raw_episodes import Columns, samples, trajectory

AT = {name: index for index, name in enumerate(FEATURE_NAMES)}
NO_RTT = 0xFFFFFFFF


def derive_one(columns: Columns, windows: Windows | None = None) -> dict[str, npt.NDArray[np.float32]]:
    rows = len(columns["t_s"])
    features, _ = derive(columns, np.arange(rows) == 0, windows)
    return dict(zip(FEATURE_NAMES, features, strict=True))


def unwrapped(counter: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    values = counter.astype(np.int64)
    steps = (values[1:] - values[:-1]) & 0xFFFFFFFF
    return np.concatenate([[0.0], np.cumsum(steps)])


def over(a: npt.NDArray[Any], b: npt.NDArray[Any], otherwise: float = 0.0) -> npt.NDArray[np.float64]:
    return np.array([x / y if y > 0 else otherwise for x, y in zip(a, b, strict=True)])


def reference(c: Columns, windows: Windows) -> dict[str, npt.NDArray[np.float64]]:
    """Table 1 written down again, slowly: every window looked at whole, every row."""
    n = len(c["t_s"])
    f = {name: values.astype(np.float64) for name, values in c.items()}
    min_rtt = np.where(c["min_rtt_us"] == NO_RTT, 0, f["min_rtt_us"])
    rtt_rate = over(min_rtt, f["srtt_us"])
    thr = f["delivery_rate_bytes_s"] * 8 / 100e6
    out = {
        "srtt": f["srtt_us"] / 100_000,
        "rttvar": f["rttvar_us"] / 1000,
        "thr": thr,
        "ca_state": f["ca_state"],
        "rtt_rate": rtt_rate,
    }
    series = {
        "rtt": f["srtt_us"] / 100_000,
        "thr": thr,
        "rtt_rate": rtt_rate,
        "rtt_var": f["rttvar_us"] / 1000,
        "inflight": f["unacked_pkts"] / 1000,
        "lost": f["lost_pkts"] / 100,
    }
    for name, values in series.items():
        for window, ticks in zip("sml", windows.ticks, strict=True):
            looks = [values[max(0, t + 1 - ticks) : t + 1] for t in range(n)]
            out[f"{name}_{window}.avg"] = np.array([look.mean() for look in looks])
            out[f"{name}_{window}.min"] = np.array([look.min() for look in looks])
            out[f"{name}_{window}.max"] = np.array([look.max() for look in looks])

    def second(counter: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.array([counter[t] - counter[max(0, t - 100)] for t in range(n)])

    gone = second(f["t_s"])
    rate = {
        "dr": over(second(unwrapped(c["delivered_pkts"]) * f["mss_bytes"]), gone),
        "lost": over(second(unwrapped(c["lost_total_pkts"]) * f["mss_bytes"]), gone),
        "acked": over(second(f["bytes_acked"]), gone),
        "sent": over(second(f["bytes_sent"]), gone),
    }
    dr_max = np.array([rate["dr"][max(0, t - 199) : t + 1].max() for t in range(n)])
    before = {name: np.concatenate([[0.0], v[:-1]]) for name, v in (("dr", rate["dr"]), ("dr_max", dr_max))}
    out |= {
        "time_delta": over(np.diff(f["t_s"], prepend=f["t_s"][0]) * 1e6, min_rtt),
        "loss_db": rate["lost"] * 8 / 100e6,
        "acked_rate": over(rate["acked"], np.maximum.accumulate(rate["sent"])),
        "dr_ratio": over(rate["dr"], before["dr"], 1.0),
        "bdp_cwnd": over(dr_max * min_rtt * 1e-6, f["cwnd_pkts"] * f["mss_bytes"]),
        "dr": rate["dr"] * 8 / 100e6,
        "cwnd_unacked_rate": over(f["unacked_pkts"], second(unwrapped(c["data_segs_out"]))),
        "dr_max": dr_max * 8 / 100e6,
        "dr_max_ratio": over(dr_max, before["dr_max"], 1.0),
        "pre_act": np.concatenate([[1.0], over(f["cwnd_pkts"][1:], f["cwnd_pkts"][:-1], 1.0)]),
    }
    return out


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("windows", [Windows(), Windows(10, 10, 10), Windows(1, 7, 128)], ids=str)
def test_agrees_with_the_slow_reference(windows: Windows, wrap: bool) -> None:
    columns = trajectory(2300, step=0.25, seed=3, wrap=wrap)
    found, expected = derive_one(columns, windows), reference(columns, windows)
    assert set(expected) == set(FEATURE_NAMES)
    assert len(np.unique(columns["cwnd_pkts"])) > 20 and columns["lost_pkts"].max() > 0  # something happens
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-6, atol=1e-9, err_msg=name)


def by_hand() -> Columns:
    """Three ticks on a 40 ms path: 10 packets acknowledged in the second tick, 20 in the third, 2 lost there."""
    return {
        "t_s": np.array([0.01, 0.02, 0.03]),
        "ca_state": np.array([0, 0, 3]),
        "cwnd_pkts": np.array([10, 20, 15]),
        "srtt_us": np.array([40_000, 50_000, 80_000]),
        "rttvar_us": np.array([20_000, 15_000, 10_000]),
        "min_rtt_us": np.array([40_000, 40_000, 40_000]),
        "mss_bytes": np.array([1000, 1000, 1000]),
        "unacked_pkts": np.array([10, 20, 15]),
        "lost_pkts": np.array([0, 0, 2]),
        "lost_total_pkts": np.array([0, 0, 2]),
        "delivered_pkts": np.array([1, 11, 31]),
        "data_segs_out": np.array([10, 30, 50]),
        "bytes_acked": np.array([1, 10_001, 30_001]),
        "bytes_sent": np.array([10_000, 30_000, 50_000]),
        "delivery_rate_bytes_s": np.array([0, 1_250_000, 2_500_000]),
        "link_capacity_bytes": np.array([0, 12_500, 25_000]),
    }


GOLDEN = {  # row 0, 1, 2
    "srtt": (0.4, 0.5, 0.8),
    "rttvar": (20, 15, 10),
    "thr": (0, 0.1, 0.2),
    "ca_state": (0, 0, 3),
    "rtt_s.avg": (0.4, 0.45, 17 / 30),
    "rtt_l.min": (0.4, 0.4, 0.4),
    "rtt_m.max": (0.4, 0.5, 0.8),
    "thr_s.avg": (0, 0.05, 0.1),
    "rtt_rate_m.avg": (1, 0.9, (1 + 0.8 + 0.5) / 3),
    "rtt_rate_s.min": (1, 0.8, 0.5),
    "rtt_var_l.min": (20, 15, 10),
    "inflight_s.max": (0.010, 0.020, 0.020),
    "lost_m.avg": (0, 0, 0.02 / 3),
    "time_delta": (0, 0.25, 0.25),
    "rtt_rate": (1, 0.8, 0.5),
    "loss_db": (0, 0, 2 * 1000 * 8 / 0.02 / 1e8),
    "acked_rate": (0, 0.5, 0.75),  # 1 MB/s of 2 MB/s, then 1.5 MB/s of 2 MB/s
    "dr_ratio": (1, 1, 1.5),
    "dr": (0, 0.08, 0.12),
    "dr_max": (0, 0.08, 0.12),
    "dr_max_ratio": (1, 1, 1.5),
    "bdp_cwnd": (0, 1e6 * 0.04 / 20_000, 1.5e6 * 0.04 / 15_000),
    "cwnd_unacked_rate": (0, 1, 15 / 40),
    "pre_act": (1, 2, 0.75),
}


def test_values_by_hand() -> None:
    found = derive_one(by_hand())
    for name, values in GOLDEN.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-6, err_msg=name)


def test_dr_max_forgets_after_two_seconds() -> None:
    columns = trajectory(1000)
    delivered = np.zeros(1000, np.uint32)
    delivered[300:] = 1000  # one burst: dr is high for 1 s, dr_max for 2 s more
    columns["delivered_pkts"] = delivered
    dr_max = derive_one(columns)["dr_max"]
    assert dr_max[299] == 0
    assert dr_max[300] == dr_max[598] == pytest.approx(1000 * 1448 * 8 / 1e8)
    assert dr_max[599] == 0  # dr's last row above 0 is 399, and 200 ticks are over


def test_before_the_first_rtt_sample_delay_features_are_zero() -> None:
    columns = by_hand()
    columns["srtt_us"] = np.array([0, 0, 50_000])
    columns["min_rtt_us"] = np.array([NO_RTT, NO_RTT, 50_000])
    found = derive_one(columns)
    for name in ("srtt", "rtt_rate", "time_delta", "bdp_cwnd", "rtt_rate_s.avg"):
        assert (found[name][:2] == 0).all(), name
    assert found["rtt_rate"][2] == 1
    assert all(np.isfinite(values).all() for values in found.values())


def test_every_episode_starts_afresh() -> None:
    one, two = trajectory(700, seed=1), trajectory(1300, rtt_ms=20, seed=2)
    joined = {name: np.concatenate([one[name], two[name]]) for name in one}
    first = np.isin(np.arange(2000), (0, 700))
    both, _ = derive(joined, first)
    for columns, part in ((one, both[:, :700]), (two, both[:, 700:])):
        np.testing.assert_array_equal(part, derive(columns, np.arange(part.shape[1]) == 0)[0])


def test_a_live_flow_sees_what_the_pool_holds() -> None:
    columns = trajectory(1500, start_s=5.0, seed=4, wrap=True)
    tracker = FeatureTracker()
    live = np.array([tracker.update(sample) for sample in samples(columns)])
    np.testing.assert_array_equal(live.T, derive(columns, np.arange(1500) == 0)[0])


def test_many_live_flows_are_as_many_single_ones() -> None:
    flows = [samples(trajectory(300, rtt_ms=rtt, seed=rtt)) for rtt in (10, 40, 80)]
    together, alone = FeatureTracker(flows=3), [FeatureTracker() for _ in flows]
    for tick in range(300):
        rows = np.array([flow[tick] for flow in flows])
        if tick == 150:  # the middle one ends and another takes its slot
            together.reset(1)
            alone[1] = FeatureTracker()
        if tick % 2:
            chosen = np.array([2, 1, 0])
            found = together.update_flows(rows[chosen], chosen)[chosen]
        else:
            found = together.update_flows(rows)
        np.testing.assert_array_equal(found, [one.update(row) for one, row in zip(alone, rows, strict=True)])


def test_measured_values_serve_a_live_reward() -> None:
    columns = trajectory(400)
    _, measured = derive(columns, np.arange(400) == 0)
    tracker = FeatureTracker()
    for row, sample in enumerate(samples(columns)):
        tracker.update(sample)
        np.testing.assert_array_equal(tracker.measured[0], measured[:, row])
    assert measured[2, -1] == pytest.approx(24e6 / 8, rel=1e-3)


RAW_VALUES = st.one_of(
    st.integers(0, 2**32 - 1), st.integers(0, 300), st.sampled_from([0, 1, NO_RTT, NO_RTT - 1, 40_000])
)


def anything(rows: int) -> st.SearchStrategy[npt.NDArray[np.void]]:
    return hnp.arrays(np.int64, (rows, 15), elements=RAW_VALUES).map(_as_samples)


def _as_samples(values: npt.NDArray[np.int64]) -> npt.NDArray[np.void]:
    records = np.zeros(len(values), wire.SAMPLE)
    records["t_ns"] = np.cumsum(1 + values[:, 0])
    names = [name for name in wire.SAMPLE.names or () if name not in ("t_ns", "flow", "pad", "pad2")]
    for index, name in enumerate(names):
        records[name] = values[:, index % 15].astype(wire.SAMPLE[name])
    return records


@settings(max_examples=60)
@given(st.integers(1, 40).flatmap(anything))
def test_any_counters_give_finite_and_ordered_features(rows: npt.NDArray[np.void]) -> None:
    tracker = FeatureTracker(Windows(3, 5, 8))
    live = np.array([tracker.update(row) for row in rows])
    assert np.isfinite(live).all()
    at = {name: live[:, AT[name]] for name in FEATURE_NAMES}
    for name in FEATURE_NAMES:
        if name.endswith(".avg"):
            group = name.removesuffix(".avg")
            assert (at[f"{group}.min"] <= at[name]).all() and (at[name] <= at[f"{group}.max"]).all()
    columns = {name: rows[name] for name in wire.SAMPLE.names or ()}
    np.testing.assert_array_equal(live.T, derive(columns, np.arange(len(rows)) == 0, Windows(3, 5, 8))[0])


@settings(max_examples=40)
@given(st.integers(1, 2**32 - 2), st.integers(0, 2**40), st.integers(0, 20_000), st.integers(1, 60))
def test_constant_input_gives_constant_windows(rtt: int, rate: int, packets: int, rows: int) -> None:
    records = np.zeros(rows, wire.SAMPLE)
    records["t_ns"] = np.arange(rows) * 10_000_000
    for name, value in (("srtt_us", rtt), ("min_rtt_us", rtt // 3), ("delivery_rate_bytes_s", rate)):
        records[name] = value
    for name in ("unacked_pkts", "lost_pkts", "rttvar_us", "cwnd_pkts"):
        records[name] = packets
    tracker = FeatureTracker(Windows(3, 5, 8))
    live = np.array([tracker.update(record) for record in records])
    assert (live[:, 4:58] == live[0, 4:58]).all()
    assert (live[:, AT["pre_act"]] == 1).all() and (live[:, AT["dr"]] == 0).all()


def test_averages_do_not_drift() -> None:
    rows = 60_000
    columns = {name: np.resize(values, rows) for name, values in trajectory(50).items()}
    columns["t_s"] = np.arange(rows) * 0.01
    columns["delivery_rate_bytes_s"] = columns["delivery_rate_bytes_s"].copy()
    columns["delivery_rate_bytes_s"][:50_000] = 2**40 - 1  # huge, then gone
    found = derive_one(columns)
    last = columns["delivery_rate_bytes_s"][-1000:].astype(np.float64)
    assert found["thr_l.avg"][-1] == np.float32(last.mean() * 8 / 1e8)
    ratio = columns["min_rtt_us"][-1000:] / columns["srtt_us"][-1000:]
    assert found["rtt_rate_l.avg"][-1] == pytest.approx(ratio.mean(), rel=1e-7)


def test_windows_are_read_and_checked() -> None:
    assert Windows.parse("10,200,1000") == Windows()
    assert Windows.parse("200") == Windows(200, 200, 200)
    assert str(Windows(1, 2, 3)) == "1,2,3"
    for text in ("", "10,20", "a,b,c", "0,1,2", f"1,2,{MAX_WINDOW_TICKS + 1}"):
        with pytest.raises(SageccError, match="windows"):
            Windows.parse(text)


def test_a_missing_column_is_an_error() -> None:
    columns = by_hand()
    del columns["srtt_us"]
    with pytest.raises(KeyError, match="srtt_us"):
        derive(columns, np.arange(3) == 0)


def test_needs_no_place_to_keep_compiled_code() -> None:
    code = "from sagecc.pool.features import Windows; print(Windows())"
    nowhere = os.environ | {"NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator", "NUMBA_CACHE_DIR": ""}
    done = subprocess.run([sys.executable, "-c", code], env=nowhere, capture_output=True, text=True)
    assert done.stdout == "10,200,1000\n", done.stderr
