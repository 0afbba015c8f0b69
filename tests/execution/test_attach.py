# SPDX-License-Identifier: Apache-2.0
"""`sagecc attach`: an agent in charge of transfers in mid-flight, and what becomes of them when it fails."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from sagecc.common.errors import SEE_DOCTOR
from sagecc.execution.stock import libbpf
from sagecc.execution.stock.driver import Driver
from sagecc.execution.stock.kernel_scheme import Scheme
from sagecc.execution.stock.shared import STALL_NS, Shared
from sagecc.policy.artefact import Control, write
from sagecc.policy.residual import NetworkSizes
from sagecc.policy.scaling import Scaling
from sagecc.schemas.pool import FEATURE_NAMES
from tests.conftest import ROOT
from tests.helpers.messages import facts
from tests.helpers.policies import save_still_policy
from tests.helpers.stock import (
    ENVIRONMENT,
    NAME,
    SAGECC,
    Transfer,
    VethNetwork,
    bpf_filesystem,
    connection,
    in_namespaces,
    on_stock_kernel,
    scheme_in_use,
)

pytestmark = pytest.mark.kernel

RATE_MBPS, QUEUE_PACKETS = 12, 40
WITHIN_S = STALL_NS / 1e9 + 0.3
"""From an agent's last order until the window moves: what the kernel waits, a round trip, the sampling."""

Windows = Sequence[tuple[float, int, int]]


@pytest.fixture
def pins() -> Iterator[Path]:
    if scheme_in_use():
        pytest.skip("sagecc_pure is in use on this machine")
    with bpf_filesystem() as folder:
        try:
            yield folder / "sagecc"
        finally:
            subprocess.run([*SAGECC, "detach", "--pins", folder / "sagecc"], env=ENVIRONMENT, check=True)
            assert not scheme_in_use()


@pytest.fixture
def network() -> Iterator[VethNetwork]:
    with ExitStack() as stack:
        yield VethNetwork(stack, RATE_MBPS, QUEUE_PACKETS * 1500)


class Attached:
    """`sagecc attach` as a process; its log line by line."""

    def __init__(self, policy: Path, pins: Path, *more: str, before: Sequence[str] = ()) -> None:
        command = [*before, *SAGECC, "attach", "--policy", str(policy), "--pins", str(pins), "--flows", "8", *more]
        self.process = subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
        self.agent = int(self.wait_for("drives every socket").split("(process ")[1].split(")")[0])

    def wait_for(self, words: str) -> str:
        """Return the next line that has the words."""
        assert self.process.stderr is not None
        seen = []
        for line in self.process.stderr:
            if words in line:
                return str(line)
            seen.append(line)
        raise AssertionError(f"no '{words}' in {seen}")

    def end(self, number: int = signal.SIGTERM) -> int:
        """End it; return its status."""
        self.process.send_signal(number)
        status = self.process.wait(20)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return status

    def __enter__(self) -> Attached:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.end()


def between(windows: Windows, start_s: float, end_s: float) -> list[int]:
    return [cwnd for t_s, cwnd, _ in windows if start_s <= t_s < end_s]


def follows_reno(cwnd: Sequence[int]) -> bool:
    """Tell whether windows rise packet by packet up to the queue's end and halve there."""
    steps = np.diff(cwnd)
    rises, falls = steps[steps > 0], [after / before for before, after in pairwise(cwnd) if after < before]
    return bool(
        len(rises) >= 5 and np.median(rises) <= 4 and max(cwnd) <= 1.5 * QUEUE_PACKETS and falls and min(falls) < 0.7
    )


@in_namespaces
def test_flows_survive_whatever_becomes_of_the_agent(tmp_path: Path, pins: Path, network: VethNetwork) -> None:
    """Killed, attached again, stopped, continued, ended, in one transfer; a still policy's window is flat."""
    policy = save_still_policy(tmp_path / "policy")
    at: dict[str, float] = {}

    def now(name: str) -> None:
        at[name] = time.monotonic()

    with Attached(policy, pins) as first, Transfer(network) as transfer:
        time.sleep(0.5)
        os.kill(first.agent, signal.SIGKILL)
        now("killed")
        assert "the agent was killed by SIGKILL; its 1 flows follow Reno's rules" in first.wait_for("sagecc:")
        assert first.process.wait(10) == 2
        time.sleep(3)
        with Attached(policy, pins) as second:
            now("reattached")
            time.sleep(1.2)
            os.kill(second.agent, signal.SIGSTOP)
            now("stopped")
            second.wait_for("the agent is silent for 200 ms: its 1 flows follow Reno's rules")
            time.sleep(2)
            os.kill(second.agent, signal.SIGCONT)
            second.wait_for("the agent is back")
            now("continued")
            time.sleep(1)
            now("ended")
            assert second.end() == 143
        time.sleep(2)
        result = transfer.finish()
    windows: Windows = result["windows"]
    assert set(between(windows, at["killed"] - 0.3, at["killed"])) == {10}
    for until in ("stopped", "ended"):  # on a busy machine an agent needs a moment before it is in charge
        assert len(set(between(windows, at[until] - 0.25, at[until]))) == 1
    for left, until in (("killed", "reattached"), ("stopped", "continued")):
        before = between(windows, at[left] - 0.3, at[left])[-1]
        assert any(cwnd != before for cwnd in between(windows, at[left], at[left] + WITHIN_S))
        assert follows_reno(between(windows, at[left] + WITHIN_S, at[until] - 0.3))
    assert follows_reno(between(windows, at["ended"] + WITHIN_S, at["ended"] + 60))


