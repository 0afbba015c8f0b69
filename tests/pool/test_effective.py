# SPDX-License-Identifier: Apache-2.0
"""Effective windows: by hand, in the pool that has them, and in charge of a flow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from sagecc.cli import cli
from sagecc.common.errors import SageccError
from sagecc.execution.flow.window import pacing_rates
from sagecc.leagues.transitions import pool_rows
from sagecc.learner.compiled import compile_pool
from sagecc.pool.checks import check_pool
from sagecc.pool.derivation import PoolOptions, build_pool
from sagecc.pool.effective import PACED, effective_windows
from sagecc.pool.features import Windows, derive
from sagecc.schemas import wire
from sagecc.schemas.pool import FEATURE_NAMES, OF_CWND, pool_schema
from sagecc.schemas.schemes import OTHERS, SCHEMES
from tests.helpers.raw_episodes import write_partition

EFFECTIVE = PoolOptions(effective_windows=True)
NAMES = ",".join(PACED)


def rows(*values: tuple[int, int, int]) -> npt.NDArray[np.void]:
    """Return samples of (pacing rate, sRTT, window) with an MSS of 1448."""
    records = np.zeros(len(values), wire.SAMPLE)
    for name, column in zip(("pacing_rate_bytes_s", "srtt_us", "cwnd_pkts"), zip(*values, strict=True), strict=True):
        records[name] = column
    records["mss_bytes"] = 1448
    return records


def paced_half(raw: pa.Table) -> pa.Table:
    """Return raw rows that are paced at half a window per sRTT, and a little more."""
    cwnd, srtt = (raw[name].to_numpy().astype(np.float64) for name in ("cwnd_pkts", "srtt_us"))
    rate = (cwnd / 2 + np.arange(len(cwnd)) % 3) * 1448e6 / np.maximum(srtt, 1)
    index = raw.schema.get_field_index("pacing_rate_bytes_s")
    return raw.set_column(index, raw.schema.field(index), pa.array(rate.astype(np.uint64)))


def test_the_schemes_are_known() -> None:
    assert set(PACED) <= SCHEMES.keys() | OTHERS.keys() and list(PACED) == sorted(PACED)


def test_golden_by_hand() -> None:
    """1,448,000 bytes/s are 1,000 packets a second: 40 in 40 ms."""
    assert effective_windows(
        rows(
            (1_448_000, 40_000, 100),  # paced
            (1_448_000, 40_000, 30),  # bounded by the window
            (1_448_000, 40_600, 100),  # 40.6
            (1_448_000, 0, 100),  # no RTT yet
            (wire.NO_LIMIT, 40_000, 100),  # not paced
            (1, 40_000, 100),
        )
    ).tolist() == [40, 30, 41, 100, 100, 1]


@given(st.integers(4, 20_000), st.integers(50, 3_000_000), st.sampled_from([536, 1448, 8948]))
def test_who_paces_one_window_an_rtt_has_its_own_window(cwnd: int, srtt_us: int, mss: int) -> None:
    """As a policy does: a live flow's features agree with a pool of effective windows without a rule of their own."""
    sample = rows((0, srtt_us, cwnd))
    sample["mss_bytes"] = mss
    sample["pacing_rate_bytes_s"] = pacing_rates(sample, np.array([cwnd]))
    assert effective_windows(sample).tolist() == [cwnd]


