# SPDX-License-Identifier: Apache-2.0
"""A league's table for a terminal, from what league.json says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sagecc.leagues.standings import by_rank

Summary = Mapping[str, Any]
"""league.json's content (leagues.league.summary)."""


HARM = ("loss, mean", "worst network", "floods (> 5 % lost)", "below half of cubic")
"""What a league tells of each scheme beside winning: shares of its packets, and numbers of networks."""

TAKEN = ("competitors lost, mean", "worst")
"""And where some networks have competitors: what it took of their fair shares."""


def text(summary: Summary) -> str:
    """Return rank, scheme and each set's winning rate with its interval, for a terminal.

    Below them, the harm that each scheme does, the ranks by the paper's other rules, and what was lost without being
    played.
    """
    tables = [_standings(summary), repeats(summary), _harm(summary)]
    parts = [*(_aligned(table) for table in tables if table), [*_aligned(_ranks(summary)), *_lost(summary)]]
    return "\n\n".join("\n".join(part) for part in parts if part)


def harm_titles(summary: Summary) -> tuple[str, ...]:
    """Return HARM, and TAKEN where the league tells it (since 1.4) and has networks with competitors."""
    return (*HARM, *(TAKEN if any(row.get("beside") for row in summary.get("harm", ())) else ()))


def harm_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what is written below HARM and TAKEN for a row of leagues.harm.harm."""
    shares = (row.get("taken_mean"), row.get("taken_worst"))
    return (
        "-" if row["loss_mean"] is None else f"{100 * row['loss_mean']:.2f} %",
        "-" if row["loss_worst"] is None else f"{100 * row['loss_worst']:.1f} %",
        f"{row['flooded']} of {row['networks']}",
        "-" if row["starved"] is None else f"{row['starved']} of {row['networks']}",
        *("-" if share is None else f"{100 * share:.1f} %" for share in shares),
    )


def repeats(summary: Summary) -> list[list[str]]:
    """Return each scheme's figures over repeats: mean, deviation of one repeat, 95 % interval; nothing without repeats.

    The first line has the titles; the columns are the winning rate in each set, the mean loss, what competitors lost.
    """
    rows = {(row["quantity"], row["set"], row["scheme"]): row for row in summary.get("repeats", ())}
    if not rows:
        return []
    columns = {("winning_rate", name): f"Set {name}" for name in summary["environments"]}
    columns |= {("loss_mean", ""): HARM[0], ("taken_mean", ""): TAKEN[0]}
    keys = [key for key in columns if any(row[:2] == key for row in rows)]
    count = max(row["repeats"] for row in rows.values())
    names = [row["scheme"] for row in summary["ranking"]]
    return [
        [f"over {count} repeats", *(columns[key] for key in keys)],
        *([name, *(_over(rows.get((*key, name))) for key in keys)] for name in names),
    ]


def _over(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "-"
    mean = f"{100 * row['mean']:.1f} %"
    if None in (row["deviation"], row["low"], row["high"]):
        return mean
    deviation, low, high = (100 * row[key] for key in ("deviation", "low", "high"))
    return f"{mean} +- {deviation:.1f} [{low:.1f}, {high:.1f}]"


def _harm(summary: Summary) -> list[list[str]]:
    """Return what each scheme loses, and in how many networks it floods or starves; nothing from before 1.3."""
    rows, titles = {row["scheme"]: row for row in summary.get("harm", ())}, harm_titles(summary)
    if not rows:
        return []
    names = (row["scheme"] for row in summary["ranking"])
    cells = {name: harm_cells(rows[name])[: len(titles)] for name in names if name in rows}
    return [["scheme", *titles], *([name, *row] for name, row in cells.items())]


def _standings(summary: Summary) -> list[list[str]]:
    rows = by_rank(summary["ranking"], summary["standings"])
    return [
        ["rank", "scheme", *(f"Set {name}" for name in rows[0][2])],
        *([str(rank), scheme, *map(_rate, by_set.values())] for rank, scheme, by_set in rows),
    ]


def _ranks(summary: Summary) -> list[list[str]]:
    """Return the ranks over all sets by each combination of alpha and margin, one column a combination."""
    ranks = {(row["alpha"], row["margin"], row["scheme"]): row["overall"] for row in summary["robustness"]}
    rules = sorted({key[:2] for key in ranks}, key=lambda rule: (rule[0], -rule[1]))
    return [
        ["", "by alpha, margin", *(f"{alpha:g}, {100 * margin:g} %" for alpha, margin in rules)],
        *(["", row["scheme"], *(str(ranks[(*rule, row["scheme"])]) for rule in rules)] for row in summary["ranking"]),
    ]


def _lost(summary: Summary) -> list[str]:
    """Return a line for each scheme without episodes, and for each with windows in which nothing was delivered."""
    lines = []
    for scheme, rows in _by_scheme(summary["lost"], "missing").items():
        first = rows[0]
        reason = first["reason"] or "there is no episode"
        lines.append(
            f"lost unplayed: {scheme} in {len(rows)} environments, such as {first['environment_id']}: {reason}"
        )
    for scheme, rows in _by_scheme(summary["lost"], "silent").items():
        lines.append(f"lost with nothing delivered: {scheme} in {sum(row['windows'] for row in rows)} windows")
    return lines


def _by_scheme(lost: Sequence[Mapping[str, Any]], status: str) -> dict[str, list[Mapping[str, Any]]]:
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in sorted(lost, key=lambda row: (row["scheme"], row["environment_id"])):
        if row["status"] == status:
            groups.setdefault(row["scheme"], []).append(row)
    return groups


def _rate(row: Mapping[str, float]) -> str:
    rate, low, high = (100 * row[key] for key in ("winning_rate", "low", "high"))
    return f"{rate:.1f} % [{low:.1f}, {high:.1f}]"


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(4, *(len(line[i]) for line in lines)) for i in range(len(lines[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
