# SPDX-License-Identifier: Apache-2.0
"""The command-line options that describe a network, and the Environment that they make."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import click
from click.core import ParameterSource

from sagecc.common import shipped
from sagecc.common.errors import SageccError
from sagecc.common.suggestions import did_you_mean
from sagecc.options import ENVIRONMENT_FILE, MBPS, MILLISECONDS, NUMBER, SECONDS, SHARE, named_scheme
from sagecc.schemas.environment import (
    MTU_BYTES,
    CrossFlow,
    Discipline,
    Environment,
    Link,
    dumbbell,
    queue_bytes,
    step_rates,
)
from sagecc.schemas.environment_file import load_environment
from sagecc.schemas.schemes import NO_CODE, POLICY_PREFIX, PYTHON_PREFIX, TrustedCode
from sagecc.schemas.trace_file import read_trace

_OPTIONS = (
    click.option("--bandwidth", type=MBPS, default=48.0, show_default=True, help="Bottleneck rate."),
    click.option(
        "--rtt", type=MILLISECONDS, default=40.0, show_default=True, help="Minimum RTT, half in each direction."
    ),
    click.option(
        "--queue-bdp", type=NUMBER, default=1.0, show_default=True, help="Queue limit in BDPs of the base rate."
    ),
    click.option("--queue-packets", type=click.IntRange(min=1), help="Queue limit in packets, instead."),
    click.option("--duration", type=SECONDS, default=30.0, show_default=True, help="Virtual time."),
    click.option(
        "--step", type=NUMBER, default=1.0, show_default=True, help="From 17 s on, alternate every 7 s with STEP x."
    ),
    click.option(
        "--trace",
        type=ENVIRONMENT_FILE,
        help="Mahimahi trace: when 1500 bytes may leave the bottleneck. Instead of --bandwidth and --step."
        " cellular.down comes with sagecc.",
    ),
    click.option(
        "--aqm",
        type=click.Choice(get_args(Discipline)),
        default="tail-drop",
        show_default=True,
        help="The queue's discipline: which packets it drops, and when.",
    ),
    click.option("--loss", type=SHARE, default=0.0, show_default=True, help="Share of data packets lost at random."),
    click.option(
        "--jitter-ms", type=MILLISECONDS, default=0.0, show_default=True, help="ACKs come up to this earlier or later."
    ),
    click.option("--jitter-reorders", is_flag=True, help="ACKs may overtake each other; else they keep their order."),
    click.option(
        "--grain-ms",
        type=MILLISECONDS,
        default=0.0,
        show_default=True,
        help="The bottleneck sends at multiples of this only.",
    ),
    click.option(
        "--cross",
        multiple=True,
        metavar="SCHEME[:N]",
        help="A competing flow of any scheme, or N of them, from 0 s on (repeatable).",
    ),
    click.option("--start", type=SECONDS, default=0.0, show_default=True, help="When the scheme under test starts."),
    click.option(
        "--environment",
        "file",
        type=ENVIRONMENT_FILE,
        help="A file that describes any network (docs/reference/formats.md), instead of all the options above.",
    ),
)


def network_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that `environment_from` reads."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def environment_from(
    trusted: TrustedCode = NO_CODE,
    *,
    file: Path | None,
    bandwidth: float,
    rtt: float,
    queue_bdp: float,
    queue_packets: int | None,
    duration: float,
    step: float,
    trace: Path | None,
    aqm: Discipline,
    loss: float,
    jitter_ms: float,
    jitter_reorders: bool,
    grain_ms: float,
    cross: tuple[str, ...],
    start: float,
) -> Environment:
    """Return the Environment that the running command's options describe.

    Args:
        trusted: the code that the file may name; all other arguments are those of network_options.

    Raises:
        SageccError: options exclude each other, or no network can have a value.
    """
    if file is not None:
        names = inspect.signature(environment_from).parameters
        exclude("--environment", *(name for name in names if name not in ("trusted", "file")))
        return load_environment(_there(file), trusted)
    if not step > 0:
        raise SageccError(f"--step must be above 0, not {step:g}")
    if queue_packets is not None:
        exclude("--queue-packets", "queue_bdp")
    if trace is not None:
        exclude("--trace", "bandwidth", "step")
        link = Link(trace=read_trace(_there(trace)), delay_ms=rtt / 2)
    else:
        link = Link(step_rates(bandwidth, step, duration), delay_ms=rtt / 2)
    if queue_packets is not None:
        link = replace(link, queue_packets=queue_packets)
    else:
        link = replace(link, queue_bytes=_queue_bytes(link, rtt, queue_bdp))
    competitors = tuple(flow for text in cross for flow in _competitors(text))
    environment = dumbbell(
        "custom",
        replace(link, discipline=aqm, loss=loss, grain_ms=grain_ms),
        return_delay_ms=rtt / 2,
        duration_s=duration,
        windows_s=((start, duration),),
        reward="friendliness" if competitors else "power",
        cross=competitors,
        start_s=start,
    )
    return_link = Link(delay_ms=rtt / 2, jitter_ms=jitter_ms, jitter_reorders=jitter_reorders)
    return replace(environment, return_links=(return_link,))


def _there(path: Path) -> Path:
    """Return a path that exists."""
    if not path.exists():
        hint = did_you_mean(str(path), shipped.environments())
        raise SageccError(f"{path}: there is no such file, and none of that name comes with sagecc{hint}")
    return path


def _queue_bytes(link: Link, rtt_ms: float, queue_bdp: float) -> int:
    limit = queue_bytes(link.base_mbps, rtt_ms, queue_bdp)
    if limit < MTU_BYTES:
        raise SageccError(
            f"--queue-bdp {queue_bdp:g}: at {link.base_mbps:.3g} Mbps and {rtt_ms:g} ms, the queue has {limit} bytes,"
            f" less than a packet of {MTU_BYTES} bytes; take more, or --queue-packets"
        )
    return limit


def _competitors(text: str) -> tuple[CrossFlow, ...]:
    """Return the flows of `cubic`, `cubic:10`, `policy:PATH`, `policy:PATH:10` or `python:PATH.py:CLASS:10`."""
    counted = re.fullmatch("((?:policy|python):.+|[^:]+):([1-9][0-9]{0,3})", text)
    scheme, count = (counted[1], int(counted[2])) if counted else (text, 1)
    if not counted and ":" in text and not text.startswith((POLICY_PREFIX, PYTHON_PREFIX)):
        raise SageccError(f"--cross {text}: takes a scheme and how many flows of it, such as cubic:10")
    try:
        return (CrossFlow(named_scheme(scheme)),) * count
    except SageccError as error:
        raise SageccError(f"--cross: {error}") from None


def exclude(winner: str, *others: str) -> None:
    """Raise SageccError if one of the other options was given beside `winner`."""
    context = click.get_current_context()
    options = {parameter.name: parameter.opts[0] for parameter in context.command.params}
    names = [options[name] for name in others if context.get_parameter_source(name) is not ParameterSource.DEFAULT]
    if names:
        raise SageccError(f"{winner} excludes {', '.join(names)}: leave {'it' if len(names) == 1 else 'them'} out")
