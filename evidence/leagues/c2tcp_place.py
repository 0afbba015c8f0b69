# SPDX-License-Identifier: Apache-2.0
"""C2TCP's place among delay-based schemes, by changes that could explain why the Sage paper has it third.

`python -m evidence.leagues.c2tcp_place NAME=KERNEL ...` plays it on kernels with the changes of CHANGES: make each in
collector/kernel/modules/tcp_c2tcp.c, and a kernel of it by `sagecc kernel`. The other schemes' numbers are those that
are kept. A CPU-minute a kernel; figures hang on the kernel's bytes, not on the machine.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import polars as pl

from evidence.kept import RULES, path_of, read_kept
from evidence.leagues.orca import UNSEEN
from evidence.leagues.rival_leagues import LEAGUES, standings
from evidence.leagues.sage_claims import ALPHA_RULE, DELAY, LEAGUE_RULE, PLACES
from evidence.machine import save
from sagecc.cli import errors_in_one_line
from sagecc.collector.run.collect import collect
from sagecc.collector.run.engines import local
from sagecc.collector.run.grid import profile_set
from sagecc.common.errors import SageccError
from sagecc.common.limits import usable_cores
from sagecc.common.shipped import BEST_POLICY
from sagecc.leagues.scores import SCORE_SCHEMA, find_episodes, score

SCHEME = "c2tcp"
PLAYED = Path(".cache/c2tcp-place")
CHANGES: Mapping[str, str] = MappingProxyType(
    {
        "target of 1.25 lowest RTTs": "tune(): target = 5 * tcp_min_rtt(tcp_sk(sk)) / 4",
        "fixed 100 ms": "setpoint_us(): return 100 * USEC_PER_MSEC, as the version of 2018",
    }
)
"""By name what is changed in the module."""
PAPERS = tuple(name for name in LEAGUES[DELAY] if name in PLACES and name != f"models/{BEST_POLICY}")
"""Those of the league that the paper's has too; one policy in Sage's place."""


def places(scores: pl.DataFrame) -> dict[str, Any]:
    """Return C2TCP's rank and winning rate by set, and its median goodput and delay over those of Set I's winners.

    Args:
        scores: of leagues.scores.SCORE_SCHEMA, of the league's schemes.
    """
    first = scores.filter(set="I").sort("score", descending=True).unique(["environment_id", "window"], keep="first")
    pairs = scores.filter(set="I", scheme=SCHEME).join(first, on=["environment_id", "window"], suffix="_best")
    ratios = pairs.select((pl.col(name) / pl.col(f"{name}_best")).median() for name in ("goodput_mbps", "delay_ms"))
    return {
        "league": {name: _place(scores, LEAGUES[DELAY], name, LEAGUE_RULE) for name in ("I", "II")},
        "paper": _place(scores, PAPERS, "I", ALPHA_RULE),
        "of_the_best": ratios.to_dicts()[0],
    }


def _place(scores: pl.DataFrame, names: Sequence[str], set_name: str, rule: tuple[float, float]) -> dict[str, Any]:
    there = [name for name in names if name in set(scores["scheme"])]
    rows = standings(scores, there).filter(set=set_name, alpha=rule[0], margin=rule[1])
    place = rows.filter(scheme=SCHEME).select("rank", "winning_rate").to_dicts()[0]
    return {**place, "of": len(there)}


def main() -> None:
    """Play the kernels that are named, and save."""
    kernels = dict(argument.rpartition("=")[::2] for argument in sys.argv[1:])
    if unknown := kernels.keys() ^ CHANGES.keys():
        raise SageccError(f"'{min(unknown)}': name a kernel for each of {', '.join(CHANGES)}, as NAME=KERNEL")
    networks = profile_set(UNSEEN)
    kept = read_kept(path_of(UNSEEN)).select(*SCORE_SCHEMA).filter(pl.col("scheme").is_in(LEAGUES[DELAY]))
    others = kept.filter(pl.col("scheme") != SCHEME)
    found = {"as it plays": places(kept)}
    for name, kernel in kernels.items():
        raw = PLAYED / name.replace(" ", "-")
        collect(networks.environments, (SCHEME,), raw, Path(kernel), local(usable_cores()))
        episodes = find_episodes([raw], networks.environments, [SCHEME])
        own = score(networks.environments, (SCHEME,), episodes, RULES.alpha)
        found[name] = places(pl.concat([others, own.select(others.columns)]))
    save("c2tcp_place", {"profile": UNSEEN, "changes": dict(CHANGES), "places": found})


if __name__ == "__main__":
    with errors_in_one_line("evidence.leagues.c2tcp_place"):
        main()
