# SPDX-License-Identifier: Apache-2.0
"""`sagecc attach`."""

from __future__ import annotations

import math
import pwd
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from sagecc.command import Command
from sagecc.common.errors import SEE_DOCTOR, SageccError
from sagecc.common.shipped import A_POLICY
from sagecc.execution.stock import kernel_scheme
from sagecc.execution.stock.metrics import parse_address, serving
from sagecc.execution.stock.observer import LOOK_S, Observer
from sagecc.execution.stock.shared import Descriptors, Shared
from sagecc.execution.stock.supervisor import LOG, Supervisor
from sagecc.execution.stock.telemetry import metrics
from sagecc.execution.stock.trial import TrialMemory
from sagecc.execution.stock.watch import Margins, Watch
from sagecc.options import POLICY_FOLDER, SECONDS, SHARE, log_to_stderr, runtime_option
from sagecc.paths import PATH

CHECK_S = 0.05


EXIT_TAKEN_OFF = 3
"""The canary was worse than the control; not that of an error, so that a service manager need not start it again."""


@dataclass(frozen=True)
class Canary:
    """How a trial goes."""

    share: float
    control: str
    interval_s: float
    margins: Margins | None
    """None: it is not watched."""
    length_s: float | None
    """None: until it is ended."""
    address: tuple[str, int] | None
    """Where metrics are served."""


class _Address(click.ParamType[tuple[str, int]]):
    name = "address"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        """Return host and port; end with a usage error where it is none."""
        try:
            return parse_address(str(value))
        except ValueError:
            self.fail(f"'{value}': an address is a port, such as 9300, or HOST:PORT", param, ctx)


GROUPS = {
    "Scheme in the kernel": ("--load-only", "--owner", "--pins", "--flows"),
    "Trial": ("--share", "--control", "--interval", "--for", "--watch", "--rtt-margin", "--loss-margin"),
}


@click.command(cls=Command, groups=GROUPS)
@click.option(
    "--policy",
    type=POLICY_FOLDER,
    help=f"The policy in charge: {A_POLICY}.",
)
@runtime_option
@click.option("--flows", type=click.IntRange(1, 65536), default=1024, show_default=True, help="Most sockets at once.")
@click.option("--load-only", is_flag=True, help="Load the scheme and end; an agent attached later drives it.")
@click.option("--owner", metavar="USER", help="With --load-only: who may attach agents, without any privilege.")
@click.option(
    "--pins",
    type=PATH,
    default=kernel_scheme.PINS,
    show_default=True,
    help="Where the scheme is kept, in a BPF file system.",
)
@click.option(
    "--share", type=SHARE, default=1.0, help="Share of the new connections to drive, such as 5%; default: all."
)
@click.option("--control", metavar="SCHEME", help="Scheme of the others; default: the system's.")
@click.option("--interval", type=SECONDS, default=60.0, show_default=True, help="From one table of both to the next.")
@click.option("--for", "length", type=SECONDS, help="End after this time; default: when it is ended.")
@click.option("--watch", is_flag=True, help="Take the policy off, and end, where it is worse by more than a margin.")
@click.option("--rtt-margin", type=SHARE, default=0.25, show_default="25%", help="How much longer its sRTT may be.")
@click.option(
    "--loss-margin", type=SHARE, default=0.01, show_default="1%", help="Percentage points it may retransmit more."
)
@click.option(
    "--metrics",
    "address",
    type=_Address(),
    metavar="[HOST:]PORT",
    help="Serve metrics for Prometheus there; host: 127.0.0.1.",
)
def command(
    policy: Path | None,
    runtime: str,
    flows: int,
    load_only: bool,
    owner: str | None,
    pins: Path,
    share: float,
    control: str | None,
    interval: float,
    length: float | None,
    watch: bool,
    rtt_margin: float,
    loss_margin: float,
    address: tuple[str, int] | None,
) -> int:
    """Put a policy in charge of sockets of this machine's kernel.

    \b
    sudo sagecc attach --policy sagecc-12
    sudo sagecc attach --policy sagecc-12 --share 5% --watch
    sudo sagecc attach --load-only --owner $USER
    sudo sagecc detach

    In charge of every socket that uses the scheme sagecc_pure. Loads the scheme where it is not loaded yet (as root),
    then drives until it is ended. Without an agent the sockets follow Reno's rules; `sagecc detach` removes the scheme.

    With --share the others get the system's scheme, and a table compares both. With --watch the exit status is 3 where
    the policy was taken off. docs/guide/deploy.md says what is safe and what is not.
    """
    log_to_stderr()
    if load_only == (policy is not None) or (owner and not load_only):
        raise click.UsageError("give either --policy, or --load-only with or without --owner")
    if not 0 < share <= 1:
        raise click.UsageError("--share is more than 0 % and at most 100 %")
    if watch and share == 1:
        raise click.UsageError("--watch compares the driven connections with others: give a --share")
    if interval < LOOK_S or rtt_margin < 0 or loss_margin < 0:
        raise click.UsageError(f"--interval is at least {LOOK_S:g} s, and no margin is negative")
    if load_only:
        if kernel_scheme.is_pinned(pins):
            raise SageccError(f"the scheme is loaded already, at {pins}")
        _load(flows, pins, _ids(owner) if owner else None)
        click.echo(f"loaded: {kernel_scheme.SCHEME}, at {pins}")
    elif policy:
        if share < 1:
            control = control or kernel_scheme.system_scheme()
            kernel_scheme.check_scheme(control)
        margins = Margins(rtt_margin, loss_margin) if watch else None
        return _drive(policy, runtime, flows, pins, Canary(share, control or "", interval, margins, length, address))
    return 0


