# SPDX-License-Identifier: Apache-2.0
"""Sets of networks with a name: a profile of the grid, or what a set file describes (collector.run.set_file)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sagecc.collector.run.grid import profile_environments
from sagecc.schemas.environment import Environment


@dataclass(frozen=True)
class EnvironmentSet:
    """Networks under one name."""

    name: str
    """The profile's, or the one that the file gives."""

    option: str
    """What asks for it on a command line, such as `--profile small`."""

    environments: tuple[Environment, ...]
    """The networks; those of a file are all of the set `name`."""

    tags: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By environment id, what the file says of a network beside its fields: names and values."""

    @property
    def own_name(self) -> str | None:
        """The name of a set of one's own; None for a profile, whose networks are of the paper's sets I and II."""
        return None if self.option.startswith("--profile") else self.name

    @property
    def title(self) -> str:
        """What it is called in a sentence, such as `profile small` or `set aqm`."""
        return f"{'set' if self.own_name else 'profile'} {self.name}"


def profile_set(profile: str) -> EnvironmentSet:
    """Return a profile's networks; raises SageccError where there is no such profile."""
    return EnvironmentSet(profile, f"--profile {profile}", profile_environments(profile))
