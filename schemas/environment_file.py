# SPDX-License-Identifier: Apache-2.0
"""Environment files: YAML or JSON that describe a network, read strictly. docs/reference/formats.md has the fields.

A file may be what `Environment.to_json` wrote; beside those fields it may use the shorter ones below.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError

from sagecc.common import shipped
from sagecc.common.document import parse
from sagecc.common.errors import SageccError
from sagecc.schemas.environment import (
    MAX_FLOWS,
    MAX_LINKS,
    CrossFlow,
    DelayStep,
    Discipline,
    Environment,
    Flow,
    Link,
    LossStep,
    RateStep,
    Reward,
    Trace,
    queue_bytes,
)
from sagecc.schemas.trace_file import read_trace

Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Integer = Annotated[int, Field(strict=True)]
Text = Annotated[str, Field(strict=True)]
Flag = Annotated[bool, Field(strict=True)]
Name = Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9_-]+$")]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    def given(self, *names: str) -> dict[str, Any]:
        """Return those of the fields that the file has."""
        return {name: getattr(self, name) for name in names if name in self.model_fields_set}


class RateStepPart(_Part):
    """A rate from a moment on."""

    t_s: Number = Field(description="from this moment on (s)")
    rate_mbps: Number = Field(description="the link sends at this rate (Mbps)")


class DelayStepPart(_Part):
    """A propagation delay from a moment on."""

    t_s: Number = Field(description="from this moment on (s)")
    delay_ms: Number = Field(description="the propagation takes this long (ms)")


class LossStepPart(_Part):
    """A probability of loss from a moment on."""

    t_s: Number = Field(description="from this moment on (s)")
    loss: Number = Field(description="a packet is lost before the queue with this probability")


class TracePart(_Part):
    """A trace within the file."""

    name: Text = Field(description="appears in the environment's id")
    opportunities_ms: tuple[Number, ...] = Field(description="when 1500 bytes may leave (ms)")


def _trace_kind(value: object) -> str:
    return "inline" if isinstance(value, (dict, TracePart)) else "file"


TraceField = Annotated[
    Annotated[Text, Tag("file")] | Annotated[TracePart, Tag("inline")],
    Discriminator(_trace_kind),
]


class LinkPart(_Part):
    """One direction of a link."""

    rate_mbps: Number | None = Field(default=None, description="a rate that never changes (Mbps)")
    rates: tuple[RateStepPart, ...] = Field(default=(), description="the rate's schedule, from t_s 0 on")
    trace: TraceField | None = Field(default=None, description="Mahimahi trace: a file, relative to this one")
    delay_ms: Number = Field(default=0.0, description="propagation (ms)")
    delays: tuple[DelayStepPart, ...] = Field(default=(), description="later changes of the propagation")
    queue_bytes: Integer | None = Field(default=None, description="queue limit (IP bytes)")
    queue_packets: Integer | None = Field(default=None, description="queue limit (packets)")
    queue_bdp: Number | None = Field(
        default=None, description="queue limit (base rate x the tested flow's minimum RTT)"
    )
    discipline: Discipline = Field(default="tail-drop", description="what the queue drops, and when")
    target_ms: Number | None = Field(default=None, description="delay target of codel and pie, bound of bode (ms)")
    interval_ms: Number | None = Field(default=None, description="interval of codel and pie (ms)")
    loss: Number = Field(default=0.0, description="probability that a packet is lost before the queue")
    losses: tuple[LossStepPart, ...] = Field(default=(), description="later changes of that probability")
    jitter_ms: Number = Field(default=0.0, description="each packet's propagation differs by up to +- this (ms)")
    jitter_reorders: Flag = Field(default=False, description="whether jitter may change the packets' order")
    delay_reorders: Flag = Field(
        default=False, description="whether packets overtake others where the delay falls, as netem's do"
    )
    grain_ms: Number = Field(default=0.0, description="packets leave only at multiples of this (ms)")


class FlowPart(_Part):
    """A flow's life and path."""

    start_s: Number = Field(default=0.0, description="when it starts (s)")
    stop_s: Number | None = Field(default=None, description="when it stops (s); the episode's end by default")
    extra_rtt_ms: Number = Field(default=0.0, description="how much longer its RTT is than the links' (ms)")
    links: tuple[Integer, Integer] | None = Field(
        default=None, description="first and last link it crosses, from 0; all"
    )

    def build(self) -> Flow:
        """Return the Flow."""
        return Flow(**self.given("start_s", "stop_s", "extra_rtt_ms", "links"))


class CrossPart(FlowPart):
    """Competing flows of one kernel scheme."""

    scheme: Text = Field(description="kernel scheme")
    count: Annotated[int, Field(strict=True, ge=1, le=MAX_FLOWS)] = Field(default=1, description="how many of them")
    flow: FlowPart | None = Field(
        default=None, description="the flow's fields, where they do not stand beside the scheme"
    )