@in_namespaces
def test_what_fell_back_unseen_is_said_by_the_next(tmp_path: Path, pins: Path, network: VethNetwork) -> None:
    policy = save_still_policy(tmp_path / "policy")
    with Attached(policy, pins) as first, Transfer(network) as transfer:
        time.sleep(0.5)
        os.kill(first.agent, signal.SIGSTOP)
        first.process.kill()
        first.process.wait()
        os.kill(first.agent, signal.SIGKILL)
        time.sleep(0.5)
        command = [*SAGECC, "attach", "--policy", str(policy), "--pins", str(pins)]
        with subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True) as second:
            assert second.stderr is not None
            assert any(
                "since the last agent 1 flows fell back to Reno's rules" in line for line in second.stderr
            )  # stops there
            second.terminate()
        transfer.finish()


def save_policy_that_fails_at_the_first_loss(folder: Path) -> Path:
    """Grow by a hundredth a tick; inputs that tell of losses overflow: infinity less infinity is not a number."""
    sizes = NetworkSizes(inputs=len(FEATURE_NAMES), width=4, gru=4, residual_blocks=1, mixture=1, min_scale=0.01)
    weights = {name: np.zeros(shape, np.float32) for name, shape in sizes.shapes().items()}
    weights["head.loc.b"][:] = np.log2(1.01)
    scale = np.ones(len(FEATURE_NAMES), np.float32)
    for name in ("loss_db", "lost_s.max"):
        scale[FEATURE_NAMES.index(name)] = 1e-6
        weights["encoder.w"][FEATURE_NAMES.index(name)] = 3e38
    write(folder, weights, sizes, Scaling("none", 0 * scale, scale, 10.0), FEATURE_NAMES, {}, control=Control())
    return folder


@in_namespaces
def test_a_policy_that_answers_with_no_number_is_taken_off(tmp_path: Path, pins: Path, network: VethNetwork) -> None:
    policy = save_policy_that_fails_at_the_first_loss(tmp_path / "policy")
    with Attached(policy, pins) as attached, Transfer(network) as transfer:
        line = attached.wait_for("sagecc:")
        failed = time.monotonic()
        assert "is not a number" in line and "its 1 flows follow Reno's rules" in line
        assert attached.process.wait(10) == 2
        time.sleep(2)
        result = transfer.finish()
    assert max(between(result["windows"], 0, failed)) > QUEUE_PACKETS / 2
    assert follows_reno(between(result["windows"], failed + WITHIN_S, failed + 60))


