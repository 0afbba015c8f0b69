# SPDX-License-Identifier: Apache-2.0
"""What the pages say of a league's rules and tables is what the code has."""

from __future__ import annotations

import re

from sagecc.collector.run.grid import SET_I_WINDOWS_S, SET_II_WINDOWS_S
from sagecc.commands.distance import SAMPLE
from sagecc.leagues.hidden import NEIGHBOURS
from sagecc.leagues.league import LEAGUE_VERSION, Rules
from sagecc.leagues.neighbours import CANDIDATES, DIMENSIONS
from sagecc.leagues.presets import PRESETS
from sagecc.leagues.standings import ALPHAS, BOOTSTRAP_DRAWS, CONFIDENCE, MARGINS
from sagecc.leagues.transitions import LIMIT, SIZE, STATE
from tests.conftest import ROOT

PAGE = "\n".join((ROOT / "docs" / name).read_text() for name in ("method/leagues.md", "reference/formats.md"))
TEXT = " ".join(PAGE.split())


def test_every_table_is_named() -> None:
    for name in ("scores", "breakdown", "tags", "repeats", "robustness"):
        assert f"`{name}.parquet`: " in TEXT
    for name in ("distance", "similarity", "tsne"):
        assert f"`{name}/{name}.parquet`" in TEXT


def test_rules() -> None:
    for figure in (
        f"{BOOTSTRAP_DRAWS:,} draws",
        f"{CONFIDENCE:.0%}".replace("%", " %"),
        f"= {Rules().alpha:g} |",
        f"(`--margin {Rules().margin:g}`",
        f" = {ALPHAS[0]:g} and {ALPHAS[1]:g},",
        f"margin of {MARGINS[0]:.0%}".replace("%", " %"),
        f"of {MARGINS[1]:.0%}".replace("%", " %"),
        f"version {LEAGUE_VERSION}:",
        " and ".join(", ".join(f"{a:g} to {b:g}" for a, b in SET_I_WINDOWS_S).rsplit(", ", 1)),
        f"{ {4: 'four'}[len(SET_II_WINDOWS_S)] } times {SET_II_WINDOWS_S[0][1] - SET_II_WINDOWS_S[0][0]:g} s",
    ):
        assert figure in TEXT, figure


def test_distance() -> None:
    for figure in (
        f"{STATE} features",
        f"{LIMIT:g} deviations",
        f"{SIZE} numbers",
        f"{DIMENSIONS} principal components",
        f"{CANDIDATES} most",
        {1_000_000: "a million transitions"}[SAMPLE],
        {10: "ten nearest neighbours"}[NEIGHBOURS],
    ):
        assert figure.lower() in TEXT.lower(), figure


def test_presets() -> None:
    rows = {
        name: row for name, row in re.findall(r"^\| `([a-z-]+)` \| (.*) \|$", PAGE, re.MULTILINE) if name in PRESETS
    }
    assert rows.keys() == PRESETS.keys()
    for name, preset in PRESETS.items():
        assert name == "heuristics" or all(scheme in rows[name].lower() for scheme in preset.schemes)
