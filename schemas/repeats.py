# SPDX-License-Identifier: Apache-2.0
"""Repeats of a network that differ: a lab that is deterministic would else give the same bytes again."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from sagecc.common.errors import SageccError
from sagecc.schemas.environment import CrossFlow, Environment


def repeat(environment: Environment, number: int, jitter_ms: float = 0.0) -> Environment:
    """Return a repeat of a network: 0 is the network itself, in others every flow starts a little later.

    Args:
        environment: the network as it is planned.
        number: the repeat's, from 0.
        jitter_ms: in the others, ACKs come up to this earlier or later too, in order (where the way back has not more).

    Raises:
        SageccError: a flow would not live that long, or the jitter is out of range.
    """
    if number == 0:
        return environment
    flows = environment.all_flows
    starts = delayed([flow.start_s for flow in flows], environment.min_rtt_ms, number)
    own, *others = (replace(flow, start_s=start_s) for flow, start_s in zip(flows, starts, strict=True))
    schemes = (cross.scheme for cross in environment.cross)
    try:
        return replace(
            environment,
            flow=own,
            cross=tuple(CrossFlow(scheme, flow) for scheme, flow in zip(schemes, others, strict=True)),
            return_links=tuple(
                replace(link, jitter_ms=max(link.jitter_ms, jitter_ms)) for link in environment.return_links
            ),
        )
    except SageccError as error:
        raise SageccError(f"repeat {number} of {environment.id}: {str(error).removeprefix('environment: ')}") from None


def delayed(planned_s: Sequence[float], rtt_ms: float, number: int) -> list[float]:
    """Delay each start by a fraction of the RTT that the repeat's number draws; repeat 0 keeps the plan.

    Args:
        planned_s: when the flows are to start (s).
        rtt_ms: the tested flow's minimum RTT (ms).
        number: the repeat's, from 0.

    Returns:
        When they start (s), in whole microseconds.
    """
    if number == 0:
        return list(planned_s)
    draws = random.Random(number)
    return [round(start_s + draws.random() * rtt_ms / 1000, 6) for start_s in planned_s]
