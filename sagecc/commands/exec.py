# SPDX-License-Identifier: Apache-2.0
"""`sagecc exec`."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import click

from sagecc.common.errors import SageccError
from sagecc.common.shipped import A_POLICY
from sagecc.common.terminals import one_line
from sagecc.execution.stock import cgroup
from sagecc.execution.stock.shared import Shared
from sagecc.execution.stock.supervisor import LOG, AgentLostError, Supervisor, driving
from sagecc.options import POLICY_FOLDER, log_to_stderr, runtime_option

CHECK_S = 0.05
EXIT_NO_PROGRAM = 127
"""As a shell's."""
FORWARDED = (signal.SIGTERM, signal.SIGHUP)
"""Signals that the program gets from here. Ctrl-C reaches it from the terminal."""


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--policy",
    type=POLICY_FOLDER,
    required=True,
    help=f"The policy in charge: {A_POLICY}.",
)
@runtime_option
@click.option("--flows", type=click.IntRange(1, 65536), default=256, show_default=True, help="Most sockets at once.")
@click.option("--user", metavar="USER", help="Run the program as this user; default: as who runs sagecc.")
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND [ARGUMENT]...")
def command(policy: Path, runtime: str, flows: int, user: str | None, program: tuple[str, ...]) -> int:
    """Run a program with a policy in charge of its connections.

    \b
    sudo sagecc exec --policy sagecc-12 -- curl -T file https://example.org
    sudo sagecc exec --policy sagecc-12 --user $USER -- rsync -a data host:
    sudo sagecc exec --policy models/mine --flows 16 -- iperf3 -c host

    Its TCP connections, and those of all that it starts. It needs root. It loads a
    scheme of its own, removes it at the end and says how many connections it drove. The exit status is the program's,
    or 127 where there is none. When the agent is gone, the program continues by Reno's rules.
    """
    log_to_stderr()
    if shutil.which(program[0]) is None:
        click.echo(one_line(f"sagecc: {program[0]}: there is no such program"), err=True)
        return EXIT_NO_PROGRAM
    entry = _entry(user) if user else None
    with (
        driving(policy, runtime, flows, cgroups=True) as (supervisor, scheme, shared),
        cgroup.new_group() as group,
        scheme.chosen_in(group),
    ):
        status = _run(program, _on_start(group, entry), supervisor)
        LOG.info("%s", _connections(shared))
    return status


def _connections(shared: Shared) -> str:
    """Return in words how many connections there were, and how many had no room."""
    without = shared.count("without_slot")
    count = shared.count("flows") - without
    room = f"; {without} more had no room, follow Reno's rules and need more --flows" if without else ""
    return f"drove {count} connection{'' if count == 1 else 's'}{room}"


def _run(program: tuple[str, ...], on_start: Callable[[], None], supervisor: Supervisor) -> int:
    """Run the program to its end, watching the agent; return the exit status a shell would give it."""
    with subprocess.Popen(program, preexec_fn=on_start) as process, _forward_signals(process):
        in_charge = True
        while process.poll() is None:
            if in_charge:
                try:
                    supervisor.check(CHECK_S)
                except AgentLostError as error:
                    LOG.error("%s", error)
                    in_charge = False
            else:
                time.sleep(CHECK_S)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


@contextmanager
def _forward_signals(process: subprocess.Popen[bytes]) -> Iterator[None]:
    def forward(number: int, frame: FrameType | None) -> None:
        process.send_signal(number)

    previous = {number: signal.signal(number, forward) for number in FORWARDED}
    previous[signal.SIGINT] = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _on_start(group: Path, entry: pwd.struct_passwd | None) -> Callable[[], None]:
    """Return what the program's process does first: enter the group, and become the user."""

    def start() -> None:
        (group / cgroup.PROCESSES).write_text("0")
        if entry:
            os.initgroups(entry.pw_name, entry.pw_gid)
            os.setgid(entry.pw_gid)
            os.setuid(entry.pw_uid)

    return start


def _entry(name: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise SageccError(f"there is no user '{name}'") from None
