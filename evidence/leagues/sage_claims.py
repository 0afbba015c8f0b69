# SPDX-License-Identifier: Apache-2.0
"""What the Sage paper says of its leagues of delay-based and of learned schemes, held against the same leagues here.

Sections 6.2 and 6.3, appendices D.1 and D.2, Tables 2 and 3. Where the paper says "about" or "largely", the number that
is taken for it here stands in the claim.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from types import MappingProxyType
from typing import Any

from sagecc.common.shipped import BEST_POLICY, POOL_POLICY

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
        f"models/{POOL_POLICY}": "Sage",
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
"""Whose place in the paper's leagues a scheme takes; `orca` is the published actor. Others are not in the paper's."""

LEAGUE_RULE, ALPHA_RULE, MARGIN_RULE = (2.0, 0.1), (3.0, 0.1), (2.0, 0.05)
"""alpha and winning margin: of the paper's leagues, of Tables 2 and 3, of Fig. 20 and 21."""

KEPT = 0.9
"""Rankings are alike where so many of the pairs of schemes keep their order."""
HALF = (1.5, 3.0)
"""From where to where a quotient counts as "about twice"."""


@dataclass(frozen=True)
class Verdict:
    """Whether a claim holds for one of those that it is about."""

    who: str
    """A scheme's name, or what is compared."""
    holds: bool
    """By the figures themselves, whatever their intervals."""
    found: str
    """The figures here that decide it."""


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


Judge = Callable[[PlayedLeague], list[Verdict]]


@dataclass(frozen=True)
class Claim:
    """A statement of the paper's."""

    league: str
    """DELAY or LEARNED."""
    section: str
    """Of the paper, and the table or figure."""
    says: str
    """In short, with the bounds that are ours."""
    judge: Judge
    """Returns a verdict for each of those that play; none where nobody does."""


def first(set_name: str) -> Judge:
    """Each of ours is ahead of all others; the other of ours does not count."""
    return lambda league: [
        Verdict(scheme, not league.ahead(scheme, set_name), league.place(scheme, set_name))
        for scheme in league.playing("Sage")
    ]


def behind(place: str, *ahead: str) -> Judge:
    """In Set I these, and nobody else of the paper's league, are ahead of a scheme."""

    def judge(league: PlayedLeague) -> list[Verdict]:
        verdicts = []
        for scheme in league.playing(place):
            found = league.ahead(scheme, "I")
            holds = {PLACES[name] for name in found if name in PLACES} == set(ahead)
            verdicts.append(
                Verdict(scheme, holds, f"{league.place(scheme, 'I')}, behind {', '.join(found) or 'nobody'}")
            )
        return verdicts

    return judge


def among_the_last(place: str, count: int) -> Judge:
    """At most count - 1 stand below a scheme in Set II."""

    def judge(league: PlayedLeague) -> list[Verdict]:
        ranks = [standing.rank for standing in league.table("II").values()]
        own = {scheme: league.table("II")[scheme].rank for scheme in league.playing(place)}
        return [
            Verdict(scheme, sum(other > rank for other in ranks) < count, league.place(scheme, "II"))
            for scheme, rank in own.items()
        ]

    return judge


def unbalanced(place: str) -> Judge:
    """A scheme is in the upper half of Set II and in the lower half of Set I."""

    def judge(league: PlayedLeague) -> list[Verdict]:
        middle = (len(league.table("I")) + 1) / 2
        return [
            Verdict(
                scheme,
                league.table("II")[scheme].rank <= middle < league.table("I")[scheme].rank,
                f"{league.place(scheme, 'II')} in Set II; {league.place(scheme, 'I')} in Set I",
            )
            for scheme in league.playing(place)
        ]

    return judge


def above(better: str, sets: Sequence[str], *worse: str) -> Judge:
    """Who plays in one place wins more than all who play in some others."""

    def judge(league: PlayedLeague) -> list[Verdict]:
        others = league.playing(*worse)
        verdicts = []
        for scheme in league.playing(better) if others else ():
            tables = {name: league.table(name) for name in sets}
            most = {name: max(table[other].winning_rate for other in others) for name, table in tables.items()}
            found = "; ".join(
                f"{_percent(table[scheme].winning_rate)} against {_percent(most[name])} in Set {name}"
                for name, table in tables.items()
            )
            verdicts.append(
                Verdict(scheme, all(table[scheme].winning_rate > most[n] for n, table in tables.items()), found)
            )
        return verdicts

    return judge


def poorest(place: str, *others: str) -> Judge:
    """Who plays in a place wins at most as much as each in the others, in Set I."""

    def judge(league: PlayedLeague) -> list[Verdict]:
        beside, table = league.playing(*others), league.table("I")
        if not beside:
            return []
        least = min(table[name].winning_rate for name in beside)
        return [
            Verdict(
                scheme,
                table[scheme].winning_rate <= least,
                f"{_percent(table[scheme].winning_rate)}, the others at least {_percent(least)}",
            )
            for scheme in league.playing(place)
        ]

    return judge


