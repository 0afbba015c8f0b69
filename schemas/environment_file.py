# SPDX-License-Identifier: Apache-2.0
"""Strict reader of environment files: YAML or JSON that describe a network; docs/reference/formats.md has the fields.

A file may hold what `Environment.to_json` wrote; it may also use the shorter forms below.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError

from sagecc.common import shipped
from sagecc.common.document import read_document
from sagecc.common.errors import SageccError
from sagecc.common.inputs import check_regular
from sagecc.common.suggestions import did_you_mean
from sagecc.schemas.environment import (
    MAX_FLOWS,
    MAX_LINKS,
    MAX_NAME,
    CrossFlow,
    DelayStep,
    Discipline,
    Environment,
    Flow,
    Link,
    LossStep,
    Policer,
    RateStep,
    RewardKind,
    Trace,
    queue_bytes,
)
from sagecc.schemas.schemes import NO_CODE, TrustedCode, check_scheme
from sagecc.schemas.trace_file import read_trace

Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Integer = Annotated[int, Field(strict=True)]
Text = Annotated[str, Field(strict=True)]
Flag = Annotated[bool, Field(strict=True)]
Name = Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9_-]+$", max_length=MAX_NAME)]


class Part(BaseModel):
    """A mapping in a file: its fields and no others."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def given(self, *names: str) -> dict[str, Any]:
        """Return those of the named fields that the file sets."""
        return {name: getattr(self, name) for name in names if name in self.model_fields_set}


class RateStepPart(Part):
    """A rate from a moment on."""

    t_s: Number = Field(description="from this moment on (s)")
    rate_mbps: Number = Field(description="the link sends at this rate (Mbps); 0 in an outage")


class DelayStepPart(Part):
    """A propagation delay from a moment on."""

    t_s: Number = Field(description="from this moment on (s)")
    delay_ms: Number = Field(description="the propagation takes this long (ms)")


class LossStepPart(Part):
    """A probability of loss from a moment on."""

    t_s: Number = Field(description="from this moment on (s)")
    loss: Number = Field(description="a packet is lost before the queue with this probability")


class PolicerPart(Part):
    """A token bucket before the queue."""

    rate_mbps: Number = Field(description="tokens come at this rate (Mbps)")
    burst_bytes: Integer = Field(description="most tokens that the bucket holds (IP bytes)")


class TracePart(Part):
    """A trace within the file."""

    name: Text = Field(description="appears in the environment's id")
    opportunities_ms: tuple[Number, ...] = Field(description="when 1500 bytes may leave (ms)")


def _trace_kind(value: object) -> str:
    return "inline" if isinstance(value, (dict, TracePart)) else "file"


TraceField = Annotated[
    Annotated[Text, Tag("file")] | Annotated[TracePart, Tag("inline")],
    Discriminator(_trace_kind),
]


class LinkPart(Part):
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
    policer: PolicerPart | None = Field(default=None, description="drops what exceeds a rate, before the queue")
    ecn: Flag = Field(default=False, description="whether codel and fq-codel mark the packets of flows with ecn")
    mark_packets: Integer | None = Field(
        default=None, description="a packet of a flow with ecn that finds more in the queue is marked"
    )
    quantum_bytes: Integer | None = Field(default=None, description="quantum of fq-codel (IP bytes)")
    ack_filter: Flag = Field(default=False, description="whether an ACK that comes takes the place of an older one")


class FlowPart(Part):
    """A flow's life and path."""

    start_s: Number = Field(default=0.0, description="when it starts (s)")
    stop_s: Number | None = Field(default=None, description="when it stops (s); the episode's end by default")
    extra_rtt_ms: Number = Field(default=0.0, description="how much longer its RTT is than the links' (ms)")
    links: tuple[Integer, Integer] | None = Field(
        default=None, description="first and last link it crosses, from 0; all"
    )
    size_bytes: Integer | None = Field(
        default=None, description="payload to transfer (bytes); it ends when all is acknowledged"
    )
    ecn: Flag = Field(default=False, description="whether it negotiates ECN")
    receive_window_bytes: Integer | None = Field(
        default=None, description="most payload that its receiver lets be in flight (bytes)"
    )
    pauses_s: tuple[tuple[Number, Number], ...] = Field(
        default=(), description="from when until when its application has nothing to send (s)"
    )

    def build(self) -> Flow:
        """Return the Flow."""
        return Flow(**self.given(*FlowPart.model_fields))


class CrossPart(FlowPart):
    """Competing flows of one kernel scheme."""

    scheme: Text = Field(description="kernel scheme")
    count: Annotated[int, Field(strict=True, ge=1, le=MAX_FLOWS)] = Field(default=1, description="how many of them")
    flow: FlowPart | None = Field(
        default=None, description="the flow's fields, where they do not stand beside the scheme"
    )


class EnvironmentPart(Part):
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
    reward: RewardKind = Field(default="power", description="which reward the pool derives")
    set: Name = Field(default="custom", description="name of the set it belongs to")
    id: Text | None = Field(default=None, description="checked where it is given: these fields must make it")


