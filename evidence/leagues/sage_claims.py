# SPDX-License-Identifier: Apache-2.0
"""What the Sage paper says of its leagues of delay-based and of learned schemes, held against the same leagues here.

Sections 6.2 and 6.3, appendices D.1 and D.2, Tables 2 and 3. Where the paper says "about" or "largely", the number that
is taken for it here stands in the claim.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from types import MappingProxyType
from typing import Any

from sagecc.common.shipped import BEST_POLICY, SAFEST_POLICY
from sagecc.leagues.claims import TRUE, YES, Bounds, Claim, Measurement, exact, fact

DELAY, LEARNED = "delay-based", "ml-based"
"""The leagues, by the names of their presets (leagues.presets)."""

PAPER: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        DELAY: {
            "Sage": 0.4848,
            "Vegas": 0.2527,
            "C2TCP": 0.2485,
            "BBR2": 0.2015,
            "Copa": 0.1140,
            "LEDBAT": 0.0254,
            "Sprout": 0.0008,
        },
        LEARNED: {
            "Sage": 0.3803,
            "Orca": 0.3170,
            "Indigo": 0.2758,
            "DeepCC": 0.2008,
            "Indigov2": 0.1527,
            "Genet": 0.1424,
            "Vivace": 0.0860,
            "BC-top3": 0.0822,
            "BCv2": 0.0542,
            "Orcav2": 0.0515,
            "Aurora": 0.0424,
            "OnlineRL": 0.0405,
            "BC-top": 0.0239,
            "BC": 0.0102,
        },
    }
)
"""Winning rates in Set I with alpha 3: Tables 2 and 3, best first."""

PLACES: Mapping[str, str] = MappingProxyType(
    {
        "sage": "Sage",
        f"models/{SAFEST_POLICY}": "Sage",
        f"models/{BEST_POLICY}": "Sage",
        "bbr2": "BBR2",
        "vegas": "Vegas",
        "copa": "Copa",
        "c2tcp": "C2TCP",
        "ledbat": "LEDBAT",
        "sprout": "Sprout",
        "vivace": "Vivace",
        "orca": "Orca",
        "models/orca-1": "Orca",
        "models/orcav2-1": "Orcav2",
        "models/aurora-1": "Aurora",
        "models/indigo-1": "Indigo",
        "models/onlinerl-1": "OnlineRL",
        "bc": "BC",
        "bc-top": "BC-top",
        "bc-top3": "BC-top3",
        "bcv2": "BCv2",
    }
)
"""Whose place in the paper's leagues a scheme takes; `orca` and `sage` are the published models. Others are not in the
paper's."""

LEAGUE_RULE, ALPHA_RULE, MARGIN_RULE = (2.0, 0.1), (3.0, 0.1), (2.0, 0.05)
"""alpha and winning margin: of the paper's leagues, of Tables 2 and 3, of Fig. 20 and 21."""

ALIKE = Bounds(low=0.9)
"""Rankings are alike where such a share of the pairs of schemes keeps its order."""
HALF = Bounds(1.5, 3.0)
"""Where a quotient counts as "about twice"."""
NOBODY = Bounds(high=0)


@dataclass(frozen=True)
class Standing:
    """A scheme's row in one set by one rule."""

    rank: int
    """1 is best; equal rates share one."""
    winning_rate: float
    """Share of the scoring windows won."""


@dataclass(frozen=True)
class PlayedLeague:
    """The standings of one league in one set of networks."""

    tables: Mapping[tuple[str, tuple[float, float]], Mapping[str, Standing]]
    """By set and rule, then by scheme."""

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]]) -> PlayedLeague:
        """Take rows of leagues.standings.robustness, the schemes by the names of PLACES."""
        tables: dict[tuple[str, tuple[float, float]], dict[str, Standing]] = {}
        for row in rows:
            table = tables.setdefault((row["set"], (row["alpha"], row["margin"])), {})
            table[row["scheme"]] = Standing(row["rank"], row["winning_rate"])
        return cls(tables)

    def table(self, set_name: str, rule: tuple[float, float] = LEAGUE_RULE) -> Mapping[str, Standing]:
        """Return the standings of a set by a rule."""
        return self.tables[set_name, rule]

    def playing(self, *places: str) -> list[str]:
        """Return the schemes that play in these places of the paper's, in their order."""
        playing = self.table("I")
        return [name for place in places for name, taken in PLACES.items() if taken == place and name in playing]

    def ahead(self, scheme: str, set_name: str) -> list[str]:
        """Return the schemes with a better rank, less those in the same place of the paper's."""
        table, own = self.table(set_name), PLACES.get(scheme, scheme)
        return [name for name, of in table.items() if of.rank < table[scheme].rank and PLACES.get(name, name) != own]

    def place(self, scheme: str, set_name: str) -> str:
        """Return a scheme's rank in words."""
        table = self.table(set_name)
        return f"place {table[scheme].rank} of {len(table)}, {_percent(table[scheme].winning_rate)}"


