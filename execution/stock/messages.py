# SPDX-License-Identifier: Apache-2.0
"""What an agent tells its supervisor, who believes none of it: a crafted policy may have taken the agent over."""

from __future__ import annotations

import json
from dataclasses import asdict, astuple, dataclass

MESSAGE_BYTES = 1 << 16
"""No message is longer."""

_TEXT_CHARACTERS = 8_000
_LARGEST = 1e15


@dataclass(frozen=True)
class Timing:
    """How an agent kept time since its last report."""

    ticks: int
    """Ticks that were due while there were flows."""
    met: int
    """Of those, the ticks whose orders were all out before the next tick was due."""
    flows: int
    """Most flows at once."""
    p50_ms: float
    """Median time from when a tick was due until its orders were out."""
    p99_ms: float
    """The same time's 99th percentile."""
    longest_ms: float
    """The same time's maximum."""
    cpu_s: float
    """CPU time of the agent."""
    wall_s: float
    """Time since the last report."""

    def __post_init__(self) -> None:
        if not all(type(value) in (int, float) and 0 <= value < _LARGEST for value in astuple(self)) or not self.wall_s:
            raise ValueError(f"no agent kept time like this: {self}")


@dataclass(frozen=True)
class Message:
    """One thing that an agent tells."""

    ready: bool = False
    """It has loaded its policy, and waits for the shared memory."""
    driving: bool = False
    """Every flow that exists has its first order."""
    timing: Timing | None = None
    """How it kept time."""
    error: str = ""
    """Why it ends, in one line."""
    failure: str = ""
    """The traceback of a bug that it ends by."""

    def encoded(self) -> bytes:
        """Return the message as bytes."""
        values = asdict(self) | {"failure": self.failure[-_TEXT_CHARACTERS:]}
        return json.dumps({name: value for name, value in values.items() if value}).encode()

    @classmethod
    def decoded(cls, data: bytes) -> Message:
        """Read a message. Its texts can be shown on a terminal; what is no message is told as an error of the agent."""
        try:
            values = json.loads(data)
            timing = Timing(**values["timing"]) if "timing" in values else None
            error, failure = (_shown(str(values.get(name, ""))) for name in ("error", "failure"))
            return cls("ready" in values, "driving" in values, timing, error.replace("\n", " "), failure)
        except (ValueError, TypeError, AttributeError, RecursionError):
            return cls(error="the agent has sent what is no message")


def _shown(text: str) -> str:
    """Return a text's last characters, without any that a terminal obeys."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text[-_TEXT_CHARACTERS:])