AnyPart = TypeVar("AnyPart", bound=Part)


def load_environment(path: Path | str, trusted: TrustedCode = NO_CODE) -> Environment:
    """Read an environment file: JSON where its name ends in .json, else YAML.

    Args:
        path: the file, or as a text the mere name of one that is shipped with sagecc.
        trusted: the code that it may name.

    Raises:
        SageccError: the file does not describe an environment; the message names the file and the place in it.
    """
    file = shipped.environment(path)
    return build(read(EnvironmentPart, file, FIELDS), str(file), file.parent, trusted)


def read(model: type[AnyPart], path: Path, fields: Mapping[str, tuple[str, ...]]) -> AnyPart:
    """Read a file of hand-written YAML or JSON.

    Args:
        model: what it must be.
        path: the file.
        fields: the fields of the object under each of its keys (FIELDS), for advice.

    Raises:
        SageccError: it is anything else; the message names the file and the place in it.
    """
    document = read_document(path)
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise SageccError(f"{path}: {_explain(error, document, fields)}") from None


def build(part: EnvironmentPart, place: str, folder: Path, trusted: TrustedCode = NO_CODE) -> Environment:
    """Return the environment that a part describes.

    Args:
        part: the fields.
        place: where they stand, for errors.
        folder: what a trace's path is relative to.
        trusted: the code that it may name.

    Raises:
        SageccError: no network can have these values, or a competitor is code that is not trusted.
    """
    environment = _build(part, place, folder, trusted)
    if part.id not in (None, environment.id):
        raise SageccError(
            f"{place}: id: says {part.id}, but its fields make {environment.id}; remove the line or mend them"
        )
    return environment


def json_schema() -> str:
    """Return the format as a JSON Schema, with which editors complete and check."""
    return json.dumps(EnvironmentPart.model_json_schema(), indent=2) + "\n"


def _build(part: EnvironmentPart, place: str, folder: Path, trusted: TrustedCode) -> Environment:
    forward, backward = _directions(place, part)
    flow = part.flow.build()
    path = slice(flow.links[0], flow.links[1] + 1) if flow.links else slice(None)
    rtt_ms = flow.extra_rtt_ms + sum(link.delay_ms for link in (*forward[path], *backward[path]))
    directions = (("links", forward), ("return_links", backward))
    links, return_links = (
        tuple(_link(link, rtt_ms, f"{place}: {key}[{index}]", folder) for index, link in enumerate(parts))
        for key, parts in directions
    )
    stop_s = part.duration_s if flow.stop_s is None else flow.stop_s
    with _errors_at(place):
        single_flow = Environment(
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
        with _errors_at(f"{place}: cross[{index}]"):
            trusted.check(check_scheme(entry.scheme))
            competitor = _competitor(entry)
            replace(single_flow, cross=(competitor,))  # an error names this competitor
            cross += [competitor] * entry.count
    with _errors_at(f"{place}: cross"):
        return replace(single_flow, cross=tuple(cross))


def _competitor(entry: CrossPart) -> CrossFlow:
    if entry.flow is None:
        return CrossFlow(entry.scheme, entry.build())
    if flow_fields := entry.given(*FlowPart.model_fields):
        raise SageccError(f"{', '.join(flow_fields)}: stands beside flow; write it into flow, or remove flow")
    return CrossFlow(entry.scheme, entry.flow.build())


def _directions(place: str, part: EnvironmentPart) -> tuple[tuple[LinkPart, ...], tuple[LinkPart, ...]]:
    """Return the links and return links, with rtt_ms and the default return links filled in."""
    forward = part.links
    backward = tuple(LinkPart() for _ in forward) if part.return_links is None else part.return_links
    if len(backward) != len(forward):
        raise SageccError(
            f"{place}: return_links: there must be {len(forward)}, one for each link, not {len(backward)}"
        )
    if part.rtt_ms is None:
        if part.return_links is None:
            backward = tuple(LinkPart(delay_ms=link.delay_ms) for link in forward)
        return forward, backward
    if len(forward) != 1:
        raise SageccError(f"{place}: rtt_ms: is for one link, here are {len(forward)}; give each its delay_ms")
    for name, link in (("links[0]", forward[0]), ("return_links[0]", backward[0])):
        if "delay_ms" in link.model_fields_set:
            raise SageccError(f"{place}: {name}.delay_ms: rtt_ms gives it already; remove one of them")
    half = {"delay_ms": part.rtt_ms / 2}
    return (forward[0].model_copy(update=half),), (backward[0].model_copy(update=half),)


_SHARED_FIELDS = (
    "delay_ms",
    "queue_bytes",
    "queue_packets",
    "discipline",
    "target_ms",
    "interval_ms",
    "loss",
    "jitter_ms",
    "jitter_reorders",
    "delay_reorders",
    "grain_ms",
    "ecn",
    "mark_packets",
    "quantum_bytes",
    "ack_filter",
)
"""Fields that LinkPart and Link have in common."""


def _link(part: LinkPart, rtt_ms: float, place: str, folder: Path) -> Link:
    with _errors_at(place):
        rates = [name for name in ("rate_mbps", "rates", "trace") if part.given(name)]
        if len(rates) > 1:
            raise SageccError(f"{' and '.join(rates)}: a link has one of them; remove the others")
        steps = tuple(RateStep(step.t_s, step.rate_mbps) for step in part.rates)
        if part.rate_mbps is not None:
            steps = (RateStep(0.0, part.rate_mbps),)
        link = Link(
            rates=steps,
            trace=_trace(part.trace, folder),
            delays=tuple(DelayStep(step.t_s, step.delay_ms) for step in part.delays),
            losses=tuple(LossStep(step.t_s, step.loss) for step in part.losses),
            policer=Policer(part.policer.rate_mbps, part.policer.burst_bytes) if part.policer else None,
            **{name: getattr(part, name) for name in _SHARED_FIELDS},
        )
        if part.queue_bdp is None:
            return link
        if part.queue_bytes is not None:
            raise SageccError("queue_bdp and queue_bytes: a link has one of them; remove the other")
        if not link.limited:
            raise SageccError("queue_bdp: needs a rate or a trace; give one, or use queue_bytes or queue_packets")
        return replace(link, queue_bytes=queue_bytes(link.base_mbps, rtt_ms, part.queue_bdp))


def _trace(trace: str | TracePart | None, folder: Path) -> Trace | None:
    if isinstance(trace, TracePart):
        return Trace(trace.name, trace.opportunities_ms)
    if trace is None:
        return None
    path = folder / trace
    try:
        status = check_regular(path)
        return _read_trace(path, status.st_mtime_ns, status.st_size)
    except OSError as error:
        raise SageccError(f"trace: {path}: {error.strerror}; the path is relative to this file") from None


@lru_cache(16)
def _read_trace(path: Path, mtime_ns: int, size_bytes: int) -> Trace:
    """Read a trace file once for all networks of a set, which then share its times."""
    return read_trace(path)


@contextmanager
def _errors_at(place: str) -> Iterator[None]:
    """Prefix an error raised within with where it comes from."""
    try:
        yield
    except SageccError as error:
        raise SageccError(f"{place}: {str(error).removeprefix('environment: ')}") from None


FIELDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "": tuple(EnvironmentPart.model_fields),
        "links": tuple(LinkPart.model_fields),
        "return_links": tuple(LinkPart.model_fields),
        "rates": tuple(RateStepPart.model_fields),
        "delays": tuple(DelayStepPart.model_fields),
        "losses": tuple(LossStepPart.model_fields),
        "trace": tuple(TracePart.model_fields),
        "policer": tuple(PolicerPart.model_fields),
        "flow": tuple(FlowPart.model_fields),
        "cross": tuple(CrossPart.model_fields),
    }
)
"""The fields of the object under a key of the file; the file's own under none."""

