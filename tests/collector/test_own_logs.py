# SPDX-License-Identifier: Apache-2.0
"""Own logs as raw trajectories: the same pool as from the counters themselves, and what is no flow's log."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

import sagecc.cli as entry
from sagecc.collector.run.own_logs import LogColumns, import_logs
from sagecc.common.errors import SageccError
from sagecc.pool.checks import check_pool
from sagecc.pool.derivation import build_pool
from sagecc.pool.features import derive
from sagecc.schemas.environment import Environment, Link, RateStep, Trace, dumbbell
from sagecc.schemas.partitions import partition
from sagecc.schemas.pool import FEATURE_NAMES
from tests.helpers.raw_episodes import Columns, trajectory, write_partition

MAPPING = (
    "t_ms=time,srtt_ms=rtt,rttvar_us=var,min_rtt_us=low,delivery_rate_mbps=rate,mss_bytes=1448,cwnd_pkts=cwnd,"
    "ca_state=state,unacked_pkts=out,lost_pkts=held,lost_total_pkts=lost,delivered_pkts=got,data_segs_out=segments,"
    "bytes_acked=acked,bytes_sent=sent"
)
RENAMED = {
    "rttvar_us": "var",
    "min_rtt_us": "low",
    "cwnd_pkts": "cwnd",
    "ca_state": "state",
    "unacked_pkts": "out",
    "lost_pkts": "held",
    "lost_total_pkts": "lost",
    "delivered_pkts": "got",
    "data_segs_out": "segments",
    "bytes_acked": "acked",
    "bytes_sent": "sent",
}


def network(duration_s: float = 20.0) -> Environment:
    link = Link((RateStep(0, 24), RateStep(10, 12)), delay_ms=20, queue_bytes=120_000)
    return dumbbell("custom", link, return_delay_ms=20, duration_s=duration_s, windows_s=((0, duration_s),))


def log(columns: Columns) -> pl.DataFrame:
    """Return a flow's counters as somebody logs them, with the epoch's time."""
    own: Columns = {theirs: columns[ours].astype(np.int64) for ours, theirs in RENAMED.items()}
    own |= {"time": 1.7e12 + 1e3 * columns["t_s"], "rtt": columns["srtt_us"] / 1e3}
    own |= {"rate": columns["delivery_rate_bytes_s"] / 125_000, "note": np.array(["x"] * len(columns["t_s"]))}
    return pl.DataFrame(own)


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_log_gives_the_features_of_the_counters_themselves(tmp_path: Path, form: str) -> None:
    columns, path = trajectory(600), tmp_path / f"flow.{form}"
    getattr(log(columns), f"write_{form}")(path)
    rows = import_logs([path], LogColumns.parse(MAPPING), "quic", network(), tmp_path / "raw")
    assert list(rows.values()) == [600]
    build_pool(tmp_path / "raw", tmp_path / "pool", progress=False)
    assert check_pool(tmp_path / "pool", progress=False).faults == ()
    (part,) = (tmp_path / "pool" / partition("custom", "quic")).glob("part-*.parquet")
    table = pq.read_table(part, partitioning=None)
    wanted, _ = derive({**columns, "t_s": columns["t_s"]}, np.arange(600) == 0)
    for index, name in enumerate(FEATURE_NAMES):
        np.testing.assert_allclose(table[name], wanted[index, :-1], rtol=1e-5, atol=1e-6, err_msg=name)
    np.testing.assert_allclose(table["action"], columns["cwnd_pkts"][1:] / columns["cwnd_pkts"][:-1], rtol=1e-6)
    assert np.std(table["reward"]) > 0


def test_what_only_a_lab_counts_is_estimated_at_the_sender(tmp_path: Path) -> None:
    columns = trajectory(600)
    log(columns).write_parquet(tmp_path / "flow.parquet")
    import_logs([tmp_path / "flow.parquet"], LogColumns.parse(MAPPING), "quic", network(), tmp_path / "raw")
    folder = tmp_path / "raw" / partition("custom", "quic")
    rows = pq.read_table(next(folder.glob("part-*.parquet")), partitioning=None)
    np.testing.assert_array_equal(rows["received_bytes"], columns["bytes_acked"] - columns["bytes_acked"][0])
    np.testing.assert_array_equal(rows["link_drops"], columns["lost_total_pkts"])
    assert rows["link_capacity_bytes"][-1].as_py() == pytest.approx(24 * 125_000 * 6, rel=1e-9)
    (episode,) = pq.read_table(folder / "episodes.parquet").to_pylist()
    assert episode["delay_mean_ms"] == pytest.approx(columns["srtt_us"].mean() / 1e3 - 20, rel=0.05)
    assert episode["sent_packets"] == columns["data_segs_out"][-1] - columns["data_segs_out"][0]


def test_the_capacity_follows_the_networks_rate(tmp_path: Path) -> None:
    log(trajectory(1500)).write_parquet(tmp_path / "flow.parquet")
    import_logs([tmp_path / "flow.parquet"], LogColumns.parse(MAPPING), "quic", network(), tmp_path / "raw")
    rows = pq.read_table(tmp_path / "raw" / partition("custom", "quic") / "part-000.parquet", partitioning=None)
    assert rows["link_capacity_bytes"][-1].as_py() == pytest.approx((24 * 10 + 12 * 5) * 125_000, rel=1e-9)


def test_the_capacity_of_a_trace_is_its_own_and_not_its_mean(tmp_path: Path) -> None:
    """Within the 6 s of the log two packets may leave, of the three that leave in 14 s."""
    link = Link(trace=Trace("late", (1_000, 2_000, 14_000)), delay_ms=20, queue_bytes=120_000)
    traced = dumbbell("custom", link, return_delay_ms=20, duration_s=20, windows_s=((0, 20),))
    log(trajectory(600)).write_parquet(tmp_path / "flow.parquet")
    import_logs([tmp_path / "flow.parquet"], LogColumns.parse(MAPPING), "quic", traced, tmp_path / "raw")
    (part,) = (tmp_path / "raw" / partition("custom", "quic")).glob("part-*.parquet")
    assert pq.read_table(part, partitioning=None)["link_capacity_bytes"][-1].as_py() == 2 * 1500


def test_logs_are_added_and_one_that_is_there_stays(tmp_path: Path) -> None:
    paths = []
    for seed in range(3):
        paths.append(tmp_path / f"{seed}.parquet")
        log(trajectory(100, seed=seed)).write_parquet(paths[-1])
    mapping = LogColumns.parse(MAPPING)
    assert list(import_logs(paths[:1], mapping, "quic", network(), tmp_path / "raw")) == [f"{network().id}.quic.0"]
    added = import_logs(paths, mapping, "quic", network(), tmp_path / "raw")
    assert list(added) == [f"{network().id}.quic.{seed}" for seed in range(3)]
    listing = pq.read_table(tmp_path / "raw" / partition("custom", "quic") / "episodes.parquet")
    assert listing["rows"].to_pylist() == [100] * 3


def test_rows_more_often_than_ticks_are_thinned_and_rarer_ones_refused(tmp_path: Path) -> None:
    table = log(trajectory(200))
    path, mapping = tmp_path / "flow.parquet", LogColumns.parse(MAPPING)
    table.with_columns(time=1.7e12 + 2.5 * pl.int_range(200)).write_parquet(path)
    assert list(import_logs([path], mapping, "quic", network(), tmp_path / "raw").values()) == [51]
    table.with_columns(time=1.7e12 + 100 * pl.int_range(200)).write_parquet(path)
    with pytest.raises(SageccError, match="its rows are 100 ms apart; features are of rows 10 ms apart"):
        import_logs([path], mapping, "quic", network(30), tmp_path / "other")


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ("time=1", "'time=1' is no QUANTITY=COLUMN; quantities are t_us, t_ms, t_s, t_ns, srtt_us"),
        (MAPPING + ",srtt_us=rtt", "srtt_us is there twice"),
        (MAPPING.replace("ca_state=state,", ""), "ca_state is missing; give ca_state"),
        (MAPPING.replace("srtt_ms=rtt,", ""), "srtt_us is missing; give srtt_us or srtt_ms or srtt_s"),
    ],
)
def test_a_mapping_that_is_none_is_one_line(mapping: str, message: str) -> None:
    with pytest.raises(SageccError, match=f"^--columns: .*{message}"):
        LogColumns.parse(mapping)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (pl.col("cwnd").alias("window"), None),
        (pl.lit(0).alias("cwnd"), "cwnd_pkts is 0 at 0 s, which none can be"),
        (pl.lit(-1).alias("out"), "unacked_pkts is -1 at 0 s"),
        (pl.lit("x").alias("cwnd"), "cannot be read as a log"),
        (pl.lit(None, pl.Float64).alias("cwnd"), "column 'cwnd' holds no number in row 1"),
        (pl.col("acked").reverse(), r"bytes_acked falls in row \d+; it only counts"),
        (pl.col("time").reverse(), "the time of row 2 is not after that of the row before"),
        (pl.col("time") * 50, "apart; features are of rows 10 ms apart"),
        (pl.lit(1).alias("time"), "the time of row 2 is not after"),
    ],
)
def test_what_is_no_flows_log_is_one_line(tmp_path: Path, change: pl.Expr, message: str | None) -> None:
    path = tmp_path / "flow.parquet"
    log(trajectory(100)).with_columns(change).write_parquet(path)
    if message is None:
        import_logs([path], LogColumns.parse(MAPPING), "quic", network(), tmp_path / "raw")
        return
    with pytest.raises(SageccError, match=f"flow.parquet.*{message}") as found:
        import_logs([path], LogColumns.parse(MAPPING), "quic", network(), tmp_path / "raw")
    assert "\n" not in str(found.value)
    assert not list((tmp_path / "raw").rglob("*.parquet"))


def test_a_log_beyond_its_network_a_missing_column_and_others_trajectories_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "flow.csv"
    log(trajectory(200)).write_csv(path)
    with pytest.raises(SageccError, match="lasts 2 s, and its network 1 s"):
        import_logs([path], LogColumns.parse(MAPPING), "quic", network(1), tmp_path / "raw")
    with pytest.raises(SageccError, match="has no column 'window'; there are var, low, cwnd"):
        import_logs([path], LogColumns.parse(MAPPING.replace("=cwnd", "=window")), "quic", network(), tmp_path / "raw")
    write_partition(tmp_path / "collected", "I", "cubic", rows=(900,))
    with pytest.raises(SageccError, match="holds trajectories that a kernel ran: choose another --raw"):
        import_logs([path], LogColumns.parse(MAPPING), "quic", network(), tmp_path / "collected")


def test_the_command_makes_a_pool(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log(trajectory(200)).write_csv(tmp_path / "flow.csv")
    (tmp_path / "net.yaml").write_text("links: [{rate_mbps: 24, queue_bdp: 1}]\nrtt_ms: 40\nduration_s: 20\n")
    given = ["import", "pool", str(tmp_path / "flow.csv"), "--out", str(tmp_path / "pool")]
    logs = ["--columns", MAPPING, "--scheme", "quic", "--environment", str(tmp_path / "net.yaml")]

    def call(*options: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as status:
            entry.main([*given, *options])
        out, error = capsys.readouterr()
        return int(status.value.code or 0), (out + error).strip()

    assert call("--scheme", "quic") == (2, "sagecc: --scheme is for logs: give --columns too")
    assert call(*logs) == (2, "sagecc: --columns: logs need --raw too")
    code, text = call(*logs, "--raw", str(tmp_path / "raw"))
    assert (code, text.splitlines()[0]) == (
        0,
        f"1 episodes, 199 rows in {tmp_path}/pool; 'sagecc pool check --pool {tmp_path}/pool' checks it",
    )
