# SPDX-License-Identifier: Apache-2.0
"""Conventions of a testbed in which it differs from the study's networks here, each a switch of its own.

What stands here was read in the public code of the study's authors (github.com/giacomoni/mininettestbed). One
difference remains that no link of the lab has: the burst of the token bucket, 10 x rate x 2^20 / 250 / 8 bytes, which
passes at once what came after the bottleneck stood idle.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sagecc.leagues.study.experiments import StudyRun
from sagecc.leagues.study.networks import END_RTTS, MEASURED_RTTS, Cell, last_rtts
from sagecc.schemas.environment import MTU_BYTES, Environment, Link, RateStep

BITS_PER_MBIT = 10**6


@dataclass(frozen=True)
class Conventions:
    """How a testbed builds and measures the study's networks; the defaults are this project's."""

    mbit_bits: int = BITS_PER_MBIT
    """Bits of a Mbit where a queue is given in BDPs."""
    header_bytes: int = 0
    """What the bottleneck counts of each packet besides its IP bytes, in its rate and in its queue."""
    delay_first: bool = False
    """Whether packets are delayed before the bottleneck instead of behind it."""
    jitter_ms: float = 0.0
    """Half-width of the jitter of acknowledgements behind each bottleneck: a machine's noise, without which flows of
    one RTT lock into phases that decide whose packets a full queue drops (Floyd and Jacobson, 1991)."""
    measured_rtts: tuple[int, int] = (END_RTTS - MEASURED_RTTS, END_RTTS)
    """What is measured of two flows and of the parking lot: from and to which RTT since the start."""

    def environment(self, cell: Cell, environment: Environment) -> Environment:
        """Return a cell's network as this testbed has it."""
        links = tuple(self._link(cell, link) for link in environment.links)
        if self.delay_first and len(links) == 1:  # elsewhere it comes first already
            (link,) = links
            links = (Link(delay_ms=link.delay_ms), replace(link, delay_ms=0.0))
        back = tuple(Link(jitter_ms=self.jitter_ms if link.limited else 0.0) for link in links)
        return replace(environment, links=links, return_links=back, windows_s=self._windows(cell, environment))

    def run(self, run: StudyRun) -> StudyRun:
        """Return a run of the study on this testbed."""
        return replace(run, environment=self.environment(run.cell, run.environment))

    def _link(self, cell: Cell, link: Link) -> Link:
        packet = MTU_BYTES / (MTU_BYTES + self.header_bytes)
        bdp = 1.0 if cell.queue_bdp is None else self.mbit_bits / BITS_PER_MBIT
        limit = None if link.queue_bytes is None else max(MTU_BYTES, int(link.queue_bytes * bdp * packet))
        rates = tuple(RateStep(step.t_s, step.rate_mbps * packet) for step in link.rates)
        return replace(link, rates=rates, queue_bytes=limit)

    def _windows(self, cell: Cell, environment: Environment) -> tuple[tuple[float, float], ...]:
        if cell.rtt_ms is None or environment.windows_s != (last_rtts(cell.rtt_ms),):
            return environment.windows_s
        start, end = self.measured_rtts
        return ((start * cell.rtt_ms / 1000, end * cell.rtt_ms / 1000),)


PREDECESSOR = Conventions(
    mbit_bits=2**20, header_bytes=14, delay_first=True, jitter_ms=0.05, measured_rtts=(1375, 1500)
)
"""Giacomoni and Parisis, INFOCOM 2024: netem before a token bucket that counts Ethernet frames; `plot_figure_1.py`
averages over the last 125 of the first 1500 RTTs, though its flows go on to 2000."""
