# SPDX-License-Identifier: Apache-2.0
"""A selector among the 13 heuristics: what choosing one of them per network wins, beside the policies and an oracle.

It learns from the networks of `small` and chooses in those of `heldout`; in those of `small` it chooses in each tenth
of them what it learned from the others. The probe is the first seconds of a Cubic flow. Virtual time: the figures hang
on the kernel's bytes. What was played is kept (evidence/kept.py).
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from evidence.kept import contest
from evidence.leagues.orca import OURS, PROFILE, RAW, UNSEEN
from evidence.machine import KERNEL, save
from sagecc.cli import errors_in_one_line
from sagecc.collector.lab.episode import run_episode
from sagecc.collector.run.grid import profile_set
from sagecc.common.arrays import Doubles, Floats, Ints
from sagecc.common.limits import usable_cores
from sagecc.leagues.selector import Selector, best_choices, contestant, probe_features, shares_won
from sagecc.leagues.standings import standings
from sagecc.schemas.environment import Environment
from sagecc.schemas.schemes import POLICY_PREFIX, SCHEMES

PROBE, PROBE_S = "cubic", 3.0
WAIT_S = 4.0
"""What a flow's first row may take: an RTT behind a queue of 16 BDPs."""
NAMES = tuple(SCHEMES)
SELECTOR, ORACLE, SINGLE = "selector", "oracle", "one for all"
FOLDS = 10


def main() -> None:
    """Play what is not kept yet, learn, choose, and save."""
    jobs = usable_cores()
    players = {name: name for name in NAMES} | {name: POLICY_PREFIX + name for name in OURS}
    wins = {name: contest(name, profile_set(name), players, raw, KERNEL, jobs).wins() for name, raw in RAW.items()}
    networks = {name: profile_set(name).environments for name in RAW}
    features = {name: probes(networks[name], jobs) for name in RAW}
    shares = {name: shares_won(wins[name], [each.id for each in networks[name]], NAMES) for name in RAW}
    everywhere = Selector.learn(features[PROFILE], shares[PROFILE], NAMES)
    chosen = {PROFILE: crosswise(features[PROFILE], shares[PROFILE]), UNSEEN: everywhere.choose(features[UNSEEN])}
    single = NAMES[int(np.argmax(shares[PROFILE].mean(axis=0)))]
    profiles = {}
    for name in RAW:
        ids = [each.id for each in networks[name]]
        choices = {
            SELECTOR: dict(zip(ids, chosen[name], strict=True)),
            ORACLE: best_choices(shares[name], ids, NAMES),
            SINGLE: dict.fromkeys(ids, single),
        }
        profiles[name] = result(wins[name], choices)
    save("selector", {"probe_s": PROBE_S, "single": single, "profiles": profiles})


def probes(environments: tuple[Environment, ...], jobs: int) -> Floats:
    """Return the features at the end of each network's probe [n, 69]."""

    def probe(environment: Environment) -> Floats:
        until_s = environment.start_s + PROBE_S + WAIT_S
        rows = run_episode(KERNEL, replace(environment, duration_s=until_s, windows_s=()), PROBE).rows
        return probe_features(rows, PROBE_S)

    with ThreadPoolExecutor(jobs) as executor:
        return np.array(list(executor.map(probe, environments)))


def crosswise(features: Floats, shares: Doubles) -> list[str]:
    """Return what is chosen in each network by what was learned in the networks of the other folds."""
    folds: Ints = np.random.default_rng(0).permutation(len(features)) % FOLDS
    chosen = np.empty(len(features), object)
    for fold in range(FOLDS):
        own = folds == fold
        chosen[own] = Selector.learn(features[~own], shares[~own], NAMES).choose(features[own])
    return [str(name) for name in chosen]


def result(wins: pl.DataFrame, choices: dict[str, dict[str, str]]) -> dict[str, Any]:
    """Return what is kept of a profile: how all stand, and by set how often the selector chose whom."""
    rows = pl.concat([wins, *(contestant(wins, chosen, name) for name, chosen in choices.items())])
    sets = dict(wins.select("environment_id", "set").unique().iter_rows())
    picked: dict[str, Counter[str]] = {name: Counter() for name in sorted(set(sets.values()))}
    for environment, scheme in choices[SELECTOR].items():
        picked[sets[environment]][scheme] += 1
    columns = ["set", "rank", "scheme", "winning_rate", "low", "high"]
    return {
        "standings": standings(rows).select(columns).to_dicts(),
        "picked": {name: dict(counts.most_common()) for name, counts in picked.items()},
    }


if __name__ == "__main__":
    with errors_in_one_line("evidence.leagues.selector"):
        main()
