# SPDX-License-Identifier: Apache-2.0
"""`python -m studies.training.render`: writes the tables of docs/measured/results.md; the prose around them stays."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sagecc.common.errors import SageccError
from sagecc.common.files import write_atomically
from studies.training.run import BASELINE, RESULT_VERSION, RESULTS

PAGE = Path("docs/measured/results.md")
GRID = Path("studies/training/full-grid.json")
"""league.json of the 13 heuristics over the paper's grid (`make grid-league`)."""

PAPERS_FOUR = {"I": ("vegas", "bbr2", "yeah", "illinois"), "II": ("cubic", "htcp", "bic", "highspeed")}
"""The top-ranked schemes of each set, as section 7.5 of the paper lists them."""

Values = dict[str, Any]


def grid_part(league: Values) -> str:
    """Return the heuristics' ranks over the paper's grid beside the paper's own four best."""
    by_set: dict[str, list[Values]] = {name: [] for name in PAPERS_FOUR}
    for row in sorted(league["standings"], key=lambda row: (row["rank"], row["scheme"])):
        by_set[row["set"]].append(row)
    played = " and ".join(
        f"{count:,} environments of Set {name} ({league['windows'][name]:,} scoring windows)"
        for name, count in league["environments"].items()
    )
    best = [list(zip(PAPERS_FOUR[name], rows, strict=False)) for name, rows in by_set.items()]
    top = [
        [str(place), *(cell for paper, row in pairs for cell in (paper, row["scheme"], _rate(row)))]
        for place, pairs in enumerate(zip(*best, strict=True), 1)
    ]
    schemes = [row["scheme"] for row in by_set["I"]]
    ranks = {(row["set"], row["scheme"]): row for rows in by_set.values() for row in rows}
    everyone = [
        [scheme, *(cell for name in by_set for cell in (str(ranks[name, scheme]["rank"]), _cell(ranks, name, scheme)))]
        for scheme in schemes
    ]
    return "\n".join(
        [
            f"{len(schemes)} schemes in {played},",
            f"{league['episodes']:,} episodes. The winning rate is the share of scoring windows won; in brackets its",
            "95 % interval over environments.",
            "",
            *_table(
                ["", "Set I: paper", "here", "winning rate", "Set II: paper", "here", "winning rate"], "rllrllr", top
            ),
            "",
            *(_common(name, rows) for name, rows in by_set.items()),
            "",
            "All schemes; in bold the paper's four of each set:",
            "",
            *_table(["scheme", "rank in Set I", "winning rate", "rank in Set II", "winning rate"], "lrrrr", everyone),
            "",
            *_robustness(league.get("robustness", []), schemes),
        ]
    )


def _robustness(rows: Sequence[Values], schemes: Sequence[str]) -> list[str]:
    """Return a table of ranks by every rule; where the score is friendliness, alpha plays no part."""
    if not rows:
        return ["Ranks by the paper's other rules: not scored yet, `make grid-league`."]
    alphas, margins = (sorted({row[name] for row in rows}) for name in ("alpha", "margin"))
    rules = [("I", alpha, margin) for alpha in alphas for margin in reversed(margins)]
    rules += [("II", alphas[0], margin) for margin in reversed(margins)]
    ranks = {(row["set"], row["alpha"], row["margin"], row["scheme"]): row["rank"] for row in rows}
    heads = [
        f"Set {name}: {f'alpha {alpha:g}, ' if name == 'I' else ''}{100 * margin:g} %" for name, alpha, margin in rules
    ]
    body = [[scheme, *(str(ranks[(*rule, scheme)]) for rule in rules)] for scheme in schemes]
    return [
        "Ranks by each of the paper's rules, alpha and the winning margin (beside Cubic alpha plays no part):",
        "",
        *_table(["scheme", *heads], "l" + "r" * len(rules), body),
    ]


def _cell(ranks: dict[tuple[str, str], Values], name: str, scheme: str) -> str:
    rate = _rate(ranks[name, scheme])
    return f"**{rate}**" if scheme in PAPERS_FOUR[name] else rate


def _common(name: str, rows: Sequence[Values]) -> str:
    four = PAPERS_FOUR[name]
    ours = {row["scheme"] for row in rows if row["rank"] <= len(four)}
    ranks = ", ".join(f"{row['scheme']} {row['rank']}" for row in rows if row["scheme"] in four)
    return f"- Set {name}: {len(ours & set(four))} of the paper's four are among the first four here ({ranks})."


