# SPDX-License-Identifier: Apache-2.0
"""Networks from paths that were measured over time: environment files, sets of them, traces for Mahimahi."""

from __future__ import annotations

import json
import math
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import yaml

from sagecc.collector.realtime.mahimahi import rate_opportunities_ms
from sagecc.common.errors import SageccError
from sagecc.common.files import write_atomically
from sagecc.schemas.environment import MAX_DURATION_S, MTU_BYTES, Environment, Link, queue_bytes
from sagecc.schemas.measured_trace import MeasuredTrace
from sagecc.schemas.trace_file import TRACE_BYTES

RTT_MS = 40.0
"""Of a path whose RTT was not measured."""

QUEUE_PACKETS = 150
"""Queue limit by default: that of the set `cellular`."""

MAX_OPPORTUNITIES = TRACE_BYTES // len(f"{MAX_DURATION_S * 1000}\n")
"""Lines of a trace for Mahimahi, so that it can be read here too."""

MAX_YAML_STEPS = 10_000
"""Steps of a network in YAML, which has 100,000 values at most where it is read (common.core_yaml)."""

SET_FILE = "set.yaml"
SUFFIXES = (".yaml", ".yml", ".json")
_NAME = re.compile("[A-Za-z0-9_-]+")


@dataclass(frozen=True)
class Unmeasured:
    """What a network has beside what was measured; None for the default."""

    rtt_ms: float | None = None
    """Where no RTT was measured: RTT_MS."""

    queue_bdp: float | None = None
    """Queue limit, in units of the mean rate times the mean RTT."""

    queue_packets: int | None = None
    """Queue limit instead: QUEUE_PACKETS."""


def import_traces(traces: Sequence[MeasuredTrace], out: Path, unmeasured: Unmeasured | None) -> str:
    """Write networks, or traces for Mahimahi; all of them or none.

    Args:
        traces: what was measured.
        out: the file of one trace; without a suffix the folder of all, which does not exist yet or is empty.
        unmeasured: the rest of the networks; None for traces for Mahimahi.

    Returns:
        What was written, in a line.

    Raises:
        SageccError: no network can have these values, or `out` is not as it must be.
    """
    for trace in traces:
        if trace.duration_s > MAX_DURATION_S:
            raise SageccError(
                f"{trace.name} lasts {trace.duration_s:g} s, a network {MAX_DURATION_S} at most: take a part with --for"
            )
    writers = [_writer(trace, unmeasured) for trace in traces]
    if out.suffix:
        if unmeasured and out.suffix not in SUFFIXES:
            raise SageccError(f"--out {out}: an environment file ends in {', '.join(SUFFIXES)}; a folder has no suffix")
        if len(traces) > 1:
            raise SageccError(f"--out {out}: is one file for {len(traces)} traces; name a folder, without a suffix")
        if unmeasured and out.suffix != ".json" and (steps := traces[0].steps) > MAX_YAML_STEPS:
            raise SageccError(f"--out {out}: {steps:,} steps are too many for YAML; let the name end in .json")
        writers[0](out)
        return f"environment {out}" if unmeasured else f"trace {out}"
    names = [trace.name for trace in traces]
    if duplicates := sorted({name for name in names if names.count(name) > 1}):
        raise SageccError(f"--out {out}: several traces are called {duplicates[0]}; give each a name of its own")
    if unmeasured and not _NAME.fullmatch(out.name):
        raise SageccError(f"--out {out}: its name becomes the set's, of letters, digits, - and _; choose another")
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise SageccError(f"--out {out}: is there already, and no empty folder; name a new one")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".tmp-{out.name}-", dir=out.parent) as temporary:
        folder = Path(temporary) / out.name
        folder.mkdir()
        for name, write in zip(names, writers, strict=True):
            write(folder / f"{name}.{'json' if unmeasured else 'down'}")
        if unmeasured:
            entries = [{"file": f"{name}.json", "tags": {"trace": name}} for name in names]
            (folder / SET_FILE).write_text(_yaml({"name": out.name, "environments": entries}), encoding="utf-8")
        folder.replace(out)
    return f"set {out / SET_FILE}" if unmeasured else f"traces {out}"


def environment_of(trace: MeasuredTrace, unmeasured: Unmeasured) -> Environment:
    """Return one flow on the path, for as long as it was measured.

    Raises:
        SageccError: no network can have these values.
    """
    if unmeasured.rtt_ms is not None and trace.rtts_ms is not None:
        raise SageccError("--rtt: an RTT was measured; leave it or its column out")
    if unmeasured.queue_bdp is not None and unmeasured.queue_packets is not None:
        raise SageccError("--queue-bdp excludes --queue-packets: leave one of them out")
    rtt_ms = RTT_MS if unmeasured.rtt_ms is None else unmeasured.rtt_ms
    try:
        link, back = trace.links(rtt_ms)
        if unmeasured.queue_bdp is None:
            link = replace(link, queue_packets=unmeasured.queue_packets or QUEUE_PACKETS)
        else:
            mean_rtt_ms = rtt_ms if trace.mean_rtt_ms is None else trace.mean_rtt_ms
            link = replace(link, queue_bytes=queue_bytes(trace.mean_mbps, mean_rtt_ms, unmeasured.queue_bdp))
        return Environment("custom", (link,), (back,), trace.duration_s, ((0.0, trace.duration_s),))
    except SageccError as error:
        raise SageccError(f"{trace.name}: {str(error).removeprefix('environment: ')}") from None


def opportunities_ms(trace: MeasuredTrace) -> npt.NDArray[np.int64]:
    """Return when 1500 bytes may leave: never more than was measured, and as Mahimahi repeats it as long.

    Args:
        trace: what was measured; its RTT and loss are left out.

    Returns:
        Times (whole ms), the last one the trace's end.

    Raises:
        SageccError: less than a packet came through, or more than MAX_OPPORTUNITIES.
    """
    duration_ms = trace.duration_s * 1000
    packets = trace.mean_mbps * duration_ms * 1000 / (8 * MTU_BYTES)
    if packets < 1:
        raise SageccError(f"{trace.name}: less than a packet of {MTU_BYTES} bytes came through")
    if packets > MAX_OPPORTUNITIES:
        raise SageccError(
            f"{trace.name}: needs {packets:,.0f} lines, {MAX_OPPORTUNITIES:,} at most: take a part with --for"
        )
    times_ms = np.ceil(rate_opportunities_ms(Link(rates=trace.rates), duration_ms)).astype(np.int64)
    times_ms[-1:] = math.ceil(duration_ms)
    return times_ms


def _writer(trace: MeasuredTrace, unmeasured: Unmeasured | None) -> Callable[[Path], None]:
    """Return what writes a trace's file to a path."""
    if unmeasured is None:
        text = "".join(f"{time_ms}\n" for time_ms in opportunities_ms(trace).tolist())
    else:
        text = environment_of(trace, unmeasured).to_json()

    def write(path: Path) -> None:
        content = text if unmeasured is None or path.suffix == ".json" else _yaml(json.loads(text))
        with write_atomically(path) as temporary:
            temporary.write_text(content, encoding="utf-8")

    return write


def _yaml(document: object) -> str:
    return str(yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=math.inf, allow_unicode=True))