Measure = Callable[[PlayedLeague], list[Measurement]]
"""Returns a number for each of those that play; none where nobody does."""


def first(set_name: str) -> Measure:
    """Return how many are ahead of each of ours; the other of ours does not count."""
    return lambda league: [
        Measurement(exact(len(league.ahead(scheme, set_name))), league.place(scheme, set_name), scheme)
        for scheme in league.playing("Sage")
    ]


def behind(place: str, *ahead: str) -> Measure:
    """Tell whether in Set I these, and nobody else of the paper's league, are ahead of a scheme."""

    def measure(league: PlayedLeague) -> list[Measurement]:
        numbers = []
        for scheme in league.playing(place):
            found = league.ahead(scheme, "I")
            holds = {PLACES[name] for name in found if name in PLACES} == set(ahead)
            numbers.append(
                Measurement(fact(holds), f"{league.place(scheme, 'I')}, behind {', '.join(found) or 'nobody'}", scheme)
            )
        return numbers

    return measure


def below(place: str) -> Measure:
    """Return how many stand below a scheme in Set II."""

    def measure(league: PlayedLeague) -> list[Measurement]:
        ranks = [standing.rank for standing in league.table("II").values()]
        own = {scheme: league.table("II")[scheme].rank for scheme in league.playing(place)}
        return [
            Measurement(exact(sum(other > rank for other in ranks)), league.place(scheme, "II"), scheme)
            for scheme, rank in own.items()
        ]

    return measure


def unbalanced(place: str) -> Measure:
    """Tell whether a scheme is in the upper half of Set II and in the lower half of Set I."""

    def measure(league: PlayedLeague) -> list[Measurement]:
        middle = (len(league.table("I")) + 1) / 2
        return [
            Measurement(
                fact(league.table("II")[scheme].rank <= middle < league.table("I")[scheme].rank),
                f"{league.place(scheme, 'II')} in Set II; {league.place(scheme, 'I')} in Set I",
                scheme,
            )
            for scheme in league.playing(place)
        ]

    return measure


def above(better: str, sets: Sequence[str], *worse: str) -> Measure:
    """Tell whether who plays in one place wins more than all who play in some others."""

    def measure(league: PlayedLeague) -> list[Measurement]:
        others = league.playing(*worse)
        numbers = []
        for scheme in league.playing(better) if others else ():
            tables = {name: league.table(name) for name in sets}
            most = {name: max(table[other].winning_rate for other in others) for name, table in tables.items()}
            found = "; ".join(
                f"{_percent(table[scheme].winning_rate)} against {_percent(most[name])} in Set {name}"
                for name, table in tables.items()
            )
            more = all(table[scheme].winning_rate > most[name] for name, table in tables.items())
            numbers.append(Measurement(fact(more), found, scheme))
        return numbers

    return measure


def poorest(place: str, *others: str) -> Measure:
    """Return by how much who plays in a place wins more than the least of the others, in Set I."""

    def measure(league: PlayedLeague) -> list[Measurement]:
        beside, table = league.playing(*others), league.table("I")
        if not beside:
            return []
        least = min(table[name].winning_rate for name in beside)
        return [
            Measurement(
                exact(table[scheme].winning_rate - least),
                f"{_percent(table[scheme].winning_rate)}, the others at least {_percent(least)}",
                scheme,
            )
            for scheme in league.playing(place)
        ]

    return measure


def times(better: str, worse: str) -> Measure:
    """Return how many times as much in Set II who plays in one place wins as who plays in the other."""

    def measure(league: PlayedLeague) -> list[Measurement]:
        table, numbers = league.table("II"), []
        for scheme in league.playing(better):
            for other in league.playing(worse):
                own, theirs = table[scheme].winning_rate, table[other].winning_rate
                quotient = exact(own / theirs if theirs else math.inf)
                numbers.append(Measurement(quotient, f"{_percent(own)} to {_percent(theirs)}", f"{scheme} to {other}"))
        return numbers

    return measure


def order_kept(rule: tuple[float, float], *sets: str) -> Measure:
    """Return which part of each set's ranking another rule leaves."""

    def rates(league: PlayedLeague, set_name: str, by: tuple[float, float]) -> dict[str, float]:
        return {scheme: of.winning_rate for scheme, of in league.table(set_name, by).items()}

    return lambda league: [
        _alike(f"Set {name}", rates(league, name, LEAGUE_RULE), rates(league, name, rule)) for name in sets
    ]


