# SPDX-License-Identifier: Apache-2.0
"""`sagecc doctor`: on this machine as it is, under real filters and mounts, and on machines that are only told of."""

from __future__ import annotations

import errno
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from sagecc.collector.kernel import machine
from sagecc.collector.kernel.identity import LAB, POLICY, identity_folder, kernel_identity, write_identities
from sagecc.collector.lab.spec import BASE_MEMORY_MB
from sagecc.collector.realtime import host, mahimahi
from sagecc.collector.run import golden
from sagecc.commands.doctor import command
from sagecc.common import limits, shipped
from sagecc.common.errors import SEE_DOCTOR, SageccError
from sagecc.common.optional import is_installed
from sagecc.doctor import around, extras, lab, learning, own_kernel
from sagecc.doctor.finding import GOLDEN, Check, Finding, State, fails, refuses, unneeded, works
from sagecc.doctor.page import NAME_WIDTH, WIDTH, Page
from sagecc.doctor.tracing import PtraceTrial, trial
from sagecc.execution.stock import cgroup, kernel_scheme, libbpf, supervisor
from sagecc.schemas.schemes import OTHERS, SCHEMES
from tests.conftest import ROOT
from tests.helpers.mounts import mounted
from tests.helpers.seccomp import DOCKER_RULES, PTRACE, SECCOMP

pytestmark = pytest.mark.kernel

OTHER_SHA256 = "0" * 64
OPTIONAL = ("tensorflow", "tf_keras", "sonnet", "acme", "trfl", "ai_edge_litert", "onnxruntime", "faiss", "ray", "dvc")
WITHOUT = "import sys; sys.modules.update(dict.fromkeys({names!r})); from sagecc.cli import main; main(sys.argv[1:])"
"""Runs sagecc where these packages cannot be imported."""


