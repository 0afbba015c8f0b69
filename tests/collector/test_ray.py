# SPDX-License-Identifier: Apache-2.0
"""The engine of many machines, on a real Ray cluster: a head and a second node on this machine's loopback."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from sagecc.collector.run.collect import collect
from sagecc.collector.run.engines import Results, local
from sagecc.collector.run.ray_engine import each_on_ray, on_ray
from sagecc.collector.run.task import Task
from sagecc.common.errors import SageccError
from sagecc.common.files import sha256_file
from sagecc.learner.sweep import attempt, attempt_all, combinations, sweep_runs
from tests.conftest import ROOT
from tests.helpers.files import hashes
from tests.helpers.networks import network
from tests.helpers.policies import broken_policy
from tests.helpers.training import CONFIG
from tests.learner.conftest import write_pool

cluster_utils = pytest.importorskip("ray.cluster_utils")

ENVIRONMENTS = tuple(network(24, 20 + i, 1, 20) for i in range(8))
MEMORY_BYTES = 100 * 2**20


class Cluster:
    """A head of one CPU and a node of one CPU; `kernels`: where nodes keep the kernel."""

    def __init__(self, folder: Path) -> None:
        self.kernels = folder / f"sagecc-{os.getuid()}"
        head = {"node_ip_address": "127.0.0.2", "include_dashboard": False, "temp_dir": str(folder / "ray")}
        self._ray = cluster_utils.Cluster(initialize_head=True, head_node_args=head | node_arguments())
        self.address: str = self._ray.address
        self.add_node()

    def add_node(self) -> None:
        self.node = self._ray.add_node(node_ip_address="127.0.0.3", **node_arguments())

    def kill_node(self) -> None:
        """Kill the second node and all that runs on it."""
        self._ray.remove_node(self.node, allow_graceful=False)

    def busy_workers(self) -> list[int]:
        """The processes of this cluster that run an episode now."""
        raylets = {self._raylet(self._ray.head_node), self._raylet(self.node)}
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and b"ray::_attempt_here" in (entry / "cmdline").read_bytes():
                    parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                    if parent in raylets:
                        found.append(int(entry.name))
            except OSError:
                continue
        return found

    @staticmethod
    def _raylet(node: object) -> int:
        return int(node.all_processes["raylet"][0].process.pid)  # type: ignore[attr-defined]

    def shutdown(self) -> None:
        self._ray.shutdown()


def node_arguments() -> dict[str, int]:
    """One CPU, little memory; ports of our choice, for Ray waits only 15 s for agents to choose theirs."""
    agents = ("metrics_agent_port", "metrics_export_port", "runtime_env_agent_port", "dashboard_agent_listen_port")
    with ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.2", 0))) for _ in agents]
        ports = {name: int(found.getsockname()[1]) for name, found in zip(agents, sockets, strict=True)}
    return {"num_cpus": 1, "object_store_memory": MEMORY_BYTES, **ports}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    folder = Path(tempfile.mkdtemp(prefix="sr-", dir="/tmp"))  # short: it holds sockets
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setenv("TMPDIR", str(folder))
        patch.setenv("RAY_agent_register_timeout_ms", "120000")
        started = Cluster(folder)
        yield started
        started.shutdown()
    shutil.rmtree(folder)


@pytest.mark.slow
def test_the_command_gives_the_same_files(cluster: Cluster, kernel: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sagecc", "collect", "--profile", "smoke", "--schemes", "cubic,bbr2"]
    command += ["--kernel", str(kernel)]
    on_cluster = ["--engine", "ray", "--ray-address", cluster.address]
    for arguments in ([*on_cluster, "--out", str(tmp_path / "ray")], ["--out", str(tmp_path / "local")]):
        done = subprocess.run([*command, *arguments], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("6 episodes of 2 schemes in")
        assert done.stderr.startswith("collect 100% 6/6 episodes, 37.6k rows"), done.stderr
    assert hashes(tmp_path / "ray") == hashes(tmp_path / "local")
    (copy,) = cluster.kernels.iterdir()
    assert copy.name == f"linux-{sha256_file(copy)}"
    assert sha256_file(copy) == sha256_file(kernel)


def test_the_nodes_import_nothing_from_the_drivers_folder(cluster: Cluster, kernel: Path, tmp_path: Path) -> None:
    (tmp_path / "sagecc.py").write_text("raise SystemExit('a stranger was imported')")
    command = [sys.executable, "-P", "-m", "sagecc", "collect", "--profile", "smoke", "--schemes", "cubic"]
    command += ["--set", "II", "--kernel", str(kernel), "--engine", "ray", "--ray-address", cluster.address]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_study_gives_the_same_runs(cluster: Cluster, kernel: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sagecc", "study", "orca-9", "sage-17", "--schemes", "cubic", "--repeats", "2"]
    command += ["--kernel", str(kernel)]
    on_cluster = ["--engine", "ray", "--ray-address", cluster.address]
    for arguments in ([*on_cluster, "--out", str(tmp_path / "ray")], ["--out", str(tmp_path / "local")]):
        done = subprocess.run([*command, *arguments], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert len(list(Path(arguments[-1], "runs").iterdir())) == 10
    for part in ("runs", "values.parquet", "cells.parquet"):
        assert hashes(tmp_path / "ray" / part) == hashes(tmp_path / "local" / part)


def test_killed_workers_and_a_killed_node_lose_nothing(cluster: Cluster, kernel: Path, tmp_path: Path) -> None:
    killed: set[int] = set()

    def deadly(kernel: Path, tasks: Sequence[Task]) -> Results:
        for count, found in enumerate(on_ray(cluster.address)(kernel, tasks)):
            if count in (1, 6):
                for worker in wait_for_busy_workers(cluster):
                    os.kill(worker, signal.SIGKILL)
                    killed.add(worker)
            elif count == 4:
                cluster.kill_node()
                cluster.add_node()
            yield found

    cluster.kernels.mkdir(mode=0o700, exist_ok=True)
    copy = cluster.kernels / f"linux-{sha256_file(kernel)}"
    copy.write_bytes(b"cut short")  # a copy that is not whole is written anew
    schemes = ("cubic", "reno")
    collect(ENVIRONMENTS, schemes, tmp_path / "ray", kernel, deadly, progress=False)
    assert len(killed) >= 2
    assert sha256_file(copy) == sha256_file(kernel)
    collect(ENVIRONMENTS, schemes, tmp_path / "local", kernel, local(2), progress=False)
    assert hashes(tmp_path / "ray") == hashes(tmp_path / "local")


@pytest.mark.slow
def test_a_sweep_continues_what_a_killed_node_was_training(cluster: Cluster, kernel: Path, tmp_path: Path) -> None:
    config, pool = tmp_path / "mine.yaml", write_pool(tmp_path)
    config.write_text(yaml.safe_dump(CONFIG))
    options = ("--pool", str(pool), "--cache", str(tmp_path / "cache"), "--checkpoint-every", "0")
    chosen = combinations(str(config), [])
    spread, here = (sweep_runs(tmp_path / name, chosen, (0, 1), options) for name in ("ray", "here"))

    def kill_the_node() -> None:
        while not all(path.exists() and path.stat().st_size > 2000 for path in metrics):
            time.sleep(0.01)
        cluster.kill_node()

    metrics = [trial.folder / "logs" / trial.policy.name / "metrics.jsonl" for trial in spread]
    killer = threading.Thread(target=kill_the_node)
    killer.start()
    assert [failure for _, failure in each_on_ray(attempt, cluster.address)(kernel, spread)] == [None, None]
    killer.join()
    cluster.add_node()  # Ray wants the main thread for it
    assert [failure for _, failure in attempt_all(kernel, here, 1)] == [None, None]
    for other, trial in zip(spread, here, strict=True):
        assert hashes(other.policy) == hashes(trial.policy)


def wait_for_busy_workers(cluster: Cluster) -> list[int]:
    deadline = time.monotonic() + 30
    while not (found := cluster.busy_workers()):
        assert time.monotonic() < deadline, "no worker is busy"
        time.sleep(0.01)
    return found


def test_a_failed_episode_is_named_and_the_others_are_kept(cluster: Cluster, kernel: Path, tmp_path: Path) -> None:
    engine = on_ray(cluster.address)
    with pytest.raises(SageccError, match="policy:broken: cannot be loaded"):
        collect(
            ENVIRONMENTS[:1], ("cubic", "policy:broken"), tmp_path, kernel, engine, progress=False,
            controllers=broken_policy,
        )  # fmt: skip
    assert [path.parent.name for path in tmp_path.rglob("episodes.parquet")] == ["scheme=cubic"]


@pytest.mark.parametrize("address", ["127.0.0.2:1", "nowhere.invalid:6379", "127.0.0.2", "127.0.0.2:x"])
def test_no_cluster_is_one_line(kernel: Path, tmp_path: Path, address: str) -> None:
    with pytest.raises(SageccError, match=f"no Ray cluster at '{address}'"):
        collect(ENVIRONMENTS[:1], ("cubic",), tmp_path, kernel, on_ray(address), progress=False)


def test_no_ray_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SageccError, match=r"pip install 'sagecc\[ray\]'"):
        on_ray("auto")
