# SPDX-License-Identifier: Apache-2.0
"""Disturbances of a kernel scheme's flow, from whose trajectories a learner sees how the scheme recovers.

A disturbed scheme is named by its base and what disturbs it: `cubic+kicks`, `vegas+kicks:3.5:0.25:2`,
`reno+jitter+starts:10`. The name is all there is to it: the schedule follows from the episode's name, which holds
environment, scheme and seed. To disturb the demonstrator and record how it recovers is DART (Laskey et al., 2017).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Container, Iterator
from dataclasses import dataclass, replace
from typing import Any

from sagecc.common.errors import SageccError
from sagecc.schemas.environment import Environment
from sagecc.schemas.raw import TICK_S

SEPARATOR = "+"
"""Between a scheme and each of its disturbances."""

MIN_EVERY_S, MAX_EVERY_S = 0.1, 3600.0
MIN_FACTOR, MAX_FACTOR = 1 / 64, 8.0
MAX_FACTORS = 16
MAX_JITTER_MS, MAX_START_S = 100.0, 60.0
FACTOR_ONE = 4096
"""Unit of a kick's factor on the wire and in samples: 16 bits hold factors below 16."""

LEAST_GAP_S = 1.5
"""Shortest time from one kick to the next (s): the scheme's own recovery is what is to be seen."""

FIRST_KICK_S = 2.0
"""Time from the flow's start to its first kick (s)."""


@dataclass(frozen=True)
class Kicks:
    """The window is multiplied, once each time; the scheme goes on from there by its own rules."""

    every: float = 7.0
    """Mean of the exponential time between kicks, in addition to LEAST_GAP_S (s)."""

    by: tuple[float, ...] = (0.125, 0.125, 0.25, 0.25, 0.25, 2.0)
    """Factors, each drawn as often as it stands here."""

    @property
    def numbers(self) -> tuple[float, ...]:
        """What its name has after `kicks`, as short as can be."""
        every = (self.every,) if self != Kicks() else ()
        return (*every, *self.by) if self.by != Kicks.by else every

    def __post_init__(self) -> None:
        _check(MIN_EVERY_S <= self.every <= MAX_EVERY_S, f"kicks:{self.every:g}", MIN_EVERY_S, MAX_EVERY_S, "s")
        if not 1 <= len(self.by) <= MAX_FACTORS:
            raise SageccError(f"kicks have 1 to {MAX_FACTORS} factors, not {len(self.by)}")
        for factor in self.by:
            _check(MIN_FACTOR <= factor <= MAX_FACTOR, f"kicks:{self.every:g}:{factor:g}", MIN_FACTOR, MAX_FACTOR, "")


@dataclass(frozen=True)
class Jitter:
    """The delay of every data packet varies, as it does wherever an emulator runs in real time."""

    ms: float = 1.0
    """Largest additional delay at each link in the data direction (ms), where it has no larger jitter already."""

    @property
    def numbers(self) -> tuple[float, ...]:
        """What its name has after `jitter`."""
        return (self.ms,) if self != Jitter() else ()

    def __post_init__(self) -> None:
        _check(0 < self.ms <= MAX_JITTER_MS, f"jitter:{self.ms:g}", 0, MAX_JITTER_MS, "ms")


@dataclass(frozen=True)
class Starts:
    """The flow starts later than its environment says."""

    s: float = 5.0
    """Latest start after that (s); starts are uniform up to it."""

    @property
    def numbers(self) -> tuple[float, ...]:
        """What its name has after `starts`."""
        return (self.s,) if self != Starts() else ()

    def __post_init__(self) -> None:
        _check(0 < self.s <= MAX_START_S, f"starts:{self.s:g}", 0, MAX_START_S, "s")


@dataclass(frozen=True)
class Kick:
    """A kick of a flow."""

    t_s: float
    """When it comes, since the episode began; a whole number of ticks (s)."""

    factor: float
    """By what the window is multiplied."""