def doctor(kernel: Path, folder: Path, *before: str, names: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run the command in another folder, behind another program, or without some packages."""
    code = ["-c", WITHOUT.format(names=names)] if names else ["-P", "-m", "sagecc"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*before, sys.executable, *code, "doctor", "--kernel", str(kernel)],
        cwd=folder,
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
    )
    assert done.stderr == ""
    return done


def answer(value: Any) -> Callable[..., Any]:
    return lambda *_: value


def raising(error: BaseException) -> Callable[..., Any]:
    def function(*_: object, **__: object) -> None:
        raise error

    return function


@pytest.fixture(autouse=True)
def width(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's own, whatever terminal the tests, or a worker of theirs, are told of."""
    monkeypatch.setenv("COLUMNS", str(WIDTH))


@pytest.fixture
def fake_kernel(tmp_path: Path) -> Path:
    """A file with the identities of a kernel that was built from the present source."""
    path = tmp_path / "sagecc-linux"
    path.write_bytes(b"not a kernel")
    write_identities(path)
    return path


# ---- this machine ----


def test_on_this_machine_the_lab_works_and_its_bytes_are_everywheres(kernel: Path, tmp_path: Path) -> None:
    done = doctor(kernel.resolve(), tmp_path)
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    assert f"the same bytes as everywhere (cubic {golden.pinned()['sha256']['cubic'][:12]}; 34 s in" in done.stdout
    assert max(map(len, lines)) <= WIDTH
    assert "\x1b" not in done.stdout and "\r" not in done.stdout
    titles = [line for line, before in zip(lines[1:], lines, strict=False) if not before and line[0] != " "]
    assert [title.split(" (")[0] for title in titles[:4]] == [
        "The lab",
        "Pool and learner",
        "A policy on this machine's own kernel",
        "Optional",
    ]
    assert titles[4].startswith("The lab works here.")


def test_ptrace_that_is_refused_ends_in_what_to_do_and_status_2(kernel: Path, tmp_path: Path) -> None:
    if os.uname().machine != "x86_64":
        pytest.skip("the numbers are those of x86-64")
    done = doctor(kernel.resolve(), tmp_path, *SECCOMP, str(PTRACE), "--")
    assert done.returncode == 2
    assert "\n  NO  ptrace            PTRACE_TRACEME: Operation not permitted (EPERM)\n" in done.stdout
    assert "\n  NO  golden episode    cubic was not played: " in done.stdout
    assert "\nThe lab cannot run here. First, ptrace: allow it (Docker: --cap-add SYS_PTRACE" in done.stdout


def test_in_an_ordinary_container_the_lab_works(kernel: Path, tmp_path: Path) -> None:
    """Where Docker's default profile refuses BPF, namespaces and much else."""
    done = doctor(kernel.resolve(), tmp_path, *SECCOMP, *DOCKER_RULES, "--")
    assert done.returncode == 0, done.stdout
    assert "\n  ok  ptrace " in done.stdout
    assert "\n  ok  BPF  " not in done.stdout


def test_without_any_optional_package_the_lab_works(kernel: Path, tmp_path: Path) -> None:
    done = doctor(kernel.resolve(), tmp_path, names=OPTIONAL)
    assert done.returncode == 0, done.stdout
    for name in ("TensorFlow", "analysis", "LiteRT", "ONNX", "Ray", "make repro"):
        assert f"\n  --  {name:<{NAME_WIDTH}}" in done.stdout
    assert "-> pip install 'sagecc[train]'\n" in done.stdout


def test_a_broken_installation_is_told_not_raised(kernel: Path, tmp_path: Path) -> None:
    done = doctor(kernel.resolve(), tmp_path, names=("numpy",))
    assert done.returncode == 2
    assert "\n  NO  golden episode    this check broke: ModuleNotFoundError: " in done.stdout
    assert "\n  NO  all of it         ModuleNotFoundError: " in done.stdout
    assert "\nThe lab cannot run here. First, golden episode: " in done.stdout


def test_a_folder_that_is_full(tmp_path: Path) -> None:
    """One that is writable, of 64 KiB, in place of the one where datasets would go."""
    code = "import sys; from pathlib import Path; from sagecc.doctor.learning import disk; "
    code += "print(*vars(disk(Path(sys.argv[1]))).values())"
    done = subprocess.run(
        [*mounted(f"-o size=64k none {tmp_path}"), sys.executable, "-c", code, str(tmp_path / "datasets")],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    said = f"fails nothing can be written into {tmp_path}: No space left on device go to a folder with more room"
    assert done.stdout.startswith(said), done.stderr


def test_the_trial_of_ptrace_tells_the_size_of_the_state() -> None:
    found = trial()
    assert found.refused == "" and found.number == 0
    assert found.state_bytes is not None and found.state_bytes >= 512 + 64  # the legacy area and the header


def test_json_has_the_same(fake_kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(golden, "digest", lambda kernel, scheme, watchdog_s: golden.pinned()["sha256"][scheme])
    result = CliRunner().invoke(command, ["--json", "--kernel", str(fake_kernel)], standalone_mode=False)
    said = json.loads(result.output)
    assert (result.return_value, said["lab_works"], said["first"]) == (0, True, "")
    assert said["about"].endswith(f"Linux {platform.release()} {platform.machine()}")
    names = [check["name"] for group in said["groups"] for check in group["checks"]]
    assert len(set(names)) == len(names) and max(map(len, names)) <= NAME_WIDTH
    assert names[:5] == ["processor", "ptrace", "guests' memory", "kernel", GOLDEN]
    states = {check["state"] for group in said["groups"] for check in group["checks"]}
    assert states <= {"works", "fails", "unneeded"}


# ---- other machines: the lab ----


def test_another_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine="aarch64"))
    found = lab.processor(PtraceTrial(state_bytes=None))
    assert found == fails("the lab needs an x86-64 machine, this one is aarch64", "run it on one, or in a virtual one")
    assert lab.ptrace(PtraceTrial("PTRACE_GETREGS: Input/output error (EIO)", errno.EIO)).state is State.UNNEEDED


@pytest.mark.parametrize(("state_bytes", "said"), [(2696, "; 2,696 bytes"), (11_008, "; 11,008 bytes"), (None, "")])
def test_any_size_of_a_processors_state_is_fine(state_bytes: int | None, said: str) -> None:
    found = lab.processor(PtraceTrial(state_bytes=state_bytes))
    assert found.state is State.WORKS and said in found.text
    assert ("any number will do" in found.text) == bool(said)


@pytest.mark.parametrize(
    ("refused", "number", "advice"),
    [
        ("PTRACE_TRACEME: Operation not permitted (EPERM)", errno.EPERM, "--cap-add SYS_PTRACE"),
        ("PTRACE_SYSEMU: Input/output error (EIO)", errno.EIO, "outside of this sandbox"),
        ("the trial ended with status -31: without a word", 0, "outside of this sandbox"),
    ],
)
def test_what_to_do_about_ptrace_follows_from_what_it_said(refused: str, number: int, advice: str) -> None:
    found = lab.ptrace(PtraceTrial(refused, number))
    assert found.state is State.FAILS and found.text.startswith(refused)
    assert advice in found.what_to_do and SEE_DOCTOR not in found.what_to_do


def test_no_folder_for_guests_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    mount = SimpleNamespace(f_flag=os.ST_NOEXEC, f_bavail=1 << 30, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda path: mount)
    found = lab.memory()
    assert found.state is State.FAILS and "/dev/shm is mounted noexec" in found.text
    assert found.what_to_do == machine.MEMORY_REMEDY and machine.MEMORY_REMEDY not in found.text


def test_guests_share_what_a_container_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "memory_folder", answer("/dev/shm"))
    free_mb = machine.available_memory_mb(lab.GUEST_MB)
    monkeypatch.setattr(os, "statvfs", answer(SimpleNamespace(f_flag=0, f_bavail=free_mb // 2 << 8, f_frsize=4096)))
    for limit_mib, room in ((None, free_mb // 2), (free_mb, free_mb // 2), (1000, 1000)):
        monkeypatch.setattr(machine, "memory_limit_bytes", answer(limit_mib and limit_mib << 20))
        assert lab.memory() == works(f"/dev/shm, {room:,} MiB: room for {room // lab.GUEST_MB} guests at once")


def test_no_kernel(tmp_path: Path) -> None:
    found = lab.virtual_time_kernel(tmp_path / "none")
    assert found.state is State.FAILS and str(tmp_path / "none") in found.text
    assert "sagecc kernel" in found.what_to_do


def test_a_file_that_is_not_the_checkouts_kernel_is_not_run(
    fake_kernel: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shipped, "KERNEL", fake_kernel)
    fake_kernel.write_text(f"#!/bin/sh\ntouch {tmp_path}/RAN\n")
    fake_kernel.chmod(0o755)
    found, played = lab.virtual_time_kernel(None), lab.golden(None, ("cubic",))
    assert found.state is played.state is State.FAILS
    assert found.text.startswith(f"{fake_kernel} is not the kernel that 'sagecc kernel' built")
    assert found.what_to_do.startswith("run 'sagecc kernel'") and found.text in played.text
    assert not (tmp_path / "RAN").exists()


def test_a_kernel_without_identities_or_of_other_source(fake_kernel: Path) -> None:
    assert lab.virtual_time_kernel(fake_kernel).state is State.WORKS
    assert f"{LAB}, sha256 " in lab.virtual_time_kernel(fake_kernel).text
    path = identity_folder(fake_kernel) / POLICY
    path.write_text(f"{LAB} tcp_pure.c=000000000000\n")
    its = kernel_identity(fake_kernel, (*SCHEMES, *OTHERS, POLICY))
    assert lab.virtual_time_kernel(fake_kernel).text.startswith(f"{fake_kernel} is of other source: {its}, not {LAB}")
    path.unlink()
    missing = f"{path} is missing, the identity of {fake_kernel}"
    assert lab.virtual_time_kernel(fake_kernel) == fails(missing, "run 'sagecc kernel'")


def test_a_wrong_golden_hash_is_status_2(fake_kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(golden, "digest", lambda kernel, scheme, watchdog_s: OTHER_SHA256)
    result = CliRunner().invoke(command, ["--kernel", str(fake_kernel)], standalone_mode=False)
    assert result.return_value == 2
    right = golden.pinned()["sha256"]["cubic"][:12]
    assert f"NO  golden episode    not the bytes that are pinned: cubic 000000000000 for {right}\n" in result.output
    assert "The lab cannot run here. First, golden episode: run 'sagecc kernel'" in result.output


def test_all_plays_every_scheme_and_names_those_that_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    def digest(kernel: Path, scheme: str, watchdog_s: float) -> str:
        return OTHER_SHA256 if scheme in ("vegas", POLICY) else str(golden.pinned()["sha256"][scheme])

    monkeypatch.setattr(golden, "digest", digest)
    every = lab.checks(Path("any"), thorough=True)[-1]
    said = every().text
    assert said.count(" for ") == 2 and "vegas 0" in said and f"{POLICY} 0" in said
    monkeypatch.setattr(golden, "digest", lambda kernel, scheme, watchdog_s: golden.pinned()["sha256"][scheme])
    assert every().text.startswith(f"the same bytes as everywhere (all {len(golden.ENVIRONMENTS)} schemes; ")


def test_an_episode_that_dies_says_why_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(golden, "digest", raising(SageccError(f"episode x.cubic.0: out of luck; {SEE_DOCTOR}")))
    assert lab.golden(Path("any"), ("cubic",)) == fails("cubic was not played: out of luck")


# ---- other machines: pool and learner ----


def test_a_disk_without_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for free_gb, state, said in ((2, State.FAILS, "small takes up to 9"), (9, State.WORKS, "full takes up to 30")):
        mount = SimpleNamespace(f_bavail=free_gb * 10**6, f_frsize=1000)
        monkeypatch.setattr(os, "statvfs", answer(mount))
        found = learning.disk(tmp_path / "datasets")
        assert found.state is state and said in found.text and f"{free_gb}.0 GB free" in found.text


def test_a_disk_that_is_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = OSError(errno.EROFS, os.strerror(errno.EROFS))
    monkeypatch.setattr(tempfile, "TemporaryFile", raising(error))
    found = learning.disk(tmp_path / "not" / "there")
    assert found.text == f"nothing can be written into {tmp_path}: Read-only file system" and found.fails


@pytest.mark.parametrize(
    ("limit_mb", "cores", "said", "to_do"),
    [
        (None, 2, "GB: ", ""),
        (1000, 2, "1.0 GB, a control group's limit: an episode takes up to 256 MB, so 3 at", ""),
        (1000, 8, "so 3 at a time", "give 'collect' and 'league' --jobs 3"),
        (100, 2, "so 0 at a time", "free some, or give this container more"),
    ],
)
def test_memory(limit_mb: int | None, cores: int, said: str, to_do: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "memory_limit_bytes", answer(limit_mb and limit_mb * 10**6))
    monkeypatch.setattr(learning, "usable_cores", answer(cores))
    found = learning.memory()
    assert said in found.text and found.what_to_do == to_do
    assert found.fails == (limit_mb == 100)


@pytest.mark.parametrize(("quota", "usable"), [(None, 4), (2.5, 2), (0.5, 1), (16.0, 4)])
def test_cores(quota: float | None, usable: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", answer(64))
    monkeypatch.setattr(os, "sched_getaffinity", answer({0, 1, 2, 3}))
    monkeypatch.setattr(limits, "cpu_quota", answer(quota))
    found = learning.cores()
    assert found.text.startswith(f"{usable} of 64 may be used") and f"--jobs {usable} " in found.what_to_do


def process_of(folder: Path, groups: str, mounts: str) -> Path:
    """Write what /proc says of a process."""
    (folder / "proc").mkdir()
    (folder / "proc" / "cgroup").write_text(groups)
    (folder / "proc" / "mounts").write_text(mounts)
    return folder / "proc"


def test_limits_of_control_groups_version_2(tmp_path: Path) -> None:
    """The tightest of the process's group and those above it."""
    own = tmp_path / "fs" / "pods" / "one"
    own.mkdir(parents=True)
    process = process_of(tmp_path, "0::/pods/one\n", f"cgroup2 {tmp_path}/fs cgroup2 rw 0 0\n")
    assert (limits.cpu_quota(process), limits.memory_limit_bytes(process)) == (None, None)
    (own / "cpu.max").write_text("max 100000\n")
    (own / "memory.max").write_text("max\n")
    (own.parent / "cpu.max").write_text("150000 100000\n")
    (own.parent / "memory.max").write_text("1073741824\n")
    assert (limits.cpu_quota(process), limits.memory_limit_bytes(process)) == (1.5, 1 << 30)


def test_limits_of_control_groups_version_1(tmp_path: Path) -> None:
    """In a container the mount is the process's own group, whose path is that outside."""
    for controller, files in (
        ("cpu,cpuacct", {"cpu.cfs_quota_us": "200000", "cpu.cfs_period_us": "100000"}),
        ("memory", {"memory.limit_in_bytes": "2147483648"}),
        ("pids", {"memory.limit_in_bytes": "1"}),
    ):
        (tmp_path / controller).mkdir()
        for name, text in files.items():
            (tmp_path / controller / name).write_text(f"{text}\n")
    mounts = "".join(f"cgroup {tmp_path}/{name} cgroup rw,{name} 0 0\n" for name in ("cpu,cpuacct", "memory", "pids"))
    process = process_of(tmp_path, "3:memory:/docker/a\n2:cpu,cpuacct:/docker/a\n1:pids:/docker/a\n0::/\n", mounts)
    assert (limits.cpu_quota(process), limits.memory_limit_bytes(process)) == (2.0, 2 << 30)
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    (tmp_path / "cpu,cpuacct" / "cpu.cfs_quota_us").write_text("-1\n")
    assert (limits.cpu_quota(process), limits.memory_limit_bytes(process)) == (None, None)


def test_packages_that_are_missing_or_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    assert learning.packages(thorough=False).state is State.WORKS
    assert extras.check_extra(extras.TRAIN, thorough=False).text.endswith(", for training (found; --all imports)")
    for module in (extras, learning):
        monkeypatch.setattr(
            module, "run_python", lambda code: ("", "no AVX2" if "polars" in code or "faiss" in code else "")
        )
    assert learning.packages(thorough=True) == fails("polars: no AVX2", "install sagecc again")
    assert extras.check_extra(extras.TRAIN, thorough=True).state is State.WORKS
    broken = extras.check_extra(extras.ANALYSIS, thorough=True)
    assert broken == fails("no AVX2", "pip install 'sagecc[analysis]', into an environment of its own")
    for module in (extras, learning):
        monkeypatch.setattr(module, "is_installed", lambda name: name not in ("polars", "trfl", "acme"))
    assert learning.packages(thorough=False) == fails("polars missing", "install sagecc again")
    missing = unneeded("not installed: dm-acme, trfl (only for training)", "pip install 'sagecc[train]'")
    assert extras.check_extra(extras.TRAIN, thorough=True) == missing


def test_a_folder_in_the_way_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ray_of_light").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert not is_installed("ray_of_light") and is_installed("click")
    assert extras.version("click") and not extras.version("ray-of-light")


@pytest.mark.parametrize(
    ("code", "answers"),
    [
        ("print('one'); print('two')", ("one, two", "")),
        ("import sagecc.nowhere", ("", "ModuleNotFoundError: No module named 'sagecc.nowhere'")),
        ("import os; os._exit(3)", ("", "status 3")),
        ("import os; os.kill(os.getpid(), 4)", ("", "killed by SIGILL, as on a processor that is too old for it")),
        ("import os; os.kill(os.getpid(), 9)", ("", "killed by SIGKILL")),
    ],
)
def test_what_another_process_answers(code: str, answers: tuple[str, str]) -> None:
    assert extras.run_python(code) == answers


CUDA = {"cuda": "12.5.1", "cudnn": "9"}
NO_DRIVER, NO_CUDNN = ("", "no libcuda.so.1"), ("", "OSError: libcudnn.so.9: cannot open shared object file")
H100, TWO, FOUND = ("NVIDIA H100", ""), ("NVIDIA H100, NVIDIA H100", ""), ("", "")


@pytest.mark.parametrize(
    ("devices", "answers", "build", "everything", "state", "said"),
    [
        (0, [NO_DRIVER], CUDA, False, State.UNNEEDED, "no /dev/nvidia*, and no libcuda.so.1: training takes"),
        (1, [NO_DRIVER], CUDA, False, State.FAILS, "nvidia0, but no libcuda.so.1"),
        (1, [H100], None, False, State.UNNEEDED, "NVIDIA H100; only training would use it"),
        (1, [H100], {}, False, State.FAILS, "NVIDIA H100, but this TensorFlow is built without CUDA"),
        (
            1,
            [H100, NO_CUDNN],
            CUDA,
            False,
            State.FAILS,
            "NVIDIA H100, but CUDA's libraries are missing (libcudnn.so.9)",
        ),
        (2, [TWO, FOUND], CUDA, False, State.WORKS, "NVIDIA H100, NVIDIA H100, CUDA's libraries, a TensorFlow"),
        (2, [TWO, TWO], CUDA, True, State.WORKS, "TensorFlow sees NVIDIA H100, NVIDIA H100"),
        (1, [H100, FOUND], CUDA, True, State.FAILS, "NVIDIA H100: TensorFlow sees none"),
        (1, [H100, ("", "ImportError: no")], CUDA, True, State.FAILS, "NVIDIA H100: ImportError: no"),
    ],
)
def test_gpus(
    devices: int,
    answers: list[tuple[str, str]],
    build: dict[str, str] | None,
    everything: bool,
    state: State,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for number in range(devices):
        (tmp_path / f"nvidia{number}").touch()
    replies = iter(answers)
    monkeypatch.setattr(learning, "DEVICES", tmp_path)
    monkeypatch.setattr(learning, "run_python", lambda code: next(replies))
    monkeypatch.setattr(learning, "version", answer(""))
    monkeypatch.setattr(learning, "_tensorflow_build", answer(build))
    found = learning.gpu(everything)
    assert found.state is state and found.text.startswith(said)
    assert bool(found.what_to_do) == (state is State.FAILS or build is None)
    assert not list(replies)


STAND_IN = """
#include <string.h>
int cuInit(unsigned flags) { return STATUS; }
int cuDeviceGetCount(int *count) { *count = 2; return 0; }
int cuDeviceGetName(char *name, int bytes, int device) { strncpy(name, device ? "second" : "first", bytes); return 0; }
"""


@pytest.mark.parametrize(
    ("status", "answers"), [(0, ("first, second", "")), (100, ("", "its driver finds none (cuInit: 100)"))]
)
def test_a_driver_is_asked_for_its_gpus(
    status: int, answers: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for NVIDIA's library, compiled here."""
    source = tmp_path / "cuda.c"
    source.write_text(STAND_IN)
    target = tmp_path / "libcuda.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", f"-DSTATUS={status}", "-o", target, source], check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    assert extras.run_python(learning.DRIVER) == answers


def test_tensorflows_notes_of_its_build_are_read() -> None:
    """The packages of the lock are built with CUDA."""
    assert (learning._tensorflow_build() or {}).keys() == {"cuda", "cudnn"}


# ---- other machines: their own kernels ----


def test_without_privileges_what_needs_them_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_scheme, "held_capabilities", answer(0))
    monkeypatch.setattr(kernel_scheme, "Scheme", raising(AssertionError("tried")))
    monkeypatch.setattr(cgroup, "new_group", raising(AssertionError("tried")))
    monkeypatch.setattr(cgroup, "current_group", answer(Path("/sys/fs/cgroup/mine")))
    assert own_kernel.privileges() == fails("CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN missing", own_kernel.AS_ROOT)
    assert own_kernel.bpf().state is State.UNNEEDED
    assert own_kernel.control_group() == unneeded(f"/sys/fs/cgroup/mine is there; {own_kernel.NO_PRIVILEGES}")


def test_capabilities_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = kernel_scheme.CAPABILITIES
    for held, missing in (
        (["CAP_BPF", "CAP_NET_ADMIN"], "CAP_PERFMON missing"),
        (["CAP_BPF", "CAP_PERFMON"], "CAP_NET_ADMIN missing"),
    ):
        monkeypatch.setattr(kernel_scheme, "held_capabilities", answer(sum(1 << numbers[name] for name in held)))
        assert own_kernel.privileges().text == missing
    held_bits = 1 << kernel_scheme.CAP_SYS_ADMIN | 1 << numbers["CAP_NET_ADMIN"]
    monkeypatch.setattr(kernel_scheme, "held_capabilities", answer(held_bits))
    assert own_kernel.privileges().state is State.WORKS


def test_an_agent_can_be_confined_or_it_is_said_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert own_kernel.confinement().state is State.WORKS
    filtered = [*SECCOMP, "317", "--", sys.executable, "-c", own_kernel.CONFINED]
    error = subprocess.run(filtered, capture_output=True, text=True).stderr.strip()
    monkeypatch.setattr(own_kernel, "run_python", answer(("", error)))
    found = own_kernel.confinement()
    assert found.fails and found.text.startswith("an agent cannot be confined here (Operation not permitted)")


def test_no_libbpf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libbpf, "library", raising(SageccError("libbpf.so.1 is missing: apt-get install libbpf1")))
    assert own_kernel.library() == fails("libbpf.so.1 is missing", "apt-get install libbpf1")
    assert own_kernel.type_information() == own_kernel.bpf() == unneeded(own_kernel.NO_LIBRARY)


def test_no_bpf(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that is too old or has no types, and one that has them but does not load the scheme."""
    monkeypatch.setattr(libbpf, "library", answer(None))
    monkeypatch.setattr(platform, "release", answer("5.15.0"))
    assert own_kernel.type_information() == fails("Linux 5.15.0 is too old", "the scheme needs 6.1 or newer")
    monkeypatch.setattr(kernel_scheme, "missing_capabilities", answer([]))
    error = SageccError(f"sagecc_pure.ack.o is refused by Linux 6.6: Operation not permitted; {SEE_DOCTOR}")
    monkeypatch.setattr(kernel_scheme, "Scheme", raising(error))
    found = own_kernel.bpf()
    assert found.text == str(error).partition(";")[0]
    assert found.what_to_do.startswith("look for what forbids BPF")


def test_no_bpf_file_system_and_no_control_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_scheme, "PINS", tmp_path / "sagecc")
    assert f"mount -t bpf bpf {tmp_path}" in own_kernel.bpf_file_system().what_to_do
    monkeypatch.setattr(Path, "read_text", lambda self: "proc /proc proc rw 0 0\n" if self.name == "mounts" else "")
    found = own_kernel.control_group()
    assert found == fails("no cgroup v2 is mounted", "mount one with 'mount -t cgroup2 cgroup2 /sys/fs/cgroup'")


# ---- other machines: what is optional ----


def test_what_is_not_there_says_who_would_need_it(fake_kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", answer(None))
    monkeypatch.setattr(around, "is_installed", answer(False))
    monkeypatch.setattr(extras, "is_installed", answer(False))
    for check in around.checks(fake_kernel, thorough=False):
        found = check()
        assert found.state is State.UNNEEDED and "only " in found.text, check.name
    no_kernel = around.kernel_tools(fake_kernel.with_name("none"))
    assert no_kernel.fails and no_kernel.what_to_do.startswith("apt-get install apt bc bison")


# ---- what the page says, and how ----


def test_a_check_that_breaks_is_a_line() -> None:
    found = Check("probe", raising(ZeroDivisionError("division by zero")))()
    assert found.fails and found.text == "this check broke: ZeroDivisionError: division by zero"
    assert Check("probe", raising(SageccError(f"no luck; {SEE_DOCTOR}")))() == fails("no luck")
    with pytest.raises(KeyboardInterrupt):
        Check("probe", raising(KeyboardInterrupt()))()


def test_an_errors_halves() -> None:
    assert refuses(f"nothing: do this; {SEE_DOCTOR}") == fails("nothing", "do this")


def test_findings_are_wrapped_below_each_other() -> None:
    lines = Page().finding("probe", fails("much " * 40, "a-path/" + "x" * 120)).split("\n")
    assert lines[0].startswith("  NO  probe             much much")
    assert all(len(line) <= WIDTH for line in lines)
    assert all(line[:24] == " " * 24 for line in lines[1:])
    assert lines[2].strip()[:9] == "-> a-path" or lines[3].strip()[:9] == "-> a-path"


@pytest.mark.parametrize(("marks", "found"), [("ok", works("a")), ("--", unneeded("a")), ("NO", fails("a"))])
def test_colour_is_a_terminals_alone(marks: str, found: Finding) -> None:
    assert Page().finding("probe", found).startswith(f"  {marks}  probe")
    assert f"m{marks}\x1b[0m" in Page(colour=True).finding("probe", found)


@pytest.mark.parametrize(
    ("terminal", "environment", "colour", "live"),
    [
        (False, {}, False, False),
        (True, {"TERM": "xterm"}, True, True),
        (True, {"TERM": "xterm", "NO_COLOR": "1"}, False, True),
        (True, {"TERM": "dumb"}, False, False),
    ],
)
def test_the_page_suits_where_it_goes(
    terminal: bool, environment: dict[str, str], colour: bool, live: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in {"COLUMNS": "70", **environment}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(isatty=answer(terminal)))
    page = Page.here()
    assert (page.colour, page.live, page.width) == (colour, live, 70)
    assert bool(page.running("probe")) == live


# ---- what it stands on ----


def test_what_is_promised_of_room_is_what_was_measured() -> None:
    """Datasets count twice: DVC keeps a copy. Training's compiled rows come on top, of the whole grid 17 GB."""

    def datasets_gb(lock: str) -> float:
        stages = yaml.safe_load((ROOT / lock).read_text())["stages"].values()
        outs = [out for stage in stages for out in stage.get("outs", ()) if out["path"].startswith("datasets/")]
        return float(sum(out["size"] for out in outs)) / learning.GB

    small, full = datasets_gb("dvc.lock"), datasets_gb("datasets/full/dvc.lock")
    compiled = json.loads((ROOT / "evidence/results/feeding.json").read_text())["result"]["file_gb"]
    assert 2 * small + compiled * small / full < learning.SMALL_GB
    assert 2 * full + compiled < learning.FULL_GB
    episodes = json.loads((ROOT / "evidence/results/memory.json").read_text())["result"]["episodes"]
    assert max(row["guest_mb"] + row["collector_mb"] for row in episodes) < learning.EPISODE_MB
    assert lab.GUEST_MB == BASE_MEMORY_MB


@pytest.mark.parametrize(
    ("refused", "why"),
    [
        (lambda: host.run_on_host(golden.ENVIRONMENTS["cubic"], "cubic"), (host, "why_not")),
        (lambda: mahimahi.run_mahimahi(golden.ENVIRONMENTS["cubic"], "cubic"), (mahimahi, "why_not")),
        (lambda: supervisor.driving(Path("none"), "auto", 1).__enter__(), (supervisor, "why_not")),
    ],
)
def test_an_error_whose_cause_is_the_machine_names_the_doctor(
    refused: Callable[[], object], why: tuple[object, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*why, answer("it cannot be"))
    with pytest.raises(SageccError, match=f"it cannot be; {SEE_DOCTOR}$"):
        refused()


def test_the_first_page_names_it() -> None:
    readme = (ROOT / "README.md").read_text()
    assert readme.index("make test") < readme.index("sagecc doctor") < readme.index("## Results")
