# SPDX-License-Identifier: Apache-2.0
"""Trajectories that distance, similarity and t-SNE look at: of heuristics as collected, of policies as played."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from sagecc.collector.run.grid import set_one
from sagecc.common.errors import SageccError
from sagecc.leagues.distance import Query
from sagecc.leagues.league import POLICIES_FILE, RunPolicies, gather, policy_sha256
from sagecc.leagues.scores import Episode, find_episodes, read_rows
from sagecc.leagues.transitions import PoolTransitions, pool_rows
from sagecc.schemas.environment import Environment
from sagecc.schemas.schemes import POLICY_PREFIX

STEP_UP = (24.0, 4.0, 40.0, 4.0)
"""Section 7.1's environment: the rate changes from 24 to 96 Mbps; 40 ms and 4 BDP are ours, the paper does not say."""


def episodes_of(
    profile: str,
    environments: Sequence[Environment],
    schemes: Sequence[str],
    raw: Path,
    league: Path,
    out: Path,
    run_policies: RunPolicies,
) -> Mapping[tuple[str, str], Episode]:
    """Return the episodes by (environment id, scheme); raises SageccError where a heuristic was not collected.

    Those of a policy come from a league's folder, if it has them of these very files; else they are run, and kept in
    out/raw. One that fails is left out.
    """
    played = _played(league / "raw", environments, [s for s in schemes if s.startswith(POLICY_PREFIX)])
    left = [scheme for scheme in schemes if not all((e.id, scheme) in played for e in environments)]
    gathered = gather(profile, environments, left, raw, out, run_policies).episodes if left else {}
    return {**{key: episode for key, episode in played.items() if key[1] not in left}, **gathered}


def _played(raw: Path, environments: Sequence[Environment], policies: Sequence[str]) -> dict[tuple[str, str], Episode]:
    try:
        known: dict[str, str] = json.loads((raw / POLICIES_FILE).read_text())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return {}
    same = [policy for policy in policies if known.get(policy) == policy_sha256(policy)]
    return find_episodes([raw], environments, same)


def query(pool: PoolTransitions, episode: Episode, every: int = 1) -> Query:
    """Return an episode's transitions as vectors on the pool's scale, each tick's or every so many."""
    raw = read_rows(episode)
    vectors = pool.space.along(pool_rows(raw, pool.windows))[::every]
    t_s = raw["t_s"].to_numpy()[: raw.num_rows - 2 : every]
    environment = episode.environment
    return Query(
        environment.set, environment.id, episode.scheme, t_s, np.ascontiguousarray(vectors), pool.rows_of(episode.id)
    )


def choose(
    environments: Sequence[Environment], names: Sequence[str], count: int, seed: int, set_name: str | None = None
) -> tuple[Environment, ...]:
    """Return the environments of these ids or, where none is named, so many drawn from those (of one set, if given)."""
    by_id = {environment.id: environment for environment in environments}
    for name in names:
        if name not in by_id:
            raise SageccError(
                f"--environment {name}: the profile has none of that id; 'sagecc environments' lists them"
            )
    if names:
        return tuple(by_id[name] for name in dict.fromkeys(names))
    among = [environment for environment in environments if set_name in (None, environment.set)]
    if not among:
        raise SageccError(f"the profile has no environment of Set {set_name}; name some with --environment")
    drawn = np.random.default_rng(seed).choice(len(among), min(count, len(among)), replace=False)
    return tuple(among[i] for i in sorted(drawn))


def step_up(environments: Sequence[Environment]) -> tuple[Environment, ...]:
    """Return the environment of section 7.1, STEP_UP; of a profile without it, the first whose rate rises.

    Raises SageccError where no rate does.
    """
    rising = [environment for environment in environments if environment.step > 1]
    wanted = [environment for environment in rising if environment.id == set_one(*STEP_UP).id] or rising[:1]
    if not wanted:
        raise SageccError("in no environment of the profile does the rate rise; name one with --environment")
    return tuple(wanted)


def describe(environment: Environment) -> str:
    """Return an environment in a few words: set, rate, step, RTT, queue."""
    step = "" if environment.step == 1 else f" x {environment.step:g}"
    return (
        f"Set {environment.set}: {environment.bandwidth_mbps:g}{step} Mbps, {environment.min_rtt_ms:g} ms, "
        f"{round(environment.queue_bdp, 2):g} BDP"
    )
