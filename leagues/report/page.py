# SPDX-License-Identifier: Apache-2.0
"""The page: one HTML file that needs no network, in light and dark, on wide screens and phones."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import polars as pl

from sagecc.execution.lab.giving_up import GiveUp
from sagecc.leagues import html
from sagecc.leagues.plots import SET_TITLES, label
from sagecc.leagues.report.contents import Contents
from sagecc.leagues.report.pictures import (
    Picture,
    analysis_picture,
    competing,
    example,
    friendliness,
    friendliness_figure,
    league_pictures,
    policies,
    training_figure,
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
"""Schemes in one chart: as many as the palette has colours that can be told apart."""

_HERE = Path(__file__).parent


def render(
    contents: Contents,
    pictures: Sequence[Picture] | None = None,
    trajectories: int = MAX_TRAJECTORIES,
    named: Sequence[str] = (),
) -> str:
    """Return the page's HTML.

    Args:
        contents: what the page shows.
        pictures: those of `league_pictures`, where they are drawn already.
        trajectories: the most that the page holds; of a larger league it holds a sample of the environments.
        named: ids of environments that it holds in any case.
    """
    drawn = league_pictures(contents) if pictures is None else pictures
    style, script = ((_HERE / name).read_text(encoding="utf-8") for name in ("report.css", "report.js"))
    chosen = _sample(contents, trajectories, named)
    sections = [
        ("standings", "Standings", _standings(contents)),
        ("repeats", "Over repeats", _repeats(contents)),
        *((p.name, p.title, _figure(p)) for p in drawn if p.name == "plane"),
        ("harm", "What they do to the network", _harm(contents)),
        ("classes", "Where they win", _classes(contents)),
        ("trajectories", "Over time", _explorer(contents, chosen, [p for p in drawn if p.name.startswith("example")])),
        ("friendliness", "Beside other flows", _friendliness(contents)),
        *((name, title, _analysis(contents, name, call)) for name, (title, call) in ANALYSES.items()),
        ("training", "How the policies were trained", _training(contents)),
        ("rules-compared", "Ranks by other rules", _robustness(contents)),
        ("lost", "Lost without being played", _lost(contents)),
        ("rules", "How it was scored", _rules(contents.summary)),
    ]
    shown = [(name, title, text) for name, title, text in sections if text]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return html.document(_title(contents), style, policy, _head(contents), shown, script)


def _title(contents: Contents) -> str:
    return f"League of {len(contents.schemes)} congestion-control schemes"


def _head(contents: Contents) -> str:
    summary = contents.summary
    counts = ", ".join(
        f"{summary['environments'][n]} environments ({summary['windows'][n]} scoring windows) in Set {escape(n)}"
        for n in contents.sets
    )
    margin = summary["rules"]["margin"]
    of_profile = "Profile" if _of_paper(contents.sets) else "Set"
    repeated = max((row["repeats"] for row in summary.get("repeats", ())), default=1)
    times = f", each {repeated} times" if repeated > 1 else ""
    return (
        f"<h1>{_title(contents)}</h1>\n"
        f"<p>{of_profile} <b>{escape(summary['profile'])}</b>: {counts}{times}. In each scoring window, the scheme "
        f"with the best score wins, and with it every scheme at most {margin:.0%} worse. The winning rate is the share "
        "of windows won.</p>\n"
    )


def _of_paper(names: Iterable[str]) -> bool:
    """Tell whether sets are the paper's, as a profile's are, and none of one's own."""
    return set(names) <= SET_TITLES.keys()


def _table(
    kind: str, caption: str, head: Iterable[str], rows: Iterable[tuple[str, Iterable[str]]], lead: str = "Scheme"
) -> str:
    """Return a table in a region that scrolls.

    Args:
        kind: the table's CSS class.
        caption: shown, and the region's label.
        head: the columns' titles.
        rows: each a scheme and its cells, as <td>s.
        lead: title of the schemes' column.
    """
    marked = ((_kind(scheme), label(scheme), "".join(cells)) for scheme, cells in rows)
    return html.table(kind, caption, lead, head, marked)


def _kind(scheme: str) -> str:
    return ' class="policy"' if scheme.startswith(POLICY_PREFIX) else ""


def _cells(values: Iterable[str]) -> list[str]:
    return [f"<td>{escape(value)}</td>" for value in values]


