# SPDX-License-Identifier: Apache-2.0
"""`sagecc exec`: any program and what it starts under a policy; nothing stays behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sagecc.common.errors import SEE_DOCTOR
from sagecc.common.shipped import SHIPPED
from sagecc.execution.stock import libbpf
from sagecc.execution.stock.cgroup import PREFIX
from tests.conftest import ROOT
from tests.helpers.messages import facts
from tests.helpers.policies import save_still_policy
from tests.helpers.sage_model import save_sage
from tests.helpers.stock import ENVIRONMENT, SAGECC, on_stock_kernel

pytestmark = [on_stock_kernel, pytest.mark.kernel]

TALK = r"""
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <unistd.h>
/* both ends of a connection, the connecting one in a child: each says its scheme */
static void say(const char *who, int s)
{
	char name[16] = "";
	socklen_t size = sizeof(name);
	getsockopt(s, IPPROTO_TCP, TCP_CONGESTION, name, &size);
	printf("%s %s\n", who, name);
	fflush(stdout);
}
int main(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof(at);
	int l = socket(AF_INET, SOCK_STREAM, 0);
	bind(l, (void *)&at, size);
	getsockname(l, (void *)&at, &size);
	listen(l, 1);
	if (!fork()) {
		int s = socket(AF_INET, SOCK_STREAM, 0);
		connect(s, (void *)&at, size);
		say("connected", s);
		sleep(1);
		return 0;
	}
	say("accepted", accept(l, 0, 0));
	sleep(1);
	return 7;
}
"""


@pytest.fixture(scope="module")
def talk() -> Iterator[Path]:
    """A statically linked program with both ends of a connection, one in a child; it ends with 7."""
    with tempfile.TemporaryDirectory() as name:  # not pytest's folder, which is its user's alone
        folder = Path(name)
        (folder / "talk.c").write_text(TALK)
        subprocess.run(["gcc", "-static", "-o", folder / "talk", folder / "talk.c"], check=True)
        folder.chmod(0o755)
        yield folder / "talk"


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    return save_still_policy(tmp_path / "policy")


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    before = set(libbpf.map_ids())
    yield
    until = time.monotonic() + 10
    while set(libbpf.map_ids()) - before and time.monotonic() < until:
        time.sleep(0.05)
    assert not set(libbpf.map_ids()) - before
    assert not [*Path("/sys/fs/cgroup").rglob(f"{PREFIX}*")]


def run(policy: Path, *command: object, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    line = [*SAGECC, "exec", "--policy", str(policy), "--flows", "8", *options, "--", *map(str, command)]
    return subprocess.run(line, env=ENVIRONMENT, capture_output=True, text=True, timeout=60)


def test_every_connection_of_a_program_and_its_children(policy: Path, talk: Path) -> None:
    done = run(policy, talk)
    assert done.returncode == 7, done.stderr
    schemes = dict(line.split() for line in done.stdout.splitlines())
    assert schemes.keys() == {"connected", "accepted"}
    assert re.fullmatch(r"sagecc_x\d+", schemes["connected"]) and schemes["accepted"] == schemes["connected"]
    assert re.search(r"of \d+ deadlines met, 2 flows at most", done.stderr)
    assert "drove 2 connections\n" in done.stderr
    assert subprocess.run([talk], capture_output=True, text=True).stdout.count("sagecc") == 0


TRANSFER = """
import socket, threading, time
listener = socket.create_server(("127.0.0.1", 0))
def send():
    with socket.create_connection(listener.getsockname()) as sock:
        for _ in range(50):
            sock.sendall(bytes(60_000))
            time.sleep(0.01)
threading.Thread(target=send).start()
with listener.accept()[0] as sock:
    print(sum(len(part) for part in iter(lambda: sock.recv(1 << 20), b"")))
