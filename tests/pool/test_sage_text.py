# SPDX-License-Identifier: Apache-2.0
"""The text of Sage's policy collector as a pool: what its converter makes of it, and every line that is none."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
import pytest

from sagecc.common.errors import SageccError
from sagecc.execution.schemes.sage.observation import OBSERVATIONS, PublicReports
from sagecc.pool.checks import check_pool
from sagecc.pool.derivation import build_pool
from sagecc.pool.sage_text import FEATURES, import_texts
from sagecc.schemas.environment import Environment
from sagecc.schemas.partitions import partition
from sagecc.schemas.pool import FEATURE_NAMES
from tests.helpers.raw_episodes import samples, trajectory, write_partition

Rows = npt.NDArray[np.float64]
SOLO, STEP, BESIDE = (
    "vegas_wired24_20_100_0_cwnd.txt",
    "vegas_wired24-2x-u-7s_20_100_0_cwnd.txt",
    "cubic_2-cubic-added_wired24_20_100_0_5_cwnd.txt",
)


def collected(seed: int = 0, share: float = 1.0, step: float = 1.0, ticks: int = 900) -> Rows:
    """Return rows as the collector writes them, of a flow of the fluid model at 24 Mbps [n, 77]."""
    rows = samples(trajectory(ticks, step=step, seed=seed))
    rows["delivered_pkts"] += 1
    source, slot = PublicReports(OBSERVATIONS, 1), np.array([0])
    found, cwnd = [], 10
    for row in rows:
        if not source.update(np.atleast_1d(row), slot)[0]:
            continue
        line = np.zeros(77)
        order = [FEATURE_NAMES.index(name) for name in OBSERVATIONS]
        line[[FEATURES[place] for place in order]] = source.report(np.array([True]))[0]
        line[0] = row["t_ns"] / 1e9
        line[1] = share * 24 * (step if int(line[0] / 7) % 2 else 1)
        line[75] = 25 * np.cos(line[0]) ** 2
        line[76], cwnd = row["cwnd_pkts"] / cwnd, row["cwnd_pkts"]
        found.append(line)
    return np.array(found)


def write(path: Path, rows: Rows) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join("   ".join(f"{value:.7f}" for value in row) + "\n" for row in rows))
    return path


def test_a_pool_is_what_the_public_converter_makes_of_the_texts(tmp_path: Path) -> None:
    """gen_offline_data.py: the next row's ratio is the action, the last row is dropped."""
    texts = {name: collected(seed) for seed, name in enumerate((SOLO, SOLO.replace("vegas", "cubic")))}
    texts[BESIDE] = collected(2, share=0.95)
    for name, rows in texts.items():
        write(tmp_path / "texts" / name, rows)
    done = import_texts([tmp_path / "texts"], tmp_path / "pool", progress=False)
    assert (done.episodes, done.rows) == (3, sum(len(rows) - 1 for rows in texts.values()))
    report = check_pool(tmp_path / "pool", progress=False)
    assert report.faults == ()
    (part,) = (tmp_path / "pool" / partition("I", "vegas")).glob("part-*.parquet")
    table, wanted = pq.read_table(part, partitioning=None), np.round(texts[SOLO], 7)
    np.testing.assert_array_equal(table["t_s"], wanted[:-1, 0])
    np.testing.assert_array_equal(table["action"], wanted[1:, 76].astype(np.float32))
    np.testing.assert_array_equal(table["reward"], wanted[1:, 75].astype(np.float32))
    for name, place in zip(FEATURE_NAMES, FEATURES, strict=True):
        np.testing.assert_allclose(table[name], wanted[:-1, place], rtol=1e-6, atol=1e-6, err_msg=name)
    episodes = {
        row["scheme"] + row["set"]: row for row in pq.read_table(tmp_path / "pool/episodes.parquet").to_pylist()
    }
    solo, beside = episodes["vegasI"], episodes["cubicII"]
    assert (solo["bandwidth_mbps"], solo["rtt_ms"], solo["queue_bytes"], solo["flows"]) == (24, 40, 150_000, 1)
    assert (solo["sent_packets"], solo["delay_mean_ms"], solo["cwnd_mean"]) == (None, None, None)
    assert 15 < solo["goodput_mbps"] < 24
    assert (beside["flows"], beside["reward_kind"], beside["start_s"]) == (2, "friendliness", 0)
    assert Environment.from_json(beside["environment"]).cross[0].scheme == "cubic"