def _standings(contents: Contents) -> str:
    names = contents.sets
    mean = " The rank is by the mean of the sets' rates." if len(names) > 1 else ""
    caption = (
        "Winning rates by rank; in brackets and as a line, the "
        f"{contents.summary['rules']['confidence']:.0%} interval of a bootstrap over environments.{mean} Learned "
        "policies are in quotes and orange."
    )
    titles = ["Rank", *(escape(SET_TITLES.get(n, f"Set {n}")) for n in names)]
    rows = (
        (scheme, [f"<td>{rank}</td>", *(f'<td class="rate">{_rate(by_set[n])}</td>' for n in names)])
        for rank, scheme, by_set in contents.rows()
    )
    return _table("standings", caption, titles, rows)


def _rate(row: Mapping[str, float]) -> str:
    rate, low, high = (100 * row[k] for k in ("winning_rate", "low", "high"))
    return (
        f'{rate:.1f} % <span class="soft interval">[{low:.1f}, {high:.1f}]</span><span class="bar" aria-hidden="true" '
        f'style="--rate-at:{rate:.2f}%;--low:{low:.2f}%;--high:{high:.2f}%"><i></i><b></b></span>'
    )


def _figure(picture: Picture) -> str:
    return html.figure(picture.figure, picture.name, picture.title, picture.text, picture.title)


def _classes(contents: Contents) -> str:
    parts = ["<p>Winning rates (%) by class of environment.</p>\n"]
    classes = [(contents.classes, name) for name in CLASSES]
    if contents.tags is not None:
        classes += [(contents.tags, name) for name in contents.tags["class"].unique().sort()]
    for set_name in contents.sets:
        parts.append(f'<h3>{escape(SET_TITLES.get(set_name, f"Set {set_name}"))}</h3>\n<div class="grid">\n')
        for table, name in classes:
            part = table.filter((pl.col("set") == set_name) & (pl.col("class") == name))
            values = part["value"].unique().sort().to_list()
            if len(values) < 2:
                continue
            rates = {(row["scheme"], row["value"]): 100 * row["winning_rate"] for row in part.to_dicts()}
            rows = (
                (s, [f'<td style="--share:{rates[s, v]:.1f}%">{rates[s, v]:.0f}</td>' for v in values])
                for s in contents.schemes
            )
            caption = f"Set {set_name}, by {CLASS_TITLES.get(name, name)}"
            titles = (value if isinstance(value, str) else f"{value:g}" for value in values)
            parts.append(_table("classes", caption, titles, rows))
        parts.append("</div>\n")
    return "".join(parts)


