# SPDX-License-Identifier: Apache-2.0
"""A path, measured: schemes in turn, in both directions, until every run is there.

Its folder has

    runs/DIRECTION-SCHEME-NUMBER.npz   what both ends recorded of a run, as soon as it has ended
    runs/failed.json                   runs that failed, and why
    raw/                               raw trajectories of all runs, as 'sagecc collect' has them
    measure.json                       the path, and the numbers of each run

The last two are made again from the runs whenever some were added.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from sagecc.collector.lab.episode import Episode
from sagecc.collector.realtime.record import check_host_scheme
from sagecc.common.errors import SEE_DOCTOR, SageccError
from sagecc.common.terminals import one_line
from sagecc.execution.measure.client import RunLog, Session
from sagecc.execution.measure.driven import in_kernel
from sagecc.execution.measure.runs import (
    MeasuredRun,
    PlannedRun,
    RunOrigin,
    add_failed,
    failed,
    finished,
    planned,
)
from sagecc.execution.measure.stream import BrokenError
from sagecc.execution.measure.trajectory import TimedRun, episode, path_environment, timed, write_raw
from sagecc.execution.stock.kernel_scheme import why_not
from sagecc.schemas.environment import Environment
from sagecc.schemas.measured import (
    DOWN,
    UP,
    FailedRun,
    HostVersions,
    MeasuredHost,
    MeasuredNumbers,
    MeasuredPath,
)
from sagecc.schemas.schemes import POLICY_PREFIX

RAW = "raw"


@dataclass(frozen=True)
class Campaign:
    """What is measured."""

    host: str
    """The server, as it is named."""

    port: int
    """Of its control."""

    schemes: tuple[str, ...]
    """What sets the windows, in turn."""

    directions: tuple[str, ...]
    """UP, DOWN or both."""

    rounds: int
    """Runs of each scheme in each direction."""

    duration_s: float
    """Of a run (s)."""

    seed: int
    """Of the order."""

    stall_s: float
    """For how long nothing may get through in a run (s)."""

    @property
    def command(self) -> str:
        """What measures it, but for key and folder."""
        directions = self.directions[0] if len(self.directions) == 1 else "both"
        options = {
            "schemes": ",".join(self.schemes),
            "runs": str(self.rounds),
            "duration": f"{self.duration_s:g}",
            "direction": directions,
            "seed": str(self.seed),
            "stall": f"{self.stall_s:g}",
            "port": str(self.port),
        }
        given = [word for name, value in options.items() for word in (f"--{name}", value)]
        return shlex.join(["sagecc", "measure", self.host, *given])


def measure(
    campaign: Campaign,
    key: bytes,
    folder: Path,
    tell: Callable[[str], None],
    show: Callable[[PlannedRun, int, int], None],
) -> None:
    """Measure the runs that are missing in a path's folder, and make its trajectories and numbers again.

    Args:
        campaign: what is measured.
        key: shared with the server.
        folder: of the path; new, or of an earlier measurement of it.
        tell: takes a line on what is left out.
        show: takes the run that begins, how many are finished, and how many there are.

    Raises:
        SageccError: the server or a scheme cannot be had, or the path broke; what is finished stays.
    """
    there = finished(folder)
    try:
        with Session(campaign.host, campaign.port, key, campaign.stall_s) as session:
            cells = _cells(campaign, session, tell)
            origin = RunOrigin(HostVersions.here(), session.server, campaign.command)
            _check_same(campaign, origin, there)
            if campaign.duration_s > session.max_duration_s:
                raise SageccError(
                    f"{campaign.host} allows runs of {session.max_duration_s:g} s at most, not {campaign.duration_s:g}"
                )
            plan = planned(cells, campaign.rounds, campaign.seed)
            for number, run in enumerate(plan):
                if not run.file(folder).exists():
                    show(run, number, len(plan))
                    with _noting_failure(run, folder):
                        log = _measured(run, campaign, session)
                        name = (run.direction, run.scheme, run.number)
                        measured = MeasuredRun(*name, campaign.host, campaign.duration_s, log, origin)
                        timed(measured)  # before it is kept
                    measured.save(folder)
    finally:
        if runs := finished(folder):
            summarise(runs, failed(folder), folder)


@contextmanager
def _noting_failure(run: PlannedRun, folder: Path) -> Iterator[None]:
    began_unix_s = time.time()
    try:
        yield
    except SageccError as error:
        add_failed(FailedRun(run.direction, run.scheme, run.number, began_unix_s, one_line(str(error))), folder)
        raise


def _measured(run: PlannedRun, campaign: Campaign, session: Session) -> RunLog:
    try:
        with nullcontext("") if run.direction == DOWN else in_kernel(run.scheme) as kernel_scheme:
            return session.run(run.direction, run.scheme, kernel_scheme, campaign.duration_s)
    except BrokenError as error:
        raise SageccError(
            f"{campaign.host}: run '{run.name}' broke: {error}; the same command measures what is missing"
        ) from None


def _cells(campaign: Campaign, session: Session, tell: Callable[[str], None]) -> list[tuple[str, str]]:
    """Return direction and scheme of what can be measured.

    Raises:
        SageccError: a scheme can be measured in no direction.
    """
    refused: dict[str, Mapping[str, str]] = {}
    if UP in campaign.directions:
        reasons = ((scheme, _why_not_here(scheme)) for scheme in campaign.schemes)
        refused[UP] = {scheme: reason for scheme, reason in reasons if reason}
    if DOWN in campaign.directions:
        refused[DOWN] = session.refused(campaign.schemes)
    for scheme in campaign.schemes:
        reasons_by = {direction: refused[direction].get(scheme) for direction in campaign.directions}
        if all(reasons_by.values()):
            raise SageccError(f"{scheme} cannot be measured: {'; '.join(map(str, reasons_by.values()))}")
        for direction, reason in reasons_by.items():
            if reason:
                tell(f"{scheme} is not measured {direction}: {reason}")
    return [
        (direction, scheme)
        for scheme in campaign.schemes
        for direction in campaign.directions
        if scheme not in refused[direction]
    ]


def _why_not_here(scheme: str) -> str | None:
    """Return why this host does not send by a scheme, or None if it does."""
    if scheme.startswith(POLICY_PREFIX):
        reason = why_not()
        return f"{reason}; {SEE_DOCTOR}" if reason else None
    try:
        check_host_scheme(scheme)
    except SageccError as error:
        return str(error)
    return None


def _check_same(campaign: Campaign, origin: RunOrigin, runs: Sequence[MeasuredRun]) -> None:
    """Raise SageccError where runs that are there are of another host, duration or version, as far as that is known."""
    for run in runs:
        for name, was, now in (
            ("host", run.host, campaign.host),
            ("duration", run.duration_s, campaign.duration_s),
            ("version here", run.origin.client, origin.client),
            (f"version at {campaign.host}", run.origin.server, origin.server),
        ):
            if was != now and was is not None and now is not None:
                raise SageccError(
                    f"run '{run.name}' there has another {name}, {was} and not {now}: choose another --out"
                )


def summarise(runs: Sequence[MeasuredRun], failures: Sequence[FailedRun], folder: Path) -> None:
    """Write a path's trajectories and numbers."""
    episodes, paths, numbers = [], [], []
    for direction in (UP, DOWN):
        own = [run for run in runs if run.direction == direction]
        if own:
            in_one_time = [timed(run) for run in own]
            path = path_environment(f"measured-{direction}", in_one_time, min(run.clock.rtt_ns for run in own))
            made = [episode(run, each, path) for run, each in zip(own, in_one_time, strict=True)]
            paths.append(_path(direction, path))
            numbers += [_numbers(*each) for each in zip(own, in_one_time, made, strict=True)]
            episodes += made
    write_raw(episodes, folder / RAW)
    origins = [run.origin for run in sorted(runs, key=lambda run: run.clock.before.at_ns)]
    MeasuredHost(
        host=runs[0].host,
        paths=tuple(paths),
        runs=tuple(numbers),
        clients=tuple(dict.fromkeys(each.client for each in origins if each.client)),
        servers=tuple(dict.fromkeys(each.server for each in origins if each.server)),
        commands=tuple(dict.fromkeys(each.command for each in origins if each.command)),
        failures=tuple(failures),
    ).write(folder)


def _path(direction: str, path: Environment) -> MeasuredPath:
    return MeasuredPath(
        direction=direction,
        environment_id=path.id,
        most_mbps=path.bandwidth_mbps,
        least_rtt_ms=path.min_rtt_ms,
        least_delay_ms=path.bottleneck.delay_ms,
    )


def _numbers(run: MeasuredRun, each: TimedRun, made: Episode) -> MeasuredNumbers:
    tested, clock = made.flows[0], run.clock
    return MeasuredNumbers(
        direction=run.direction,
        scheme=run.scheme,
        number=run.number,
        duration_s=run.duration_s,
        goodput_mbps=tested.goodput_mbps,
        delay_mean_ms=tested.delay_mean_ms,
        delay_p95_ms=tested.delay_p95_ms,
        loss_rate=tested.loss_rate,
        clock_offset_ms=clock.before.offset_ns / 1e6,
        clock_moved_ms=(clock.after.offset_ns - clock.before.offset_ns) / 1e6,
        clock_error_ms=clock.error_ns / 1e6,
        missed_ticks=each.missed,
        notice=tested.notice,
        sha256=made.sha256,
        began_unix_s=clock.before.at_ns / 1e9,
    )
