# SPDX-License-Identifier: Apache-2.0
"""Replicas in other processes are real ones, joined over this machine's loopback."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from sagecc.common.errors import SageccError
from sagecc.common.tensorflow_runtime import tf
from sagecc.learner.algorithms.crr import METRICS
from sagecc.learner.architectures import RecurrentNetwork
from sagecc.learner.optimisers import compiled
from sagecc.learner.specification import RunSpecification
from sagecc.learner.strategy import (
    SLURM_PORT_BLOCKS,
    SLURM_PORTS,
    SLURM_TASKS,
    Cluster,
    Replicated,
    connect,
    expand_hosts,
    expand_tasks,
)
from tests.conftest import ROOT
from tests.helpers.specifications import SMALLEST, learner, pool_batch, spec, varied
from tests.helpers.training import command, curve
from tests.learner.conftest import episode, write_part

pytestmark = pytest.mark.tensorflow

STEPS = 100
SMALLER: dict[str, Any] = {"steps": STEPS, "width": 8, "gru": 8, "residual_blocks": 1, "window": 6}
ONE_STEP = spec(SMALLEST, batch=4, atoms=11, residual_blocks=0)


def smaller(folder: Path, pool: Path) -> list[str]:
    return command(folder, pool, **SMALLER)


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def by_tf_config(index: int, ports: list[int]) -> dict[str, str]:
    workers = [f"127.0.0.1:{port}" for port in ports]
    return {"TF_CONFIG": json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}})}


def start(arguments: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        arguments,
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def start_two(arguments: list[str]) -> list[subprocess.Popen[str]]:
    ports = free_ports(2)
    return [start([*arguments, "--strategy", "workers"], by_tf_config(i, ports)) for i in range(2)]


def ended(workers: list[subprocess.Popen[str]]) -> list[tuple[int, str, str]]:
    found = []
    for worker in workers:
        out, err = worker.communicate()
        found.append((worker.returncode, out, err))
    return found


def wait_for_steps(folder: Path, lines: int, workers: list[subprocess.Popen[str]]) -> None:
    path = folder / "logs" / "a" / "metrics.jsonl"
    while len(path.read_text().splitlines() if path.exists() else []) < lines:
        assert all(worker.poll() is None for worker in workers), ended(workers)
        time.sleep(0.01)


def weights(folder: Path) -> dict[str, np.ndarray]:
    return load_file(folder / "models" / "a" / "policy.safetensors")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pool, and what one process trains from it."""
    folder = tmp_path_factory.mktemp("alone")
    tables = [episode(f"I-cubic-{i}", rows, i) for i, rows in enumerate((200, 120, 350))]
    write_part(folder / "pool" / "set=I" / "scheme=cubic" / "part-000.parquet", tables)
    ((status, _, err),) = ended([start(smaller(folder, folder / "pool"), {})])
    assert status == 0, err
    return folder


def assert_same_policy(folder: Path, alone: Path) -> None:
    found, wanted = weights(folder), weights(alone)
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        np.testing.assert_allclose(found[name], values, atol=1e-5, err_msg=name)


def test_two_workers_train_what_one_process_does(alone: Path, tmp_path: Path) -> None:
    chief, other = ended(start_two(smaller(tmp_path, alone / "pool")))
    assert [chief[0], other[0]] == [0, 0], (chief, other)
    assert "worker 0 has the policy" in other[1]
    assert_same_policy(tmp_path, alone)
    np.testing.assert_allclose(np.delete(curve(tmp_path), 5, 1), np.delete(curve(alone), 5, 1), rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_two_workers_killed_and_started_again_train_what_one_process_does(alone: Path, tmp_path: Path) -> None:
    arguments = smaller(tmp_path, alone / "pool")
    workers = start_two(arguments)
    wait_for_steps(tmp_path, 4, workers)
    workers[1].kill()
    chief, other = ended(workers)
    assert [chief[0], other[0]] == [2, -signal.SIGKILL], (chief, other)
    assert "no longer together" in chief[2]
    assert "Traceback" not in chief[2]

    chief, other = ended(start_two(arguments))
    assert [chief[0], other[0]] == [0, 0], (chief, other)
    assert 0 < int(chief[1].split()[0]) <= STEPS
    assert "worker 0 has the policy" in other[1]
    assert_same_policy(tmp_path, alone)
    np.testing.assert_allclose(np.delete(curve(tmp_path), 5, 1), np.delete(curve(alone), 5, 1), rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_two_workers_stop_together_and_do_nothing_twice(alone: Path, tmp_path: Path) -> None:
    arguments = smaller(tmp_path, alone / "pool")
    workers = start_two(arguments)
    wait_for_steps(tmp_path, 4, workers)
    workers[1].send_signal(signal.SIGTERM)
    chief, other = ended(workers)
    assert [chief[0], other[0]] == [143, 143], (chief, other)
    assert "stopped at step" in chief[2]

    chief, other = ended(start_two(arguments))
    assert [chief[0], other[0]] == [0, 0], (chief, other)
    assert 0 < int(chief[1].split()[0]) < STEPS
    assert_same_policy(tmp_path, alone)

    chief, other = ended(start_two(arguments))
    assert [chief[0], other[0]] == [0, 0], (chief, other)
    assert "nothing to do" in chief[1]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) not in (2, 4, 8, 16), reason="cores must share 16 windows equally")
