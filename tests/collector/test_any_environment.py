# SPDX-License-Identifier: Apache-2.0
"""Whatever can be written down runs to its end on the kernel, and its counters make sense."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from hypothesis import HealthCheck, Phase, given, seed, settings

from sagecc.collector.lab.boot import Recording, run_guest
from sagecc.collector.lab.spec import episode_spec
from sagecc.schemas import wire
from sagecc.schemas.environment import Environment, Flow
from tests.helpers.strategies import environments

DURATION_S = 4
MAX_MBPS = 40
RISING = ("link_packets", "link_bytes", "link_drops", "link_delay_ns", "link_capacity_bytes", "received_bytes")


@seed(3)
@settings(
    max_examples=40,
    phases=[Phase.generate],  # a failing one is printed as it is: shrinking it would take hours
    suppress_health_check=list(HealthCheck),
    database=None,
)
@given(environment=environments(DURATION_S, MAX_MBPS))
def test_any_environment_runs(kernel: Path, environment: Environment) -> None:
    recording = run_guest(kernel, episode_spec(environment, "cubic", 0), watchdog_s=30)
    for number, flow in enumerate(environment.everyone):
        samples = recording.samples[recording.samples["flow"] == number]
        if len(samples):
            check(environment, flow, samples, delays_ms(recording, number))


def delays_ms(recording: Recording, flow: int) -> npt.NDArray[np.float64]:
    mine = recording.packets["delay"][recording.packets["flow"] == flow]
    return np.asarray(mine * (wire.DELAY_UNIT_NS / 1e6), np.float64)


def check(environment: Environment, flow: Flow, samples: npt.NDArray[np.void], delays: npt.NDArray[np.float64]) -> None:
    t_s = samples["t_ns"] / 1e9
    assert flow.start_s < t_s[0]
    assert t_s[-1] <= environment.stop_of(flow) + 1e-9
    for counter in RISING:
        assert np.all(np.diff(samples[counter].astype(np.int64)) >= 0), counter
    last = {name: int(samples[-1][name]) for name in samples.dtype.names or ()}
    assert last["received_bytes"] <= last["link_bytes"] <= last["link_packets"] * wire.OPPORTUNITY_BYTES
    assert last["link_bytes"] <= last["link_capacity_bytes"] + wire.OPPORTUNITY_BYTES
    path = [environment.links[index] for index in environment.path(flow)]
    least_ms = sum(max(0, min((link.delay_ms, *(d.delay_ms for d in link.delays))) - link.jitter_ms) for link in path)
    if len(delays):
        assert delays.min() >= least_ms - 0.001
