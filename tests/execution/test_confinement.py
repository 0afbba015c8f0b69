# SPDX-License-Identifier: Apache-2.0
"""What an agent may do once it has been confined: by processes that try the rest, and by a real agent."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from sagecc.commands import attach
from sagecc.commands import exec as exec_
from sagecc.common import shipped
from sagecc.execution.stock.confinement import NOBODY, may_change_user
from sagecc.execution.stock.messages import MESSAGE_BYTES, Message
from sagecc.policy import runtime
from sagecc.policy.artefact import ACKED, MAPS, Control
from sagecc.policy.folder import CARD, WEIGHTS
from tests.helpers.policies import save_still_policy
from tests.helpers.stock import ENVIRONMENT, SAGECC, on_stock_kernel, with_libbpf

pytestmark = pytest.mark.heavy

as_root = pytest.mark.skipif(not may_change_user(), reason="only root can become another user")

BEGINNING = """
import ctypes, errno, os, signal, socket, sys, threading
from pathlib import Path
from typing import Literal
from sagecc.execution.stock.confinement import confine
libc, ends = ctypes.CDLL(None, use_errno=True), (socket.socket(), *socket.socketpair())
folder = Path(sys.argv[1])
"""


def confined(code: str, folder: Path, before: str = "") -> subprocess.CompletedProcess[str]:
    """Run code in a process that has been confined; `folder` is a folder in which anybody may write."""
    text = f"{BEGINNING}{before}\nconfine(1 << 28)\n{code}"
    return subprocess.run([sys.executable, "-c", text, folder], env=ENVIRONMENT, capture_output=True, text=True)


@pytest.fixture
def anybodys() -> Iterator[Path]:
    """A folder in which anybody may write, with a file that anybody may."""
    with tempfile.TemporaryDirectory() as name:  # not pytest's folder, which is its user's alone
        folder = Path(name)
        (folder / "file").write_text("kept")
        (folder / "file").chmod(0o666)
        folder.chmod(0o777)
        yield folder


REFUSED = """
def fails(name, *arguments):
    if getattr(libc, name)(*arguments) != -1:
        raise SystemExit(f"{name} is allowed")
    raise OSError(ctypes.get_errno(), name)

ATTEMPTS = (
    lambda: open("/etc/shadow"),
    lambda: open("/etc/passwd"),
    lambda: open(folder / "new", "w"),
    lambda: open(folder / "file", "a"),
    lambda: os.truncate(folder / "file", 0),
    lambda: os.unlink(folder / "file"),
    lambda: os.rename(folder / "file", folder / "other"),
    lambda: os.mkdir(folder / "new"),
    lambda: os.symlink("/etc/shadow", folder / "new"),
    lambda: os.chmod(folder / "file", 0o777),
    lambda: os.listdir(folder),
    lambda: os.stat("/etc/shadow"),
    lambda: os.readlink("/proc/self/exe"),
    lambda: os.chdir("/"),
    lambda: os.memfd_create("code"),
    lambda: os.pipe(),
    lambda: os.fork(),
    lambda: os.setresuid(0, 0, 0),
    lambda: os.sched_setaffinity(0, {0}),
    lambda: os.nice(1),
    lambda: fails("setrlimit", 1, 0),
    lambda: ends[1].getpeername(),
    lambda: socket.send_fds(ends[1], [b"."], [0]),
    lambda: fails("prctl", 4, 1, 0, 0, 0),
    lambda: fails("unshare", 0x10000000),
    lambda: fails("tgkill", 1, 1, 0),
    lambda: fails("syscall", 321, 0, 0, 0),
    lambda: fails("syscall", 72, ends[1].fileno(), 8, os.getppid()),
)
for attempt in ATTEMPTS:
    try:
        attempt()
    except OSError as error:
        assert error.errno == errno.EPERM, error
    else:
        raise SystemExit("something is allowed")
try:
    threading.Thread(target=print).start()
except RuntimeError:
    print("done")