def test_all_cores_of_a_machine_train_what_one_does(alone: Path, tmp_path: Path) -> None:
    options = ["--strategy", "mirrored", "--device", "cpu"]
    ((status, _, err),) = ended([start([*smaller(tmp_path, alone / "pool"), *options], {})])
    assert (status, err) == (0, "")
    assert_same_policy(tmp_path, alone)


def test_workers_of_slurm_with_different_configurations_write_nothing(alone: Path, tmp_path: Path) -> None:
    job = (free_ports(1)[0] % SLURM_PORT_BLOCKS) + SLURM_PORT_BLOCKS
    slurm = {"SLURM_JOB_ID": str(job), "SLURM_STEP_NODELIST": "localhost", "SLURM_STEP_TASKS_PER_NODE": "2"}
    arguments = [*smaller(tmp_path, alone / "pool"), "--strategy", "workers"]
    seeds: tuple[list[str], ...] = ([], ["--seed", "1"])
    for found in ended([start([*arguments, *seeds[i]], {**slurm, "SLURM_PROCID": str(i)}) for i in range(2)]):
        assert found[0] == 2, found
        assert "worker 1 of 2 has another configuration, seed or pool" in found[2]
    assert not (tmp_path / "logs").exists()
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize(
    ("options", "environment", "message"),
    [
        (["--device", "gpu"], {"CUDA_VISIBLE_DEVICES": "-1"}, "sees no GPU"),
        (["--strategy", "workers"], {}, "nothing says where the workers are"),
        (["--strategy", "workers"], {"TF_CONFIG": "{"}, "TF_CONFIG cannot be read"),
    ],
)
def test_what_is_not_there_is_one_line(
    alone: Path, tmp_path: Path, options: list[str], environment: dict[str, str], message: str
) -> None:
    worker = start([*command(tmp_path, alone / "pool"), *options], environment)
    ((status, _, err),) = ended([worker])
    assert status == 2
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "logs").exists()


@pytest.mark.parametrize(("strategy", "device"), [("else", "cpu"), ("one", "else")])
def test_a_strategy_or_device_that_there_is_none_of(strategy: str, device: str) -> None:
    with pytest.raises(SageccError, match="'else'"):
        connect(strategy, device, 0)  # type: ignore[arg-type]


TWO = {"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 1}}


def test_tf_config_by_hand() -> None:
    assert Cluster.of({"TF_CONFIG": json.dumps(TWO), "SLURM_PROCID": "0"}) == Cluster(("a:1", "b:2"), 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "TF_CONFIG cannot be read"),
        ("[]", "TF_CONFIG cannot be read"),
        (json.dumps({"cluster": {"worker": ["a:1"]}}), "'task' is missing"),
        (json.dumps({**TWO, "cluster": {"ps": ["a:1"], "worker": ["b:1"]}}), "'worker' alone"),
        (json.dumps({**TWO, "cluster": {"worker": ["a", "b:1"]}}), "host:port"),
        (json.dumps({**TWO, "cluster": {"worker": "ab:1"}}), "host:port"),
        (json.dumps({**TWO, "cluster": {"worker": ["a:1", "a:1"]}}), "twice"),
        (json.dumps({**TWO, "task": {"type": "worker", "index": 2}}), "0 to 1"),
        (json.dumps({**TWO, "task": {"type": "worker", "index": "0"}}), "0 to 1"),
    ],
)
def test_bad_tf_configs(text: str, message: str) -> None:
    with pytest.raises(SageccError, match="TF_CONFIG") as caught:
        Cluster.of({"TF_CONFIG": text})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def slurm(**changes: str) -> dict[str, str]:
    variables = {"JOB_ID": "1251", "PROCID": "2", "STEP_NODELIST": "gpu[9-10],b", "STEP_TASKS_PER_NODE": "1(x2),2"}
    return {f"SLURM_{name}": value for name, value in {**variables, **changes}.items() if value}


