# SPDX-License-Identifier: Apache-2.0
"""How each scheme is drawn: one colour and one pattern of line, the same in every picture.

Schemes of a family share a hue and differ by pattern. The hues are Okabe and Ito's, which colour-blind people can tell
apart, and two more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sagecc.schemas.schemes import POLICY_PREFIX

PALETTE = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5195", "#8c6d31")
VERMILION, BLUE, GREEN, PINK, ORANGE, SKY, VIOLET, BROWN = PALETTE
DASHES = ("-", "--", "-.", ":")

_FAMILIES = (
    ("sagecc-10", "sagecc-1", "sagecc-12", "repro"),
    ("cubic", "bic", "c2tcp", "scalable"),
    ("bbr2", "bbr", "bbr3", "westwood"),
    ("vegas", "nv", "cdg", "yeah"),
    ("reno", "veno", "highspeed", "hybla"),
    ("copa", "ledbat", "ledbatpp", "lp"),
    ("htcp", "illinois", "dctcp", "vivace"),
    ("sprout", "sprout-ewma", "wander"),
)
"""By hue, in PALETTE's order: schemes of a family, and the project's policies by their folders' names."""


@dataclass(frozen=True)
class Stroke:
    """How a scheme's line is drawn."""

    colour: str
    """As #rrggbb."""
    dashes: str
    """One of DASHES."""


def _stroke(hue: int, place: int) -> Stroke:
    """Return the stroke of a place in a family; neighbouring hues begin with different patterns."""
    return Stroke(PALETTE[hue], DASHES[(hue + place) % len(DASHES)])


_KNOWN = {name: _stroke(hue, place) for hue, names in enumerate(_FAMILIES) for place, name in enumerate(names)}
_ALL = [_stroke(hue, place) for place in range(len(DASHES)) for hue in range(len(PALETTE))]


def strokes(schemes: Iterable[str]) -> dict[str, Stroke]:
    """Return how each of some schemes is drawn, whatever their order.

    A scheme that has no stroke of its own (a policy, a Python class) gets one that is free among these, in a hue that
    none of them has as long as there are some.
    """
    names = sorted(set(schemes))
    found: dict[str, Stroke] = {}
    for name in names:
        own = _known(name)
        if own and own not in found.values():
            found[name] = own
    for name in names:
        if name not in found:
            found[name] = _free(list(found.values()))
    return found


def stroke(scheme: str) -> Stroke:
    """Return how a scheme is drawn by itself."""
    return strokes([scheme])[scheme]


def _known(scheme: str) -> Stroke | None:
    name = scheme.rstrip("/").rpartition("/")[2] if scheme.startswith(POLICY_PREFIX) else scheme.partition("+")[0]
    return _KNOWN.get(name.removeprefix(POLICY_PREFIX))


def _free(taken: list[Stroke]) -> Stroke:
    """Return the first stroke of a hue that no other has, else the first that no other has, else the first."""
    hues = {each.colour for each in taken}
    new_hue = (each for each in _ALL if each.colour not in hues)
    return next(new_hue, next((each for each in _ALL if each not in taken), _ALL[0]))