def test_the_same_texts_give_the_same_bytes_and_are_not_written_again(tmp_path: Path) -> None:
    write(tmp_path / "a" / STEP, collected(step=2.0))
    write(tmp_path / "b" / STEP, collected(1, step=2.0))  # a network's second file has another seed
    places = [tmp_path / "a", tmp_path / "b"]
    assert import_texts(places, tmp_path / "pool", progress=False).derived == 1
    assert import_texts(places, tmp_path / "pool", progress=False).unchanged == 1
    import_texts(places, tmp_path / "other", progress=False)
    assert (tmp_path / "pool/manifest.json").read_bytes() == (tmp_path / "other/manifest.json").read_bytes()
    rows = pq.read_table(tmp_path / "pool/episodes.parquet").to_pylist()
    assert [row["seed"] for row in rows] == [0, 1]
    assert {row["step"] for row in rows} == {2}


def changed(place: tuple[int, int], value: float) -> Callable[[Rows], Rows]:
    def change(rows: Rows) -> Rows:
        rows[place] = value
        return rows

    return change


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (SOLO, lambda rows: rows[:, :76], "line 1: has 76 columns, not 77"),
        (SOLO, lambda rows: rows[:1], "has 1 rows; two at least"),
        (SOLO, changed((4, 30), np.nan), "line 5: holds a number that is not finite"),
        (SOLO, changed((4, 0), 0.0), r"line 5: its time \(column 1\) is not after"),
        (SOLO, changed((4, 76), -0.1), "line 5: column 77 is no ratio of two windows; is it the log2"),
        (SOLO, changed((4, 2), -0.1), r"line 5: column 3 \(srtt\) is not within 0 and inf"),
        (SOLO, changed((4, 75), 26.0), r"line 5: column 76 \(reward\) is not within -inf and 25"),
        (SOLO, changed((4, 10), 99.0), "line 5: column 11, a mean, is not within columns 12 and 13"),
        (SOLO, changed((4, 1), 25.0), r"line 5: the link has 25 Mbps \(column 2\), its name says 24"),
        (STEP, changed((4, 1), 25.0), "its name says 24 or 48"),
        ("vegas.txt", lambda rows: rows, "its name does not say scheme and network"),
        (SOLO.replace("_0_", "_2_"), lambda rows: rows, "its name: environment: the loss probability"),
    ],
)
def test_what_is_no_text_of_the_collectors_is_one_line(
    tmp_path: Path, name: str, change: Callable[[Rows], Rows], message: str
) -> None:
    path = write(tmp_path / name, change(collected(ticks=40)[:20]))
    with pytest.raises(SageccError, match=f"{re.escape(str(path))}.*{message}") as found:
        import_texts([path], tmp_path / "pool", progress=False)
    assert "\n" not in str(found.value)
    assert not (tmp_path / "pool").exists()


def test_words_and_bytes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / SOLO
    path.write_text(" ".join(["word"] * 77))
    with pytest.raises(SageccError, match="line 1: could not convert string to float: 'word'"):
        import_texts([path], tmp_path / "pool", progress=False)
    path.write_bytes(b"\xff\n")
    with pytest.raises(SageccError, match="it is no text"):
        import_texts([path], tmp_path / "pool", progress=False)
    (tmp_path / "none").mkdir()
    with pytest.raises(SageccError, match=r"no \*_cwnd\.txt of Sage's policy collector is there"):
        import_texts([tmp_path / "none"], tmp_path / "pool", progress=False)


def test_a_pool_of_other_trajectories_stays_as_it_is(tmp_path: Path) -> None:
    write_partition(tmp_path / "raw", "I", "cubic", rows=(900,))
    build_pool(tmp_path / "raw", tmp_path / "pool", progress=False)
    before = (tmp_path / "pool/manifest.json").read_bytes()
    with pytest.raises(SageccError, match="is a pool of other trajectories: choose another --out"):
        import_texts([write(tmp_path / SOLO, collected())], tmp_path / "pool", progress=False)
    assert (tmp_path / "pool/manifest.json").read_bytes() == before