def order_of_the_paper(name: str) -> Measure:
    """Return which part of a table's order Set I has: each of ours in Sage's place, in any other its best."""

    def measure(league: PlayedLeague) -> list[Measurement]:
        rates = {scheme: of.winning_rate for scheme, of in league.table("I", ALPHA_RULE).items()}
        numbers = []
        for own in league.playing("Sage"):
            here = {
                place: max(rates[scheme] for scheme in playing)
                for place in PAPER[name]
                if (playing := [own] if place == "Sage" else league.playing(place))
            }
            numbers.append(_alike(own, PAPER[name], here))
        return numbers

    return measure


def _alike(who: str, one: Mapping[str, float], other: Mapping[str, float]) -> Measurement:
    """Return the share of pairs of those that both have whose order is the same; equal rates reverse no pair."""
    pairs = list(combinations([name for name in one if name in other], 2))
    agreement = sum((one[a] - one[b]) * (other[a] - other[b]) >= 0 for a, b in pairs)
    return Measurement(exact(agreement / len(pairs) if pairs else 1.0), f"{agreement} of {len(pairs)} pairs", who)


def _percent(rate: float) -> str:
    return f"{100 * rate:.1f} %"


BCS = ("BC", "BC-top", "BC-top3", "BCv2")
_ALIKE = f"at least {100 * ALIKE.low:g} % of the pairs of schemes in the same order"


def _rankings(league: str, table: str, figure: str) -> tuple[Claim[Measure], ...]:
    """Return what the appendices say of a league's ranking by other rules."""
    little = f"a margin of 5 % leaves the rankings largely intact: {_ALIKE}"
    return (
        Claim(f"D.1, {table}", f"the order with alpha 3 in Set I: {_ALIKE}", order_of_the_paper(league), ALIKE),
        Claim("D.1", f"alpha 3 changes the ranking little: {_ALIKE}", order_kept(ALPHA_RULE, "I"), ALIKE),
        Claim(f"D.2, {figure}", little, order_kept(MARGIN_RULE, "I", "II"), ALIKE),
    )


CLAIMS: Mapping[str, tuple[Claim[Measure], ...]] = MappingProxyType(
    {
        DELAY: (
            Claim("6.3", "Sage is first in Set I", first("I"), NOBODY),
            Claim("6.3", "Sage is first in Set II too", first("II"), NOBODY),
            *_rankings(DELAY, "Table 2", "Fig. 21"),
        ),
        LEARNED: (
            Claim("6.2, Fig. 9", "Sage is first in Set I", first("I"), NOBODY),
            Claim(
                "6.2",
                "the BC models do poorly: all win less than Sage in both sets",
                above("Sage", ("I", "II"), *BCS),
                TRUE,
            ),
            Claim(
                "6.2",
                "the more contradictory its pool, the poorer: BC, of all 13 schemes, wins least of the four in Set I",
                poorest("BC", *BCS[1:]),
                NOBODY,
            ),
            Claim(
                "6.2",
                "OnlineRL is excellent in Set II, in the upper half, and fails in Set I, in the lower",
                unbalanced("OnlineRL"),
                TRUE,
            ),
            Claim("6.2", "Orca is second in Set I: behind Sage alone", behind("Orca", "Sage"), TRUE),
            Claim(
                "6.2",
                f"in Set II Orca wins about half of what Sage does: Sage {HALF.low:g} to {HALF.high:g} times as much",
                times("Sage", "Orca"),
                HALF,
            ),
            Claim(
                "6.2",
                "more networks and days confuse Orca: Orcav2 wins less than it in Set I",
                above("Orca", ("I",), "Orcav2"),
                TRUE,
            ),
            Claim(
                "6.2", "Indigo is third in Set I: behind Sage and Orca alone", behind("Indigo", "Sage", "Orca"), TRUE
            ),
            Claim("6.2", "Indigo is among the last three in Set II", below("Indigo"), Bounds(high=2)),
            *_rankings(LEARNED, "Table 3", "Fig. 20"),
        ),
    }
)
"""By league."""


def judged(name: str, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return every claim about a league with its verdicts, of rows as PlayedLeague.of takes them."""
    league = PlayedLeague.of(rows)
    return [
        {
            "section": claim.source,
            "says": claim.sentence,
            "verdicts": [
                {"who": each.measured.of, "holds": each.verdict == YES, "found": each.measured.told}
                for each in claim.judged(league)
            ],
        }
        for claim in CLAIMS[name]
    ]