def runs_part(results: Sequence[Values]) -> str:
    """Return the table of every run, and one of winning rates for each league that was played."""
    if not results:
        return "No run yet: `make policies`."
    played = sorted((r for r in results if "failure" not in r), key=_order)
    failed = sorted((r for r in results if "failure" in r), key=lambda r: str(r["name"]))
    leagues = list(dict.fromkeys(profile for r in played for profile in r["leagues"]))
    head = ["run", "configuration", "seed", "pool", "CPU hours", "hours", *(f"goal on `{name}`" for name in leagues)]
    rows = [
        [
            r["name"],
            _configuration(r),
            str(r["seed"]),
            f"{r['pool']['path']}, {r['pool']['rows'] / 1e6:.1f} M rows",
            f"{r['training']['cpu_h']:.2f}",
            f"{r['training']['wall_h']:.2f}",
            *(_goals(r["leagues"].get(name)) for name in leagues),
        ]
        for r in played
    ]
    lines = [*_table(head, "lllrrr" + "l" * len(leagues), rows), ""]
    for name in leagues:
        lines += [*_league(name, [r for r in played if name in r["leagues"]]), ""]
    lines += [f"- `{r['name']}` ({_configuration(r)}) has no policy: {r['failure']}" for r in failed]
    return "\n".join(lines).rstrip()


def _order(result: Values) -> tuple[float, str]:
    """Sort the highest mean winning rate in the first league first."""
    first = next(iter(result["leagues"].values()))
    return -sum(s["policy"]["winning_rate"] for s in first.values()) / len(first), result["name"]


def _league(profile: str, results: Sequence[Values]) -> list[str]:
    names = list(results[0]["leagues"][profile])
    counts = " and ".join(f"{results[0]['leagues'][profile][n]['environments']} of Set {n}" for n in names)
    head = ["run", *(text for n in names for text in (f"Set {n}", "rank", "best heuristic", "NewReno"))]
    rows = []
    for result in results:
        row = [result["name"]]
        for of in result["leagues"][profile].values():
            best = of["best_heuristic"]
            row += [
                _rate(of["policy"]),
                f"{of['policy']['rank']} of {of['schemes']}",
                f"{best['scheme']} {_percent(best['winning_rate'])}",
                _percent(of[BASELINE]["winning_rate"]),
            ]
        rows.append(row)
    return [f"Winning rates on `{profile}` ({counts}):", "", *_table(head, "l" + "rrlr" * len(names), rows)]


def _goals(league: Values | None) -> str:
    """Tell which of the two goals a policy meets: first in Set I, at or above NewReno in Set II."""
    if league is None:
        return ""
    met = {
        "I": lambda of: of["policy"]["rank"] == 1,
        "II": lambda of: of["policy"]["winning_rate"] >= of[BASELINE]["winning_rate"],
    }
    return ", ".join(f"{name}: {'yes' if met[name](of) else 'no'}" for name, of in league.items())


def _configuration(result: Values) -> str:
    """Return the shipped configuration that a run starts from, and what differs."""
    changes = {**result["changes"]}
    inner = changes.pop("data", {})
    fields = [*changes.items(), *((f"data.{name}", value) for name, value in inner.items())]
    parts = [f"`{result['base']}`", *(f"{name} {_short(value)}" for name, value in fields)]
    if best := result.get("keep_best"):
        parts.append(f"best in `{best['league']}` every {best['every']:,} steps (kept: {result['kept_step']:,})")
    return ", ".join(parts)


def _short(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{key} {_short(x)}" for key, x in value.items())
    if isinstance(value, list | tuple):
        return " ".join(map(_short, value))
    return f"{value:,}" if type(value) is int else str(value)


def _rate(row: Values) -> str:
    low, high = (100 * row[key] for key in ("low", "high"))
    return f"{_percent(row['winning_rate'])} [{low:.1f}, {high:.1f}]"


def _percent(rate: float) -> str:
    return f"{100 * rate:.1f} %"


def _table(head: Sequence[str], align: str, rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a Markdown table; align: l or r for each column."""
    marks = {"l": "---", "r": "---:"}
    return [
        "| " + " | ".join(head) + " |",
        "|" + "|".join(marks[letter] for letter in align) + "|",
        *("| " + " | ".join(row) + " |" for row in rows),
    ]


def fill(page: str, name: str, part: str) -> str:
    """Return the page with `part` between the marks of that name. Raises SageccError where they are gone."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    head, found, rest = page.partition(begin)
    _, closed, tail = rest.partition(end)
    if not found or not closed:
        raise SageccError(f"{PAGE}: the marks {begin} and {end} are gone")
    return f"{head}{begin}\n{part}\n{end}{tail}"


def read_results(folder: Path) -> list[Values]:
    """Return every run's result; SageccError for one that cannot be read."""
    results = []
    for path in sorted(folder.glob("*.json")):
        result = _read(path)
        if result.get("version") != RESULT_VERSION:
            raise SageccError(f"{path}: version {result.get('version')}, not {RESULT_VERSION}; remove it")
        results.append(result)
    return results


def _read(path: Path) -> Values:
    try:
        value: Values = json.loads(path.read_text())
    except ValueError as error:
        raise SageccError(f"{path}: not JSON ({error}); remove it and make it again") from None
    return value


def main() -> None:
    """Write the page."""
    try:
        page = fill(PAGE.read_text(), "runs", runs_part(read_results(RESULTS)))
        grid = grid_part(_read(GRID)) if GRID.exists() else "Not played yet: `make grid-league`."
        with write_atomically(PAGE) as beside:
            beside.write_text(fill(page, "grid", grid))
    except SageccError as error:
        print(f"studies: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
