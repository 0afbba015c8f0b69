# SPDX-License-Identifier: Apache-2.0
"""Which of the paper's conclusions hold here: its sentences, what was measured of each, and whether that bears it out.

Where seeds were tried, a difference is tested by its 95 % interval: what holds in the mean alone, and might as well be
a matter of seeds, is said to.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from evidence.paper import VARIANTS
from evidence.paper.variants import ALL
from sagecc.leagues.claims import TRUE, Bounds, Claim, Judgement, Measurement, fact
from sagecc.leagues.intervals import Interval, interval, student_t

LEAGUE = "heldout"
PAPERS_TIME = 5 / 7
"""When the paper's policy led and was friendly: after five days of seven (section 5.3)."""
CHANGES_BY = 0.1
"""Difference between the largest Similarity Indices of two networks from which they are said to differ."""

ROUNDING = 1e-7
"""Of a cosine of single-precision vectors."""

Values = Mapping[str, Any]
Measure = Callable[[Values], list[Measurement]]
"""Takes a figure's result; returns nothing where a part is missing."""
Margin = Callable[[Mapping[str, Mapping[str, float]]], float]
"""Takes the winning rates of a moment by set."""


def difference(more: Sequence[float], less: Sequence[float]) -> Interval:
    """Return the difference of two means with Welch's interval; without one where a side has a single value."""
    a, b = np.array(more), np.array(less)
    mean = float(a.mean() - b.mean())
    if min(len(a), len(b)) < 2:
        return Interval(len(a), mean, None, None)
    parts = [float(x.var(ddof=1)) / len(x) for x in (a, b)]
    if not sum(parts):
        return Interval(len(a), mean, mean, mean)
    freedom = sum(parts) ** 2 / sum(part**2 / (len(x) - 1) for part, x in zip(parts, (a, b), strict=True))
    half = student_t(max(1, math.floor(freedom))) * math.sqrt(sum(parts))
    return Interval(len(a), mean, mean - half, mean + half)


def of_figure(figure: str, result: Values) -> list[Judgement]:
    """Return what a figure's result says of the paper's sentences; those for which a part is missing are left out."""
    return [judgement for claim in CLAIMS[figure] for judgement in claim.judged(result)]


def at_the_end(margin: Margin, against: str) -> Measure:
    """Return each recipe's margin at its trainings' end, and since when it stays."""

    def measure(result: Values) -> list[Measurement]:
        found = []
        for recipe, runs in by_recipe(result["runs"]).items():
            last = interval(np.array([margin(run["points"][-1]["rates"]) for run in runs]))
            told = f"`{recipe}`: {_points(last)} from {against} at the end; {_since(runs, margin)}"
            found.append(Measurement(last, told))
        return found

    return measure


def gained(result: Values) -> list[Measurement]:
    """Return by how much each recipe's lead grows after PAPERS_TIME."""
    found = []
    for recipe, runs in by_recipe(result["runs"]).items():
        points = [(run["points"][-1], run["points"][math.ceil(PAPERS_TIME * len(run["points"])) - 1]) for run in runs]
        gain = interval(np.array([_leadership(last["rates"]) - _leadership(then["rates"]) for last, then in points]))
        told = f"`{recipe}`: {_points(gain)} in Set I over the last {1 - PAPERS_TIME:.0%} of the steps"
        found.append(Measurement(gain, told))
    return found


def by_recipe(runs: Iterable[Values]) -> dict[str, list[Values]]:
    """Return runs, or what was measured of each, by recipe, in their order."""
    found: dict[str, list[Values]] = {}
    for run in runs:
        found.setdefault(run["recipe"], []).append(run)
    return found


def _leadership(rates: Mapping[str, Mapping[str, float]]) -> float:
    return rates["I"]["policy"] - max(rate for scheme, rate in rates["I"].items() if scheme != "policy")


def _friendliness(rates: Mapping[str, Mapping[str, float]]) -> float:
    return rates["II"]["policy"] - rates["II"]["reno"]


def _since(runs: Sequence[Values], margin: Margin) -> str:
    """Say from when on the mean over runs of a margin stays at 0 or above, and after what CPU time that was."""
    steps = list(zip(*(run["points"] for run in runs), strict=True))
    means = [sum(margin(point["rates"]) for point in at) / len(at) for at in steps]
    if means[-1] < 0:
        return "never to stay" if max(means) >= 0 else "never"
    begin = max((i + 1 for i, mean in enumerate(means) if mean < 0), default=0)
    cpu_h = sum(point["cpu_h"] for point in steps[begin]) / len(runs)
    return f"in the mean of {len(runs)} from {(begin + 1) / len(steps):.0%} of the steps on, {cpu_h:.2f} CPU-hours"


def vegas_nearest(result: Values) -> list[Measurement]:
    """Tell whether none is nearer to the pool than Vegas."""
    rows = by_name(result)
    return [Measurement(fact(_far(rows["vegas"]) == min(map(_far, rows.values()))), _told_far(rows.values()))]


