# SPDX-License-Identifier: Apache-2.0
"""What the lab says where a guest cannot run, on real mounts and under real system-call filters."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from sagecc.collector.machine import check_machine, memory_folder, obituary
from sagecc.schemas.errors import SageccError

EPISODE = """
import sys
from pathlib import Path
from sagecc.collector import lab
from sagecc.collector.grid import set_one
from sagecc.collector.spec import episode_spec
from sagecc.schemas.errors import SageccError
try:
    lab.run_guest(Path(sys.argv[1]), episode_spec(set_one(12, 1, 10, 1), "cubic", 0))
    print("fine")
except SageccError as error:
    print(error)
"""

REFUSE = """
import ctypes, os, struct, sys
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, REFUSE_EPERM = 0x7FFF0000, 0x00050001
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
steps = [(LOAD, 0, 0, 0), (EQUAL, 0, 1, int(sys.argv[1])), (RETURN, 0, 0, REFUSE_EPERM), (RETURN, 0, 0, ALLOW)]
code = b"".join(struct.pack("HBBI", *step) for step in steps)
buffer = ctypes.create_string_buffer(code, len(code))
program = Program(len(steps), ctypes.addressof(buffer))
libc = ctypes.CDLL(None)
assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
assert libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0) == 0
os.execvp(sys.argv[2], sys.argv[2:])
"""

PTRACE, PERSONALITY = 101, 135
"""System call numbers of x86-64."""


def episode(kernel: Path, *prefix: str, code: str = EPISODE, **environment: str) -> str:
    done = subprocess.run(
        [*prefix, sys.executable, "-c", code, str(kernel.resolve())],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def mounted(*mounts: str) -> tuple[str, ...]:
    """Return what runs a command with these mounts, seen by nobody else."""
    if os.getuid() != 0 or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        pytest.skip("only root may mount")
    script = " && ".join((*(f"mount -t tmpfs {mount}" for mount in mounts), 'exec "$@"'))
    return "unshare", "-m", "sh", "-c", script, "sh"


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
    assert said.startswith("no folder can hold the guest's memory of ")
    assert f"/dev/shm is mounted noexec, {folder} is mounted noexec, /tmp is not tried; set TMPDIR to a folder" in said
    assert "\n" not in said


def test_no_folder_has_room(kernel: Path, folder: Path) -> None:
    mounts = mounted("-o size=32m none /dev/shm", f"-o size=16m none {folder}")
    said = episode(kernel, *mounts, code=without_tmp(), TMPDIR=str(folder))
    assert f"/dev/shm has 32 MiB free, {folder} has 16 MiB free, /tmp is not tried; set TMPDIR to a folder" in said


def without_tmp() -> str:
    """Return EPISODE on a host whose /tmp will not do (the tests' own files are there)."""
    return (
        "from sagecc.collector import machine\n"
        "unfit = machine._unfit\n"
        "machine._unfit = lambda folder, mb: 'is not tried' if folder == '/tmp' else unfit(folder, mb)\n" + EPISODE
    )


@pytest.mark.parametrize("size", ["1m", "10m"])
def test_memory_that_runs_out_in_mid_episode(kernel: Path, folder: Path, size: str) -> None:
    """Another guest may take the room after this one has looked: at boot or later."""
    code = f"from sagecc.collector import lab\nlab.memory_folder = lambda mb: {str(folder)!r}\n" + EPISODE
    code = code.replace("set_one(12, 1, 10, 1)", "set_one(96, 1, 80, 16)")
    said = episode(kernel, *mounted(f"-o size={size} none {folder}"), code=code)
    assert f"cubic.0: {folder} became full, and the guest's memory is there: run fewer jobs at a time" in said


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (PTRACE, "the guest may not trace its process here (ptrace is refused): allow it (Docker: --cap-add"),
        (PERSONALITY, "address randomisation cannot be turned off here (personality is refused)"),
    ],
)
def test_a_refused_system_call_is_named(kernel: Path, call: int, says: str) -> None:
    if os.uname().machine != "x86_64":
        pytest.skip("the numbers are those of x86-64")
    said = episode(kernel, sys.executable, "-c", REFUSE, str(call))
    assert f"cubic.0: {says}" in said
    assert "\n" not in said


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


def test_a_guest_that_was_killed_says_nothing() -> None:
    assert obituary("", -signal.SIGKILL, "/dev/shm").endswith("by somebody or by the system for want of memory")
    assert obituary("", 3, "/dev/shm").endswith("it left no message (status 3)")
    words = "make_umid - failed\nKernel panic - not syncing: no init\n"
    assert obituary(words, 1, "/dev/shm").endswith("its last words: Kernel panic - not syncing: no init")
