# SPDX-License-Identifier: Apache-2.0
"""Episodes on the real kernel in virtual time."""

from __future__ import annotations

import hashlib
import os
import pwd
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sagecc.collector.lab import boot
from sagecc.collector.lab.boot import Guest, per_flow, run_guest
from sagecc.collector.lab.episode import run_episode
from sagecc.collector.lab.spec import Drive, episode_spec
from sagecc.common.errors import SageccError
from sagecc.schemas import wire
from sagecc.schemas.schemes import OTHERS, SCHEMES
from tests.collector.conftest import Run
from tests.helpers.networks import network
from tests.helpers.processes import alive, guests


def burn(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def test_cubic_matches_the_published_fidelity_figures(run: Run) -> None:
    """Mahimahi on a real kernel: 45.8 Mbps, 28.5 ms of queueing delay, so a mean RTT of 68.5 ms."""
    episode = run("cubic", duration_s=30)
    own = episode.flows[0]
    assert own.goodput_mbps == pytest.approx(45.8, rel=0.03)
    assert episode.rows["srtt_us"].to_numpy().mean() / 1000 == pytest.approx(68.5, rel=0.03)
    assert own.delay_mean_ms - 20 == pytest.approx(28.5, rel=0.03)


@pytest.mark.parametrize("scheme", ["cubic", "bbr"])
def test_same_specification_and_seed_same_bytes_under_load(run: Run, scheme: str) -> None:
    calm = run(scheme, duration_s=8)
    busy = [threading.Thread(target=lambda: subprocess.run([sys.executable, "-c", BURN], check=True)) for _ in "ab"]
    for thread in busy:
        thread.start()
    loaded = run(scheme, duration_s=8)
    for thread in busy:
        thread.join()
    assert loaded.sha256 == calm.sha256
    assert loaded.rows.equals(calm.rows)


BURN = "import time\nend = time.monotonic() + 2\nwhile time.monotonic() < end: pass"


def test_same_bytes_from_another_folder(
    run: Run, kernel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = run("bbr", duration_s=5)
    elsewhere = tmp_path / "a" / "much" / "longer" / "path" / "to-the-kernel"
    elsewhere.parent.mkdir(parents=True)
    shutil.copy2(kernel, elsewhere)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SOMETHING", "x" * 5000)
    there = run_episode(elsewhere, here.environment, "bbr")
    assert there.sha256 == here.sha256


def test_another_seed_gives_other_bytes_of_the_same_kind(run: Run) -> None:
    one, two = run("bbr", seed=1, duration_s=10), run("bbr", seed=2, duration_s=10)
    assert one.sha256 != two.sha256
    assert one.flows[0].goodput_mbps == pytest.approx(two.flows[0].goodput_mbps, rel=0.05)


@pytest.mark.parametrize("scheme", [*SCHEMES, *OTHERS])
def test_every_scheme_runs(run: Run, scheme: str) -> None:
    episode = run(scheme, bandwidth_mbps=24, rtt_ms=20, duration_s=6)
    assert 12 < episode.flows[0].goodput_mbps < 24
    steps = episode.rows["step"].to_numpy()
    assert np.array_equal(steps, np.arange(len(steps)))
    assert np.allclose(np.diff(episode.rows["t_s"].to_numpy()), 0.01)


def test_link_counters_add_up(run: Run) -> None:
    rows = run("cubic", bandwidth_mbps=12, rtt_ms=20, duration_s=10).rows.to_pylist()
    last = rows[-1]
    # every packet sent was dropped, has left the link, waits in its queue, or is a SYN, a lone ACK
    sent = last["data_segs_out"] + 2
    waiting = last["link_queue_bytes"] / 1500
    assert abs(sent - last["link_packets"] - last["link_drops"] - waiting) <= 2
    assert last["link_capacity_bytes"] == 12e6 / 8 * last["t_s"]
    assert last["link_bytes"] <= last["link_capacity_bytes"]
    for counter in ("delivered_pkts", "bytes_acked", "received_bytes", "link_packets", "link_drops", "link_delay_ns"):
        assert np.all(np.diff([row[counter] for row in rows]) >= 0)
    assert max(row["link_queue_bytes"] for row in rows) <= 30_000


def test_a_flow_that_goes_on_makes_no_system_calls(run: Run) -> None:
    """Each would be a trip through ptrace, a voluntary switch of the guest: without, some 200 a second."""

    def switches(duration_s: float) -> int:
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_nvcsw
        run("cubic", bandwidth_mbps=192, duration_s=duration_s)
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_nvcsw - before

    assert switches(12) - switches(4) < 8 * 60


def test_capacity_follows_the_schedule(run: Run) -> None:
    rows = run("cubic", bandwidth_mbps=12, step=2, duration_s=20).rows.to_pylist()
    assert rows[-1]["t_s"] == pytest.approx(20)
    assert rows[-1]["link_capacity_bytes"] == (12e6 * 17 + 24e6 * 3) / 8


def test_smallest_delay_is_propagation_and_transmission(kernel: Path) -> None:
    """A full packet at 12 Mbps takes 1 ms to send; 20 ms of propagation follow."""
    recording = run_guest(kernel, episode_spec(network(12, 40, 1, 5), "cubic", 0))
    delays_ms = recording.packets["delay"] * wire.DELAY_UNIT_NS / 1e6
    # the handshake's ACK has 52 bytes: 0.0347 ms
    assert delays_ms.min() == pytest.approx(20.0346)
    # a full queue of 60000 bytes waits 40 ms
    assert delays_ms.max() == pytest.approx(60, abs=1)


def test_two_cubic_flows_and_a_late_start(run: Run) -> None:
    episode = run("cubic", bandwidth_mbps=24, rtt_ms=20, duration_s=60, cross=("cubic",), start_s=5.0)
    assert episode.rows["t_s"][0].as_py() == pytest.approx(5.03, abs=0.02)
    late, early = episode.flows
    assert late.goodput_mbps * 55 + early.goodput_mbps * 60 < 24 * 60
    assert late.goodput_mbps > 24 / 2 * 0.7


def test_policy_sets_the_window_in_lockstep(run: Run) -> None:
    seen: list[int] = []

    def saw(sample: np.void) -> tuple[int, int]:
        seen.append(int(sample["cwnd_pkts"]))
        return 50 + len(seen) % 50, 0

    episode = run("policy:test", controller=saw, duration_s=3)
    assert len(seen) == episode.rows.num_rows
    # the window of the next row is what was asked for at this one
    wanted = [50 + n % 50 for n in range(1, len(seen))]
    assert seen[1:] == wanted


def test_pacing_limits_the_rate(run: Run) -> None:
    episode = run("policy:test", controller=lambda _: (1000, 1_500_000), duration_s=5)
    assert episode.flows[0].goodput_mbps == pytest.approx(12, rel=0.06)
    assert episode.flows[0].lost_packets == 0


def test_lockstep_is_deterministic(run: Run) -> None:
    def slow(sample: np.void) -> tuple[int, int]:
        time.sleep(0.0002)
        return 100 + int(sample["t_ns"]) // 10_000_000 % 7, 0

    def fast(sample: np.void) -> tuple[int, int]:
        return 100 + int(sample["t_ns"]) // 10_000_000 % 7, 0

    assert (
        run("policy:t", controller=slow, duration_s=3).sha256 == run("policy:t", controller=fast, duration_s=3).sha256
    )


def driven(kernel: Path, drives: dict[int, Drive], windows: list[int], **fields: Any) -> dict[int, list[int]]:
    """Answer every tick of a 2 s episode with the next of `windows` (the last one for good); return cwnd by flow."""
    spec = episode_spec(network(duration_s=2, **fields), "policy:host", 0, drives=drives)
    with Guest(kernel, spec) as guest:
        while (now := guest.tick()) is not None:
            window = windows.pop(0) if len(windows) > 1 else windows[0]
            guest.act([window] * len(now), [0] * len(now))
        assert guest.tick() is None
        rows = guest.recording.samples
        assert set(rows["flow"]) == set(range(len(spec.lockstep)))
    return {flow: rows["cwnd_pkts"][rows["flow"] == flow].tolist() for flow in spec.lockstep}


def test_a_guest_is_of_its_commands_session_and_out_of_reach_of_its_ctrl_c(kernel: Path) -> None:
    """A session of its own would be one of the scheduler's autogroups, with a share of the processors like a login."""
    with Guest(kernel, episode_spec(network(duration_s=2), "policy:host", 0, drives={0: Drive()})) as guest:
        assert guest.tick() is not None
        own = guests(os.getpid())
        assert own
        assert {os.getsid(pid) for pid in own} == {os.getsid(0)}
        assert os.getpgid(0) not in {os.getpgid(pid) for pid in own}


def test_an_answer_takes_effect_after_its_latency(kernel: Path) -> None:
    """25 ms: sampled at tick n, in force between ticks n + 2 and n + 3."""
    windows = list(range(20, 70))
    prompt = driven(kernel, {0: Drive()}, list(windows))[0]
    late = driven(kernel, {0: Drive(latency_us=25_000)}, list(windows))[0]
    assert prompt[1:51] == windows
    assert late[3:53] == windows
    assert set(late[:3]) <= {10, 11, 12, 13, 14}  # still the kernel's own


def test_who_orders_late_sees_what_was_ordered_and_small_steps_add_up(kernel: Path) -> None:
    """Of 30 ticks of +0.3 packets each nothing is lost, though every order holds three ticks later."""
    spec = episode_spec(network(duration_s=2), "policy:host", 0, drives={0: Drive(latency_us=25_000)})
    seen, real = list[int](), 20.0
    with Guest(kernel, spec) as guest:
        while (now := guest.tick()) is not None:
            seen.append(int(now["cwnd_pkts"][0]))
            guest.act([int(real)], [0])
            real += 0.3
        recorded = guest.recording.samples["cwnd_pkts"].tolist()
    assert seen[1:31] == [int(20 + 0.3 * tick + 1e-9) for tick in range(30)]
    assert recorded[3:33] == seen[1:31]


def test_latency_is_of_the_host_and_not_of_the_machine(kernel: Path) -> None:
    drive = {0: Drive(latency_us=5000)}
    assert driven(kernel, drive, list(range(20, 70))) == driven(kernel, drive, list(range(20, 70)))


def test_a_window_on_top_of_cubic_is_its_starting_point(kernel: Path) -> None:
    alone = driven(kernel, {0: Drive("cubic")}, [0])[0]
    nudged = driven(kernel, {0: Drive("cubic")}, [0] * 100 + [40, 0])[0]
    assert nudged[:101] == alone[:101]
    assert alone[101] > 82 > nudged[101] > 40  # in slow start: a packet more for each of the 40 or so ACKs of a tick
    assert nudged[-1] > nudged[101]


def test_a_host_drives_several_flows(kernel: Path) -> None:
    seen = driven(kernel, {0: Drive(), 1: Drive()}, [30], cross=("cubic",))
    assert [set(seen[flow][5:]) for flow in (0, 1)] == [{30}, {30}]


def test_unprivileged_user_runs_an_episode(kernel: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("already an unprivileged user: every test here shows it")
    nobody = pwd.getpwnam("nobody")
    binary = Path("/tmp") / f"sagecc-test-{os.getpid()}"
    shutil.copy2(kernel, binary)
    try:
        spec = episode_spec(network(duration_s=3), "cubic", 0)
        code = (
            "import os, hashlib\n"
            "from pathlib import Path\n"
            "from sagecc.collector.lab.boot import run_guest\n"
            "from sagecc.collector.lab.spec import EpisodeSpec\n"
            f"os.setgroups([]); os.setgid({nobody.pw_gid}); os.setuid({nobody.pw_uid})\n"
            f"spec = EpisodeSpec({spec.name!r}, bytes.fromhex({spec.wire.hex()!r}), 0, {spec.memory_mb}, ())\n"
            f"recording = run_guest(Path({str(binary)!r}), spec)\n"
            "print(os.getuid(), hashlib.sha256(recording.samples.tobytes()).hexdigest())\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd="/")
        assert done.returncode == 0, done.stderr
        uid, digest = done.stdout.split()
        assert int(uid) == nobody.pw_uid
        assert digest == hashlib.sha256(run_guest(kernel, spec).samples.tobytes()).hexdigest()
    finally:
        binary.unlink()


def test_a_killed_guest_is_named_and_leaves_nothing(kernel: Path) -> None:
    seen: set[int] = set()

    def kill(sample: np.void) -> tuple[int, int]:
        seen.update(guests(os.getpid()))
        os.kill(min(seen), signal.SIGKILL)
        return 10, 0

    spec = episode_spec(network(duration_s=5), "policy:victim", 3)
    with pytest.raises(SageccError, match=r"policy:victim\.3: the guest died in mid-episode"):
        run_guest(kernel, spec, per_flow(kill))
    time.sleep(0.5)
    assert len(seen) > 1
    assert not alive(seen)


def test_a_hung_guest_is_ended_and_named(kernel: Path) -> None:
    seen: set[int] = set()
    spec = episode_spec(network(duration_s=5), "policy:stuck", 0)

    def stop(sample: np.void) -> tuple[int, int]:
        seen.update(guests(os.getpid()))
        for pid in seen:
            os.kill(pid, signal.SIGSTOP)
        return 10, 0

    with pytest.raises(SageccError, match=r"policy:stuck\.0: .*4 s"):
        run_guest(kernel, spec, per_flow(stop), watchdog_s=4)
    time.sleep(0.5)
    assert seen
    assert not alive(seen)


def test_a_guest_dies_with_its_runner(kernel: Path) -> None:
    code = (
        "from pathlib import Path\nimport time\n"
        "from sagecc.collector.lab.boot import run_guest\nfrom sagecc.collector.lab.spec import EpisodeSpec\n"
        "def forever(samples):\n    print('up', flush=True)\n    time.sleep(60)\n"
        "spec = EpisodeSpec('x', bytes.fromhex({!r}), 0, 128, (0,))\nrun_guest(Path({!r}), spec, forever)\n"
    )
    spec = episode_spec(network(duration_s=5), "policy:x", 0)
    with subprocess.Popen(
        [sys.executable, "-c", code.format(spec.wire.hex(), str(kernel))], stdout=subprocess.PIPE, text=True
    ) as runner:
        assert runner.stdout is not None
        assert runner.stdout.readline() == "up\n"
        seen = guests(runner.pid)
        assert seen
        runner.kill()
    time.sleep(0.5)
    assert not alive(seen)


def test_unknown_scheme_is_named_by_the_guest(run: Run) -> None:
    with pytest.raises(SageccError, match="this kernel has no scheme 'tahoe'"):
        run("tahoe", duration_s=1)


def test_a_file_that_is_no_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    fake = tmp_path / "linux"
    fake.write_text("#!/bin/sh\necho 'Kernel panic: no good' >&2\nexit 1\n")
    fake.chmod(0o755)
    with pytest.raises(SageccError, match=r"'Kernel panic: no good'.*console is in "):
        run_guest(fake, episode_spec(network(), "cubic", 0))


def test_a_file_that_cannot_be_run(tmp_path: Path) -> None:
    fake = tmp_path / "linux"
    fake.write_text("no program")
    with pytest.raises(SageccError, match=r"linux .*Permission denied.*'sagecc doctor'"):
        run_guest(fake, episode_spec(network(), "cubic", 0))


def test_a_kernel_that_its_writer_still_holds(kernel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux executes nothing that is open for writing: two workers of a node copy it at the same time."""
    copies = [tmp_path / name for name in ("closed", "held")]  # a guest that ends may still be in the first
    for copy in copies:
        shutil.copyfile(kernel, copy)
        copy.chmod(0o755)
    spec = episode_spec(network(12, 20, 1, 1), "cubic", 0)
    with copies[0].open("r+b") as writer:
        closing = threading.Timer(0.3, writer.close)
        closing.start()
        assert len(run_guest(copies[0], spec).samples)
        closing.join()
    monkeypatch.setattr(boot, "BUSY_S", 0.1)
    with copies[1].open("r+b"), pytest.raises(SageccError, match=r"held cannot be run \(Text file busy\)"):
        run_guest(copies[1], spec)


def test_no_kernel(tmp_path: Path) -> None:
    with pytest.raises(SageccError, match="run 'sagecc kernel' first"):
        run_guest(tmp_path / "linux", episode_spec(network(), "cubic", 0))


def test_specification_of_another_version(kernel: Path) -> None:
    spec = episode_spec(network(), "cubic", 0)
    head = np.frombuffer(spec.wire[: wire.SPEC.itemsize], wire.SPEC).copy()
    head["version"] = 99
    other = type(spec)(spec.name, head.tobytes() + spec.wire[wire.SPEC.itemsize :], 0, spec.memory_mb, ())
    with pytest.raises(SageccError, match=f"version 99.*{wire.VERSION}"):
        run_guest(kernel, other)


class SleptSocket:
    """Data that come after so many waits have ended."""

    def __init__(self, ended: int) -> None:
        self._ended = ended

    def setsockopt(self, *_: object) -> None: ...

    def recv_into(self, chunk: memoryview) -> int:
        self._ended -= 1
        if self._ended >= 0:
            raise BlockingIOError
        chunk[:5] = b"hello"
        return 5


def test_a_host_that_was_suspended_is_no_guest_that_hangs() -> None:
    assert boot._Stream(SleptSocket(1), "a", 60).read(5) == b"hello"  # type: ignore[arg-type]
    with pytest.raises(SageccError, match="episode a: the guest said nothing for 60 s"):
        boot._Stream(SleptSocket(boot.WAITS), "a", 60).read(5)  # type: ignore[arg-type]
