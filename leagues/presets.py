# SPDX-License-Identifier: Apache-2.0
"""The leagues of the Sage paper, as far as their schemes are implemented here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from sagecc.common.errors import SageccError
from sagecc.common.shipped import BEST_POLICY
from sagecc.schemas.schemes import SCHEMES


@dataclass(frozen=True)
class Preset:
    """The schemes that play beside the given policies."""

    schemes: tuple[str, ...]
    """Schemes of the kernel and in user space."""
    min_policies: int
    """Policies that such a league needs."""
    about: str
    """For --help."""


PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        "heuristics": Preset(
            tuple(SCHEMES), 0, "the 13 schemes of the pool, as in section 5.2; policies play if given"
        ),
        "delay-based": Preset(
            ("bbr2", "vegas", "copa", "c2tcp", "ledbat", "sprout", "cdg"),
            0,
            "section 6.3: BBR2, Vegas, Copa, C2TCP, LEDBAT, Sprout; and CDG, which goes by delay too",
        ),
        "ml-based": Preset(
            ("vivace",),
            1,
            "section 6.2: Vivace, and the policies given, such as the imported Sage and Orca, BC variants",
        ),
    }
)


def preset_schemes(name: str, policies: Sequence[str]) -> tuple[str, ...]:
    """Return the schemes of a preset; raises SageccError where it needs more policies than are given."""
    preset = PRESETS[name]
    if len(policies) < preset.min_policies:
        raise SageccError(
            f"--preset {name} ranks policies: name {preset.min_policies} or more with --policy, "
            f"such as {BEST_POLICY} and one that 'sagecc train --config bc' made"
        )
    return preset.schemes
