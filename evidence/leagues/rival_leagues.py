# SPDX-License-Identifier: Apache-2.0
"""The Sage paper's leagues of delay-based and of learned schemes, with all of them that there are here.

`python -m evidence.leagues.rival_leagues [PROFILE ...]`; of profiles not named the last figures stay. A learned rival
plays where its folder is there, and Orca's and Sage's published models where SAGECC_ORCA and SAGECC_SAGE name the
folders of their checkpoints. What clones the pool (`make repro` makes it) is trained first, unless it is kept: another
processor would not make the same policy.

Virtual time: the figures hang on the kernel's bytes and the policies' files, not on the machine. What was played is
kept in Git (evidence/kept.py): a new rival costs its own episodes alone; a killed run goes on.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from evidence.kept import contest, is_kept
from evidence.leagues.orca import CACHE, RAW, UNSEEN
from evidence.leagues.sage_claims import ALPHA_RULE, DELAY, LEAGUE_RULE, LEARNED, MARGIN_RULE, PAPER, PLACES, judged
from evidence.machine import KERNEL, RESULTS, save
from evidence.published import ORCA, SAGE, VARIABLES, published
from evidence.training.run import RUNS, policies_of
from evidence.training.runs import read_plan
from sagecc.cli import errors_in_one_line
from sagecc.collector.run.grid import profile_set
from sagecc.common.limits import usable_cores
from sagecc.common.shipped import SHIPPED
from sagecc.leagues.plots import save_figure, standings_figure
from sagecc.leagues.presets import PRESETS
from sagecc.leagues.standings import robustness
from sagecc.schemas.schemes import POLICY_PREFIX

STAND_INS = tuple(f"models/{name}" for name in SHIPPED)
"""Ours, in Sage's place."""
RIVALS = (
    ORCA,
    "models/orca-1",
    "models/orcav2-1",
    "models/aurora-1",
    "models/indigo-1",
    "models/onlinerl-1",
    "models/astraea-1",
)
"""Learned rivals, wherever they exist."""
CLONES = ("bc", "bc-top", "bc-top3", "bcv2")
"""The paper's variants of behaviour cloning, by their runs' names (evidence/training/runs.yaml)."""
LEAGUES: Mapping[str, tuple[str, ...]] = {
    DELAY: (*PRESETS[DELAY].schemes, SAGE, *STAND_INS),
    LEARNED: (*PRESETS[LEARNED].schemes, SAGE, *STAND_INS, *RIVALS, *CLONES),
}
PICTURES = {DELAY: Path("docs/img/league-delay.svg"), LEARNED: Path("docs/img/league-learned.svg")}
COLUMNS = ("alpha", "margin", "set", "rank", "scheme", "winning_rate", "low", "high", "missing")


def players(profiles: Iterable[str]) -> dict[str, str | None]:
    """Return by name how the lab calls those of LEAGUES that there are; None for clones that are kept of all profiles.

    Other clones are trained where they are not yet.
    """
    networks = {profile: profile_set(profile) for profile in profiles}
    new = [name for name in CLONES if not all(is_kept(of, networks[of], name, KERNEL) for of in networks)]
    clones = policies_of(read_plan(RUNS), new, KERNEL)
    policies: dict[str, str | None] = {}
    for name in dict.fromkeys(name for names in LEAGUES.values() for name in names):
        if name in VARIABLES:
            if scheme := published(name, CACHE / name):
                policies[name] = scheme
        elif name in CLONES:
            policies[name] = f"{POLICY_PREFIX}{clones[name]}" if name in clones else None
        elif not name.startswith("models/"):
            policies[name] = name
        elif Path(name).is_dir():
            policies[name] = f"{POLICY_PREFIX}{name}"
    return policies


def standings(scores: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """Return the rows of COLUMNS of a league of these, by the rules that the paper shows.

    Args:
        scores: of leagues.scores.SCORE_SCHEMA, of these and others.
        names: who plays.
    """
    table = robustness(scores.filter(pl.col("scheme").is_in(names)), league_rule=LEAGUE_RULE)
    shown = {"I": (LEAGUE_RULE, ALPHA_RULE, MARGIN_RULE), "II": (LEAGUE_RULE, MARGIN_RULE)}
    rows = pl.DataFrame(
        [(name, *rule) for name, rules in shown.items() for rule in rules], ["set", "alpha", "margin"], orient="row"
    )
    return table.join(rows, on=["set", "alpha", "margin"], how="semi", maintain_order="left").select(COLUMNS)


def result(scores: pl.DataFrame) -> dict[str, Any]:
    """Return what is kept of both leagues of a profile.

    Args:
        scores: of leagues.scores.SCORE_SCHEMA, the schemes by their names in LEAGUES.
    """
    there, leagues = set(scores["scheme"]), {}
    for league, names in LEAGUES.items():
        rows = standings(scores, [name for name in names if name in there]).to_dicts()
        leagues[league] = {"absent": [name for name in names if name not in there], "standings": rows}
    return leagues


def told(profiles: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """Return what is saved of the results by profile: beside them the paper's rates, and what becomes of its claims."""
    return {
        "paper": dict(PAPER),
        "places": dict(PLACES),
        "ours": STAND_INS,
        "profiles": {
            profile: {
                league: {**of, "claims": judged(league, of["standings"])} for league, of in profiles[profile].items()
            }
            for profile in RAW
            if profile in profiles
        },
    }


def draw(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw a league by the paper's own rule; ours stand out."""
    table = pl.DataFrame(rows).filter(alpha=LEAGUE_RULE[0], margin=LEAGUE_RULE[1])
    labels = {
        name: POLICY_PREFIX + name if name in STAND_INS else name.removeprefix("models/") for name in table["scheme"]
    }
    save_figure(standings_figure(table.with_columns(pl.col("scheme").replace(labels))), path)


def main() -> None:
    """Play and save, a profile at a time."""
    parser = argparse.ArgumentParser(description="Play the Sage paper's leagues of delay-based and learned schemes.")
    parser.add_argument("profiles", nargs="*", metavar="PROFILE", help=f"of {', '.join(RAW)}; by default all")
    choice = set(parser.parse_args().profiles)
    if unknown := choice - RAW.keys():
        parser.error(f"no profile {', '.join(sorted(unknown))} here: use {', '.join(RAW)}")
    saved = RESULTS / "rival_leagues.json"
    kept = json.loads(saved.read_text())["result"]["profiles"] if saved.exists() else {}
    profiles = [profile for profile in RAW if not choice or profile in choice]
    here, jobs = players(profiles), usable_cores()
    for profile in profiles:
        kept[profile] = result(contest(profile, profile_set(profile), here, RAW[profile], KERNEL, jobs).scores)
        save("rival_leagues", told(kept), RESULTS)
    if UNSEEN in kept:
        for league, picture in PICTURES.items():
            draw(kept[UNSEEN][league]["standings"], picture)


if __name__ == "__main__":
    with errors_in_one_line("evidence.leagues.rival_leagues"):
        main()
