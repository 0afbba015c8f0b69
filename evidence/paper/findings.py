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

from evidence.paper import BASE, VARIANTS
from sagecc.leagues.claims import POSITIVE, TRUE, Bounds, Judgement, Measurement, fact, judge
from sagecc.leagues.intervals import Interval, interval, student_t

LEAGUE = "heldout"
PAPERS_TIME = 5 / 7
"""When the paper's policy led and was friendly: after five days of seven (section 5.3)."""
CHANGES_BY = 0.1
"""Difference between the largest Similarity Indices of two networks from which they are said to differ."""

ROUNDING = 1e-7
"""Of a cosine of single-precision vectors."""

Values = Mapping[str, Any]


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
    return _BY_FIGURE[figure](result)


def _sentence(sentence: str, told: str, *values: Interval, bounds: Bounds = POSITIVE) -> Judgement:
    """Judge a sentence of the paper's; by default differences, which are to be positive."""
    return judge("", sentence, Measurement(values, told), bounds)


def learning(result: Values) -> list[Judgement]:
    """Section 5.3, Fig. 7."""
    claims = []
    for recipe, runs in by_recipe(result["runs"]).items():
        last = [run["points"][-1]["rates"] for run in runs]
        friendly = interval(np.array([of["II"]["policy"] - of["II"]["reno"] for of in last]))
        ahead = interval(np.array([_lead(of["I"]) for of in last]))
        then = [run["points"][math.ceil(PAPERS_TIME * len(run["points"])) - 1]["rates"] for run in runs]
        gain = interval(np.array([_lead(a["I"]) - _lead(b["I"]) for a, b in zip(last, then, strict=True)]))
        claims += [
            _sentence(
                "“After 5 days, Sage enters the TCP-friendliness region”: Set II at or above NewReno",
                f"`{recipe}`: {_points(friendly)} from NewReno at the end; {_since(runs, _friendliness)}",
                friendly,
                bounds=Bounds(low=0),
            ),
            _sentence(
                "“surpassing the winning rates of all existing schemes in the single-flow scenarios”",
                f"`{recipe}`: {_points(ahead)} from the best of the 13 at the end; {_since(runs, _leadership)}",
                ahead,
            ),
            _sentence(
                "“During the next days, Sage continues to increase its performance gap with existing heuristic"
                " policies”",
                f"`{recipe}`: {_points(gain)} in Set I over the last {1 - PAPERS_TIME:.0%} of the steps",
                gain,
            ),
        ]
    return claims


def by_recipe(runs: Iterable[Values]) -> dict[str, list[Values]]:
    """Return runs, or what was measured of each, by recipe, in their order."""
    found: dict[str, list[Values]] = {}
    for run in runs:
        found.setdefault(run["recipe"], []).append(run)
    return found


def _lead(rates: Mapping[str, float]) -> float:
    return rates["policy"] - max(rate for scheme, rate in rates.items() if scheme != "policy")


def _leadership(rates: Mapping[str, Mapping[str, float]]) -> float:
    return _lead(rates["I"])


def _friendliness(rates: Mapping[str, Mapping[str, float]]) -> float:
    return rates["II"]["policy"] - rates["II"]["reno"]


def _since(runs: Sequence[Values], margin: Callable[[Mapping[str, Mapping[str, float]]], float]) -> str:
    """Say from when on the mean over runs of a margin stays at 0 or above, and after what CPU time that was."""
    steps = list(zip(*(run["points"] for run in runs), strict=True))
    means = [sum(margin(point["rates"]) for point in at) / len(at) for at in steps]
    if means[-1] < 0:
        return "never to stay" if max(means) >= 0 else "never"
    begin = max((i + 1 for i, mean in enumerate(means) if mean < 0), default=0)
    cpu_h = sum(point["cpu_h"] for point in steps[begin]) / len(runs)
    return f"in the mean of {len(runs)} from {(begin + 1) / len(steps):.0%} of the steps on, {cpu_h:.2f} CPU-hours"