def farther_than_clone(result: Values) -> list[Measurement]:
    """Tell of each policy whether it is farther from the pool than BC."""
    clone = by_name(result)["bc"]
    return [Measurement(fact(_far(row) > _far(clone)), _told_far((row, clone))) for row in policies(result)]


def clone_serves_less(result: Values) -> list[Measurement]:
    """Tell whether BC has less goodput than Vegas."""
    clone, vegas = (by_name(result)[name] for name in ("bc", "vegas"))
    return [Measurement(fact(clone["goodput_mbps"] < vegas["goodput_mbps"]), _served(clone, vegas))]


def policy_serves_better(result: Values) -> list[Measurement]:
    """Tell of each policy whether it has more goodput than Vegas at no more delay."""
    vegas = by_name(result)["vegas"]
    return [
        Measurement(
            fact(row["goodput_mbps"] > vegas["goodput_mbps"] and row["delay_ms"] <= vegas["delay_ms"]),
            _served(row, vegas),
        )
        for row in policies(result)
    ]


def by_name(result: Values) -> dict[str, Values]:
    """Return a result's rows by their schemes."""
    return {row["name"]: row for row in result["rows"]}


def policies(result: Values) -> list[Values]:
    """Return the rows of Fig. 11 that are of policies."""
    return [row for row in result["rows"] if row["name"] not in ("vegas", "bc")]


def _far(row: Values) -> float:
    return float(row["quantiles"]["0.65"])


def _told_far(rows: Iterable[Values]) -> str:
    return "65th percentile: " + ", ".join(f"{row['name']} {cosine(_far(row))}" for row in rows)


def _served(*rows: Values) -> str:
    return "; ".join(f"{row['name']} {row['goodput_mbps']:.1f} Mbps, {row['delay_ms']:.1f} ms" for row in rows)


def cosine(distance: float) -> str:
    """Return a cosine distance as text; what is within the rounding of single precision is 0."""
    return f"{distance:.2g}" if distance > ROUNDING else "0"


def most_alike(result: Values) -> list[Measurement]:
    """Tell of each policy whether no scheme is the most alike in more than half of the networks."""
    found = []
    for policy, rows in result["policies"].items():
        counts = Counter(row["other"] for row in nearest(rows))
        often = ", ".join(f"{name} {count}" for name, count in counts.most_common())
        told = f"`{policy}`: most alike, of {counts.total()} networks: {often}"
        found.append(Measurement(fact(max(counts.values()) <= counts.total() / 2), told))
    return found


def likeness_changes(result: Values) -> list[Measurement]:
    """Tell of each policy whether its largest Similarity Indices differ."""
    found = []
    for policy, rows in result["policies"].items():
        largest = [row["index"] for row in nearest(rows)]
        told = f"`{policy}`: from {min(largest):.2f} to {max(largest):.2f}"
        found.append(Measurement(fact(max(largest) - min(largest) >= CHANGES_BY), told))
    return found


def nearest(rows: Iterable[Values]) -> list[Values]:
    """Return for each network the row of the scheme with the largest Similarity Index."""
    best: dict[str, Values] = {}
    for row in rows:
        if row["index"] is not None and (row["network"] not in best or row["index"] > best[row["network"]]["index"]):
            best[row["network"]] = row
    return list(best.values())


def each_part(result: Values) -> list[Measurement]:
    """Return by how much the whole recipe wins more than each that lacks a part."""
    rows = _by_title(result)
    return [
        Measurement(gap, f"{title}: {_points(gap)} in both sets together, with what it lacks")
        for title in VARIANTS["fig-12"].values()
        if {title, ALL} <= rows.keys()
        for gap in [_over(rows, ALL, title)]
    ]


def each_window(result: Values) -> list[Measurement]:
    """Tell whether each window alone wins somewhere in Set I."""
    rows, own = _by_title(result), VARIANTS["fig-14"].values()
    if not rows.keys() >= set(own):
        return []
    rates = {title: rows[title]["leagues"][LEAGUE]["I"]["winning_rate"] for title in own}
    told = ", ".join(f"{title} {100 * rate:.1f} %" for title, rate in rates.items())
    return [Measurement(fact(min(rates.values()) > 0), told)]


def apart(result: Values) -> list[Measurement]:
    """Return by how much networks lie farther apart in window-l's layer than in the others'."""
    shares = {recipe: [row["apart"] for row in rows] for recipe, rows in by_recipe(result["rows"]).items()}
    gaps = {name: difference(shares["window-l"], other) for name, other in shares.items() if name != "window-l"}
    text = "; ".join(f"window-l over {name}: {_points(gap)}" for name, gap in gaps.items())
    return [Measurement(tuple(gaps.values()), f"neighbours in the layer that are of the same network: {text}")]


def wins_more(*pairs: tuple[str, str], sets: Sequence[str] = ("I", "II")) -> Measure:
    """Return by how much the first of each pair wins more than the second; nothing where one was not tried."""

    def measure(result: Values) -> list[Measurement]:
        rows = _by_title(result)
        if not {title for pair in pairs for title in pair} <= rows.keys():
            return []
        gaps = [_over(rows, *pair, sets) for pair in pairs]
        where = "in both sets together" if len(sets) > 1 else f"in Set {sets[0]}"
        text = "; ".join(f"{more} over {less}: {_points(gap)}" for (more, less), gap in zip(pairs, gaps, strict=True))
        return [Measurement(tuple(gaps), f"{text} {where}")]

    return measure


