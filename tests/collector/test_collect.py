# SPDX-License-Identifier: Apache-2.0
"""Collecting: durable, resumable, the same bytes, clear failures."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sagecc.cli import main
from sagecc.collector.kernel.identity import identity_of_source
from sagecc.collector.lab.boot import Controller, per_flow
from sagecc.collector.lab.episode import Episode, FlowSummary
from sagecc.collector.run import engines, store
from sagecc.collector.run.collect import EpisodesFailedError, collect, drawn
from sagecc.collector.run.engines import Engine, Results, local
from sagecc.collector.run.grid import set_one
from sagecc.collector.run.store import SPOOL, Partition, pack, read_failed, read_table
from sagecc.collector.run.task import FinishedEpisode, Task, attempt
from sagecc.commands import collect as collect_command
from sagecc.common.errors import SageccError
from sagecc.pool.derivation import build_pool
from sagecc.schemas.environment import Environment, episode_id
from sagecc.schemas.partitions import partition
from sagecc.schemas.raw import RAW_SCHEMA
from tests.conftest import ROOT
from tests.helpers.commands import sagecc_here
from tests.helpers.files import hashes
from tests.helpers.networks import network
from tests.helpers.policies import broken_policy

ENVIRONMENTS = tuple(network(mbps, 20, 1, 3) for mbps in (12, 24, 36))
SCHEMES = ("cubic", "bbr")


def constant_window(environment: Environment, scheme: str, seed: int) -> Controller:
    def control(sample: np.void) -> tuple[int, int]:
        return 20, 0

    return per_flow(control)


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short episodes are given processes too."""
    monkeypatch.setattr(engines, "MIN_WORKER_CPU_S", 0.01)


@pytest.mark.usefixtures("processes")
def test_same_files_in_any_order_with_any_number_of_processes(kernel: Path, tmp_path: Path) -> None:
    def shuffled(kernel: Path, tasks: Sequence[Task]) -> Results:
        yield from local(2)(kernel, random.Random(1).sample(tasks, len(tasks)))

    collect(ENVIRONMENTS, SCHEMES, tmp_path / "one", kernel, local(1), progress=False)
    collect(ENVIRONMENTS, SCHEMES, tmp_path / "three", kernel, local(3), progress=False)
    collect(ENVIRONMENTS[::-1], SCHEMES[::-1], tmp_path / "shuffled", kernel, shuffled, progress=False)
    collect(ENVIRONMENTS[1:], SCHEMES[:1], tmp_path / "parts", kernel, local(2), progress=False)
    collect(ENVIRONMENTS, SCHEMES, tmp_path / "parts", kernel, local(2), progress=False)
    one = hashes(tmp_path / "one")
    assert len(one) == 4
    for other in ("three", "shuffled", "parts"):
        assert hashes(tmp_path / other) == one


def test_what_is_stored(kernel: Path, tmp_path: Path) -> None:
    collect(ENVIRONMENTS, ("cubic",), tmp_path, kernel, local(2), progress=False)
    folder = tmp_path / partition("custom", "cubic")
    table = read_table(folder / "part-000.parquet")
    assert table.schema.equals(RAW_SCHEMA)
    names = table["episode_id"].to_pylist()
    assert names == sorted(names)
    assert set(names) == {f"{e.id}.cubic.0" for e in ENVIRONMENTS}
    summaries = read_table(folder / "episodes.parquet").to_pylist()
    assert [row["rows"] for row in summaries] == [names.count(row["episode_id"]) for row in summaries]
    assert {Environment.from_json(row["environment"]) for row in summaries} == set(ENVIRONMENTS)
    for path in folder.iterdir():
        assert read_table(path).schema.metadata[b"sagecc.kernel"] == identity_of_source("cubic").encode()
    assert not (tmp_path / SPOOL).exists() or not any((tmp_path / SPOOL).rglob("*.arrow"))


