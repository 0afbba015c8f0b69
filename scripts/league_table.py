# SPDX-License-Identifier: Apache-2.0
"""The league table as text for a terminal and as Markdown for the README, from league.json alone."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from sagecc.common.errors import SageccError
from sagecc.common.files import write_atomically

LEAGUE = Path("leagues/results/league.json")
PICTURE = Path("leagues/results/standings.png")
README = Path("README.md")
BEGIN, END = "<!-- league:begin -->", "<!-- league:end -->"

League = dict[str, Any]
Row = tuple[int, str, list[str]]


def read_league(path: Path) -> League:
    """Return league.json's content; SageccError if there is none."""
    try:
        league: League = json.loads(path.read_text())
    except FileNotFoundError:
        raise SageccError(f"{path}: there is no league yet; run 'make repro'") from None
    except ValueError as error:
        raise SageccError(f"{path}: not JSON ({error}); remove it and run 'make repro'") from None
    return league


def rows(league: League) -> list[Row]:
    """Return (rank, scheme, the winning rate in each set with its interval), best first."""
    rates = {(r["scheme"], r["set"]): r for r in league["standings"]}
    return [
        (entry["rank"], entry["scheme"], [_rate(rates[entry["scheme"], name]) for name in league["environments"]])
        for entry in league["ranking"]
    ]


def _rate(row: dict[str, float]) -> str:
    rate, low, high = (100 * row[key] for key in ("winning_rate", "low", "high"))
    return f"{rate:.1f} % [{low:.1f}, {high:.1f}]"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def text_table(league: League) -> str:
    """Return the standings for a terminal."""
    body = rows(league)
    head = ["rank", "scheme", *(f"Set {name}" for name in league["environments"])]
    lines = [head, *([str(rank), scheme, *rates] for rank, scheme, rates in body)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines)


def markdown_table(league: League, picture: str) -> str:
    """Return the README's part: what was played, the standings and the picture at `picture`."""
    names = list(league["environments"])
    played = " and ".join(
        f"{_count(number, 'environment')} of Set {name} ({_count(league['windows'][name], 'scoring window')})"
        for name, number in league["environments"].items()
    )
    lines = [
        f"Profile `{league['profile']}`: {len(league['ranking'])} schemes in {played}. The winning rate is the share",
        f"of scoring windows won; in brackets its {league['rules']['confidence']:.0%} interval.",
        "",
        "| rank | scheme | " + " | ".join(f"Set {n}" for n in names) + " |",
        "|---:|---|" + "---:|" * len(names),
        *(f"| {rank} | {scheme} | " + " | ".join(rates) + " |" for rank, scheme, rates in rows(league)),
        "",
        f"![Winning rates of every scheme in each set]({picture})",
    ]
    return "\n".join(lines)


def fill(readme: str, part: str) -> str:
    """Return the README with `part` between its two marks."""
    head, begin, rest = readme.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise SageccError(f"{README}: the marks {BEGIN} and {END} are gone")
    return f"{head}{BEGIN}\n{part}\n{END}{tail}"


def main() -> None:
    """Print the table, or write it and the picture into the README."""
    parser = argparse.ArgumentParser(description="Print the league table.")
    parser.add_argument("--readme", action="store_true", help="Write it into README.md, its picture into docs/img.")
    arguments = parser.parse_args()
    try:
        league = read_league(LEAGUE)
        if not arguments.readme:
            print(text_table(league))
            return
        picture = Path("docs/img") / PICTURE.name
        filled = fill(README.read_text(), markdown_table(league, str(picture)))
        with write_atomically(picture) as beside:
            shutil.copyfile(PICTURE, beside)
        with write_atomically(README) as beside:
            beside.write_text(filled)
    except SageccError as error:
        sys.exit(f"league_table: {error}")


if __name__ == "__main__":
    main()
