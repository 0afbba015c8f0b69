# SPDX-License-Identifier: Apache-2.0
"""The league's report: one HTML page that needs no network, in light and dark, on wide screens and phones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import polars as pl
from matplotlib.figure import Figure

from collector.schemes import POLICY_PREFIX
from leagues.plots import SET_TITLES, label, to_svg
from leagues.standings import CLASSES

CLASS_TITLES = {
    "window": "scoring window (0 is the first)",
    "bandwidth_mbps": "base bandwidth (Mbps)",
    "min_rtt_ms": "minimum RTT (ms)",
    "queue_bdp": "queue (BDP)",
    "step": "rate change (factor)",
}

_STYLE = """
:root { color-scheme: light dark; --ground: #fff; --ink: #1f2933; --soft: #5b6770; --line: #d9dee3; --rate: #4a90c2;
  --policy: #d55e00; --policy-ink: #a84700; --tint: #f4f6f8; }
@media (prefers-color-scheme: dark) { :root { --ground: #14181c; --ink: #e4e9ed; --soft: #a3aeb8; --line: #343c44;
  --rate: #5aa3d6; --policy: #e8772e; --policy-ink: #ff9a57; --tint: #1d2329; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 1.5rem 1rem 4rem; background: var(--ground); color: var(--ink);
  font: 1rem/1.55 system-ui, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .4rem; }
h2 { font-size: 1.25rem; margin: 2.6rem 0 .5rem; }
h3 { font-size: 1.05rem; margin: 1.6rem 0 .3rem; }
p, figcaption, caption { max-width: 46rem; }
.soft, caption, figcaption { color: var(--soft); font-size: .92rem; }
caption { text-align: left; padding: .2rem 0 .5rem; }
.scroll { overflow-x: auto; }
.scroll:focus-visible { outline: 2px solid var(--rate); outline-offset: 2px; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .6rem; text-align: right; border-bottom: 1px solid var(--line); vertical-align: middle; }
th { font-weight: 600; }
th[scope=row] { text-align: left; font-weight: 500; white-space: nowrap; }
.classes thead th:first-child { text-align: left; }
tr.policy th { color: var(--policy-ink); font-weight: 700; }
.standings { width: 100%; }
.standings thead th { text-align: left; }
.standings td.rate { text-align: left; width: 40%; }
.bar { position: relative; display: block; height: .62rem; margin-top: .2rem; background: var(--tint); }
.bar i { position: absolute; inset: 0 auto 0 0; width: var(--rate-at); background: var(--rate); }
.policy .bar i { background: var(--policy); }
.bar b { position: absolute; top: 50%; height: 2px; margin-top: -1px; background: var(--ink); left: var(--low);
  width: calc(var(--high) - var(--low)); }
.classes th[scope=row] { position: sticky; left: 0; background: var(--ground); }
.classes td { background: color-mix(in srgb, var(--rate) calc(var(--share) * .75), transparent); }
figure { margin: .5rem 0 0; }
figcaption { margin-bottom: .6rem; }
.grid { display: flex; flex-wrap: wrap; gap: .6rem 2.2rem; align-items: start; }
.grid > * { max-width: 100%; }
figure svg { display: block; width: 100%; min-width: 40rem; height: auto; }
figure svg text { font-family: system-ui, sans-serif !important; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1rem; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
code { font-size: .92em; }
@media (max-width: 36rem) { th, td { padding: .35rem .35rem; } .standings .interval { display: block; }
  dl { display: block; } dd { margin-bottom: .5rem; } }
"""


@dataclass(frozen=True)
class Picture:
    """A figure of the report. `name` is its file's stem and the prefix of its SVG ids."""

    name: str
    title: str
    text: str
    figure: Figure


def render(
    summary: Mapping[str, Any],
    rows: Sequence[tuple[int, str, dict[str, dict[str, float]]]],
    classes: pl.DataFrame,
    pictures: Sequence[Picture],
) -> str:
    """Return the page. summary: league.json's content; rows: League.rows; classes: leagues.standings.breakdown."""
    names = list(summary["environments"])
    parts = [
        _head(summary, rows, names),
        _standings(summary, rows, names),
        *(_picture(p) for p in pictures),
        _classes([scheme for _, scheme, _ in rows], names, classes),
        _missing(summary["missing"]),
        _rules(summary),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>League of {len(rows)} congestion-control schemes</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{''.join(parts)}</main>\n</body>\n</html>\n"
    )


def _head(summary: Mapping[str, Any], rows: Sequence[Any], names: Sequence[str]) -> str:
    counts = ", ".join(
        f"{summary['environments'][n]} environments ({summary['windows'][n]} scoring windows) in Set {escape(n)}"
        for n in names
    )
    margin = summary["rules"]["margin"]
    return (
        f"<h1>League of {len(rows)} congestion-control schemes</h1>\n"
        f"<p>Profile <b>{escape(summary['profile'])}</b>: {counts}. In each scoring window, the scheme with the best "
        f"score wins, and with it every scheme at most {margin:.0%} worse. The winning rate is the share of windows "
        "won.</p>\n"
    )


def _standings(summary: Mapping[str, Any], rows: Sequence[Any], names: Sequence[str]) -> str:
    titles = "".join(f'<th scope="col">{escape(SET_TITLES.get(n, f"Set {n}"))}</th>' for n in names)
    body = []
    for rank, scheme, by_set in rows:
        cells = "".join(f'<td class="rate">{_rate(by_set[n])}</td>' for n in names)
        kind = ' class="policy"' if scheme.startswith(POLICY_PREFIX) else ""
        body.append(f'<tr{kind}><td>{rank}</td><th scope="row">{escape(label(scheme))}</th>{cells}</tr>\n')
    mean = " The rank is by the mean of the sets' rates." if len(names) > 1 else ""
    return (
        '<h2>Standings</h2>\n<div class="scroll" tabindex="0" role="region" aria-label="Standings">'
        f'<table class="standings"><caption>Winning rates; in brackets and as a line, the '
        f"{summary['rules']['confidence']:.0%} interval of a bootstrap over environments.{mean} Learned policies are "
        f'in quotes and orange.</caption>\n<thead><tr><th scope="col">Rank</th><th scope="col">Scheme</th>{titles}</tr>'
        f"</thead>\n<tbody>\n{''.join(body)}</tbody></table></div>\n"
    )


def _rate(row: Mapping[str, float]) -> str:
    rate, low, high = (100 * row[k] for k in ("winning_rate", "low", "high"))
    return (
        f'{rate:.1f} % <span class="soft interval">[{low:.1f}, {high:.1f}]</span><span class="bar" aria-hidden="true" '
        f'style="--rate-at:{rate:.2f}%;--low:{low:.2f}%;--high:{high:.2f}%"><i></i><b></b></span>'
    )


def _picture(picture: Picture) -> str:
    svg = to_svg(picture.figure, picture.name)
    svg = svg.replace("<svg", f'<svg role="img" aria-label="{escape(picture.title)}"', 1)
    return (
        f"<h2>{escape(picture.title)}</h2>\n<figure><figcaption>{escape(picture.text)}</figcaption>"
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(picture.title)}">{svg}</div></figure>\n'
    )


def _classes(schemes: Sequence[str], names: Sequence[str], classes: pl.DataFrame) -> str:
    parts = ["<h2>Where they win</h2>\n<p>Winning rates (%) by class of environment.</p>\n"]
    for set_name in names:
        parts.append(f'<h3>{escape(SET_TITLES.get(set_name, f"Set {set_name}"))}</h3>\n<div class="grid">\n')
        for name in CLASSES:
            part = classes.filter((pl.col("set") == set_name) & (pl.col("class") == name))
            values = part["value"].unique().sort().to_list()
            if len(values) < 2:
                continue
            rates = {(row["scheme"], row["value"]): row["winning_rate"] for row in part.to_dicts()}
            head = "".join(f'<th scope="col">{value:g}</th>' for value in values)
            body = "".join(_class_row(scheme, [rates[scheme, v] for v in values]) for scheme in schemes)
            title = f"By {CLASS_TITLES[name]}"
            parts.append(
                f'<div class="scroll" tabindex="0" role="region" aria-label="Set {escape(set_name)}: {title}">'
                f'<table class="classes"><caption>{title}</caption>\n<thead><tr><th scope="col">Scheme</th>{head}</tr>'
                f"</thead>\n<tbody>\n{body}</tbody></table></div>\n"
            )
        parts.append("</div>\n")
    return "".join(parts)


def _class_row(scheme: str, rates: Sequence[float]) -> str:
    kind = ' class="policy"' if scheme.startswith(POLICY_PREFIX) else ""
    cells = "".join(f'<td style="--share:{100 * rate:.1f}%">{100 * rate:.0f}</td>' for rate in rates)
    return f'<tr{kind}><th scope="row">{escape(label(scheme))}</th>{cells}</tr>\n'


def _missing(missing: Mapping[str, Sequence[str]]) -> str:
    if not missing:
        return ""
    items = "".join(
        f"<li>{escape(label(scheme))}: {len(ids)} environments, such as {escape(ids[0])}</li>\n"
        for scheme, ids in missing.items()
    )
    return f"<h2>Missing episodes</h2>\n<p>Their windows count as lost.</p>\n<ul>\n{items}</ul>\n"


def _terms(terms: Mapping[str, Any]) -> str:
    action = "actions are drawn from their mixtures" if terms["sample"] else "an action is their mixture's mean"
    late = terms["decision_latency_ms"]
    return f"{action}; it takes effect {f'{late:g} ms after' if late else 'at the moment of'} what it answers"


def _rules(summary: Mapping[str, Any]) -> str:
    rules = summary["rules"]
    friendly = {
        "score": "best / (1 - margin)",
        "rate": "the margin around the rates whose distance from f is the best",
    }[rules["friendly_margin"]]
    entries = {
        "Set I score": f"S_p = r^{rules['alpha']:g} / d, bigger is better: r the goodput (Mbps), d the mean one-way "
        "delay of data packets plus the constant delay of the way back (ms)",
        "Set II score": "S_fr = |f - r|, smaller is better: f the fair share, the link's capacity over the flows",
        "Winners": f"S_p at least {1 - rules['margin']:.2f} x best; S_fr at most {friendly}",
        "Intervals": f"{rules['bootstrap_draws']} draws of environments with replacement, percentiles",
        "Kernel": str(summary["kernel"]),
        **{f"Policy {label(s)}": f"{s}, SHA-256 {sha256}" for s, sha256 in summary["policies"].items()},
        **({"Policies": _terms(summary["terms"])} if summary["policies"] else {}),
    }
    body = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>\n" for k, v in entries.items())
    return f"<h2>How it was scored</h2>\n<dl>\n{body}</dl>\n"
