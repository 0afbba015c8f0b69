# SPDX-License-Identifier: Apache-2.0
"""A test of the scheme `Gentle` of docs/guide/your-own-scheme.md, saved as gentle.py; it needs no kernel."""

from random import Random

from gentle import Gentle

from sagecc.execution.schemes.scheme import Sample


def test_it_grows_by_a_packet_an_rtt():
    """Four ticks are one RTT of 40 ms."""
    flow = Gentle(Random(0))
    idle = Sample(0.0, *[0] * (len(Sample._fields) - 1))
    ticks = [idle._replace(t_s=tick / 100, srtt_us=40_000, min_rtt_us=40_000, mss_bytes=1448) for tick in range(4)]
    windows = [flow.on_tick(sample)[0] for sample in ticks]
    assert windows[-1] == 11