def twice(better: str, worse: str) -> Judge:
    """Who plays in one place wins about twice as much in Set II as who plays in the other."""

    def judge(league: PlayedLeague) -> list[Verdict]:
        table, verdicts = league.table("II"), []
        for scheme in league.playing(better):
            for other in league.playing(worse):
                own, theirs = table[scheme].winning_rate, table[other].winning_rate
                holds = HALF[0] * theirs <= own <= HALF[1] * theirs and theirs > 0
                verdicts.append(Verdict(f"{scheme} to {other}", holds, f"{_percent(own)} to {_percent(theirs)}"))
        return verdicts

    return judge


def order_kept(rule: tuple[float, float], *sets: str) -> Judge:
    """By another rule the ranking of each set stays nearly the same."""

    def rates(league: PlayedLeague, set_name: str, by: tuple[float, float]) -> dict[str, float]:
        return {scheme: of.winning_rate for scheme, of in league.table(set_name, by).items()}

    return lambda league: [
        _alike(f"Set {name}", rates(league, name, LEAGUE_RULE), rates(league, name, rule)) for name in sets
    ]


def order_of_the_paper(name: str) -> Judge:
    """With each of ours in Sage's place, and the best of several in any other, Set I has the order of a table."""

    def judge(league: PlayedLeague) -> list[Verdict]:
        rates = {scheme: of.winning_rate for scheme, of in league.table("I", ALPHA_RULE).items()}
        verdicts = []
        for own in league.playing("Sage"):
            here = {
                place: max(rates[scheme] for scheme in playing)
                for place in PAPER[name]
                if (playing := [own] if place == "Sage" else league.playing(place))
            }
            verdicts.append(_alike(own, PAPER[name], here))
        return verdicts

    return judge


def _alike(who: str, one: Mapping[str, float], other: Mapping[str, float]) -> Verdict:
    """Compare the order of those that both have; equal rates reverse no pair."""
    pairs = list(combinations([name for name in one if name in other], 2))
    kept = sum((one[a] - one[b]) * (other[a] - other[b]) >= 0 for a, b in pairs)
    return Verdict(who, kept >= KEPT * len(pairs), f"{kept} of {len(pairs)} pairs")


def _percent(rate: float) -> str:
    return f"{100 * rate:.1f} %"


BCS = ("BC", "BC-top", "BC-top3", "BCv2")
_ALIKE = f"at least {100 * KEPT:g} % of the pairs of schemes in the same order"

CLAIMS = (
    Claim(DELAY, "6.3", "Sage is first in Set I", first("I")),
    Claim(DELAY, "6.3", "Sage is first in Set II too", first("II")),
    Claim(DELAY, "D.1, Table 2", f"the order with alpha 3 in Set I: {_ALIKE}", order_of_the_paper(DELAY)),
    Claim(DELAY, "D.1", f"alpha 3 changes the ranking little: {_ALIKE}", order_kept(ALPHA_RULE, "I")),
    Claim(
        DELAY,
        "D.2, Fig. 21",
        f"a margin of 5 % leaves the rankings largely intact: {_ALIKE}",
        order_kept(MARGIN_RULE, "I", "II"),
    ),
    Claim(LEARNED, "6.2, Fig. 9", "Sage is first in Set I", first("I")),
    Claim(
        LEARNED,
        "6.2",
        "the BC models do poorly: all win less than Sage in both sets",
        above("Sage", ("I", "II"), *BCS),
    ),
    Claim(
        LEARNED,
        "6.2",
        "the more contradictory its pool, the poorer: BC, of all 13 schemes, wins least of the four in Set I",
        poorest("BC", *BCS[1:]),
    ),
    Claim(
        LEARNED,
        "6.2",
        "OnlineRL is excellent in Set II, in the upper half, and fails in Set I, in the lower",
        unbalanced("OnlineRL"),
    ),
    Claim(LEARNED, "6.2", "Orca is second in Set I: behind Sage alone", behind("Orca", "Sage")),
    Claim(
        LEARNED,
        "6.2",
        f"in Set II Orca wins about half of what Sage does: Sage {HALF[0]:g} to {HALF[1]:g} times as much",
        twice("Sage", "Orca"),
    ),
    Claim(
        LEARNED,
        "6.2",
        "more networks and days confuse Orca: Orcav2 wins less than it in Set I",
        above("Orca", ("I",), "Orcav2"),
    ),
    Claim(LEARNED, "6.2", "Indigo is third in Set I: behind Sage and Orca alone", behind("Indigo", "Sage", "Orca")),
    Claim(LEARNED, "6.2", "Indigo is among the last three in Set II", among_the_last("Indigo", 3)),
    Claim(LEARNED, "D.1, Table 3", f"the order with alpha 3 in Set I: {_ALIKE}", order_of_the_paper(LEARNED)),
    Claim(LEARNED, "D.1", f"alpha 3 changes the ranking little: {_ALIKE}", order_kept(ALPHA_RULE, "I")),
    Claim(
        LEARNED,
        "D.2, Fig. 20",
        f"a margin of 5 % leaves the rankings largely intact: {_ALIKE}",
        order_kept(MARGIN_RULE, "I", "II"),
    ),
)


def judged(name: str, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return every claim about a league with its verdicts, of rows as PlayedLeague.of takes them."""
    league = PlayedLeague.of(rows)
    return [
        {"section": claim.section, "says": claim.says, "verdicts": [asdict(verdict) for verdict in claim.judge(league)]}
        for claim in CLAIMS
        if claim.league == name
    ]
