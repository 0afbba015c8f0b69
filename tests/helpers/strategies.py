# SPDX-License-Identifier: Apache-2.0
"""Any environment that may be written down, and a chain of links."""

from __future__ import annotations

from typing import Any, get_args

from hypothesis import strategies as st

from sagecc.schemas.environment import (
    INTERVAL_MS,
    MARKING,
    MAX_LINKS,
    TARGET_MS,
    CrossFlow,
    DelayStep,
    Discipline,
    Environment,
    Flow,
    Link,
    LossStep,
    Policer,
    RateStep,
    Trace,
)

delays_ms = st.one_of(st.integers(0, 100), st.floats(0, 200))


def chain(*mbps: float, **fields: Any) -> Environment:
    return Environment(
        set="custom",
        links=tuple(Link((RateStep(0, rate),), 5, 90_000) for rate in mbps),
        return_links=tuple(Link(delay_ms=10) for _ in mbps),
        duration_s=30,
        windows_s=((0, 30),),
        **fields,
    )


def moments_s(duration_s: float) -> st.SearchStrategy[float]:
    return st.one_of(st.integers(1, int(duration_s)), st.floats(0.001, duration_s))


def increasing(values: st.SearchStrategy[float]) -> st.SearchStrategy[list[float]]:
    return st.lists(values, max_size=4, unique=True).map(sorted)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    name = draw(st.text("abc-_0123456789", min_size=1, max_size=8))
    moments = sorted(draw(st.lists(st.one_of(st.integers(0, 5000), st.floats(0, 5000)), min_size=1, max_size=20)))
    return Trace(name, (*moments, moments[-1] + 10))


@st.composite
def links(draw: st.DrawFn, limited: bool, duration_s: float, max_mbps: float) -> Link:
    kind = draw(st.sampled_from(("rates", "trace"))) if limited else ""
    rates_mbps = st.one_of(st.integers(1, int(max_mbps)), st.floats(0.001, max_mbps))
    times_s = (0, *draw(increasing(moments_s(duration_s))))
    some = st.lists(st.just(0) | rates_mbps, min_size=len(times_s), max_size=len(times_s)).filter(any)
    schedule = tuple(RateStep(*step) for step in zip(times_s, draw(some), strict=True))
    fields: dict[str, Any] = {"discipline": draw(st.sampled_from(get_args(Discipline)))}
    if fields["discipline"] in TARGET_MS:
        fields["target_ms"] = draw(st.none() | st.floats(0.001, 100))
    if fields["discipline"] in INTERVAL_MS:
        fields["interval_ms"] = draw(st.none() | st.integers(1, 200))
    jitter_ms = draw(st.sampled_from((0.0, 0.5, 3)))
    jitter_reorders = draw(st.booleans()) and jitter_ms > 0
    delays = tuple(DelayStep(t, draw(delays_ms)) for t in draw(increasing(moments_s(duration_s))))
    losses = st.sampled_from((0.0, 0.001, 1e-9, 0.999999999999))
    grain_ms = draw(st.sampled_from((0, 1, 0.25)))
    if fields["discipline"] == "fq-codel":
        grain_ms = 0
        fields["quantum_bytes"] = draw(st.none() | st.integers(100, 5000))
    if fields["discipline"] in MARKING:
        fields["ecn"] = draw(st.booleans())
    if limited:
        fields["mark_packets"] = draw(st.none() | st.integers(1, 1000))
        fields["ack_filter"] = draw(st.booleans())
    policers = st.builds(Policer, st.floats(0.001, max_mbps), st.integers(1500, 10**6))
    return Link(
        policer=draw(st.none() | policers),
        rates=schedule if kind == "rates" else (),
        trace=draw(traces()) if kind == "trace" else None,
        delay_ms=draw(delays_ms),
        delays=delays,
        queue_bytes=draw(st.none() | st.integers(1500, 10**9)),
        queue_packets=draw(st.none() | st.integers(1, 10**6)),
        loss=draw(losses),
        losses=tuple(LossStep(t, draw(losses | st.just(1))) for t in draw(increasing(moments_s(duration_s)))),
        jitter_ms=jitter_ms,
        jitter_reorders=jitter_reorders,
        delay_reorders=draw(st.booleans()) and bool(delays) and (jitter_reorders or not jitter_ms),
        grain_ms=grain_ms,
        **fields,
    )


@st.composite
def flows(draw: st.DrawFn, limited: tuple[bool, ...], duration_s: float) -> Flow:
    count = len(limited)
    some = [index for index, has in enumerate(limited) if has]
    through = draw(st.sampled_from(some))
    path = draw(st.none() | st.tuples(st.integers(0, through), st.integers(through, count - 1)))
    start_s = draw(st.one_of(st.just(0), st.floats(0, duration_s / 2)))
    stop_s = draw(st.none() | st.floats(duration_s * 0.75, duration_s))
    size_bytes = draw(st.none() | st.integers(1, 10**7))
    moments_s = draw(increasing(st.floats(start_s, duration_s * 0.75)))
    return Flow(
        start_s,
        stop_s,
        draw(st.sampled_from((0, 0, 10, 33.3))),
        path,
        size_bytes,
        draw(st.booleans()),
        draw(st.none() | st.integers(3000, 10**7)),
        tuple(zip(moments_s[::2], moments_s[1::2], strict=False)),
    )


@st.composite
def environments(draw: st.DrawFn, duration_s: int = 60, max_mbps: float = 10_000) -> Environment:
    limited = tuple(draw(st.lists(st.booleans(), min_size=1, max_size=MAX_LINKS).filter(any)))
    flow = draw(flows(limited, duration_s))
    return_links = [draw(links(draw(st.booleans()), duration_s, max_mbps)) for _ in limited]
    if not flow.extra_rtt_ms:  # the minimum RTT must not be 0
        first = flow.links[0] if flow.links else 0
        return_links[first] = Link(delay_ms=draw(st.integers(1, 100)))
    competitors = st.builds(CrossFlow, st.sampled_from(("cubic", "bbr")), flows(limited, duration_s))
    return Environment(
        set=draw(st.sampled_from(("I", "II", "custom"))),
        links=tuple(draw(links(has, duration_s, max_mbps)) for has in limited),
        return_links=tuple(return_links),
        duration_s=duration_s,
        windows_s=tuple((t, duration_s) for t in draw(increasing(st.integers(0, duration_s - 1)))),
        reward=draw(st.sampled_from(("power", "friendliness"))),
        cross=tuple(draw(st.lists(competitors, max_size=6))),
        flow=flow,
    )