@pytest.fixture(scope="module")
def pools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the raw rows of BBR2 and of Cubic, both paced below their windows, and both pools of them."""
    folder = tmp_path_factory.mktemp("pools")
    for scheme in ("bbr2", "cubic"):
        write_partition(folder / "raw", "I", scheme, change=paced_half)
    for name, options in (("plain", PoolOptions()), ("effective", EFFECTIVE)):
        build_pool(folder / "raw", folder / name, options, progress=False)
    return folder


def part(pool: Path, scheme: str) -> pa.Table:
    return pq.read_table(pool / "set=I" / f"scheme={scheme}", partitioning=None)


def test_rows_are_those_of_the_formulas(pools: Path) -> None:
    raw = pq.read_table(pools / "raw" / "set=I" / "scheme=bbr2" / "part-000.parquet", partitioning=None)
    name = raw["episode_id"][0].as_py()
    raw = raw.filter(pa.compute.equal(raw["episode_id"], name))
    mine, plain = (part(pools / kind, "bbr2") for kind in ("effective", "plain"))
    mine, plain = (rows.filter(pa.compute.equal(rows["episode_id"], name)) for rows in (mine, plain))
    columns = {column: raw[column].to_numpy() for column in raw.column_names}
    windows = np.minimum(
        columns["cwnd_pkts"],
        np.rint(columns["pacing_rate_bytes_s"] * (columns["srtt_us"] / 1e6) / columns["mss_bytes"]),
    )
    assert (windows < columns["cwnd_pkts"]).mean() > 0.9
    np.testing.assert_array_equal(mine["action"].to_numpy(), (windows[1:] / windows[:-1]).astype(np.float32))
    features, _ = derive(columns | {"cwnd_pkts": windows.astype(np.uint32)}, np.arange(len(windows)) == 0)
    changed = {column for column in mine.column_names if not mine[column].equals(plain[column])}
    assert changed == set(OF_CWND)
    for column in ("bdp_cwnd", "pre_act"):
        np.testing.assert_array_equal(mine[column].to_numpy(), features[FEATURE_NAMES.index(column), :-1])
    # an episode that is compared with the pool is read as the pool reads it
    compared = pool_rows(raw, Windows(), paced=True)
    np.testing.assert_array_equal(compared[:, FEATURE_NAMES.index("bdp_cwnd")], mine["bdp_cwnd"].to_numpy())
    np.testing.assert_allclose(compared[:, -1], np.clip(np.log2(mine["action"].to_numpy()), -2, 2))


def test_a_scheme_that_does_not_pace_keeps_its_rows(pools: Path) -> None:
    assert part(pools / "effective", "cubic").equals(part(pools / "plain", "cubic"))


def test_it_is_a_pool_of_its_own(pools: Path, tmp_path: Path) -> None:
    for kind, expected in (("plain", None), ("effective", NAMES.encode())):
        for path in (pools / kind).rglob("*.parquet"):
            meta = pq.read_schema(path).metadata
            assert meta.get(b"sagecc.effective_windows") == expected
        assert check_pool(pools / kind, progress=False).faults == ()
        schema = pq.read_schema(pools / kind / "set=I" / "scheme=cubic" / "part-000.parquet")
        assert schema.equals(pool_schema((10, 200, 1000), expected.decode() if expected else ""), check_metadata=False)
        assert (b"pacing rate" in schema.field("action").metadata[b"formula"]) == bool(expected)
    plain, effective = (compile_pool(pools / kind, tmp_path) for kind in ("plain", "effective"))
    assert (plain.effective, effective.effective) == ("", NAMES)
    assert plain.identity != effective.identity


def test_a_mixed_pool_is_found(pools: Path, tmp_path: Path) -> None:
    build_pool(pools / "raw", tmp_path / "pool", progress=False)
    other = pools / "effective" / "set=I" / "scheme=bbr2" / "part-000.parquet"
    (tmp_path / "pool" / "set=I" / "scheme=bbr2" / "part-000.parquet").write_bytes(other.read_bytes())
    assert any("has effective windows, the pool has none" in str(f) for f in check_pool(tmp_path / "pool").faults)
    with pytest.raises(SageccError, match="has effective windows in some of its files only"):
        compile_pool(tmp_path / "pool", tmp_path / "cache")


def test_the_command_derives_it_and_back(tmp_path: Path) -> None:
    write_partition(tmp_path / "raw", "I", "bbr2", rows=(50,), change=paced_half)
    folders = ["--raw", str(tmp_path / "raw"), "--out", str(tmp_path / "pool")]

    def pool(*options: str) -> bytes:
        done = CliRunner().invoke(cli, ["pool", *folders, *options])
        assert done.exit_code == 0, done.output
        return (tmp_path / "pool" / "set=I" / "scheme=bbr2" / "part-000.parquet").read_bytes()

    plain = pool()
    assert pool("--effective-windows", "true") == pool("--effective-windows") != plain
    assert pool("--effective-windows", "false") == plain


def test_raw_rows_without_pacing_rates_are_one_clear_line(tmp_path: Path) -> None:
    write_partition(tmp_path / "raw", "I", "bbr2", rows=(50,), change=lambda rows: rows.drop(["pacing_rate_bytes_s"]))
    build_pool(tmp_path / "raw", tmp_path / "pool", progress=False)
    with pytest.raises(SageccError, match="pacing_rate_bytes_s"):
        build_pool(tmp_path / "raw", tmp_path / "pool", EFFECTIVE, progress=False)