def _by_title(result: Values) -> dict[str, Values]:
    return {row["title"]: row for row in result["rows"]}


def _over(rows: Mapping[str, Values], more: str, less: str, sets: Sequence[str] = ("I", "II")) -> Interval:
    """Return by how much one recipe's mean winning rate over sets is above another's."""
    rates = [
        np.mean([rows[title]["leagues"][LEAGUE][name]["rates"] for name in sets], axis=0).tolist()
        for title in (more, less)
    ]
    return difference(*rates)


def _points(of: Interval) -> str:
    """Return a difference of rates in percentage points, with its interval if it has one."""
    assert of.mean is not None
    around = "" if of.low is None or of.high is None else f" [{100 * of.low:+.1f}, {100 * of.high:+.1f}]"
    return f"{100 * of.mean:+.1f}{around} points"


CLAIMS: Mapping[str, Sequence[Claim[Measure]]] = {
    "fig-7": (
        Claim(
            "5.3",
            "“After 5 days, Sage enters the TCP-friendliness region”: Set II at or above NewReno",
            at_the_end(_friendliness, "NewReno"),
            Bounds(low=0),
        ),
        Claim(
            "5.3",
            "“surpassing the winning rates of all existing schemes in the single-flow scenarios”",
            at_the_end(_leadership, "the best of the 13"),
        ),
        Claim(
            "5.3",
            "“During the next days, Sage continues to increase its performance gap with existing heuristic policies”",
            gained,
        ),
    ),
    "fig-11": (
        Claim(
            "7.1",
            "“most of the time, the Distance values of Vegas are very low”; BC's and Sage's are not",
            vegas_nearest,
            TRUE,
        ),
        Claim(
            "7.1",
            "Sage is farther from the pool than BC (65th percentile 0.45 and 0.2)",
            farther_than_clone,
            TRUE,
        ),
        Claim(
            "7.1",
            "the shift “leads to [BC's] poor average throughput and delay” (1.2 Mbps, 43.2 ms; Vegas 36.1, 76.1)",
            clone_serves_less,
            TRUE,
        ),
        Claim(
            "7.1",
            "“Sage effectively manages this shift and achieves the performance of (54.8 Mbps, 69.5ms) even higher"
            " than Vegas (36.1 Mbps, 76.1ms)”: more at no more delay",
            policy_serves_better,
            TRUE,
        ),
    ),
    "fig-12": (
        Claim(
            "7.3",
            "“removing different parts of the input signal degrades the performance”, “each of these components helps”",
            each_part,
        ),
        Claim(
            "7.3",
            "“loss and RTT variance-related information are key in multi-flow scenarios”",
            wins_more((ALL, "no rttVar"), (ALL, "no Loss/Inf"), sets=("II",)),
        ),
        Claim(
            "7.3",
            "“In particular, GRU block plays a crucial role”: more than the encoder and the mixture",
            wins_more(("no Encoder", "no GRU"), ("no GMM", "no GRU")),
        ),
    ),
    "fig-13": (
        Claim(
            "7.2",
            "“Sage's model is not biased toward one or even a certain few schemes”: none is the most alike in more"
            " than half of the networks",
            most_alike,
            TRUE,
        ),
        Claim(
            "7.2",
            "“the value of the highest Similarity Index itself changes in different settings”",
            likeness_changes,
            TRUE,
        ),
    ),
    "fig-14": (
        Claim(
            "7.4",
            "“the winning rate in Set II for Sage-l is much better than Sage-m and Sage-s”",
            wins_more(("Sage-l", "Sage-m"), ("Sage-l", "Sage-s"), sets=("II",)),
        ),
        Claim(
            "7.4",
            "each granularity wins somewhere in Set I; “even Sage-s can still be a winner in about 20% of cases”",
            each_window,
            TRUE,
        ),
        *(
            Claim(
                "7.4",
                f"all windows together are better than any alone, Set {name}",
                wins_more(*((ALL, title) for title in VARIANTS["fig-14"].values()), sets=(name,)),
            )
            for name in ("I", "II")
        ),
    ),
    "fig-15": (
        Claim("7.5", "“learning from only the best policy is not sufficient”", wins_more((ALL, "Sage-Top"))),
        Claim(
            "7.5",
            "the model of “a smaller number of policy variations performs worse than the one that utilized a more"
            " diverse pool”",
            wins_more((ALL, "Sage-Top4"), ("Sage-Top4", "Sage-Top")),
        ),
    ),
    "fig-16": (
        Claim(
            "7.4",
            "“Sage-s and Sage-m have a hard time distinguishing multi-flow environments, while Sage-l's hidden"
            " representations can effectively separate them”",
            apart,
        ),
    ),
}
"""By figure."""