def test_nothing_is_run_twice_and_prune_drops_the_rest(kernel: Path, tmp_path: Path) -> None:
    collect(ENVIRONMENTS, SCHEMES, tmp_path, kernel, local(2), progress=False)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}
    collect(ENVIRONMENTS, SCHEMES, tmp_path, kernel, local(2), progress=False)
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}
    collect(ENVIRONMENTS[:1], ("cubic",), tmp_path, kernel, local(1), progress=False)
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}
    collect(ENVIRONMENTS[:1], ("cubic",), tmp_path, kernel, local(1), progress=False, prune=True)
    collect(ENVIRONMENTS[:1], ("cubic",), tmp_path / "fresh", kernel, local(1), progress=False)
    cubic, others = ({k: v for k, v in hashes(tmp_path).items() if ("cubic" in k) == own} for own in (True, False))
    assert {k: v for k, v in cubic.items() if not k.startswith("fresh")} == hashes(tmp_path / "fresh")
    assert {tmp_path / name for name in others} == {path for path in before if "cubic" not in str(path)}


def test_a_scheme_plays_in_a_share_of_each_set() -> None:
    sets = (("a", 8), ("b", 20))
    environments = [replace(network(mbps, 20, 1, 3), set=name) for name, count in sets for mbps in range(1, count + 1)]
    few = {scheme: drawn(environments, scheme, 0.15) for scheme in ("cubic", "bbr", "vegas")}
    for chosen in few.values():
        assert [each.set for each in chosen] == ["a"] * 2 + ["b"] * 3  # at least so many
        assert [each for each in environments if each in chosen] == chosen
    assert len({tuple(each.id for each in chosen) for chosen in few.values()}) == 3
    assert drawn(environments[::-1], "cubic", 0.15) == few["cubic"][::-1]
    assert {each.id for each in few["cubic"]} < {each.id for each in drawn(environments, "cubic", 0.5)}
    assert drawn(environments, "cubic", 1) == environments


def test_a_share_and_prune_leave_what_is_played(kernel: Path, tmp_path: Path) -> None:
    whole, part = tmp_path / "whole", tmp_path / "part"
    collect(ENVIRONMENTS, SCHEMES, whole, kernel, local(2), progress=False)
    stored = episodes_of(whole)
    collect(ENVIRONMENTS, SCHEMES, part, kernel, local(2), share=0.5, progress=False)
    played = [episode_id(each.id, scheme, 0) for scheme in SCHEMES for each in drawn(ENVIRONMENTS, scheme, 0.5)]
    assert episodes_of(part) == sorted(played)
    assert len(played) == 4
    collect(ENVIRONMENTS, SCHEMES, whole, kernel, local(2), share=0.5, progress=False)
    assert episodes_of(whole) == stored
    collect(ENVIRONMENTS, SCHEMES, whole, kernel, local(2), share=0.5, progress=False, prune=True)
    assert hashes(whole) == hashes(part)


def episodes_of(raw: Path) -> list[str]:
    """Return the ids of a folder's episodes."""
    tables = [read_table(path) for path in raw.rglob("episodes.parquet")]
    return sorted(name for table in tables for name in table["episode_id"].to_pylist())


def test_a_killed_collector_goes_on_where_it_was(kernel: Path, tmp_path: Path) -> None:
    out = tmp_path / "raw"
    code = (
        "from pathlib import Path\nfrom collector.run.collect import collect\nfrom collector.run.engines import local\n"
        "from sagecc.collector.run.grid import set_one\n"
        "if __name__ == '__main__':\n"
        "    environments = [set_one(12, 1, rtt, 1) for rtt in (10, 20, 30, 40, 50, 60, 70, 80)]\n"
        f"    out, kernel = Path({str(out)!r}), Path({str(kernel)!r})\n"
        "    collect(environments, ['cubic', 'reno'], out, kernel, local(2), progress=False)\n"
    )
    script = tmp_path / "collect_it.py"
    script.write_text(code)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for _ in range(3):
        with subprocess.Popen([sys.executable, str(script)], env=environment, start_new_session=True) as process:
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
    subprocess.run([sys.executable, str(script)], env=environment, check=True)
    environments = [set_one(12, 1, rtt, 1) for rtt in (10, 20, 30, 40, 50, 60, 70, 80)]
    collect(environments, ("cubic", "reno"), tmp_path / "undisturbed", kernel, local(2), progress=False)
    assert hashes(out) == hashes(tmp_path / "undisturbed")


