# SPDX-License-Identifier: Apache-2.0
"""`sagecc attach`."""

from __future__ import annotations

import pwd
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import click

from sagecc.common.errors import SEE_DOCTOR, SageccError
from sagecc.common.shipped import A_POLICY
from sagecc.execution.stock import kernel_scheme
from sagecc.execution.stock.shared import Descriptors, Shared
from sagecc.execution.stock.supervisor import Supervisor
from sagecc.options import POLICY_FOLDER, log_to_stderr, runtime_option

CHECK_S = 0.05


@click.command()
@click.option(
    "--policy",
    type=POLICY_FOLDER,
    help=f"Who decides: {A_POLICY}.",
)
@runtime_option
@click.option("--flows", type=click.IntRange(1, 65536), default=1024, show_default=True, help="Most sockets at once.")
@click.option("--load-only", is_flag=True, help="Load the scheme and end; an agent attached later drives it.")
@click.option("--owner", metavar="USER", help="With --load-only: who may attach agents, without any privilege.")
@click.option(
    "--pins",
    type=click.Path(path_type=Path),
    default=kernel_scheme.PINS,
    show_default=True,
    help="Where the scheme is kept, in a BPF file system.",
)
def command(policy: Path | None, runtime: str, flows: int, load_only: bool, owner: str | None, pins: Path) -> None:
    """Put a policy in charge of sockets of this machine's kernel.

    \b
    sudo sagecc attach --policy sagecc-10
    sudo sagecc attach --load-only --owner $USER
    sudo sagecc detach

    In charge of every socket that uses the scheme sagecc_pure. Loads the scheme where it is not loaded yet (as root),
    then drives until it is ended. Without an agent the sockets follow Reno's rules; `sagecc detach` removes the scheme.
    docs/guide/deploy.md says what is safe and what is not.
    """
    log_to_stderr()
    if load_only == (policy is not None) or (owner and not load_only):
        raise click.UsageError("give either --policy, or --load-only with or without --owner")
    if load_only:
        if kernel_scheme.is_pinned(pins):
            raise SageccError(f"the scheme is loaded already, at {pins}")
        _load(flows, pins, _ids(owner) if owner else None)
        click.echo(f"loaded: {kernel_scheme.SCHEME}, at {pins}")
    elif policy:
        _drive(policy, runtime, flows, pins)


def _drive(policy: Path, runtime: str, flows: int, pins: Path) -> None:
    with ExitStack() as stack:
        if kernel_scheme.is_pinned(pins):
            descriptors, shared = stack.enter_context(_opened(pins))
            supervisor = stack.enter_context(Supervisor(policy, runtime, shared.slots))
        else:
            reason = kernel_scheme.why_not()
            if reason:
                raise SageccError(f"{reason}; {SEE_DOCTOR}")
            supervisor = stack.enter_context(Supervisor(policy, runtime, flows))
            _load(flows, pins, None)
            descriptors, shared = stack.enter_context(_opened(pins))
        stack.callback(supervisor.stop)  # before the memory goes
        supervisor.drive(descriptors, shared)
        while True:
            supervisor.check(CHECK_S)


@contextmanager
def _opened(pins: Path) -> Iterator[tuple[Descriptors, Shared]]:
    """Open what is pinned, as its only agent."""
    with (
        closing(kernel_scheme.pinned(pins)) as descriptors,
        closing(Shared(descriptors)) as shared,
        kernel_scheme.only_agent(pins),
    ):
        yield descriptors, shared


def _load(flows: int, pins: Path, owner: tuple[int, int] | None) -> None:
    """Load, pin and register the scheme: all of it or nothing."""
    scheme = kernel_scheme.Scheme(flows)
    try:
        scheme.pin(pins, owner)
        try:
            scheme.register()
        except BaseException:
            kernel_scheme.unpin(pins)
            raise
    finally:
        scheme.close()


def _ids(name: str) -> tuple[int, int]:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise SageccError(f"there is no user '{name}'") from None
    return entry.pw_uid, entry.pw_gid
