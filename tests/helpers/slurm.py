# SPDX-License-Identifier: Apache-2.0
"""A Slurm of one node in a folder, run by whoever runs the tests: munged, slurmctld and slurmd."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel")
MISSING = [name for name in PROGRAMS if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") is None]
"""Programs that are not installed: apt-get install slurmctld slurmd slurm-client munge."""

CONFIGURATION = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={controller}
SlurmdPort={daemon}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,batch_sched_delay=1
ReturnToService=2
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=64 RealMemory=1000000
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class Slurm:
    """A running Slurm; `variables` are what its commands need."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self.variables = variables

    def ask(self, *command: str, folder: Path | None = None) -> str:
        """Run one of Slurm's commands; return what it prints."""
        done = subprocess.run(command, cwd=folder, env=self.variables, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def jobs(self, name: str) -> list[dict[str, str]]:
        """Return what Slurm knows of a job, or of each of an array."""
        shown = self.ask("scontrol", "show", "job", "--oneliner", name)
        return [dict(word.partition("=")[::2] for word in line.split()) for line in shown.splitlines()]


def wait_until(is_so: Callable[[], bool], what: str, limit_s: float = 1800.0) -> None:
    """Wait for something that is to become so."""
    end = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < end, what
        time.sleep(0.2)


@contextmanager
def running(folder: Path) -> Iterator[Slurm]:
    """Run a Slurm whose files lie in a folder."""
    ports = _free_ports(2)
    host, user = socket.gethostname().split(".")[0], subprocess.check_output(["id", "-un"], text=True).strip()
    configuration = folder / "slurm.conf"
    configuration.write_text(
        CONFIGURATION.format(host=host, user=user, controller=ports[0], daemon=ports[1], folder=folder)
    )
    (folder / "cgroup.conf").write_text(f"CgroupPlugin=cgroup/v1\nCgroupMountpoint={folder}/cgroup\n")
    (folder / "state").mkdir()
    (folder / "spool").mkdir()
    (folder / "munge.key").write_bytes(secrets.token_bytes(128))
    (folder / "munge.key").chmod(0o600)
    variables = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin", "SLURM_CONF": str(configuration)}
    munge = [f"--{name}-file={folder}/munge.{name}" for name in ("key", "pid", "seed", "log")]
    at = folder / "munge.socket"
    slurm = Slurm(variables)
    with ExitStack() as daemons:
        for command in (
            ["munged", "--foreground", "--force", f"--socket={at}", *munge],
            ["slurmctld", "-D", "-L", f"{folder}/slurmctld.log"],
            ["slurmd", "-D", "-N", host, "-L", f"{folder}/slurmd.log"],
        ):
            daemons.enter_context(_daemon(command, variables))
            if command[0] == "munged":
                wait_until(at.exists, "munged does not run", 60)
        wait_until(lambda: _is_idle(variables), "the node does not come up", 60)
        try:
            yield slurm
        finally:
            subprocess.run(["scancel", "--user", user, "--full"], env=variables, capture_output=True)


def _is_idle(variables: Mapping[str, str]) -> bool:
    shown = subprocess.run(["sinfo", "--noheader", "--format=%T"], env=variables, capture_output=True, text=True)
    return shown.stdout.strip() == "idle"


@contextmanager
def _daemon(command: list[str], variables: Mapping[str, str]) -> Iterator[None]:
    process = subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