def test_killed_between_the_two_renames(kernel: Path, tmp_path: Path) -> None:
    collect(ENVIRONMENTS[:1], ("cubic",), tmp_path, kernel, local(1), progress=False)
    folder = tmp_path / partition("custom", "cubic")
    before = hashes(tmp_path)
    folder.rename(folder.with_name(f".tmp-{folder.name}"))
    collect(ENVIRONMENTS[:1], ("cubic",), tmp_path, kernel, local(1), progress=False)
    assert hashes(tmp_path) == before


def test_a_failed_episode_is_named_and_the_others_are_kept(kernel: Path, tmp_path: Path) -> None:
    with pytest.raises(SageccError, match="policy:broken: cannot be loaded"):
        collect(
            ENVIRONMENTS[:1],
            ("cubic", "policy:broken"),
            tmp_path,
            kernel,
            local(2),
            progress=False,
            controllers=broken_policy,
        )
    assert [path.parent.name for path in tmp_path.rglob("episodes.parquet")] == ["scheme=cubic"]
    assert list(read_failed(tmp_path)) == [f"{ENVIRONMENTS[0].id}.policy:broken.0"]


def failing(*ids: str, ran: list[str] | None = None) -> Engine:
    """Episodes of these ids fail, and no others; `ran` gets the ids of all that run."""

    def run(kernel: Path, tasks: Sequence[Task]) -> Results:
        for task in tasks:
            if ran is not None:
                ran.append(task.id)
            fails = task.id in ids
            yield task, SageccError(f"episode {task.id}: no sample") if fails else attempt(kernel, task)

    return run


def gather(out: Path, kernel: Path, engine: Engine, count: int = 3, prune: bool = False) -> dict[str, str]:
    """Collect the first networks; return why episodes failed."""
    try:
        collect(ENVIRONMENTS[:count], ("cubic",), out, kernel, engine, progress=False, prune=prune)
    except EpisodesFailedError as error:
        return dict(error.failures)
    return {}


IDS = [f"{environment.id}.cubic.0" for environment in ENVIRONMENTS]


def test_a_failed_episode_holds_up_no_other_and_is_tried_again(kernel: Path, tmp_path: Path) -> None:
    out, folder, ran = tmp_path / "raw", tmp_path / "raw" / partition("custom", "cubic"), list[str]()
    assert gather(out, kernel, failing(IDS[1])) == {IDS[1]: f"episode {IDS[1]}: no sample"}
    assert read_table(folder / "episodes.parquet")["episode_id"].to_pylist() == sorted({IDS[0], IDS[2]})
    assert read_failed(out) == {IDS[1]: "no sample"}
    before = hashes(out)
    assert gather(out, kernel, failing(IDS[1], ran=ran))
    assert (ran, hashes(out)) == ([IDS[1]], before)
    assert gather(out, kernel, failing(), count=1) == {}  # another collection of the same partition
    assert hashes(out) == before
    assert gather(out, kernel, failing(ran=ran)) == {}
    assert ran == [IDS[1]] * 2
    gather(tmp_path / "undisturbed", kernel, failing())
    assert hashes(out) == hashes(tmp_path / "undisturbed")  # as if it had never failed


def test_where_all_fail_there_is_no_list_of_episodes(kernel: Path, tmp_path: Path) -> None:
    assert gather(tmp_path, kernel, failing(*IDS)).keys() == set(IDS)
    folder = tmp_path / partition("custom", "cubic")
    assert [path.name for path in folder.iterdir()] == ["failed.json"]
    assert read_failed(tmp_path).keys() == set(IDS)
    with pytest.raises(SageccError, match=r"all 3 episodes failed, such as custom-.*\.cubic\.0"):
        build_pool(tmp_path, tmp_path / "pool", progress=False)
    assert gather(tmp_path, kernel, failing()) == {}
    assert read_failed(tmp_path) == {}


def test_prune_drops_what_failed_before(kernel: Path, tmp_path: Path) -> None:
    gather(tmp_path, kernel, failing(IDS[2]))
    gather(tmp_path, kernel, failing(), count=2)
    assert read_failed(tmp_path).keys() == {IDS[2]}
    gather(tmp_path, kernel, failing(IDS[0]), count=2, prune=True)
    assert read_failed(tmp_path) == {}
    gather(tmp_path, kernel, failing(*IDS), prune=True, count=3)
    assert read_failed(tmp_path).keys() == {IDS[2]}


