# SPDX-License-Identifier: Apache-2.0
"""The page: one HTML file that needs no network, in light and dark, on wide screens and phones."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from sagecc.execution.lab.giving_up import GiveUp
from sagecc.leagues import html
from sagecc.leagues.colours import DASHES, strokes
from sagecc.leagues.html import Html, TableRow
from sagecc.leagues.plots import SET_TITLES, label, plane_figure
from sagecc.leagues.report.contents import Contents
from sagecc.leagues.report.frame import framed
from sagecc.leagues.report.made import Made
from sagecc.leagues.report.numbers import numbers
from sagecc.leagues.report.pictures import (
    Picture,
    analysis_picture,
    competing,
    example,
    friendliness,
    friendliness_figure,
    league_pictures,
    policies,
    training_figures,
)
from sagecc.leagues.report.series import LEVELS, MAX_TRAJECTORIES, NONE, choose, payload
from sagecc.leagues.standings import CLASSES
from sagecc.leagues.table import HARM, harm_cells, harm_titles, repeats
from sagecc.schemas.environment import Environment
from sagecc.schemas.schemes import POLICY_PREFIX

CLASS_TITLES = {
    "window": "scoring window (0 is the first)",
    "bandwidth_mbps": "base bandwidth (Mbps)",
    "min_rtt_ms": "minimum RTT (ms)",
    "queue_bdp": "queue (BDP)",
    "step": "rate change (factor)",
}

ANALYSES = {
    "distance": ("Distance to the pool", "sagecc distance --policy PATH --schemes vegas"),
    "similarity": ("Similarity to the schemes", "sagecc similarity --scheme policy:PATH"),
    "tsne": ("What the policy tells apart", "sagecc tsne --policy PATH"),
}
"""By the command that measures it: the section's title, and how to call the command."""

MAX_SHOWN = 4
"""Schemes in one chart."""

_DASH_ARRAYS = dict(zip(DASHES, ("none", "7 3", "8 3 2 3", "2 2"), strict=True))
"""By the pattern of a line, how SVG names it."""

_PAGE = html.macros("report.html.j2")


def render(
    contents: Contents,
    pictures: Sequence[Picture] | None = None,
    trajectories: int = MAX_TRAJECTORIES,
    named: Sequence[str] = (),
    made: Made | None = None,
) -> str:
    """Return the page's HTML.

    Args:
        contents: what the page shows.
        pictures: those of `league_pictures`, where they are drawn already.
        trajectories: the most that the page holds; of a larger league it holds a sample of the environments.
        named: ids of environments that it holds in any case.
        made: what its footer says; by default it has none.
    """
    figures = league_pictures(contents) if pictures is None else pictures
    samples = _sample(contents, trajectories, named)
    sections = [
        ("standings", "Standings", _standings(contents)),
        ("repeats", "Over repeats", _repeats(contents)),
        ("numbers", "In numbers", _numbers(contents)),
        ("plane", "Throughput and delay", _planes(contents)),
        ("harm", "What they do to the network", _harm(contents)),
        ("classes", "Where they win", _classes(contents)),
        (
            "trajectories",
            "Over time",
            _explorer(contents, samples, [p for p in figures if p.name.startswith("example")]),
        ),
        ("friendliness", "Next to other flows", _friendliness(contents)),
        *((name, title, _analysis(contents, name)) for name, (title, _) in ANALYSES.items()),
        ("training", "How the policies were trained", _training(contents)),
        ("rules-compared", "Ranks by other rules", _robustness(contents)),
        ("lost", "Lost without being played", _lost(contents)),
        ("rules", "How it was scored", _rules(contents)),
    ]
    parts = [(name, title, text) for name, title, text in sections if text]
    return framed(_title(contents), _head(contents), parts, ("tables.js", "report.js"), made)


def _title(contents: Contents) -> str:
    return f"League of {len(contents.schemes)} congestion-control schemes"


def _head(contents: Contents) -> Html:
    summary = contents.summary
    counts = [
        {"name": name, "environments": summary["environments"][name], "windows": summary["windows"][name]}
        for name in contents.sets
    ]
    kind = "Profile" if _of_paper(contents.sets) else "Set"
    repeat_count = max((row["repeats"] for row in summary.get("repeats", ())), default=1)
    times = f", each {repeat_count} times" if repeat_count > 1 else ""
    head: Html = _PAGE.head(
        _title(contents), kind, summary["profile"], counts, times, f"{summary['rules']['margin']:.0%}"
    )
    return head