@dataclass(frozen=True)
class Disturbance:
    """What disturbs a flow; None for what does not."""

    kicks: Kicks | None = None
    jitter: Jitter | None = None
    starts: Starts | None = None

    @classmethod
    def parse(cls, *parts: str) -> Disturbance:
        """Return what such parts of a name say: `kicks`, `kicks:3.5`, `jitter:2`.

        Raises:
            SageccError: A part says nothing.
        """
        return cls(**dict(_parse(part) for part in parts))

    def __bool__(self) -> bool:
        """Whether anything disturbs the flow."""
        return any(part is not None for part in vars(self).values())

    @property
    def suffix(self) -> str:
        """What a disturbed scheme's name has after its base's; defaults are left out."""
        return "".join(
            ":".join((f"{SEPARATOR}{name}", *(f"{x:g}" for x in part.numbers)))
            for name, part in vars(self).items()
            if part is not None
        )

    def environment(self, environment: Environment, episode: str) -> Environment:
        """Return the environment that the guest is to have: jitter and the flow's start are put in.

        Args:
            environment: the environment by its id.
            episode: the episode's name.
        """
        if self.jitter:
            links = (replace(link, jitter_ms=max(link.jitter_ms, self.jitter.ms)) for link in environment.links)
            environment = replace(environment, links=tuple(links))
        if self.starts:
            start_s = environment.flow.start_s + _ticks_s(self.starts.s * next(_draws(episode, "start")))
            if start_s >= environment.stop_of(environment.flow):
                raise SageccError(f"episode {episode}: its flow would start at {start_s:g} s, when it stops already")
            environment = replace(environment, flow=replace(environment.flow, start_s=start_s))
        return environment

    def schedule(self, environment: Environment, episode: str) -> tuple[Kick, ...]:
        """Return the kicks of the flow under test in the order of their times.

        Args:
            environment: the environment that the guest has.
            episode: the episode's name, from which all numbers are drawn (SHA-256 of it and a count).
        """
        if self.kicks is None:
            return ()
        stop_s = environment.stop_of(environment.flow)
        kicks: list[Kick] = []
        times, choices = _draws(episode, "time"), _draws(episode, "factor")
        t_s = environment.flow.start_s + FIRST_KICK_S
        while t_s < stop_s:
            kicks.append(Kick(_ticks_s(t_s), self.kicks.by[int(next(choices) * len(self.kicks.by))]))
            t_s += LEAST_GAP_S - self.kicks.every * math.log1p(-next(times))
        return tuple(kicks)


UNDISTURBED = Disturbance()

_EXAMPLE = "cubic+kicks, cubic+kicks:3.5:0.25:2 (mean interval in s, factors), cubic+jitter:1 (ms), cubic+starts:5 (s)"


def split_scheme(scheme: str, bases: Container[str]) -> tuple[str, Disturbance]:
    """Return a scheme's base and what disturbs it.

    Args:
        scheme: any scheme's name; one that has no base is its own, undisturbed.
        bases: schemes that may be disturbed.

    Raises:
        SageccError: The base is disturbed by what there is not, or by a name that is not the shortest.
    """
    base, *parts = scheme.split(SEPARATOR)
    if not parts or base not in bases:
        return scheme, UNDISTURBED
    disturbance = Disturbance.parse(*parts)
    if base + disturbance.suffix != scheme:
        raise SageccError(f"scheme '{scheme}': write it as '{base}{disturbance.suffix}'")
    return base, disturbance


def _parse(text: str) -> tuple[str, Any]:
    name, *values = text.split(":")
    try:
        numbers = tuple(map(float, values))
    except ValueError:
        raise SageccError(f"'{text}' disturbs a scheme by numbers, such as {_EXAMPLE}") from None
    match name, numbers:
        case "kicks", ():
            return name, Kicks()
        case "kicks", (every,):
            return name, Kicks(every)
        case "kicks", (every, *by):
            return name, Kicks(every, tuple(by))
        case "jitter", ():
            return name, Jitter()
        case "jitter", (ms,):
            return name, Jitter(ms)
        case "starts", ():
            return name, Starts()
        case "starts", (s,):
            return name, Starts(s)
    raise SageccError(f"no scheme is disturbed by '{text}': write it such as {_EXAMPLE}")


def _draws(episode: str, what: str) -> Iterator[float]:
    """Yield numbers in [0, 1), the same on every machine and with every library."""
    count = 0
    while True:
        digest = hashlib.sha256(f"{episode} {what} {count}".encode()).digest()
        yield (int.from_bytes(digest[:8], "little") >> 11) / 2**53
        count += 1


def _ticks_s(t_s: float) -> float:
    return round(round(t_s / TICK_S) * TICK_S, 6)


def _check(holds: bool, text: str, least: float, most: float, unit: str) -> None:
    if not holds:
        raise SageccError(f"disturbance: '{text}' must be from {least:g} to {most:g} {unit}".rstrip())