class EnvironmentPart(_Part):
    """A network and what is measured on it."""

    links: tuple[LinkPart, ...] = Field(description=f"data direction, in order, 1 to {MAX_LINKS}")
    return_links: tuple[LinkPart, ...] | None = Field(
        default=None, description="the way back, one for each link; by default each only takes its link's delay_ms"
    )
    rtt_ms: Number | None = Field(default=None, description="minimum RTT of one link, half in each direction (ms)")
    duration_s: Number = Field(description="virtual length of the episode (s)")
    flow: FlowPart = Field(default=FlowPart(), description="the flow under test")
    cross: tuple[CrossPart, ...] = Field(default=(), description="its competitors")
    windows_s: tuple[tuple[Number, Number], ...] | None = Field(
        default=None, description="scoring windows, start and end (s); by default the tested flow's life"
    )
    reward: Reward = Field(default="power", description="which reward the pool derives")
    set: Name = Field(default="custom", description="name of the set it belongs to")
    id: Text | None = Field(default=None, description="checked where it is given: these fields must make it")


def load_environment(path: Path) -> Environment:
    """Read an environment file: JSON where its name ends in .json, else YAML.

    The name alone of one that comes with sagecc (docs/reference/formats.md) will do.
    Raises SageccError, one line naming the file, the place in it and what to do.
    """
    path = shipped.environment(path)
    document = parse(path.read_bytes(), str(path))
    try:
        part = EnvironmentPart.model_validate(document)
    except ValidationError as error:
        raise SageccError(f"{path}: {_explain(error, document)}") from None
    environment = _build(path, part)
    if part.id not in (None, environment.id):
        raise SageccError(
            f"{path}: id: says {part.id}, but its fields make {environment.id}; remove the line or mend them"
        )
    return environment


def json_schema() -> str:
    """Return the format as a JSON Schema: editors complete and check with it."""
    return json.dumps(EnvironmentPart.model_json_schema(), indent=2) + "\n"


def _build(path: Path, part: EnvironmentPart) -> Environment:
    ahead, back = _directions(path, part)
    flow = part.flow.build()
    own = slice(flow.links[0], flow.links[1] + 1) if flow.links else slice(None)
    rtt_ms = flow.extra_rtt_ms + sum(link.delay_ms for link in (*ahead[own], *back[own]))
    sides = (("links", ahead), ("return_links", back))
    links, return_links = (
        tuple(_link(path, f"{side}[{index}]", link, rtt_ms) for index, link in enumerate(parts))
        for side, parts in sides
    )
    stop_s = part.duration_s if flow.stop_s is None else flow.stop_s
    with _at(path):
        alone = Environment(
            set=part.set,
            links=links,
            return_links=return_links,
            duration_s=part.duration_s,
            windows_s=((flow.start_s, stop_s),) if part.windows_s is None else part.windows_s,
            reward=part.reward,
            flow=flow,
        )
    cross: list[CrossFlow] = []
    for index, entry in enumerate(part.cross):
        with _at(path, f"cross[{index}]"):
            competitor = _competitor(entry)
            replace(alone, cross=(competitor,))  # says which of them does not fit
            cross += [competitor] * entry.count
    with _at(path, "cross"):
        return replace(alone, cross=tuple(cross))


def _competitor(entry: CrossPart) -> CrossFlow:
    if entry.flow is None:
        return CrossFlow(entry.scheme, entry.build())
    if beside := entry.given(*FlowPart.model_fields):
        raise SageccError(f"{', '.join(beside)}: stands beside flow; write it into flow, or remove flow")
    return CrossFlow(entry.scheme, entry.flow.build())


def _directions(path: Path, part: EnvironmentPart) -> tuple[tuple[LinkPart, ...], tuple[LinkPart, ...]]:
    """Return the links and return links with rtt_ms and the default way back filled in."""
    ahead = part.links
    back = tuple(LinkPart() for _ in ahead) if part.return_links is None else part.return_links
    if len(back) != len(ahead):
        raise SageccError(f"{path}: return_links: there must be {len(ahead)}, one for each link, not {len(back)}")
    if part.rtt_ms is None:
        if part.return_links is None:
            back = tuple(LinkPart(delay_ms=link.delay_ms) for link in ahead)
        return ahead, back
    if len(ahead) != 1:
        raise SageccError(f"{path}: rtt_ms: is for one link, here are {len(ahead)}; give each its delay_ms")
    for name, link in (("links[0]", ahead[0]), ("return_links[0]", back[0])):
        if "delay_ms" in link.model_fields_set:
            raise SageccError(f"{path}: {name}.delay_ms: rtt_ms gives it already; remove one of them")
    half = {"delay_ms": part.rtt_ms / 2}
    return (ahead[0].model_copy(update=half),), (back[0].model_copy(update=half),)


_SAME = (
    *("delay_ms", "queue_bytes", "queue_packets", "discipline", "target_ms", "interval_ms"),
    *("loss", "jitter_ms", "jitter_reorders", "delay_reorders", "grain_ms"),
)
"""Fields that a LinkPart and a Link share as they are."""