def _of_paper(names: Iterable[str]) -> bool:
    """Tell whether sets are the paper's, as a profile's are, and none of one's own."""
    return set(names) <= SET_TITLES.keys()


def _row(scheme: str, cells: Iterable[Any]) -> TableRow:
    return TableRow(label(scheme), list(cells), scheme.startswith(POLICY_PREFIX))


def _table(kind: str, caption: str, head: Iterable[str], rows: Iterable[TableRow]) -> Html:
    return html.table(kind, caption, "Scheme", head, rows)


def _standings(contents: Contents) -> Html:
    names = contents.sets
    means = {row["scheme"]: row["winning_rate"] for row in contents.summary["ranking"]} if len(names) > 1 else {}
    mean = " The rank is by the mean of the sets' rates." if means else ""
    caption = (
        "Winning rates by rank; in brackets and as a line, the "
        f"{contents.summary['rules']['confidence']:.0%} interval of a bootstrap over environments.{mean} Learned "
        "policies are in quotes and orange."
    )
    titles = ["Rank", *(["Mean"] if means else []), *(_set_title(name) for name in names)]
    rows = [
        _row(
            scheme,
            (
                rank,
                *([f"{100 * means[scheme]:.1f} %"] if means else []),
                *(_rate(by_set[n]) for n in names),
            ),
        )
        for rank, scheme, by_set in contents.rows()
    ]
    section: Html = _PAGE.standings(caption, titles, rows)
    return section


def _rate(row: Mapping[str, float]) -> dict[str, float]:
    return {"rate": 100 * row["winning_rate"], "low": 100 * row["low"], "high": 100 * row["high"]}


def _set_title(name: str) -> str:
    return SET_TITLES.get(name, f"Set {name}")


def _numbers(contents: Contents) -> Html:
    """Return goodput, delay and losses of each scheme, a table for each set."""
    table = numbers(contents.wins, contents.episodes)
    text = (
        "means over the scoring windows of goodput, its share of the link's capacity, and one-way delay with the "
        "propagation of the way back; packets lost over whole episodes"
    )
    head = ("Goodput (Mbps)", "Of capacity", "Delay (ms)", "Lost")
    parts = []
    for name in contents.sets:
        found = {row["scheme"]: row for row in table.filter(pl.col("set") == name).to_dicts()}
        rows = [
            _row(
                scheme,
                (
                    _number(found[scheme]["goodput_mbps"], ".2f"),
                    _number(found[scheme]["used"], ".1%"),
                    _number(found[scheme]["delay_ms"], ".1f"),
                    _number(found[scheme]["loss"], ".2%"),
                ),
            )
            for scheme in contents.schemes
            if scheme in found
        ]
        parts.append(_table("numbers", f"{_set_title(name)}: {text}", head, rows))
    section: Html = _PAGE.side_by_side(parts)
    return section


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form).replace("%", " %")


def _planes(contents: Contents) -> Html:
    """Return the plane of throughput and delay, a picture for each set."""
    text = (
        "Each point is a scheme: its mean over all environments, with the ellipse of one standard deviation. Delay is "
        "relative to the smallest any scheme had in the same window. Up and left is better; next to competitors, the "
        "dashed line is the fair share."
    )
    section: Html = _PAGE.side_by_side(
        [
            _figure(
                Picture(
                    f"plane-{number}",
                    f"Throughput and delay, {_set_title(name)}",
                    text if number == 1 else "",
                    plane_figure(contents.wins.filter(pl.col("set") == name)),
                )
            )
            for number, name in enumerate(contents.sets, 1)
        ]
    )
    return section


def _figure(picture: Picture) -> Html:
    return html.figure(picture.figure, picture.name, picture.title, picture.text, picture.title)


def _classes(contents: Contents) -> Html:
    classes = [(contents.classes, name) for name in CLASSES]
    if contents.tags is not None:
        classes += [(contents.tags, name) for name in contents.tags["class"].unique().sort()]
    sets = []
    for set_name in contents.sets:
        tables = []
        for table, name in classes:
            part = table.filter((pl.col("set") == set_name) & (pl.col("class") == name))
            values = part["value"].unique().sort().to_list()
            if len(values) < 2:
                continue
            rates = {(row["scheme"], row["value"]): 100 * row["winning_rate"] for row in part.to_dicts()}
            tables.append(
                {
                    "caption": f"Set {set_name}, by {CLASS_TITLES.get(name, name)}",
                    "head": [value if isinstance(value, str) else f"{value:g}" for value in values],
                    "rows": [_row(scheme, (rates[scheme, value] for value in values)) for scheme in contents.schemes],
                }
            )
        if tables:
            sets.append((_set_title(set_name), tables))
    if not sets:
        return ""
    section: Html = _PAGE.classes(sets)
    return section


