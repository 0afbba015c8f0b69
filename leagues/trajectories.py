# SPDX-License-Identifier: Apache-2.0
"""The trajectories that distance, similarity and t-SNE compare: of heuristics as collected, of policies as played."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from sagecc.collector.run.grid import set_one
from sagecc.common.document import DocumentError, read_document
from sagecc.common.errors import SageccError
from sagecc.execution.schemes.registry import driver_sha256
from sagecc.leagues.distance import Query
from sagecc.leagues.league import POLICIES_FILE, RunPolicies, gather
from sagecc.leagues.scores import StoredEpisode, find_episodes, read_rows
from sagecc.leagues.transitions import PoolTransitions, pool_rows
from sagecc.schemas.environment import Environment
from sagecc.schemas.environment_set import EnvironmentSet
from sagecc.schemas.schemes import is_driven, is_grown

STEP_UP = (24.0, 4.0, 40.0, 4.0)
"""Section 7.1's environment: the rate changes from 24 to 96 Mbps; the paper does not give RTT and queue: ours are
40 ms and 4 BDP."""


def find_or_play(
    networks: EnvironmentSet,
    schemes: Sequence[str],
    *,
    raw: Path,
    league: Path,
    out: Path,
    run_policies: RunPolicies,
    rounds: Sequence[Path] = (),
) -> Mapping[tuple[str, str], StoredEpisode]:
    """Find the episodes of schemes; those of policies that have not played are run.

    Args:
        networks: whose episodes.
        schemes: heuristics, policies (`policy:PATH`) and rounds of policies in training (`policy:NAME@ROUND`).
        raw: folder of the heuristics' trajectories.
        league: folder of a league; the policies' episodes are taken from it if their files are still the same.
        out: the other policies' trajectories are kept in out/raw.
        run_policies: runs the other policies.
        rounds: folders of the trajectories that policies in training played.

    Returns:
        Episodes by (environment id, scheme); one that fails is left out.

    Raises:
        SageccError: a heuristic was not collected.
    """
    round_episodes = find_episodes(
        rounds, networks.environments, [scheme for scheme in schemes if is_grown(scheme)], seed=None
    )
    schemes = [scheme for scheme in schemes if scheme not in {found for _, found in round_episodes}]
    league_episodes = _played(league / "raw", networks.environments, [s for s in schemes if is_driven(s)])
    rest = [scheme for scheme in schemes if not all((e.id, scheme) in league_episodes for e in networks.environments)]
    new_episodes = gather(networks, rest, raw, out, run_policies).episodes if rest else {}
    league_episodes |= round_episodes
    return {**{key: episode for key, episode in league_episodes.items() if key[1] not in rest}, **new_episodes}


def _played(
    raw: Path, environments: Sequence[Environment], policies: Sequence[str]
) -> dict[tuple[str, str], StoredEpisode]:
    try:
        digests = read_document(raw / POLICIES_FILE)
    except (FileNotFoundError, NotADirectoryError, DocumentError):
        return {}
    if not isinstance(digests, dict):
        return {}
    same_policies = [policy for policy in policies if digests.get(policy) == driver_sha256(policy)]
    return find_episodes([raw], environments, same_policies)


def query(pool: PoolTransitions, episode: StoredEpisode, every: int = 1) -> Query:
    """Return an episode's transitions as vectors on the pool's scale, one in every so many ticks."""
    raw = read_rows(episode)
    is_effective = episode.scheme in pool.pool.effective.split(",")
    vectors = pool.space.sequence_vectors(pool_rows(raw, pool.windows, is_effective))[::every]
    return Query(
        set=episode.environment.set,
        environment_id=episode.environment.id,
        scheme=episode.scheme,
        t_s=raw["t_s"].to_numpy()[: raw.num_rows - 2 : every],
        vectors=np.ascontiguousarray(vectors),
        own_rows=pool.episode_rows(episode.id),
    )


def choose(
    environments: Sequence[Environment], names: Sequence[str], count: int, seed: int, set_name: str | None = None
) -> tuple[Environment, ...]:
    """Choose environments by id or at random.

    Args:
        environments: to choose from.
        names: ids; where there are some, these are chosen.
        count: how many to draw otherwise.
        seed: of the draw.
        set_name: the set to draw from, by default any.

    Returns:
        The chosen environments; drawn ones are in the order given.

    Raises:
        SageccError: there is no environment of an id, or none in the set.
    """
    by_id = {environment.id: environment for environment in environments}
    for name in names:
        if name not in by_id:
            raise SageccError(f"--network {name}: there is no network of that id; 'sagecc environments' lists them")
    if names:
        return tuple(by_id[name] for name in dict.fromkeys(names))
    candidates = [environment for environment in environments if set_name in (None, environment.set)]
    if not candidates:
        raise SageccError(f"the profile has no environment of Set {set_name}; name some with --network")
    numbers = np.random.default_rng(seed).choice(len(candidates), min(count, len(candidates)), replace=False)
    return tuple(candidates[i] for i in sorted(numbers))


def step_up(environments: Sequence[Environment]) -> tuple[Environment, ...]:
    """Return the environment of section 7.1, STEP_UP, or else the first whose rate rises.

    Raises:
        SageccError: no rate rises.
    """
    candidates = [environment for environment in environments if environment.step > 1]
    choice = [environment for environment in candidates if environment.id == set_one(*STEP_UP).id] or candidates[:1]
    if not choice:
        raise SageccError("in none of the networks does the rate rise; name one with --network")
    return tuple(choice)


def describe(environment: Environment) -> str:
    """Return an environment in a few words: set, rate, step, RTT, queue."""
    step = "" if environment.step == 1 else f" x {environment.step:g}"
    return (
        f"Set {environment.set}: {environment.bandwidth_mbps:g}{step} Mbps, {environment.min_rtt_ms:g} ms, "
        f"{environment.queue_text.removeprefix('queue ')}"
    )