_REQUIREMENTS = MappingProxyType(
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
        "string_too_long": "must have {max_length} characters at most",
        "literal_error": "must be one of {expected}",
        "greater_than_equal": "must be at least {ge}",
        "less_than_equal": "must be at most {le}",
        "string_pattern_mismatch": "must be made of letters, digits, - and _",
    }
)
"""Requirement that a value does not meet, by pydantic's type of error."""


def _explain(error: ValidationError, document: Any, fields: Mapping[str, tuple[str, ...]]) -> str:
    """Return the first error in one line: its location in the document and what to do."""
    first = error.errors(include_url=False)[0]
    kind, value = first["type"], first["input"]
    location, container, node = "", "", document
    for key in first["loc"]:
        if isinstance(key, int) and isinstance(node, list):
            if key >= len(node):
                return f"{location}: must have {key + 1} entries, not {len(node)}"
            location, node = f"{location}[{key}]", node[key]
        elif isinstance(node, dict) and key in node:
            container, location, node = location, f"{location}.{key}" if location else str(key), node[key]
        # else: pydantic's name of an alternative, or the field that is missing
    key = str(first["loc"][-1]) if first["loc"] else ""
    if kind == "missing":
        return f"{location}: {key} is missing" if location else f"{key} is missing"
    if kind == "extra_forbidden":
        return f"{location}: {_unknown(key, container, fields)}"
    requirement = _REQUIREMENTS[kind].format(**first.get("ctx", {})) if kind in _REQUIREMENTS else str(first["msg"])
    message = f"{requirement}, not {_described(value)}"
    return f"{location}: {message}" if location else message


def _unknown(key: str, container: str, fields: Mapping[str, tuple[str, ...]]) -> str:
    container_key = re.sub(r"\[[0-9]+\]", "", container).rpartition(".")[2]
    names = fields[container_key]
    return f"there is no such field{did_you_mean(key, names) or '; use ' + ', '.join(names)}"


def _described(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"{len(value)}" if value else "an empty list"
    if isinstance(value, dict):
        return "a mapping"
    return "nothing" if value is None else f"{value!r:.60}"


if __name__ == "__main__":
    print(json_schema(), end="")