def _sample(contents: Contents, trajectories: int, named: Sequence[str]) -> list[Environment]:
    """Return the environments whose trajectories the page has: all, or a sample with the examples and those named."""
    schemes = max(len({scheme for _, scheme in contents.episodes}), 1)
    if len(contents.environments) * schemes <= trajectories:
        return list(contents.environments)
    examples = (example(contents, set_name) for set_name in contents.sets)
    environments = dict.fromkeys((*(e[0].id for e in examples if e), *named))
    return choose(contents.environments, max(trajectories // schemes, len(environments)), list(environments))


def _explorer(contents: Contents, chosen: Sequence[Environment], examples: Sequence[Picture]) -> Html:
    """Return the controls, the elements that report.js fills, the trajectories' data, and the still examples."""
    schemes = contents.schemes
    look = strokes(schemes)
    environments = payload(chosen, schemes, contents.episodes, contents.wins)
    still = [(picture.title, _figure(picture)) for picture in examples]
    if not environments:
        notice: Html = _PAGE.nothing_to_draw(still)
        return notice
    first = next((e for name in contents.sets if (e := example(contents, name)) and e[0].id in environments), None)
    start = (first[0].id, list(first[1:])) if first else (next(iter(environments)), schemes[:2])
    data = {
        "levels": LEVELS,
        "none": NONE,
        "most": MAX_SHOWN,
        "schemes": schemes,
        "labels": [label(s) for s in schemes],
        "looks": [{"colour": look[s].colour, "dashes": _DASH_ARRAYS[look[s].dashes]} for s in schemes],
        "start": {"environment": start[0], "schemes": start[1]},
        "environments": environments,
    }
    tags = contents.summary.get("tags", {})
    groups = [
        (_set_title(name), [(i, _option(e, tags.get(i, {}))) for i, e in environments.items() if e["set"] == name])
        for name in contents.sets
    ]
    boxes = [(scheme, label(scheme)) for scheme in schemes]
    section: Html = _PAGE.explorer(len(environments), len(contents.environments), groups, boxes, MAX_SHOWN, data, still)
    return section


def _option(environment: Mapping[str, Any], tags: Mapping[str, str]) -> str:
    step = "" if environment["step"] == 1 else f" x {environment['step']:g}"
    return (
        f"{environment['bandwidth_mbps']:g}{step} Mbps, {environment['min_rtt_ms']:g} ms, {environment['queue']}"
    ) + "".join(f", {name} {value}" for name, value in tags.items())


def _friendliness(contents: Contents) -> Html:
    table = friendliness(contents.wins)
    if table.is_empty():
        return ""
    names = " and ".join(f"Set {name}" for name in competing(contents.wins))
    text = (
        f"Goodput over the fair share in the scoring windows of {names}: a dot at the median, a thick line over half "
        "of the windows, a thin one over 90 %. Left of the dashed line a scheme gives way, right of it it takes more "
        "than its share."
    )
    rows = [
        _row(row["scheme"], (*(f"{row[k]:.2f}" for k in ("p05", "p50", "p95")), f"{100 * row['near']:.0f} %"))
        for row in table.to_dicts()
    ]
    head = ("5 %", "Median", "95 %", "Within 10 %")
    caption = "Goodput over the fair share: quantiles over the windows, and the share of windows within 10 % of it"
    return _figure(Picture("friendliness", "Goodput over the fair share", text, friendliness_figure(table))) + _table(
        "shares", caption, head, rows
    )


def _analysis(contents: Contents, name: str) -> Html:
    return _figure(analysis_picture(name, contents.analyses[name])) if name in contents.analyses else ""


def _not_measured(contents: Contents) -> dict[str, str]:
    """Return the entry that tells how to measure what is missing; none where nothing is."""
    players = policies(contents.schemes)
    path = shlex.quote(players[0].removeprefix(POLICY_PREFIX)) if players else "PATH"
    calls = [call.replace("PATH", path) for name, (_, call) in ANALYSES.items() if name not in contents.analyses]
    return {"Not measured": f"{'; '.join(calls)}; then sagecc report"} if calls else {}


def _training(contents: Contents) -> Html:
    text = "Means over the updates before, from its own curves.csv."
    figures = [
        _figure(Picture(f"training-{number}", f"Training of {label(policy)}", f"{label(policy)}. {text}", figure))
        for number, (policy, figure) in enumerate(training_figures(contents.curves).items(), 1)
    ]
    section: Html = _PAGE.side_by_side(figures) if figures else ""
    return section


def _robustness(contents: Contents) -> Html:
    table = contents.summary["robustness"]
    ranks = {(row["alpha"], row["margin"], row["scheme"]): row["overall"] for row in table}
    rules = sorted({key[:2] for key in ranks}, key=lambda rule: (rule[0], -rule[1]))
    rows = [_row(scheme, (ranks[(*rule, scheme)] for rule in rules)) for scheme in contents.schemes]
    return _table(
        "ranks",
        "Rank over all sets by other weights of throughput (alpha) and margins of winning",
        (f"alpha {alpha:g}, {100 * margin:g} %" for alpha, margin in rules),
        rows,
    )


def _harm(contents: Contents) -> Html:
    rows, titles = {row["scheme"]: row for row in contents.summary.get("harm", ())}, harm_titles(contents.summary)
    if not rows:
        return ""
    caption = (
        "Packets lost over whole episodes; networks in which a scheme floods, or has below half of Cubic's goodput"
    )
    if len(titles) > len(HARM):
        caption += "; what it took of its competitors' fair shares in the scoring windows"
    cells = ((scheme, harm_cells(rows[scheme])) for scheme in contents.schemes if scheme in rows)
    return _table("harm-table", caption, titles, [_row(scheme, row[: len(titles)]) for scheme, row in cells])


def _repeats(contents: Contents) -> Html:
    table = repeats(contents.summary)
    if not table:
        return ""
    caption = (
        "Each repeat is a league of its own: the mean of their figures, the deviation of one repeat, and in brackets "
        "the mean's 95 % interval (Student's t)"
    )
    return _table("repeats-table", caption, table[0][1:], [_row(row[0], row[1:]) for row in table[1:]])


def _lost(contents: Contents) -> Html:
    rows = contents.summary["lost"]
    if not rows:
        return ""
    items = []
    for scheme in dict.fromkeys(row["scheme"] for row in rows):
        for status, text in (("missing", "no episode"), ("silent", "nothing delivered")):
            losses = [row for row in rows if (row["scheme"], row["status"]) == (scheme, status)]
            if losses:
                reason = f": {losses[0]['reason']}" if losses[0]["reason"] else ""
                windows = sum(row["windows"] for row in losses)
                items.append(
                    f"{label(scheme)}: {text}, {windows} windows of {len(losses)} environments, such as "
                    f"{losses[0]['environment_id']}{reason}"
                )
    section: Html = _PAGE.lost(items)
    return section


def _play_options(options: Mapping[str, Any]) -> str:
    action = "actions are drawn from their mixtures" if options["sample"] else "an action is their mixture's mean"
    latency = options["decision_latency_ms"]
    text = f"{action}; it takes effect {f'{latency:g} ms after' if latency else 'at the moment of'} its sample"
    if give_up := options.get("give_up"):
        text += f"; an episode with {GiveUp(**give_up)} is given up and counts as lost"
    return text


def _rules(contents: Contents) -> Html:
    summary = contents.summary
    rules = summary["rules"]
    alone, beside = ("Set I", "Set II") if _of_paper(summary["environments"]) else ("Alone", "Next to competitors")
    friendly = {
        "score": "best / (1 - margin)",
        "rate": "the margin around the rates whose distance from f is the best",
    }[rules["friendly_margin"]]
    entries = {
        f"{alone} score": f"S_p = r^{rules['alpha']:g} / d, bigger is better: r the goodput (Mbps), d the mean one-way "
        "delay of data packets plus the constant delay of the way back (ms)",
        f"{beside} score": "S_fr = |f - r|, smaller is better: f the fair share, the link's capacity over the flows",
        "Winners": f"S_p at least {1 - rules['margin']:.2f} x best; S_fr at most {friendly}",
        "Intervals": f"{rules['bootstrap_draws']} draws of environments with replacement, percentiles",
        "Kernel": summary["kernel"],
        **{
            f"{'Policy' if s.startswith(POLICY_PREFIX) else 'Scheme'} {label(s)}": f"{s}, SHA-256 {sha256}"
            for s, sha256 in summary["policies"].items()
        },
        **({"Policies": _play_options(summary["terms"])} if summary["policies"] else {}),
        **_not_measured(contents),
    }
    return html.definitions(entries.items())
