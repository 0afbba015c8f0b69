# SPDX-License-Identifier: Apache-2.0
"""What the lab says where a guest cannot run, on real mounts and under real system-call filters."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from sagecc.collector.kernel.machine import check_machine, memory_folder
from sagecc.common.errors import SageccError
from tests.helpers.messages import facts
from tests.helpers.mounts import mounted
from tests.helpers.seccomp import DOCKER_RULES, PERSONALITY, PTRACE, PTRACE_SETREGSET, SECCOMP

EPISODE = """
import sys
from pathlib import Path
from sagecc.collector.lab import boot
from sagecc.collector.run.grid import set_one
from sagecc.collector.lab.spec import episode_spec
from sagecc.common.errors import SageccError
try:
    boot.run_guest(Path(sys.argv[1]), episode_spec(set_one(12, 1, 10, 1), "cubic", 0))
    print("fine")
except SageccError as error:
    print(error)
"""

HASHES = """
import hashlib, sys
from pathlib import Path
from sagecc.collector.lab import boot
from sagecc.collector.run.grid import set_one
from sagecc.collector.lab.spec import episode_spec
for _ in range(int(sys.argv[2])):
    spec = episode_spec(set_one(12, 1, 10, 1), "cubic", 0)
    print(hashlib.sha256(boot.run_guest(Path(sys.argv[1]), spec).samples.tobytes()).hexdigest())
"""


def episode(kernel: Path, *prefix: str, code: str = EPISODE, times: int = 1, **environment: str) -> str:
    done = subprocess.run(
        [*prefix, sys.executable, "-c", code, str(kernel.resolve()), str(times)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "memory"
    path.mkdir()
    return path


def test_noexec_shared_memory_is_passed_over(kernel: Path, folder: Path) -> None:
    assert episode(kernel, *mounted("-o noexec none /dev/shm"), TMPDIR=str(folder)) == "fine"


def test_no_folder_may_be_executed(kernel: Path, folder: Path) -> None:
    mounts = mounted("-o noexec none /dev/shm", f"-o noexec none {folder}")
    said = episode(kernel, *mounts, code=without_tmp(), TMPDIR=str(folder))
    assert re.search(facts(f"memory…/dev/shm…noexec…{folder}…noexec…/tmp is not tried…TMPDIR"), said)
    assert "\n" not in said


def test_no_folder_has_room(kernel: Path, folder: Path) -> None:
    mounts = mounted("-o size=32m none /dev/shm", f"-o size=16m none {folder}")
    said = episode(kernel, *mounts, code=without_tmp(), TMPDIR=str(folder))
    assert re.search(facts(f"/dev/shm…32 MiB…{folder}…16 MiB…/tmp is not tried…TMPDIR"), said)


def without_tmp() -> str:
    """Return EPISODE on a host whose /tmp will not do (the tests' own files are there)."""
    return (
        "from sagecc.collector.kernel import machine\n"
        "fault = machine._fault\n"
        "machine._fault = lambda folder, mb: 'is not tried' if folder == '/tmp' else fault(folder, mb)\n" + EPISODE
    )


@pytest.mark.parametrize("size", ["1m", "10m"])
def test_memory_that_runs_out_in_mid_episode(kernel: Path, folder: Path, size: str) -> None:
    """Another guest may take the room after this one has looked: at boot or later."""
    code = f"from sagecc.collector.lab import boot\nboot.memory_folder = lambda mb: {str(folder)!r}\n" + EPISODE
    code = code.replace("set_one(12, 1, 10, 1)", "set_one(96, 1, 80, 16)")
    said = episode(kernel, *mounted(f"-o size={size} none {folder}"), code=code)
    assert re.search(facts(f"cubic.0: {folder}…full…fewer jobs"), said)


def test_refused_ptrace_is_named(kernel: Path) -> None:
    said = episode(kernel, *SECCOMP, str(PTRACE), "--")
    assert re.search(facts("cubic.0: …ptrace is refused…--cap-add"), said)
    assert "\n" not in said


def test_state_that_cannot_be_set_is_not_called_refused(kernel: Path) -> None:
    """As a kernel without the patch for it died on a processor with AMX."""
    said = episode(kernel, *SECCOMP, f"{PTRACE}:{PTRACE_SETREGSET}={errno.EFAULT}", "--")
    assert "'userspace - ptrace set fp regs failed, errno = 14 (EFAULT)', then 'Kernel panic - not syncing: " in said
    assert "ptrace is refused" not in said
    kept = Path(re.search(r"the whole console is in (\S+): report it with what 'sagecc doctor' prints", said)[1])  # type: ignore[index]
    assert "Call Trace" in kept.read_text()
    kept.unlink()


RANDOMISED = Path("/proc/sys/kernel/randomize_va_space").read_text().strip() == "2"


@pytest.mark.skipif(not RANDOMISED, reason="this machine does not randomise addresses")
@pytest.mark.parametrize("rules", [(str(PERSONALITY),), DOCKER_RULES], ids=["personality", "docker"])
def test_the_same_bytes_wherever_the_host_puts_things(kernel: Path, rules: tuple[str, ...]) -> None:
    """Under filters as a container's: nothing is asked that they refuse, and no address decides a byte."""
    hashes = episode(kernel, *SECCOMP, *rules, "--", code=HASHES, times=20).split()
    assert len(hashes) == 20
    assert set(hashes) == {episode(kernel, "setarch", "x86_64", "-R", code=HASHES)}


def test_the_guests_memory_is_the_same_wherever_the_heap_lies(kernel: Path) -> None:
    """The command line is the lab's, but for `quiet`: the kernel says how much memory it found."""
    options = (
        "mem=64M",
        "time-travel=inf-cpu",
        "norandmaps",
        "seed=1",
        "lab=0",
        "con=null",
        "con0=null,fd:1",
        "panic=-1",
    )
    found = set()
    for _ in range(8):
        done = subprocess.run([kernel, *options], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        found.update(re.findall(r"Memory: .*available", done.stdout + done.stderr))
    assert len(found) == 1


def test_another_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine="aarch64"))
    with pytest.raises(SageccError, match="needs an x86-64 machine, this one is aarch64"):
        check_machine()


def test_shared_memory_comes_first(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(folder))
    free = {"/dev/shm": 100, str(folder): 50, "/tmp": 300}

    def statvfs(path: str) -> SimpleNamespace:
        return SimpleNamespace(f_flag=0, f_bavail=free[path] * 256, f_frsize=4096)

    monkeypatch.setattr(os, "statvfs", statvfs)
    assert memory_folder(100) == "/dev/shm"
    assert memory_folder(101) == "/tmp"
    free[str(folder)] = 200
    assert memory_folder(101) == str(folder)
    with pytest.raises(
        SageccError, match=r"/dev/shm has 100 MiB free, .*/memory has 200 MiB free, /tmp has 300 MiB free"
    ):
        memory_folder(301)


def test_a_folder_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "gone"))
    with pytest.raises(SageccError, match=r"/gone cannot be used \(No such file or directory\)"):
        memory_folder(1 << 40)
