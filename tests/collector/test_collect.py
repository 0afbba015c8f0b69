# SPDX-License-Identifier: Apache-2.0
"""Collecting: durable, resumable, the same bytes, clear failures."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from collector.collect import collect
from collector.grid import set_one
from collector.lab import Controller
from collector.store import SPOOL, Partition, partition, read_table
from schemas.environment import Environment
from schemas.errors import SageccError
from schemas.files import sha256_file
from schemas.raw import RAW_SCHEMA

from .conftest import network

ENVIRONMENTS = tuple(network(mbps, 20, 1, 3) for mbps in (12, 24, 36))
SCHEMES = ("cubic", "bbr")


def hashes(out: Path) -> dict[str, str]:
    files = sorted(path for path in out.rglob("*") if path.is_file())
    return {str(path.relative_to(out)): sha256_file(path) for path in files}


def constant_window(scheme: str) -> Controller:
    def control(sample: np.void) -> tuple[int, int]:
        return 20, 0

    return control


def test_same_files_with_one_job_or_three_in_one_go_or_in_two(kernel: Path, tmp_path: Path) -> None:
    collect(ENVIRONMENTS, SCHEMES, tmp_path / "one", kernel, jobs=1, progress=False)
    collect(ENVIRONMENTS, SCHEMES, tmp_path / "three", kernel, jobs=3, progress=False)
    collect(ENVIRONMENTS[1:], SCHEMES[:1], tmp_path / "parts", kernel, jobs=2, progress=False)
    collect(ENVIRONMENTS, SCHEMES, tmp_path / "parts", kernel, jobs=2, progress=False)
    one = hashes(tmp_path / "one")
    assert len(one) == 4
    assert one == hashes(tmp_path / "three")
    assert one == hashes(tmp_path / "parts")


def test_what_is_stored(kernel: Path, tmp_path: Path) -> None:
    collect(ENVIRONMENTS, ("cubic",), tmp_path, kernel, jobs=2, progress=False)
    folder = partition(tmp_path, "custom", "cubic")
    table = read_table(folder / "part-000.parquet")
    assert table.schema.equals(RAW_SCHEMA)
    names = table["episode_id"].to_pylist()
    assert names == sorted(names)
    assert set(names) == {f"{e.id}.cubic.0" for e in ENVIRONMENTS}
    summaries = read_table(folder / "episodes.parquet").to_pylist()
    assert [row["rows"] for row in summaries] == [names.count(row["episode_id"]) for row in summaries]
    assert {Environment.from_json(row["environment"]) for row in summaries} == set(ENVIRONMENTS)
    assert (
        read_table(folder / "part-000.parquet").schema.metadata[b"sagecc.kernel_sha256"] == sha256_file(kernel).encode()
    )
    assert not (tmp_path / SPOOL).exists() or not any((tmp_path / SPOOL).rglob("*.arrow"))


def test_nothing_is_run_twice_and_prune_drops_the_rest(kernel: Path, tmp_path: Path) -> None:
    collect(ENVIRONMENTS, SCHEMES, tmp_path, kernel, jobs=2, progress=False)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}
    collect(ENVIRONMENTS, SCHEMES, tmp_path, kernel, jobs=2, progress=False)
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}
    collect(ENVIRONMENTS[:1], ("cubic",), tmp_path, kernel, jobs=1, progress=False)
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}
    collect(ENVIRONMENTS[:1], ("cubic",), tmp_path, kernel, jobs=1, progress=False, prune=True)
    collect(ENVIRONMENTS[:1], ("cubic",), tmp_path / "fresh", kernel, jobs=1, progress=False)
    fresh = hashes(tmp_path / "fresh")
    assert {k: v for k, v in hashes(tmp_path).items() if not k.startswith("fresh")} == fresh


def test_a_killed_collector_goes_on_where_it_was(kernel: Path, tmp_path: Path) -> None:
    out = tmp_path / "raw"
    code = (
        "from pathlib import Path\nfrom collector.collect import collect\nfrom collector.grid import set_one\n"
        "if __name__ == '__main__':\n"
        "    environments = [set_one(12, 1, rtt, 1) for rtt in (10, 20, 30, 40, 50, 60, 70, 80)]\n"
        f"    collect(environments, ['cubic', 'reno'], Path({str(out)!r}), Path({str(kernel)!r}), 2, progress=False)\n"
    )
    script = tmp_path / "collect_it.py"
    script.write_text(code)
    for _ in range(3):
        with subprocess.Popen([sys.executable, str(script)], start_new_session=True) as process:
            seen = len(list(out.rglob("*.arrow")))
            deadline = time.monotonic() + 60
            while len(list(out.rglob("*.arrow"))) < seen + 3 and time.monotonic() < deadline:
                time.sleep(0.005)
            os.kill(process.pid, signal.SIGKILL)  # only the collector: its workers and guests must follow
        assert len(list(out.rglob("*.arrow"))) >= seen + 3
    time.sleep(1)
    left = {path: path.stat().st_mtime_ns for path in out.rglob("*.arrow")}
    time.sleep(1)
    assert left == {path: path.stat().st_mtime_ns for path in out.rglob("*.arrow")}, "a worker outlived the collector"
    subprocess.run([sys.executable, str(script)], check=True)
    environments = [set_one(12, 1, rtt, 1) for rtt in (10, 20, 30, 40, 50, 60, 70, 80)]
    collect(environments, ("cubic", "reno"), tmp_path / "undisturbed", kernel, jobs=2, progress=False)
    assert hashes(out) == hashes(tmp_path / "undisturbed")


def test_killed_between_the_two_renames(kernel: Path, tmp_path: Path) -> None:
    collect(ENVIRONMENTS[:1], ("cubic",), tmp_path, kernel, jobs=1, progress=False)
    folder = partition(tmp_path, "custom", "cubic")
    before = hashes(tmp_path)
    folder.rename(folder.with_name(f".tmp-{folder.name}"))
    collect(ENVIRONMENTS[:1], ("cubic",), tmp_path, kernel, jobs=1, progress=False)
    assert hashes(tmp_path) == before


def test_a_failed_episode_is_named_and_the_others_are_kept(kernel: Path, tmp_path: Path) -> None:
    with pytest.raises(SageccError, match="policy:broken: cannot be loaded"):
        collect(
            ENVIRONMENTS[:1],
            ("cubic", "policy:broken"),
            tmp_path,
            kernel,
            jobs=2,
            progress=False,
            controllers=broken_policy,
        )
    assert [path.parent.name for path in tmp_path.rglob("episodes.parquet")] == ["scheme=cubic"]


def broken_policy(scheme: str) -> Controller:
    raise SageccError(f"{scheme}: cannot be loaded")


def test_policies_are_collected_too(kernel: Path, tmp_path: Path) -> None:
    names = ("policy:models/a",)
    collect(ENVIRONMENTS[:2], names, tmp_path, kernel, jobs=2, progress=False, controllers=constant_window)
    table = read_table(tmp_path / "set=custom" / "scheme=policy:models_a" / "part-000.parquet")
    assert set(table["cwnd_pkts"].to_pylist()) <= {10, 20}
    again = Partition(tmp_path, "custom", names[0], sha256_file(kernel)).stored()
    assert set(again) == {f"{e.id}.policy:models/a.0" for e in ENVIRONMENTS[:2]}


def test_another_kernel_collects_anew(kernel: Path, tmp_path: Path) -> None:
    collect(ENVIRONMENTS[:1], ("cubic",), tmp_path, kernel, jobs=1, progress=False)
    assert Partition(tmp_path, "custom", "cubic", "another").stored() == {}


def test_an_episode_of_another_specification_is_run_again(kernel: Path, tmp_path: Path) -> None:
    collect(ENVIRONMENTS, ("cubic",), tmp_path, kernel, jobs=2, progress=False)
    before = hashes(tmp_path)
    path = partition(tmp_path, "custom", "cubic") / "episodes.parquet"
    table = pq.read_table(path)
    digests = table["spec_sha256"].to_pylist()
    assert len(set(digests)) == len(ENVIRONMENTS)
    at = table.schema.get_field_index("spec_sha256")
    pq.write_table(table.set_column(at, table.schema.field(at), [["stale", *digests[1:]]]), path)
    collect(ENVIRONMENTS, ("cubic",), tmp_path, kernel, jobs=2, progress=False)
    assert hashes(tmp_path) == before


def test_a_full_disk_stops_with_the_file_named_and_leaves_no_half_file(kernel: Path, tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("mounting a small disk needs root")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "none", str(tmp_path)], check=False)
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        with pytest.raises(OSError, match="No space left on device") as caught:
            collect(ENVIRONMENTS, SCHEMES, tmp_path, kernel, jobs=1, progress=False)
        assert caught.value.errno == errno.ENOSPC
        assert caught.value.filename
        assert not list(tmp_path.rglob(".tmp-*"))
        for path in tmp_path.rglob("*.parquet"):
            pq.read_table(path)
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_truncated_partition_is_named(kernel: Path, tmp_path: Path) -> None:
    collect(ENVIRONMENTS[:1], ("cubic",), tmp_path, kernel, jobs=1, progress=False)
    path = partition(tmp_path, "custom", "cubic") / "episodes.parquet"
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(SageccError, match=r"episodes\.parquet cannot be read .* remove it and collect again"):
        collect(ENVIRONMENTS, ("cubic",), tmp_path, kernel, jobs=1, progress=False)


def test_raw_of_another_version_is_refused(kernel: Path, tmp_path: Path) -> None:
    collect(ENVIRONMENTS[:1], ("cubic",), tmp_path, kernel, jobs=1, progress=False)
    path = partition(tmp_path, "custom", "cubic") / "part-000.parquet"
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({"sagecc.raw_version": "9.0"}), path)
    with pytest.raises(SageccError, match=r"has raw version 9\.0, this program reads 1\.0"):
        read_table(path)


def test_run_prints_the_promised_json(kernel: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sagecc", "run", "--scheme", "cubic", "--duration", "3", "--json"]
    command += ["--kernel", str(kernel), "--out", str(tmp_path / "rows.parquet")]
    runs = [json.loads(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(2)]
    promised = (
        "goodput_mbps",
        "delay_mean_ms",
        "delay_p95_ms",
        "loss_rate",
        "cwnd_mean",
        "wall_s",
        "virtual_s",
        "sha256",
    )
    assert set(promised) <= runs[0].keys()
    assert runs[0]["sha256"] == runs[1]["sha256"]
    assert read_table(tmp_path / "rows.parquet").num_rows == 296


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--scheme", "tahoe"], "unknown scheme 'tahoe'"),
        (["--scheme", "cubic", "--bandwidth", "-3"], "bandwidth must be above 0"),
        (["--scheme", "cubic", "--queue-bdp", "0"], "the queue must hold at least one packet"),
        (["--scheme", "cubic", "--rtt", "-1"], "a delay cannot be negative"),
        (["--scheme", "cubic", "--step", "0"], "--step must be above 0"),
        (["--scheme", "cubic", "--duration", "0"], "0 <= start < duration"),
        (["--scheme", "policy:nowhere"], "nowhere"),
        (["--scheme", "cubic", "--out", "/nowhere/x.parquet"], "does not exist"),
        (["--scheme", "cubic", "--kernel", "/nowhere"], "run 'sagecc kernel' first"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(kernel: Path, arguments: list[str], message: str) -> None:
    command = [sys.executable, "-m", "sagecc", "run", "--kernel", str(kernel), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert message in done.stderr
    assert done.stdout == ""