"""


def test_a_policy_of_sages_description_drives(tmp_path: Path) -> None:
    done = run(save_sage(tmp_path / "sage", gain=0.05), sys.executable, "-c", TRANSFER)
    assert (done.returncode, done.stdout) == (0, "3000000\n"), done.stderr
    assert re.search(r"of \d+ deadlines met, 2 flows at most", done.stderr)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_policies_drive_by_their_names(name: str) -> None:
    done = run(Path(name), sys.executable, "-c", TRANSFER)
    assert (done.returncode, done.stdout) == (0, "3000000\n"), done.stderr
    assert re.search(r"of \d+ deadlines met, 2 flows at most", done.stderr)


def test_two_at_once_have_a_scheme_each_and_signals_reach_the_program(policy: Path, talk: Path) -> None:
    script = f"{talk}; trap 'echo told; exit 5' TERM; echo waiting; while :; do sleep 0.1; done"
    line = [*SAGECC, "exec", "--policy", str(policy), "--flows", "8", "--", "sh", "-c", script]
    runs = [subprocess.Popen(line, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    seen = []
    for process in runs:
        assert process.stdout is not None
        seen.append([process.stdout.readline() for _ in range(3)])
        assert seen[-1][2] == "waiting\n"
    for process in runs:
        process.send_signal(signal.SIGTERM)
    assert [process.communicate(timeout=30)[0] for process in runs] == ["told\n"] * 2
    assert [process.returncode for process in runs] == [5, 5]
    assert len({scheme.split()[1] for lines in seen for scheme in lines[:2]}) == 2


def test_the_program_goes_on_when_the_agent_is_killed_and_its_signal_is_passed_on(policy: Path) -> None:
    kill_agent = "for p in $(cat /proc/$PPID/task/$PPID/children); do [ $p = $$ ] || kill -9 $p; done"
    done = run(policy, "sh", "-c", f"{kill_agent}; sleep 1; echo done; kill -9 $$")
    assert (done.returncode, done.stdout) == (128 + 9, "done\n")
    assert "the agent was killed by SIGKILL; its 0 flows follow Reno's rules" in done.stderr


def test_as_another_user(policy: Path, talk: Path) -> None:
    done = run(policy, "sh", "-c", f"id -u; id -G; {talk}", options=("--user", "nobody"))
    assert done.stdout.splitlines()[:2] == ["65534", "65534"], done.stderr
    assert "accepted sagecc_x" in done.stdout


@pytest.mark.parametrize(
    ("options", "program", "words"),
    [
        (("--user", "no-such-user"), "true", "there is no user 'no-such-user'"),
        (("--runtime", "none"), "true", "no runtime 'none' for policies"),
    ],
)
def test_what_cannot_run_is_one_line(policy: Path, options: tuple[str, ...], program: str, words: str) -> None:
    done = run(policy, program, options=options)
    assert done.returncode == 2
    assert words in done.stderr and done.stderr.count("\n") == 1


def test_a_program_that_is_not_there_is_127_as_in_a_shell(policy: Path) -> None:
    done = run(policy, "no-such-program")
    assert (done.returncode, done.stderr) == (127, "sagecc: no-such-program: there is no such program\n")


def test_a_killed_exec_is_cleaned_up_by_detach(policy: Path) -> None:
    line = [*SAGECC, "exec", "--policy", str(policy), "--flows", "8", "--", "sh", "-c", "echo running; exec sleep 60"]
    process = subprocess.Popen(line, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "running\n"
    groups = [*Path("/sys/fs/cgroup").rglob(f"{PREFIX}{process.pid}")]
    [sleeping] = (int(pid) for pid in (groups[0] / "cgroup.procs").read_text().split())
    process.kill()
    process.wait()
    process.stdout.close()
    detached = subprocess.run([*SAGECC, "detach"], env=ENVIRONMENT, cwd=ROOT, capture_output=True, text=True)
    removed = rf"removed: scheme sagecc_x{process.pid}\nremoved: {groups[0]}\n"
    assert re.search(removed, detached.stdout), detached.stderr
    os.kill(sleeping, 0)  # the program goes on
    os.kill(sleeping, signal.SIGKILL)


def test_without_privilege_it_says_what_it_needs(policy: Path) -> None:
    line = [*SAGECC, "exec", "--policy", str(policy), "--", "true"]
    powerless = ["setpriv", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"]
    done = subprocess.run([*powerless, *line], env=ENVIRONMENT, capture_output=True, text=True)
    wanted = f"sagecc: …CAP_BPF and CAP_PERFMON and CAP_NET_ADMIN…root; {SEE_DOCTOR}\n"
    assert re.fullmatch(facts(wanted), done.stderr)