def _link(path: Path, where: str, part: LinkPart, rtt_ms: float) -> Link:
    with _at(path, where):
        rates = [name for name in ("rate_mbps", "rates", "trace") if part.given(name)]
        if len(rates) > 1:
            raise SageccError(f"{' and '.join(rates)}: a link has one of them; remove the others")
        steps = tuple(RateStep(step.t_s, step.rate_mbps) for step in part.rates)
        if part.rate_mbps is not None:
            steps = (RateStep(0.0, part.rate_mbps),)
        link = Link(
            rates=steps,
            trace=_trace(path, part.trace),
            delays=tuple(DelayStep(step.t_s, step.delay_ms) for step in part.delays),
            losses=tuple(LossStep(step.t_s, step.loss) for step in part.losses),
            **{name: getattr(part, name) for name in _SAME},
        )
        if part.queue_bdp is None:
            return link
        if part.queue_bytes is not None:
            raise SageccError("queue_bdp and queue_bytes: a link has one of them; remove the other")
        if not link.limited:
            raise SageccError("queue_bdp: needs a rate or a trace; give one, or use queue_bytes or queue_packets")
        return replace(link, queue_bytes=queue_bytes(link.base_mbps, rtt_ms, part.queue_bdp))


def _trace(path: Path, trace: str | TracePart | None) -> Trace | None:
    if isinstance(trace, TracePart):
        return Trace(trace.name, trace.opportunities_ms)
    if trace is None:
        return None
    try:
        return read_trace(path.parent / trace)
    except OSError as error:
        raise SageccError(
            f"trace: {path.parent / trace}: {error.strerror}; the path is relative to this file"
        ) from None


@contextmanager
def _at(path: Path, where: str = "") -> Iterator[None]:
    """Put the file and the place in front of an error."""
    try:
        yield
    except SageccError as error:
        place = f"{where}: " if where else ""
        raise SageccError(f"{path}: {place}{str(error).removeprefix('environment: ')}") from None


_PARTS: Mapping[str, type[_Part]] = MappingProxyType(
    {
        "": EnvironmentPart,
        "links": LinkPart,
        "return_links": LinkPart,
        "rates": RateStepPart,
        "delays": DelayStepPart,
        "losses": LossStepPart,
        "trace": TracePart,
        "flow": FlowPart,
        "cross": CrossPart,
    }
)
"""The part that stands under a key of the file."""

_MUST = MappingProxyType(
    {
        "float_type": "must be a number",
        "finite_number": "must be a finite number",
        "int_type": "must be a whole number",
        "string_type": "must be text",
        "bool_type": "must be true or false",
        "tuple_type": "must be a list",
        "model_type": "must be a mapping of fields to values",
        "too_short": "must have {min_length} entries",
        "too_long": "must have {max_length} entries",
        "literal_error": "must be one of {expected}",
        "greater_than_equal": "must be at least {ge}",
        "less_than_equal": "must be at most {le}",
        "string_pattern_mismatch": "must be made of letters, digits, - and _",
    }
)
"""What a value must be, by pydantic's type of error."""


def _explain(error: ValidationError, document: Any) -> str:
    """Return the first error as its place in the document and what to do."""
    first = error.errors(include_url=False)[0]
    kind, value = first["type"], first["input"]
    place, container, at = "", "", document
    for key in first["loc"]:
        if isinstance(key, int) and isinstance(at, list):
            if key >= len(at):
                return f"{place}: must have {key + 1} entries, not {len(at)}"
            place, at = f"{place}[{key}]", at[key]
        elif isinstance(at, dict) and key in at:
            container, place, at = place, f"{place}.{key}" if place else str(key), at[key]
        # else: pydantic's name of an alternative, or the field that is missing
    key = str(first["loc"][-1]) if first["loc"] else ""
    if kind == "missing":
        return f"{place}: {key} is missing" if place else f"{key} is missing"
    if kind == "extra_forbidden":
        return f"{place}: {_unknown(key, container)}"
    must = _MUST[kind].format(**first.get("ctx", {})) if kind in _MUST else str(first["msg"])
    return f"{place}: {must}, not {_shown(value)}" if place else f"{must}, not {_shown(value)}"


def _unknown(key: str, container: str) -> str:
    names = re.sub(r"\[[0-9]+\]", "", container).rpartition(".")[2]
    known = list(_PARTS[names].model_fields)
    close = difflib.get_close_matches(key, known, 1)
    return (
        f"there is no such field; did you mean {close[0]}?"
        if close
        else f"there is no such field; use {', '.join(known)}"
    )


def _shown(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"{len(value)}" if value else "an empty list"
    if isinstance(value, dict):
        return "a mapping"
    return "nothing" if value is None else f"{value!r:.60}"


if __name__ == "__main__":
    print(json_schema(), end="")