@on_stock_kernel
def test_an_agent_needs_no_capability_once_the_scheme_is_loaded(tmp_path: Path, pins: Path) -> None:
    def sagecc(*arguments: str, before: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
        command = [*before, *SAGECC, *arguments, "--pins", str(pins)]
        return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=60)

    powerless = ["setpriv", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"]
    policy = save_still_policy(tmp_path / "policy")
    refused = sagecc("attach", "--load-only", before=powerless)
    assert refused.returncode == 2
    assert re.fullmatch(facts(f"sagecc: …CAP_BPF and CAP_PERFMON…root; {SEE_DOCTOR}\n"), refused.stderr)
    assert not pins.exists()
    assert sagecc("attach", "--flows", "8", "--load-only").returncode == 0
    again = sagecc("attach", "--load-only")
    assert again.returncode == 2 and re.fullmatch(facts(f"sagecc: …loaded already…{pins}\n"), again.stderr)
    with Attached(policy, pins, before=powerless) as attached:
        status = Path(f"/proc/{attached.agent}/status").read_text()
        assert "CapEff:\t0000000000000000" in status
        second = sagecc("attach", "--policy", str(policy))
        assert re.fullmatch(facts(f"sagecc: another agent…{pins}…\n"), second.stderr)
    code = (
        "import os, sys; from contextlib import closing; from pathlib import Path;"
        "from sagecc.execution.stock.kernel_scheme import pinned; from sagecc.execution.stock.shared import Shared;"
        f"os.setgid(65534); os.setuid(65534); d = pinned(Path({str(pins)!r}));"
        "print(Shared(d).observe(10**6).tolist())"
    )
    as_nobody = [sys.executable, "-c", code]
    done = subprocess.run(as_nobody, env=ENVIRONMENT, cwd=ROOT, capture_output=True, text=True)
    assert "belongs to another user" in done.stderr
    assert sagecc("detach").returncode == 0
    assert sagecc("attach", "--load-only", "--owner", "nobody").returncode == 0
    done = subprocess.run(as_nobody, env=ENVIRONMENT, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
    assert sagecc("detach").stdout.splitlines()[-1] == f"removed: {pins}"
    assert sagecc("detach").stdout == "nothing was there\n"


def of_another_version(policy: Path) -> str:
    card = json.loads((policy / "card.json").read_text())
    card["inputs"]["source_version"] = "77.0"
    (policy / "card.json").write_text(json.dumps(card))
    return "observes"


def truncated(policy: Path) -> str:
    with (policy / "policy.safetensors").open("r+b") as file:
        file.truncate(100)
    return "is damaged"


def on_top_of_cubic(policy: Path) -> str:
    card = json.loads((policy / "card.json").read_text())
    card["underlying_scheme"] = "cubic"
    (policy / "card.json").write_text(json.dumps(card))
    return "acts on top of 'cubic'"


@on_stock_kernel
@pytest.mark.parametrize("damage", [of_another_version, truncated, on_top_of_cubic])
def test_a_policy_that_cannot_run_changes_nothing(damage: object, tmp_path: Path, pins: Path) -> None:
    assert callable(damage)
    policy = save_still_policy(tmp_path / "policy")
    words = damage(policy)
    before = set(libbpf.map_ids())  # those of a test before may still be going
    command = [*SAGECC, "attach", "--policy", str(policy), "--pins", str(pins)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert words in done.stderr and done.stderr.count("\n") == 1
    assert set(libbpf.map_ids()) <= before and not pins.exists() and not scheme_in_use()


@on_stock_kernel
def test_a_scheme_that_cannot_be_pinned_changes_nothing(tmp_path: Path) -> None:
    """The agent is ready by then: it ends at once."""
    policy = save_still_policy(tmp_path / "policy")
    before = set(libbpf.map_ids())  # those of a test before may still be going
    command = [*SAGECC, "attach", "--policy", str(policy), "--flows", "8", "--pins", str(tmp_path / "pins")]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert f"sagecc: {tmp_path} is no BPF file system: mount one with" in done.stderr.splitlines()[-1]
    until = time.monotonic() + 10
    while set(libbpf.map_ids()) - before and time.monotonic() < until:
        time.sleep(0.05)
    assert set(libbpf.map_ids()) <= before and not (tmp_path / "pins").exists()


class Counting:
    """A policy that keeps what it is asked."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.forgot: list[int] = []

    def step(self, samples: np.ndarray, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.asked.append(slots.tolist())
        return np.full(len(slots), 20), np.zeros(len(slots), np.int64)

    def bounding_rates(self, slots: np.ndarray) -> np.ndarray:
        return np.full(len(slots), 5000)

    def reset(self, slot: int) -> None:
        self.forgot.append(slot)


@on_stock_kernel
def test_a_driver_meets_new_flows_and_starts_anew_after_a_pause() -> None:
    scheme = Scheme(8, NAME)
    scheme.register()
    try:
        memory, policy = Shared(scheme.descriptors), Counting()
        driver = Driver(policy, memory)
        with connection(), connection():
            assert (driver.tick(), driver.tick()) == (2, 2)
            assert policy.forgot == [0, 1]
            with connection():
                driver.tick()
                assert policy.forgot == [0, 1, 2]
            driver.tick()
            with connection():
                driver.tick()
                assert policy.forgot[3:] == [int(policy.asked[-1][-1])]
                policy.forgot.clear()
                time.sleep(2 * STALL_NS / 1e9)
                driver.tick()
                assert policy.forgot == policy.asked[-1]
                assert memory.orders["cwnd_pkts"][policy.asked[-1]].tolist() == [20, 20, 20]
                assert memory.orders["bounding_rate"][policy.asked[-1]].tolist() == [5000, 5000, 5000]
    finally:
        scheme.unregister()
        scheme.close()


def test_without_a_policy_or_with_too_much_the_help_is_named() -> None:
    for arguments in ([], ["--owner", "nobody"], ["--load-only", "--policy", "x"]):
        done = subprocess.run([*SAGECC, "attach", *arguments], env=ENVIRONMENT, capture_output=True, text=True)
        assert done.returncode == 2 and "give either --policy, or --load-only" in done.stderr
