# SPDX-License-Identifier: Apache-2.0
# Not followed as an import: for `sagecc league --preset` alone, which no stage gives.
"""The leagues of the Sage paper, as far as their schemes exist here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from sagecc.common.errors import SageccError
from sagecc.schemas.schemes import SCHEMES


@dataclass(frozen=True)
class Preset:
    """Who plays beside the policies that are given.

    schemes: kernel schemes. least_policies: fewer make no such league. lacks: the paper's schemes that are not here.
    about: for --help.
    """

    schemes: tuple[str, ...]
    least_policies: int
    lacks: tuple[str, ...]
    about: str


PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        "heuristics": Preset(
            tuple(SCHEMES), 0, (), "the 13 schemes of the pool, as in section 5.2; policies play if given"
        ),
        "delay-based": Preset(
            ("bbr2", "vegas", "cdg"),
            0,
            ("Copa", "C2TCP", "LEDBAT", "Sprout"),
            "BBR2 and Vegas of section 6.3, and CDG, the pool's other scheme that goes by delay alone",
        ),
        "ml-based": Preset(
            (),
            2,
            ("OnlineRL", "Orcav2", "DeepCC", "Indigo", "Indigov2", "Aurora", "Genet", "Vivace"),
            "policies only, as in section 6.2: Sage, its BC variants, an imported Orca",
        ),
    }
)


def preset_schemes(name: str, policies: Sequence[str]) -> tuple[str, ...]:
    """Return the kernel schemes of a preset. Raises SageccError where it needs more policies than are given."""
    preset = PRESETS[name]
    if len(policies) < preset.least_policies:
        raise SageccError(
            f"--preset {name} ranks policies against each other: name {preset.least_policies} or more with --policy, "
            "such as models/sagecc-1 and one that 'sagecc train --config bc' made"
        )
    return preset.schemes
