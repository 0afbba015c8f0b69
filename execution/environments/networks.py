# SPDX-License-Identifier: Apache-2.0
"""The network of an episode: an Environment, a file of one or of a set, an id of the grid's, or a whole profile."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sagecc.collector.run.grid import PROFILES, profile_environments, set_one
from sagecc.collector.run.set_file import load_set
from sagecc.common import shipped
from sagecc.common.document import read_document
from sagecc.common.errors import SageccError
from sagecc.common.suggestions import did_you_mean
from sagecc.schemas.environment import Environment
from sagecc.schemas.environment_file import load_environment
from sagecc.schemas.network_distribution import DRIVEN_SCHEME, NetworkDistribution
from sagecc.schemas.schemes import NO_CODE, TrustedCode

Network = Environment | str | os.PathLike[str]
Networks = Network | Iterable[Network | NetworkDistribution] | NetworkDistribution
"""One network, several to draw from, a distribution, or networks and distributions."""

Candidates = tuple[Environment | NetworkDistribution, ...] | NetworkDistribution
"""What episodes' networks are drawn from; a distribution among others stands as often as it counts."""

Agents = Sequence[int] | Literal["own"] | None
"""Which flows of a network decide: those of these numbers; `own`, the one under test and those beside it that are of
the learner's own kind (network_distribution.DRIVEN_SCHEME); None, all."""

DEFAULT = set_one(48, 1, 40, 1)
"""The default network of an environment for reinforcement learning: 48 Mbps, 40 ms, a queue of one BDP, 34 s."""

MAX_SEED = 2**63 - 1


def candidates(choice: Networks, trusted: TrustedCode = NO_CODE) -> Candidates:
    """Return what to draw from: a distribution itself, or the networks that a choice stands for (see `networks`)."""
    if isinstance(choice, NetworkDistribution):
        return choice
    if isinstance(choice, Environment | str | os.PathLike) or not isinstance(choice, Iterable):
        return networks(choice, trusted)
    items = list(choice)
    distributions = [(item,) * item.count for item in items if isinstance(item, NetworkDistribution)]
    named = [item for item in items if not isinstance(item, NetworkDistribution)]
    return (*(networks(named, trusted) if named or not distributions else ()), *chain.from_iterable(distributions))


def agents(environment: Environment, chosen: Agents) -> tuple[int, ...]:
    """Return the numbers of the flows of a network that decide, ascending."""
    if chosen is None:
        return tuple(range(environment.flow_count))
    if chosen == "own":
        return (0, *(n for n, cross in enumerate(environment.cross, 1) if cross.scheme == DRIVEN_SCHEME))
    if isinstance(chosen, str):
        raise SageccError(f"flows must be numbers, 'own' or None, not '{chosen}'")
    return tuple(chosen)


def room(candidates: Candidates, chosen: Agents) -> int:
    """Return one more than the highest number that a flow which decides may have."""
    if chosen is not None and not isinstance(chosen, str):
        return max(chosen) + 1
    several = (candidates,) if isinstance(candidates, NetworkDistribution) else candidates
    return max(c.max_flows if isinstance(c, NetworkDistribution) else agents(c, chosen)[-1] + 1 for c in several)


def networks(choice: Network | Iterable[Network], trusted: TrustedCode = NO_CODE) -> tuple[Environment, ...]:
    """Return the networks that a choice stands for.

    Args:
        choice: an Environment; the path of an environment file or of a set file; the name of a profile or of a set that
            comes with sagecc, for all of its networks, or of an environment file that does; the id of a network of any
            profile; or several of these.
        trusted: the code that files may name; an Environment may name any.

    Raises:
        SageccError: it is anything else.
    """
    if isinstance(choice, Environment):
        return (choice,)
    if isinstance(choice, os.PathLike):
        return _file(Path(choice), trusted)
    if isinstance(choice, str):
        return _named(choice, trusted)
    if not isinstance(choice, Iterable):
        raise SageccError(f"environment {choice!r}: give an Environment, a file, an id, a profile, or several of them")
    environments = tuple(environment for item in choice for environment in networks(item, trusted))
    if not environments:
        raise SageccError("environment: there is none to choose from")
    return environments


def _named(name: str, trusted: TrustedCode) -> tuple[Environment, ...]:
    if name in PROFILES:
        return profile_environments(name)
    if name in shipped.environment_sets():
        return load_set(name, trusted).environments
    if Path(name).suffix in (".yaml", ".yml", ".json"):
        return _file(name, trusted)
    if name in _by_id():
        return (_by_id()[name],)
    raise SageccError(
        f"unknown environment '{name}': use a profile ({', '.join(PROFILES)}), the id of one of its networks "
        "('sagecc environments' lists them), or a file that ends in .yaml or .json"
        + did_you_mean(name, [*PROFILES, *_by_id()])
    )


def _file(name: Path | str, trusted: TrustedCode) -> tuple[Environment, ...]:
    path = shipped.environment(name)
    if not path.is_file():
        raise SageccError(f"environment: there is no file {path}")
    document = read_document(path)
    if isinstance(document, dict) and document.keys() & {"environments", "grids"}:
        return load_set(str(path.absolute()), trusted).environments
    return (load_environment(path, trusted),)


@cache
def _by_id() -> Mapping[str, Environment]:
    return {environment.id: environment for profile in PROFILES for environment in profile_environments(profile)}


def requested_networks(options: Mapping[str, Any] | None) -> Candidates:
    """Return the networks that the options of a reset name, none where they name none.

    Raises:
        SageccError: there is an unknown option.
    """
    if unknown := set(options or ()) - {"environment"}:
        raise SageccError(f"reset has no option '{min(map(str, unknown))}'; there is only 'environment'")
    return candidates(options["environment"]) if options else ()


def draw(candidates: Candidates, seed: int | None, random: np.random.Generator) -> tuple[Environment, int]:
    """Draw a network and the seed of its episode.

    Args:
        candidates: the networks to draw from.
        seed: the episode's seed; None draws that, too.
        random: source of random numbers.

    Raises:
        SageccError: the seed is out of range.
    """
    if seed is not None and not 0 <= seed <= MAX_SEED:
        raise SageccError(f"seed {seed}: it must be 0 to 2^63 - 1")
    if isinstance(candidates, NetworkDistribution):
        environment = candidates.draw(random)
    else:
        candidate = candidates[int(random.integers(len(candidates)))]
        environment = candidate.draw(random) if isinstance(candidate, NetworkDistribution) else candidate
    return environment, int(random.integers(MAX_SEED)) if seed is None else int(seed)