def shift(result: Values) -> list[Judgement]:
    """Section 7.1, Fig. 11."""
    rows = {row["name"]: row for row in result["rows"]}
    vegas, clone = rows["vegas"], rows["bc"]
    policies = {name: row for name, row in rows.items() if name not in ("vegas", "bc")}
    far = {name: row["quantiles"]["0.65"] for name, row in rows.items()}

    def told(names: Iterable[str]) -> str:
        return ", ".join(f"{name} {cosine(far[name])}" for name in names)

    def served(row: Values) -> str:
        return f"{row['name']} {row['goodput_mbps']:.1f} Mbps, {row['delay_ms']:.1f} ms"

    return [
        _sentence(
            "“most of the time, the Distance values of Vegas are very low”; BC's and Sage's are not",
            f"65th percentile: {told(rows)}",
            fact(far["vegas"] == min(far.values())),
            bounds=TRUE,
        ),
        *(
            _sentence(
                "Sage is farther from the pool than BC (65th percentile 0.45 and 0.2)",
                f"65th percentile: {told((name, 'bc'))}",
                fact(far[name] > far["bc"]),
                bounds=TRUE,
            )
            for name in policies
        ),
        _sentence(
            "the shift “leads to [BC's] poor average throughput and delay” (1.2 Mbps, 43.2 ms; Vegas 36.1, 76.1)",
            f"{served(clone)}; {served(vegas)}",
            fact(clone["goodput_mbps"] < vegas["goodput_mbps"]),
            bounds=TRUE,
        ),
        *(
            _sentence(
                "“Sage effectively manages this shift and achieves the performance of (54.8 Mbps, 69.5ms) even higher"
                " than Vegas (36.1 Mbps, 76.1ms)”: more at no more delay",
                f"{served(row)}; {served(vegas)}",
                fact(row["goodput_mbps"] > vegas["goodput_mbps"] and row["delay_ms"] <= vegas["delay_ms"]),
                bounds=TRUE,
            )
            for row in policies.values()
        ),
    ]


def cosine(distance: float) -> str:
    """Return a cosine distance as text; what is within the rounding of single precision is 0."""
    return f"{distance:.2g}" if distance > ROUNDING else "0"


def likeness(result: Values) -> list[Judgement]:
    """Section 7.2, Fig. 13."""
    claims = []
    for policy, rows in result["policies"].items():
        best = nearest(rows)
        counts = Counter(row["other"] for row in best)
        largest = [row["index"] for row in best]
        often = ", ".join(f"{name} {count}" for name, count in counts.most_common())
        claims += [
            _sentence(
                "“Sage's model is not biased toward one or even a certain few schemes”: none is the most alike in more"
                " than half of the networks",
                f"`{policy}`: most alike, of {len(best)} networks: {often}",
                fact(max(counts.values()) <= len(best) / 2),
                bounds=TRUE,
            ),
            _sentence(
                "“the value of the highest Similarity Index itself changes in different settings”",
                f"`{policy}`: from {min(largest):.2f} to {max(largest):.2f}",
                fact(max(largest) - min(largest) >= CHANGES_BY),
                bounds=TRUE,
            ),
        ]
    return claims


def nearest(rows: Iterable[Values]) -> list[Values]:
    """Return for each network the row of the scheme with the largest Similarity Index."""
    best: dict[str, Values] = {}
    for row in rows:
        if row["index"] is not None and (row["network"] not in best or row["index"] > best[row["network"]]["index"]):
            best[row["network"]] = row
    return list(best.values())