def test_slurm_tells_the_workers_in_its_own_order() -> None:
    first = SLURM_PORTS + SLURM_TASKS  # job 1251 is the second of its block
    assert SLURM_PORT_BLOCKS == 1250
    assert Cluster.of(slurm()) == Cluster((f"gpu9:{first}", f"gpu10:{first}", f"b:{first}", f"b:{first + 1}"), 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"STEP_NODELIST": ""}, "'SLURM_STEP_NODELIST' is missing"),
        ({"STEP_NODELIST": "a[1-"}, "no list of nodes"),
        ({"STEP_TASKS_PER_NODE": "x"}, "no list of tasks"),
        ({"STEP_TASKS_PER_NODE": "1(x2)"}, "on 3 nodes"),
        ({"PROCID": "4"}, "task 4"),
    ],
)
def test_bad_slurm_variables(changes: dict[str, str], message: str) -> None:
    with pytest.raises(SageccError, match="Slurm's variables") as caught:
        Cluster.of(slurm(**changes))
    assert message in str(caught.value)


def test_slurms_short_forms() -> None:
    assert expand_hosts("n[1-2],m5,o[03-04,6,09-10]") == ["n1", "n2", "m5", "o03", "o04", "o6", "o09", "o10"]
    assert expand_hosts("login-1.site") == ["login-1.site"]
    assert expand_tasks("3(x2),2,1") == [3, 3, 2, 1]


def test_a_batch_that_cannot_be_shared_equally() -> None:
    class Three:
        num_replicas_in_sync = 3

    assert [Replicated(Three(), 3, i).part(12) for i in range(3)] == [slice(0, 4), slice(4, 8), slice(8, 12)]
    with pytest.raises(SageccError, match="16 windows cannot be shared equally among 3"):
        Replicated(Three(), 3, 0).part(16)


def first_step(config: RunSpecification) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The metrics of a first step, the same batch and weights for every configuration, and the state after it."""
    tf.random.set_seed(0)
    crr = learner(config, 3, value_range=(-5.0, 5.0))
    generator = np.random.default_rng(0)
    shape = (config.window, config.batch)
    batch = (generator.normal(size=(*shape, 3)), generator.normal(size=shape), generator.normal(size=shape))
    metrics = compiled(crr.update)(pool_batch(*(tf.constant(x, tf.float32) for x in batch))).metrics.numpy()
    return metrics, {name: variable.numpy() for name, variable in crr.state().items()}


@pytest.mark.slow
def test_xla_computes_the_same_and_bfloat16_the_same_within_its_precision() -> None:
    plain, state = first_step(ONE_STEP)
    fast, fast_state = first_step(varied(ONE_STEP, xla=True))
    np.testing.assert_allclose(fast, plain, rtol=1e-4, atol=1e-5)
    for name in (x for x in state if "adam_m" in x):
        np.testing.assert_allclose(fast_state[name], state[name], rtol=1e-3, atol=1e-6, err_msg=name)
    low, low_state = first_step(varied(ONE_STEP, precision="bfloat16"))
    least = [METRICS.index(x) for x in ("critic_loss", "policy_loss", "q_mean", "policy_gradient_norm")]
    least.append(METRICS.index("critic_gradient_norm"))
    np.testing.assert_allclose(low[least], plain[least], rtol=0.05, atol=0.05)
    assert (low != plain).any()
    assert all(values.dtype in (np.float32, np.int64) for values in low_state.values())


@pytest.mark.slow
@pytest.mark.parametrize("of", ["actor", "critic"])
def test_recurrent_networks_heed_xla_and_precision(of: str) -> None:
    """Once they were computed in float32 whatever was asked for."""
    found = {}
    rows = tf.random.stateless_normal([6, 4, 3], [0, 0])
    for name, changes in (("plain", {}), ("xla", {"xla": True}), ("low", {"precision": "bfloat16"})):
        tf.random.set_seed(0)
        network = RecurrentNetwork(width=8, gru=8, residual_blocks=1, **changes)
        made = network.policy(3) if of == "actor" else network.critic(3)

        def losses(made: Any = made) -> Any:
            with tf.GradientTape() as tape:
                if of == "actor":
                    values = made.unroll(rows, tf.zeros([4, 8]))[0]
                else:
                    before = made.remember(rows, rows[..., 0], tf.zeros([4, 8]))
                    values = made.values(rows, rows[..., 1], before)
                total = tf.reduce_sum(values)
            return [values, *tape.gradient(total, list(made.weights().values()))]

        found[name] = tf.function(losses)()
    for plain, xla in zip(found["plain"], found["xla"], strict=True):
        np.testing.assert_allclose(plain, xla, rtol=1e-4, atol=1e-6)
    assert (found["plain"][0].numpy() != found["low"][0].numpy()).any()
    np.testing.assert_allclose(found["low"][0], found["plain"][0], atol=0.05)