"""


def test_what_a_library_may_try_is_refused(anybodys: Path) -> None:
    done = confined(REFUSED, anybodys)
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr
    assert [path.name for path in anybodys.iterdir()] == ["file"] and (anybodys / "file").read_text() == "kept"


KILLED = {
    "a program": 'os.execv("/bin/true", ["true"])',
    "a socket": "socket.socket()",
    "a connection": 'ends[0].connect(("127.0.0.1", 9))',
    "a server": 'ends[0].bind(("127.0.0.1", 0))',
    "a signal": "os.kill(os.getppid(), 0)",
    "tracing": "libc.ptrace(16, os.getppid(), 0, 0)",
    "memory": "libc.process_vm_readv(os.getppid(), 0, 0, 0, 0, 0)",
}


@pytest.mark.parametrize("code", KILLED.values(), ids=KILLED)
def test_what_only_an_intruder_tries_kills(code: str, anybodys: Path) -> None:
    assert confined(code, anybodys).returncode == -signal.SIGSYS


def test_who_is_confined_goes_on_computing_and_tells(anybodys: Path) -> None:
    code = """
data = bytearray(1 << 26)
ends[1].send(b"told")
print(os.read(ends[2].fileno(), 4), len(data), os.getuid(), flush=True)
signal.raise_signal(signal.SIGTERM)
"""
    done = confined(code, anybodys)
    user = NOBODY if may_change_user() else os.getuid()
    assert done.stdout == f"b'told' {1 << 26} {user}\n", done.stderr
    assert done.returncode == -signal.SIGTERM


def test_memory_and_files_have_limits(anybodys: Path) -> None:
    code = """
try:
    bytearray(1 << 29)
except MemoryError:
    try:
        file.write("more")
        file.flush()
    except OSError as error:
        print(error.errno == errno.EFBIG, flush=True)
        os._exit(0)
"""
    done = confined(code, anybodys, before='file = open(folder / "file", "a")')
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr
    assert (anybodys / "file").read_text() == "kept"


@as_root
def test_who_is_not_root_keeps_its_user_and_the_rest_holds(anybodys: Path) -> None:
    become = "os.setgroups([]); os.setresgid(1000, 1000, 1000); os.setresuid(1000, 1000, 1000)"
    done = confined(f"print(os.getuid())\n{REFUSED}", anybodys, become)
    assert (done.stdout, done.returncode) == ("1000\ndone\n", 0), done.stderr


DRIVE = """
import sys
from sagecc.execution.stock import driver
from sagecc.execution.stock.confinement import confine
from sagecc.policy import runtime
from sagecc.policy.folder import PolicyFolder
folders = [PolicyFolder.find(path).hold(runtime.files(sys.argv[1])) for path in sys.argv[2:]]
driver.rehearse(sys.argv[1])
confine(1 << 29)
for folder in folders:
    driver.warm_up(driver.load(folder, sys.argv[1], 20), 20)
print("driven")
"""


def own_policies(folder: Path) -> Iterator[Path]:
    """Write a policy for each thing that an action can do, and whole numbers for real ones."""
    least = Control(base=2, limits=(-1, 1), period_ms=10)
    for name, text in MAPS.items():
        yield save_still_policy(folder / name, control=replace(least, map=text))
    starts: tuple[float | Literal["acked"], ...] = (1.5, 1, ACKED)
    for number, start in enumerate(starts):
        yield save_still_policy(folder / f"start-{number}", control=replace(least, slow_start=start, window_bound=2))
    for drains in (False, True):
        bound = replace(least, window_bound=2, window_bound_loss=0.01, window_bound_drains=drains)
        yield save_still_policy(folder / f"bound-{drains}", control=bound)
    yield save_still_policy(folder / "careful", control=replace(bound, window_bound_slow_mbps=1.2, recovery_floor=0.5))


@with_libbpf
@pytest.mark.parametrize("name", ["exact", "numpy", "litert", "onnx"])
def test_every_policy_is_driven_by_what_was_there_before(name: str, tmp_path: Path) -> None:
    """Nothing is imported, opened, compiled or started any more, whatever the policy's kind."""
    shipped_ones = [shipped.POLICIES / known for known in shipped.SHIPPED]
    ours = [path for path in sorted(shipped.POLICIES.glob("*-1")) if not path.name.startswith("orca")]
    policies = [*ours, *own_policies(tmp_path)] if name == "exact" else shipped_ones
    if name in ("litert", "onnx"):
        pytest.importorskip({"litert": "ai_edge_litert", "onnx": "onnxruntime"}[name])
    command = [sys.executable, "-c", DRIVE, name, *policies]
    done = subprocess.run([*map(str, command)], env=ENVIRONMENT, capture_output=True, text=True)
    assert done.stdout == "driven\n", done.stderr


