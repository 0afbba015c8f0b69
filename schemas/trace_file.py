# SPDX-License-Identifier: Apache-2.0
"""Packet-delivery traces in Mahimahi's format: one time per line (ms), at which 1500 bytes may leave."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from sagecc.common.errors import SageccError
from sagecc.common.inputs import read_regular
from sagecc.schemas.environment import Trace

TRACE_BYTES = 64 * 2**20
"""Limit of a trace file: ten million lines or so, minutes of a link of 1 Gbps."""

TRACE_SUFFIXES = (".down", ".up")
"""Suffixes of Mahimahi's traces; such a file is meant as one whatever it holds."""

_NUMBER = re.compile(r"[0-9]{1,12}(\.[0-9]{1,20})?")
_FIRST_BYTES = 64
"""More than the first line of a trace has."""


def is_trace(path: Path) -> bool:
    """Tell whether a file among others is meant as a trace: by its suffix, or for its first line is a time.

    A hidden file is not.

    Args:
        path: a regular file.

    Raises:
        OSError: it cannot be read.
    """
    if path.name.startswith("."):
        return False
    if path.suffix in TRACE_SUFFIXES:
        return True
    with path.open("rb") as file:
        first = file.read(_FIRST_BYTES).removeprefix(codecs.BOM_UTF8).splitlines()[:1]
    return bool(first) and _NUMBER.fullmatch(first[0].decode("latin-1")) is not None


def among(paths: Iterable[Path]) -> tuple[list[Path], list[Path]]:
    """Return those of some regular files that `is_trace`, and the others, in the order given."""
    kinds: dict[bool, list[Path]] = {True: [], False: []}
    for path in paths:
        kinds[is_trace(path)].append(path)
    return kinds[True], kinds[False]


def no_trace(folder: Path | None, others: Sequence[Path]) -> str:
    """Return the end of an error's message about a folder in which only these others were found."""
    examples = f"; of {', '.join(path.name for path in others[:3])} none is one" if others else ""
    return f"there is no trace in {folder}{examples}; 'sagecc import trace' reads other forms"


def read_trace(path: Path) -> Trace:
    """Read a trace file; fractions of a millisecond are accepted and kept.

    Args:
        path: the file, whose stem becomes the trace's name.

    Raises:
        SageccError: a line is not a non-negative number or is less than the one before, or the last is not above 0;
            the message names file and line.
    """
    try:
        text = read_regular(path, TRACE_BYTES).removeprefix(codecs.BOM_UTF8).decode("ascii")
    except UnicodeDecodeError:
        raise SageccError(f"{path}: not a trace: a trace has one number (ms) a line and nothing else") from None
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not text:
        raise SageccError(f"{path}: the trace is empty: it needs one number (ms) a line")
    times_ms: list[float] = []
    previous_ms = 0.0
    for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):
        if not _NUMBER.fullmatch(line):
            content = f"'{line[:40]}'" if line.strip() else "an empty line"
            raise SageccError(f"{path}, line {number}: expected a time in ms such as 12, found {content}")
        time_ms = float(line)
        if time_ms < previous_ms:
            raise SageccError(f"{path}, line {number}: {line} comes after {previous_ms:g}: times must not decrease")
        times_ms.append(time_ms)
        previous_ms = time_ms
    if previous_ms == 0:
        raise SageccError(f"{path}: the trace must last longer than 0 ms: its last line is when it repeats")
    try:
        return Trace(path.stem, tuple(times_ms))
    except SageccError as error:
        raise SageccError(f"{path}: {str(error).removeprefix('environment: ')}") from None
