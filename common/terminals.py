# SPDX-License-Identifier: Apache-2.0
"""Output to a terminal, which may be closed while a command runs, and which no text may drive."""

from __future__ import annotations

import errno
import io
from typing import Any, TextIO


class _Terminal(io.FileIO):
    """A terminal; what is written to it once it is closed (EIO) is dropped."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return memoryview(data).nbytes


def outlasting(stream: TextIO) -> TextIO:
    """Return a stream to the same terminal that drops what it can no longer show; other streams as they are."""
    if not stream.isatty():
        return stream
    raw = _Terminal(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding=stream.encoding, errors=stream.errors, line_buffering=True)


def one_line(text: str) -> str:
    """Return a text as one line of printable characters: files' names and contents must not drive a terminal."""
    words = " ".join(text.split())
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in words)