def _drive(policy: Path, runtime: str, flows: int, pins: Path, canary: Canary) -> int:
    with ExitStack() as stack:
        page = stack.enter_context(serving(*canary.address)) if canary.address else None
        if kernel_scheme.is_pinned(pins):
            descriptors, shared, trial = stack.enter_context(_opened(pins))
            supervisor = stack.enter_context(Supervisor(policy, runtime, shared.slots))
        else:
            reason = kernel_scheme.why_not()
            if reason:
                raise SageccError(f"{reason}; {SEE_DOCTOR}")
            supervisor = stack.enter_context(Supervisor(policy, runtime, flows))
            _load(flows, pins, None)
            descriptors, shared, trial = stack.enter_context(_opened(pins))
        stack.callback(supervisor.stop)  # before the memory goes
        observer = None
        if canary.share < 1 or page:
            observer = stack.enter_context(_begun(trial, canary))
        else:
            trial.clear()
        supervisor.drive(descriptors, shared)
        ends_s = time.monotonic() + (math.inf if canary.length_s is None else canary.length_s)
        while time.monotonic() < ends_s:
            supervisor.check(CHECK_S)
            if observer and observer.due():
                if excess := observer.look():
                    LOG.error("the policy is taken off after %d intervals: %s", observer.intervals, excess)
                    return EXIT_TAKEN_OFF
                if page:
                    page.show(list(metrics(observer, trial, shared, supervisor)))
        if observer and canary.margins:
            LOG.info("the canary was within the margins for %d intervals", observer.intervals)
        return 0


@contextmanager
def _begun(trial: TrialMemory, canary: Canary) -> Iterator[Observer]:
    """Begin a trial; at its end, whatever it is, every connection gets the control's scheme where there is one."""
    trial.begin(canary.share, canary.control)
    try:
        if canary.share < 1:
            LOG.info("%.3g %% of the new connections are driven, the others get %s", 100 * canary.share, canary.control)
        watch = Watch(canary.margins) if canary.margins else None
        yield Observer(trial, canary.interval_s, watch, click.echo if canary.share < 1 else None)
    finally:
        if canary.share < 1:
            trial.stop()
            LOG.info("every connection gets %s", canary.control)
        else:
            trial.clear()


@contextmanager
def _opened(pins: Path) -> Iterator[tuple[Descriptors, Shared, TrialMemory]]:
    """Open what is pinned, as its only agent."""
    with (
        closing(kernel_scheme.pinned(pins)) as descriptors,
        closing(kernel_scheme.pinned_trial(pins)) as of_trial,
        closing(Shared(descriptors)) as shared,
        closing(TrialMemory(of_trial)) as trial,
        kernel_scheme.only_agent(pins),
    ):
        yield descriptors, shared, trial


def _load(flows: int, pins: Path, owner: tuple[int, int] | None) -> None:
    """Load, pin and register the scheme: all of it or nothing."""
    scheme = kernel_scheme.Scheme(flows, trials=True)
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