def ablations(result: Values) -> list[Judgement]:
    """Section 7.3, Fig. 12."""
    rows = _by_title(result)
    claims = [
        _sentence(
            "“removing different parts of the input signal degrades the performance”, “each of these components helps”",
            f"{title}: {_points(gap := _over(rows, 'all of it', title))} in both sets together, with what it lacks",
            gap,
        )
        for title in VARIANTS["fig-12"].values()
        if {title, "all of it"} <= rows.keys()
    ]
    key = ("no rttVar", "no Loss/Inf")
    claims += _claim(
        rows,
        "“loss and RTT variance-related information are key in multi-flow scenarios”",
        [("all of it", title) for title in key],
        ("II",),
    )
    claims += _claim(
        rows,
        "“In particular, GRU block plays a crucial role”: more than the encoder and the mixture",
        [("no Encoder", "no GRU"), ("no GMM", "no GRU")],
    )
    return claims


def windows(result: Values) -> list[Judgement]:
    """Section 7.4, Fig. 14."""
    rows, own = _by_title(result), list(VARIANTS["fig-14"].values())
    claim = _claim(
        rows,
        "“the winning rate in Set II for Sage-l is much better than Sage-m and Sage-s”",
        [("Sage-l", "Sage-m"), ("Sage-l", "Sage-s")],
        ("II",),
    )
    if set(own) <= rows.keys():
        rates = {title: rows[title]["leagues"][LEAGUE]["I"]["winning_rate"] for title in own}
        claim.append(
            _sentence(
                "each granularity wins somewhere in Set I; “even Sage-s can still be a winner in about 20% of cases”",
                ", ".join(f"{title} {100 * rate:.1f} %" for title, rate in rates.items()),
                fact(min(rates.values()) > 0),
                bounds=TRUE,
            )
        )
    for name in ("I", "II"):
        claim += _claim(
            rows,
            f"all windows together are better than any alone, Set {name}",
            [("all of it", t) for t in own],
            (name,),
        )
    return claim


def pools(result: Values) -> list[Judgement]:
    """Section 7.5, Fig. 15."""
    rows = _by_title(result)
    return [
        *_claim(rows, "“learning from only the best policy is not sufficient”", [("all of it", "Sage-Top")]),
        *_claim(
            rows,
            "the model of “a smaller number of policy variations performs worse than the one that utilized a more"
            " diverse pool”",
            [("all of it", "Sage-Top4"), ("Sage-Top4", "Sage-Top")],
        ),
    ]


def maps(result: Values) -> list[Judgement]:
    """Section 7.4, Fig. 16."""
    apart = {recipe: [row["apart"] for row in rows] for recipe, rows in by_recipe(result["rows"]).items()}
    gaps = {name: difference(apart["window-l"], shares) for name, shares in apart.items() if name != "window-l"}
    text = "; ".join(f"window-l over {name}: {_points(gap)}" for name, gap in gaps.items())
    return [
        _sentence(
            "“Sage-s and Sage-m have a hard time distinguishing multi-flow environments, while Sage-l's hidden"
            " representations can effectively separate them”",
            f"neighbours in the layer that are of the same network: {text}",
            *gaps.values(),
        )
    ]


def _by_title(result: Values) -> dict[str, Values]:
    return {"all of it" if row["recipe"] == BASE else row["title"]: row for row in result["rows"]}


def _claim(
    rows: Mapping[str, Values], claim: str, pairs: Sequence[tuple[str, str]], sets: Sequence[str] = ("I", "II")
) -> list[Judgement]:
    """Return whether the first of each pair wins more than the second; nothing where one was not tried."""
    if not {title for pair in pairs for title in pair} <= rows.keys():
        return []
    gaps = [(more, less, _over(rows, more, less, sets)) for more, less in pairs]
    where = "in both sets together" if len(sets) > 1 else f"in Set {sets[0]}"
    text = "; ".join(f"{more} over {less}: {_points(gap)}" for more, less, gap in gaps)
    return [_sentence(claim, f"{text} {where}", *(gap for _, _, gap in gaps))]


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


_BY_FIGURE: Mapping[str, Callable[[Values], list[Judgement]]] = {
    "fig-7": learning,
    "fig-11": shift,
    "fig-12": ablations,
    "fig-13": likeness,
    "fig-14": windows,
    "fig-15": pools,
    "fig-16": maps,
}