def test_failures_of_another_kernel_are_forgotten(tmp_path: Path) -> None:
    with Partition(tmp_path, "custom", "cubic", "one") as target:
        target.assemble([], {IDS[0]: "no sample"})
        assert target.failed() == {IDS[0]: "no sample"}
    with Partition(tmp_path, "custom", "cubic", "another") as target:
        assert target.failed() == {}


@pytest.mark.parametrize("text", ["{", "[]", '{"failed": {}}', "\0"])
def test_a_list_of_failures_that_is_none_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / partition("custom", "cubic") / "failed.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(SageccError, match=r"failed\.json .*: remove it and collect again"):
        read_failed(tmp_path)


def test_the_command_names_each_and_goes_on_where_it_is_asked_to(
    kernel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ids = {f"{replace(environment, set='three').id}.cubic.0" for environment in ENVIRONMENTS}
    monkeypatch.setattr(collect_command, "local", lambda jobs: failing(*ids))
    monkeypatch.setattr(collect_command, "SHOWN_FAILURES", 2)
    out = tmp_path / "raw"
    networks = [json.loads(environment.to_json()) for environment in ENVIRONMENTS]
    (tmp_path / "three.json").write_text(json.dumps({"name": "three", "environments": networks}))
    options = ["collect", "--environments", str(tmp_path / "three.json"), "--kernel", str(kernel), "--out", str(out)]
    for more, status in (([], 2), (["--skip-failed"], 0)):
        with pytest.raises(SystemExit) as stopped:
            main([*options, "--schemes", "cubic,vegas", *more])
        assert stopped.value.code == status
        told, errors = capfd.readouterr()
        named = [line for line in errors.splitlines() if line.startswith("failed: ")]
        assert all(re.fullmatch(r"failed: three-\S+\.cubic\.0: no sample", line) for line in named[:2])
        assert named[2:] == [f"failed: 1 more; {out}/set=*/scheme=*/failed.json name them all"]
        if status:
            assert "sagecc: 3 of 6 episodes failed, all others are in" in errors
        else:
            assert told == f"3 episodes of 2 schemes in {out}; skipped 3 that failed\n"
    assert read_failed(out).keys() == ids
    with pytest.raises(SystemExit):
        main(["pool", "--raw", str(out), "--out", str(tmp_path / "pool")])
    assert re.search(r"^not in it: 3 episodes that failed .*: no sample$", capfd.readouterr().err, re.MULTILINE)


def test_policies_are_collected_too(kernel: Path, tmp_path: Path) -> None:
    names = ("policy:models/a",)
    collect(ENVIRONMENTS[:2], names, tmp_path, kernel, local(2), progress=False, controllers=constant_window)
    table = read_table(tmp_path / "set=custom" / "scheme=policy:models%2Fa" / "part-000.parquet")
    assert set(table["cwnd_pkts"].to_pylist()) <= {10, 20}
    again = Partition(tmp_path, "custom", names[0], identity_of_source("pure")).stored()
    assert set(again) == {f"{e.id}.policy:models/a.0" for e in ENVIRONMENTS[:2]}


def test_another_module_collects_its_scheme_anew_and_no_other(kernel: Path, tmp_path: Path) -> None:
    ran: list[str] = []

    def seen(kernel: Path, tasks: Sequence[Task]) -> Results:
        ran.extend(task.scheme for task in tasks)
        yield from local(1)(kernel, tasks)

    binary = tmp_path / "build" / "linux"
    binary.parent.mkdir()
    shutil.copy2(kernel, binary)
    shutil.copytree(kernel.parent / "kernel-identity", binary.parent / "kernel-identity")
    for _ in range(2):
        collect(ENVIRONMENTS[:1], ("cubic", "bbr2"), tmp_path / "raw", binary, seen, progress=False)
    assert sorted(ran) == ["bbr2", "cubic"]
    identity = binary.parent / "kernel-identity" / "bbr2"
    identity.write_text(identity.read_text().rpartition("=")[0] + "=0123456789ab\n")
    collect(ENVIRONMENTS[:1], ("cubic", "bbr2"), tmp_path / "raw", binary, seen, progress=False)
    assert sorted(ran) == ["bbr2", "bbr2", "cubic"]
    beside = network(12, 20, 1, 3, cross=("bbr2",))
    for _ in range(2):
        collect([beside], ("cubic",), tmp_path / "cross", binary, seen, progress=False)
    assert len(ran) == 4
    identity.write_text(identity_of_source("bbr2"))
    collect([beside], ("cubic",), tmp_path / "cross", binary, seen, progress=False)
    assert len(ran) == 5
    identity.unlink()
    with pytest.raises(SageccError, match=r"kernel-identity/bbr2 is missing.*run 'sagecc kernel'"):
        collect([beside], ("cubic",), tmp_path / "cross", binary, seen, progress=False)


def test_two_collectors_of_one_partition(kernel: Path, tmp_path: Path) -> None:
    with (
        Partition(tmp_path, "custom", "cubic", "any"),
        pytest.raises(SageccError, match=r"scheme=cubic: another 'sagecc collect' fills it"),
    ):
        collect(ENVIRONMENTS[:1], ("cubic",), tmp_path, kernel, local(1), progress=False)
    collect(ENVIRONMENTS[:1], ("cubic",), tmp_path, kernel, local(1), progress=False)


@pytest.mark.usefixtures("processes")
def test_a_killed_worker_costs_the_running_episodes_only(kernel: Path, tmp_path: Path) -> None:
    environments = [network(12, 20 + i, 1, 3) for i in range(12)]
    killed: list[int] = []

    def deadly(kernel: Path, tasks: Sequence[Task]) -> Results:
        for count, found in enumerate(local(2)(kernel, tasks)):
            if count == 4:
                killed.append(multiprocessing.active_children()[0].pid or 0)
                os.kill(killed[0], signal.SIGKILL)
            yield found

    with pytest.raises(SageccError, match="worker was killed"):
        collect(environments, ("cubic",), tmp_path / "raw", kernel, deadly, progress=False)
    assert killed
    kept = len(list((tmp_path / "raw").rglob("*.arrow")))
    assert 5 <= kept < 12
    ran: list[str] = []

    def rest(kernel: Path, tasks: Sequence[Task]) -> Results:
        ran.extend(task.id for task in tasks)
        yield from local(2)(kernel, tasks)

    collect(environments, ("cubic",), tmp_path / "raw", kernel, rest, progress=False)
    assert len(ran) == 12 - kept
    collect(environments, ("cubic",), tmp_path / "undisturbed", kernel, local(2), progress=False)
    assert hashes(tmp_path / "raw") == hashes(tmp_path / "undisturbed")


@pytest.mark.usefixtures("processes")
def test_workers_have_no_file_that_a_kill_of_all_would_leave(kernel: Path, tmp_path: Path) -> None:
    """A named semaphore, such as a queue's or a lock's, is mapped from /dev/shm, and stays there."""

    def shared(pid: int | str) -> set[str]:
        return set(re.findall(r"/dev/shm/\S+", Path(f"/proc/{pid}/maps").read_text()))

    before, seen = shared("self"), list[set[str]]()

    def watched(kernel: Path, tasks: Sequence[Task]) -> Results:
        for found in local(2)(kernel, tasks):
            seen.append(shared("self") - before)
            seen.extend(shared(worker.pid or 0) for worker in multiprocessing.active_children())
            yield found

    environments = [network(12, 20 + i, 1, 3) for i in range(4)]
    collect(environments, ("cubic",), tmp_path / "raw", kernel, watched, progress=False)
    assert len(seen) > 4 and not set().union(*seen)


def test_a_guest_that_hangs_is_named_and_the_others_are_kept(kernel: Path, tmp_path: Path) -> None:
    hung = tmp_path / "hung"
    hung.write_text("#!/bin/sh\nsleep 1000\n")
    hung.chmod(0o755)

    def one_hangs(kernel: Path, tasks: Sequence[Task]) -> Results:
        for index, task in enumerate(tasks):
            yield task, attempt(hung, task, watchdog_s=0.5) if index == 1 else attempt(kernel, task)

    with pytest.raises(SageccError, match=r"24mbps.*cubic\.0: .*0\.5 s"):
        collect(ENVIRONMENTS, ("cubic",), tmp_path / "raw", kernel, one_hangs, progress=False)
    assert len(read_table(tmp_path / "raw" / partition("custom", "cubic") / "episodes.parquet")) == 2


def ignored(numbers: Iterator[int]) -> Iterator[tuple[int, bool]]:
    for number in numbers:
        yield number, signal.getsignal((signal.SIGHUP, signal.SIGINT)[number]) == signal.SIG_IGN


def test_workers_leave_a_terminals_signals_to_their_parent() -> None:
    """A terminal sends them to all: a worker that died first would be taken for killed."""
    assert dict(engines.in_processes(ignored, 2, [None])) == {0: True, 1: True}


def test_a_node_with_another_version_is_told(kernel: Path, tmp_path: Path) -> None:
    def other_version(kernel: Path, tasks: Sequence[Task]) -> Results:
        for task in tasks:
            yield task, FinishedEpisode(1, "another", b"")

    with pytest.raises(SageccError, match="another version of sagecc"):
        collect(ENVIRONMENTS, ("cubic",), tmp_path, kernel, other_version, progress=False)
    assert not list(tmp_path.rglob("*.arrow"))


def test_a_partition_of_several_row_groups_and_files_is_filled_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old episodes lie across row groups and files; new ones go between them."""
    monkeypatch.setattr(store, "ROW_GROUP_ROWS", 100)
    monkeypatch.setattr(store, "FILE_ROWS", 700)
    environments = sorted((network(10 + i, 20, 1, 3) for i in range(12)), key=lambda e: e.id)
    lengths = [1, 99, 100, 101, 350, 30, 40, 250, 7, 100, 64, 3]

    def fill(out: Path, *rounds: slice) -> dict[str, str]:
        wanted: set[str] = set()
        for part in rounds:
            with Partition(out, "custom", "cubic", "lab") as target:
                for environment, length in list(zip(environments, lengths, strict=True))[part]:
                    episode = synthetic_episode(environment, length)
                    target.add(episode.id, pack(episode, "lab"))
                    wanted.add(episode.id)
                target.assemble(wanted)
        return hashes(out)

    whole = fill(tmp_path / "whole", slice(None))
    assert len(whole) > 2
    assert fill(tmp_path / "parts", slice(1, None, 3), slice(0, None, 3), slice(2, None, 3)) == whole
    assert fill(tmp_path / "again", slice(None), slice(3, 5)) == whole
    files = sorted((tmp_path / "parts").rglob("part-*.parquet"))
    table = pa.concat_tables([read_table(path) for path in files])
    assert [len(list(g)) for _, g in groupby(table["episode_id"].to_pylist())] == lengths
    pq.write_table(read_table(files[0]).slice(0, 1), files[0])
    with Partition(tmp_path / "parts", "custom", "cubic", "lab") as target:
        wanted = target.kept()
        episode = synthetic_episode(environments[5], lengths[5])
        target.add(episode.id, pack(episode, "lab"))
        with pytest.raises(SageccError, match=r"episode .* gone.*remove"):
            target.assemble(wanted)
    assert len(read_table(files[0].with_name("episodes.parquet"))) == len(lengths)


def synthetic_episode(environment: Environment, length: int) -> Episode:
    name = episode_id(environment.id, "cubic", 0)
    columns = {field.name: np.arange(length) % 200 for field in RAW_SCHEMA} | {"episode_id": [name] * length}
    flow = FlowSummary("cubic", 1.0, 2.0, 3.0, 4, 5, 6.0)
    rows = pa.table({field.name: pa.array(columns[field.name]).cast(field.type) for field in RAW_SCHEMA})
    return Episode(name, environment, "cubic", 0, rows.cast(RAW_SCHEMA), (flow,), "", "spec")


def test_an_episode_of_another_specification_is_run_again(kernel: Path, tmp_path: Path) -> None:
    collect(ENVIRONMENTS, ("cubic",), tmp_path, kernel, local(2), progress=False)
    before = hashes(tmp_path)
    path = tmp_path / partition("custom", "cubic") / "episodes.parquet"
    table = pq.read_table(path)
    digests = table["spec_sha256"].to_pylist()
    assert len(set(digests)) == len(ENVIRONMENTS)
    at = table.schema.get_field_index("spec_sha256")
    pq.write_table(table.set_column(at, table.schema.field(at), [["stale", *digests[1:]]]), path)
    collect(ENVIRONMENTS, ("cubic",), tmp_path, kernel, local(2), progress=False)
    assert hashes(tmp_path) == before


def test_a_full_disk_stops_with_the_file_named_and_leaves_no_half_file(kernel: Path, tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("mounting a small disk needs root")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "none", str(tmp_path)], check=False)
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        with pytest.raises(OSError, match="No space left on device") as caught:
            collect(ENVIRONMENTS, SCHEMES, tmp_path, kernel, local(1), progress=False)
        assert caught.value.errno == errno.ENOSPC
        assert caught.value.filename
        assert not list(tmp_path.rglob(".tmp-*"))
        for path in tmp_path.rglob("*.parquet"):
            pq.read_table(path)
        kept = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.arrow")}
        assert kept
        subprocess.run(["mount", "-o", "remount,size=20m", str(tmp_path)], check=True)
        with Partition(tmp_path, "custom", "cubic", identity_of_source("cubic")) as target:
            assert target.spooled().keys() == {path.stem for path in kept if "scheme=cubic" in str(path)}
        collect(ENVIRONMENTS, SCHEMES, tmp_path, kernel, local(1), progress=False)
        assert len(list(tmp_path.rglob("*.parquet"))) == 4
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_truncated_partition_is_named(kernel: Path, tmp_path: Path) -> None:
    collect(ENVIRONMENTS[:1], ("cubic",), tmp_path, kernel, local(1), progress=False)
    path = tmp_path / partition("custom", "cubic") / "episodes.parquet"
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(SageccError, match=r"episodes\.parquet is damaged .* remove"):
        collect(ENVIRONMENTS, ("cubic",), tmp_path, kernel, local(1), progress=False)


def test_raw_of_another_version_is_refused(kernel: Path, tmp_path: Path) -> None:
    collect(ENVIRONMENTS[:1], ("cubic",), tmp_path, kernel, local(1), progress=False)
    path = tmp_path / partition("custom", "cubic") / "part-000.parquet"
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({"sagecc.raw_version": "9.0"}), path)
    with pytest.raises(SageccError, match=r"9\.0.*1\.0"):
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
        (["--scheme", "cubic", "--bandwidth", "-3"], "bandwidth must be at least 0.001"),
        (["--scheme", "cubic", "--queue-bdp", "0"], "queue"),
        (["--scheme", "cubic", "--rtt", "-1"], "delay"),
        (["--scheme", "cubic", "--step", "0"], "--step must be above 0"),
        (["--scheme", "cubic", "--duration", "0"], "0 < duration <= 86400"),
        (["--scheme", "policy:nowhere"], "nowhere"),
        (["--scheme", "cubic", "--out", "/nowhere/x.parquet"], "does not exist"),
        (["--scheme", "cubic", "--kernel", "/nowhere"], "run 'sagecc kernel' first"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    kernel: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    status, output, errors = sagecc_here(capsys, "run", "--kernel", kernel, *arguments)
    assert (status, output) == (2, "")
    assert errors.count("\n") == 1
    assert message in errors


def test_a_dry_run_says_how_much_there_is_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["collect", "-n", "--schemes", "cubic,vegas", "-o", str(tmp_path / "raw")]
    status, output, _ = sagecc_here(capsys, *command)
    assert status == 0
    assert output.startswith("180 episodes, 2 schemes in 90 networks: about ")
    told = json.loads(sagecc_here(capsys, *command, "--json")[1])
    assert (told["schemes"], told["networks"], told["episodes"]) == (["cubic", "vegas"], 90, 180)
    assert not (tmp_path / "raw").exists()


def test_a_share_counts_in_a_dry_run_and_is_a_share(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["collect", "-n", "--schemes", "cubic,vegas", "-o", str(tmp_path / "raw"), "--share"]
    status, output, _ = sagecc_here(capsys, *command, "25%")
    assert (status, output.partition(":")[0]) == (0, f"{2 * (18 + 5)} episodes, 2 schemes in 90 networks")
    for share in ("0%", "101%"):
        status, output, errors = sagecc_here(capsys, *command, share)
        assert (status, output, errors) == (2, "", "sagecc: --share is more than 0 % and at most 100 %\n")