def _sample(contents: Contents, trajectories: int, named: Sequence[str]) -> list[Environment]:
    """Return the environments whose trajectories the page has: all, or a sample with the examples and those named."""
    schemes = max(len({scheme for _, scheme in contents.episodes}), 1)
    if len(contents.environments) * schemes <= trajectories:
        return list(contents.environments)
    examples = (example(contents, set_name) for set_name in contents.sets)
    required = dict.fromkeys((*(e[0].id for e in examples if e), *named))
    return choose(contents.environments, max(trajectories // schemes, len(required)), list(required))


def _explorer(contents: Contents, chosen: Sequence[Environment], examples: Sequence[Picture]) -> str:
    """Return the controls, the elements that report.js fills, the trajectories' data, and the still examples."""
    schemes = contents.schemes
    environments = payload(chosen, schemes, contents.episodes, contents.wins)
    still = "".join(f"<h3>{escape(p.title)}</h3>\n{_figure(p)}" for p in examples)
    if not environments:
        return f"<p>There is no trajectory to draw; <code>--raw</code> says where they lie.</p>\n{still}"
    first = next((e for name in contents.sets if (e := example(contents, name)) and e[0].id in environments), None)
    start = (first[0].id, list(first[1:])) if first else (next(iter(environments)), schemes[:2])
    data = {
        "levels": LEVELS,
        "none": NONE,
        "most": MAX_SHOWN,
        "schemes": schemes,
        "labels": [label(s) for s in schemes],
        "start": {"environment": start[0], "schemes": start[1]},
        "environments": environments,
    }
    tags = contents.summary.get("tags", {})
    groups = "".join(
        f'<optgroup label="{escape(SET_TITLES.get(n, f"Set {n}"))}">'
        + "".join(
            f'<option value="{i}">{_option(e, tags.get(i, {}))}</option>'
            for i, e in environments.items()
            if e["set"] == n
        )
        + "</optgroup>"
        for n in contents.sets
    )
    boxes = "".join(
        f'<label class="chip"><input type="checkbox" value="{escape(s)}"> {escape(label(s))}</label>\n' for s in schemes
    )
    columns = "".join(
        f'<th scope="col">{text}</th>' for text in ("Scheme", "Goodput", "One-way delay", "cwnd", "Packets dropped")
    )
    omitted = len(contents.environments) - len(environments)
    sample = (
        f" The page has {len(environments)} of the league's {len(contents.environments)} environments, spread evenly "
        "over each set; <code>sagecc report --environment ID</code> adds others."
        if omitted
        else ""
    )
    return (
        f"<p>Any scheme in any environment, each in its own run.{sample}</p>\n"
        "<noscript><p>Choosing needs JavaScript; the pictures below do not.</p></noscript>\n"
        '<p id="too-old" hidden>This browser cannot unpack the trajectories: it has no DecompressionStream.</p>\n'
        '<div id="explorer" role="group" aria-label="Trajectories" hidden>\n<div class="pickers">\n'
        '<div class="environment"><label for="environment">Environment</label>'
        f'<select id="environment">{groups}</select>'
        '<button type="button" id="previous" aria-label="Previous environment">&lt;</button>'
        '<button type="button" id="next" aria-label="Next environment">&gt;</button> '
        '<code id="name" class="soft"></code></div>\n'
        f'<fieldset id="schemes"><legend>Schemes, at most {MAX_SHOWN}</legend>\n{boxes}</fieldset>\n</div>\n'
        '<p id="status" class="soft" role="status"></p>\n<div id="chart" role="img"></div>\n'
        '<div class="moment"><label for="moment">Reading</label><input id="moment" type="range" min="0" step="1">'
        '<output id="when" for="moment"></output></div>\n'
        '<div class="scroll" tabindex="0" role="region" aria-label="Reading"><table><caption>At the moment of the '
        f"slider: means, and packets dropped meanwhile</caption>\n<thead><tr>{columns}</tr></thead>\n"
        '<tbody id="reading"></tbody></table></div>\n'
        '<div class="scroll" tabindex="0" role="region" aria-label="Scoring windows"><table><caption>In each scoring '
        "window (shaded and white): goodput and delay, as scored</caption>\n"
        '<thead id="windows-head"></thead>\n<tbody id="windows"></tbody></table></div>\n</div>\n'
        f'<script type="application/json" id="series">{_json(data)}</script>\n{still}'
    )


def _option(environment: Mapping[str, Any], tags: Mapping[str, str]) -> str:
    step = "" if environment["step"] == 1 else f" x {environment['step']:g}"
    return (
        f"{environment['bandwidth_mbps']:g}{step} Mbps, {environment['min_rtt_ms']:g} ms, {environment['queue']}"
    ) + "".join(f", {escape(name)} {escape(value)}" for name, value in tags.items())


def _json(value: object) -> str:
    """Return JSON that cannot end the element around it."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _friendliness(contents: Contents) -> str:
    table = friendliness(contents.wins)
    if table.is_empty():
        return ""
    names = " and ".join(f"Set {name}" for name in competing(contents.wins))
    text = (
        f"Goodput over the fair share in the scoring windows of {names}: a dot at the median, a thick line over half "
        "of the windows, a thin one over 90 %. Left of the dashed line a scheme gives way, right of it it takes more "
        "than its share."
    )
    rows = (
        (row["scheme"], _cells([*(f"{row[k]:.2f}" for k in ("p05", "p50", "p95")), f"{100 * row['near']:.0f} %"]))
        for row in table.to_dicts()
    )
    head = ("5 %", "Median", "95 %", "Within 10 %")
    caption = "Goodput over the fair share: quantiles over the windows, and the share of windows within 10 % of it"
    return _figure(Picture("friendliness", "Goodput over the fair share", text, friendliness_figure(table))) + _table(
        "shares", caption, head, rows
    )


def _analysis(contents: Contents, name: str, call: str) -> str:
    if name in contents.analyses:
        return _figure(analysis_picture(name, contents.analyses[name]))
    played = policies(contents.schemes)
    command = escape(call.replace("PATH", played[0].removeprefix(POLICY_PREFIX) if played else "PATH"))
    return f"<p>Not measured yet: <code>{command}</code>, then <code>sagecc report</code>.</p>\n"


def _training(contents: Contents) -> str:
    figure = training_figure(contents.curves)
    if not policies(contents.schemes):
        return ""
    if not figure:
        return "<p>There are no curves (<code>curves.csv</code>) beside the policies' files.</p>\n"
    text = "Means over the steps before, from the policy's own curves.csv."
    return _figure(Picture("training", "Losses and Q while training", text, figure))


def _robustness(contents: Contents) -> str:
    table = contents.summary["robustness"]
    ranks = {(row["alpha"], row["margin"], row["scheme"]): row["overall"] for row in table}
    rules = sorted({key[:2] for key in ranks}, key=lambda rule: (rule[0], -rule[1]))
    rows = ((s, _cells(str(ranks[(*rule, s)]) for rule in rules)) for s in contents.schemes)
    return _table(
        "ranks",
        "Rank over all sets by other weights of throughput (alpha) and margins of winning",
        (f"alpha {alpha:g}, {100 * margin:g} %" for alpha, margin in rules),
        rows,
    )


def _harm(contents: Contents) -> str:
    rows, titles = {row["scheme"]: row for row in contents.summary.get("harm", ())}, harm_titles(contents.summary)
    if not rows:
        return ""
    caption = (
        "Packets lost over whole episodes; networks in which a scheme floods, or has below half of Cubic's goodput"
    )
    if len(titles) > len(HARM):
        caption += "; what it took of its competitors' fair shares in the scoring windows"
    cells = ((scheme, harm_cells(rows[scheme])) for scheme in contents.schemes if scheme in rows)
    return _table("harm-table", caption, titles, ((scheme, _cells(row[: len(titles)])) for scheme, row in cells))


def _repeats(contents: Contents) -> str:
    table = repeats(contents.summary)
    if not table:
        return ""
    caption = (
        "Each repeat is a league of its own: the mean of their figures, the deviation of one repeat, and in brackets "
        "the mean's 95 % interval (Student's t)"
    )
    return _table("repeats-table", caption, table[0][1:], ((row[0], _cells(row[1:])) for row in table[1:]))


def _lost(contents: Contents) -> str:
    rows = contents.summary["lost"]
    if not rows:
        return ""
    items = []
    for scheme in dict.fromkeys(row["scheme"] for row in rows):
        for status, text in (("missing", "no episode"), ("silent", "nothing delivered")):
            matching = [row for row in rows if (row["scheme"], row["status"]) == (scheme, status)]
            if matching:
                reason = f": {matching[0]['reason']}" if matching[0]["reason"] else ""
                windows = sum(row["windows"] for row in matching)
                items.append(
                    f"<li>{escape(label(scheme))}: {text}, {windows} windows of {len(matching)} environments, such as "
                    f"{escape(matching[0]['environment_id'] + reason)}</li>\n"
                )
    return f"<p>These windows count as lost.</p>\n<ul>\n{''.join(items)}</ul>\n"


def _play_options(options: Mapping[str, Any]) -> str:
    action = "actions are drawn from their mixtures" if options["sample"] else "an action is their mixture's mean"
    latency = options["decision_latency_ms"]
    text = f"{action}; it takes effect {f'{latency:g} ms after' if latency else 'at the moment of'} its sample"
    if give_up := options.get("give_up"):
        text += f"; an episode with {GiveUp(**give_up)} is given up and counts as lost"
    return text


def _rules(summary: Mapping[str, Any]) -> str:
    rules = summary["rules"]
    alone, beside = ("Set I", "Set II") if _of_paper(summary["environments"]) else ("Alone", "Beside competitors")
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
        "Kernel": str(summary["kernel"]),
        **{
            f"{'Policy' if s.startswith(POLICY_PREFIX) else 'Scheme'} {label(s)}": f"{s}, SHA-256 {sha256}"
            for s, sha256 in summary["policies"].items()
        },
        **({"Policies": _play_options(summary["terms"])} if summary["policies"] else {}),
    }
    body = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>\n" for k, v in entries.items())
    return f"<dl>\n{body}</dl>\n"
