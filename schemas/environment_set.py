# SPDX-License-Identifier: Apache-2.0
"""Networks under one name: a profile (collector.run.grid) or what a set file describes (collector.run.set_file)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from sagecc.common.errors import SageccError
from sagecc.schemas.environment import MAX_JITTER_MS, Environment
from sagecc.schemas.repeats import repeat

MAX_REPEATED = 100_000
"""Networks of a set with all repeats of them."""


@dataclass(frozen=True)
class Repeat:
    """What a network repeats."""

    network: str
    """Id of the network as it is planned."""

    number: int
    """From 1; 0 is the plan itself."""


@dataclass(frozen=True)
class EnvironmentSet:
    """Networks under one name."""

    name: str
    """The profile's, or the one that the file gives."""

    option: str
    """What asks for it on a command line, such as `--profile small`."""

    environments: tuple[Environment, ...]
    """The networks, repeats among them; those of a file are all of the set `name`."""

    tags: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By environment id, what the file says of a network beside its fields: names and values."""

    repeats: Mapping[str, Repeat] = field(default_factory=dict)
    """By environment id, of those that are repeats of others."""

    skipped: tuple[Path, ...] = ()
    """Files that match the file's patterns of traces and are none."""

    @property
    def own_name(self) -> str | None:
        """The name of a set of one's own; None for a profile, whose networks are of the paper's sets I and II."""
        return None if self.option.startswith("--profile") else self.name

    @property
    def title(self) -> str:
        """What it is called in a sentence, such as `profile small` or `set aqm`."""
        return f"{'set' if self.own_name else 'profile'} {self.name}"

    @property
    def planned(self) -> tuple[Environment, ...]:
        """The networks without their repeats."""
        return tuple(environment for environment in self.environments if environment.id not in self.repeats)

    def seeds(self, seed: int) -> dict[str, int]:
        """Return the seeds of repeats by environment id: each has random numbers of its own.

        Args:
            seed: that of the networks as planned.
        """
        return {environment_id: seed + each.number for environment_id, each in self.repeats.items()}


def repeated(networks: EnvironmentSet, count: int, jitter_ms: float = 0.0) -> EnvironmentSet:
    """Return a set with each network so many times: as planned, then as schemas.repeats.repeat says.

    Args:
        networks: as planned.
        count: of each network, 1 or more.
        jitter_ms: of all but the first.

    Raises:
        SageccError: the count is below 1, there is jitter without a repeat, or a network cannot be repeated so.
    """
    if count < 1:
        raise SageccError(f"--repeats must be 1 or more, not {count}")
    if count * len(networks.environments) > MAX_REPEATED:
        raise SageccError(
            f"--repeats {count}: of {len(networks.environments):,} networks; it makes {MAX_REPEATED:,} at most"
        )
    if not 0 <= jitter_ms <= MAX_JITTER_MS:
        raise SageccError(f"--jitter-ms must be at least 0 and at most {MAX_JITTER_MS}, not {jitter_ms:g}")
    if count == 1:
        if jitter_ms:
            raise SageccError("--jitter-ms needs --repeats of 2 or more: the first is always the network as planned")
        return networks
    pairs = [(plan, number) for number in range(count) for plan in networks.environments]
    environments = [repeat(plan, number, jitter_ms) for plan, number in pairs]
    of = {each.id: Repeat(plan.id, number) for each, (plan, number) in zip(environments, pairs, strict=True)}
    option = f"{networks.option} --repeats {count}" + (f" --jitter-ms {jitter_ms:g}" if jitter_ms else "")
    return replace(
        networks,
        option=option,
        environments=tuple(environments),
        tags={key: networks.tags[each.network] for key, each in of.items() if each.network in networks.tags},
        repeats={key: each for key, each in of.items() if each.number},
    )