AGENT = """
import sys
from sagecc.execution.stock import driver
rehearsed = []
def rehearse(name, known=driver.rehearse):
    known(name)
    rehearsed.append(name)
def warm_up(policy, slots, known=driver.warm_up):
    known(policy, slots)
    if rehearsed:
        spoil()
driver.rehearse, driver.warm_up = rehearse, warm_up
def spoil():
    SPOIL
sys.exit(driver.run(int(sys.argv[1]), sys.argv[2], "exact", 8))
"""


@with_libbpf
@pytest.mark.parametrize(
    ("spoil", "error", "failure"),
    [
        ("bytearray(1 << 31)", "needs more memory for 8 flows than an agent may have", ""),
        ("open('/etc/shadow')", "", "PermissionError: [Errno 1] Operation not permitted: '/etc/shadow'"),
        ("from sagecc.cli import main", "", "sagecc.cli"),
    ],
)
def test_why_a_confined_agent_failed_reaches_its_supervisor(
    spoil: str, error: str, failure: str, tmp_path: Path
) -> None:
    policy = save_still_policy(tmp_path / "policy")
    end, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with end, other:
        command = [sys.executable, "-c", AGENT.replace("SPOIL", spoil), str(other.fileno()), str(policy)]
        done = subprocess.run(command, env=ENVIRONMENT, pass_fds=[other.fileno()], capture_output=True, text=True)
        message = Message.decoded(end.recv(MESSAGE_BYTES))
    assert (done.returncode, done.stderr) == (2, "")
    assert error in message.error and failure in message.failure and (message.error or message.failure)


@as_root
@pytest.mark.kernel
@on_stock_kernel
def test_a_real_agent_is_confined(tmp_path: Path) -> None:
    policy = save_still_policy(tmp_path / "policy")
    script = """
for p in $(cat /proc/$PPID/task/$PPID/children); do
    [ $p = $$ ] || { cat /proc/$p/task/*/status; echo; cat /proc/$p/limits; readlink /proc/$p/fd/*; }
done
"""
    command = [*SAGECC, "exec", "--policy", str(policy), "--flows", "8", "--", "sh", "-c", script]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
    wanted = {
        "Uid": "\t".join([str(NOBODY)] * 4),
        "Gid": "\t".join([str(NOBODY)] * 4),
        "Groups": "",
        **dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapAmb"), "0" * 16),
        "NoNewPrivs": "1",
        "Seccomp": "2",
    }
    for name, value in wanted.items():
        found = re.findall(rf"^{name}:\t(.*?) *$", done.stdout, re.MULTILINE)
        assert found and set(found) == {value}, (name, found, done.stderr)
    limits = dict(re.findall(r"^Max (.+?) {2,}(\d+) ", done.stdout, re.MULTILINE))
    for name, limit in {"core file size": 0, "file size": 0, "processes": 0, "open files": 32}.items():
        assert int(limits[name]) == limit
    assert 1 << 30 < int(limits["address space"]) < 3 << 30
    files = [line for line in done.stdout.splitlines() if re.match(r"/|\w+:\[", line) or line.startswith("anon_inode")]
    assert {re.sub(r"[:\[].*", "", file) for file in files} <= {"/dev/null", "socket", "anon_inode"}, files


@pytest.mark.kernel
@on_stock_kernel
@pytest.mark.parametrize(
    ("number", "meaning"), [("SYS", "it asked the kernel for what an agent may not do"), ("SEGV", "broke the runtime")]
)
def test_how_an_agent_ended_is_said(number: str, meaning: str, tmp_path: Path) -> None:
    policy = save_still_policy(tmp_path / "policy")
    script = f"for p in $(cat /proc/$PPID/task/$PPID/children); do [ $p = $$ ] || kill -{number} $p; done; sleep 0.5"
    command = [*SAGECC, "exec", "--policy", str(policy), "--flows", "8", "--", "sh", "-c", script]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    assert re.search(rf"the agent was killed by SIG{number} \(.*{meaning}.*\); its 0 flows follow Reno's", done.stderr)


def test_no_file_for_a_library_is_read_unless_asked_for() -> None:
    for command in (attach.command, exec_.command):
        (option,) = (parameter for parameter in command.params if parameter.name == "runtime")
        assert option.default == runtime.DEFAULT
    assert runtime.files(runtime.DEFAULT) == (CARD, WEIGHTS)
