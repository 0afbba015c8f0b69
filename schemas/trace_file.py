# SPDX-License-Identifier: Apache-2.0
"""Packet-delivery traces in Mahimahi's format: one moment a line, in ms, at which 1500 bytes may leave."""

from __future__ import annotations

import re
from pathlib import Path

from sagecc.common.errors import SageccError
from sagecc.schemas.environment import Trace

_NUMBER = re.compile(r"[0-9]{1,12}(\.[0-9]+)?")


def read_trace(path: Path) -> Trace:
    """Read a trace file; its name becomes the trace's. Fractions of a millisecond are accepted, and kept.

    Raises SageccError naming file and line for anything but non-negative numbers that do not decrease,
    the last one above 0.
    """
    try:
        text = path.read_text(encoding="ascii")
    except UnicodeDecodeError:
        raise SageccError(f"{path}: not a trace: a trace has one number (ms) a line and nothing else") from None
    if not text:
        raise SageccError(f"{path}: the trace is empty: it needs one number (ms) a line")
    moments: list[float] = []
    before = 0.0
    for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):
        if not _NUMBER.fullmatch(line):
            found = f"'{line[:40]}'" if line.strip() else "an empty line"
            raise SageccError(f"{path}, line {number}: expected a time in ms such as 12, found {found}")
        moment = float(line)
        if moment < before:
            raise SageccError(f"{path}, line {number}: {line} comes after {before:g}: times must not decrease")
        moments.append(moment)
        before = moment
    if before == 0:
        raise SageccError(f"{path}: the trace must last longer than 0 ms: its last line is when it repeats")
    try:
        return Trace(path.stem, tuple(moments))
    except SageccError as error:
        raise SageccError(f"{path}: {str(error).removeprefix('environment: ')}") from None
