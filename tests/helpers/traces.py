# SPDX-License-Identifier: Apache-2.0
"""Episodes as numpy columns, for tests that look at a scheme's states: each names the columns that it needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from sagecc.collector.lab.episode import Episode

Floats = npt.NDArray[np.float64]


def columns(episode: Episode) -> Mapping[str, Floats]:
    """Return an episode's raw columns by name, a value a tick."""
    return {name: episode.rows[name].to_numpy().astype(float) for name in episode.rows.column_names[1:]}


@dataclass(frozen=True)
class Ticks:
    """One flow, a value a tick; what inherits from it has further columns."""

    t_s: Floats

    def between(self, start_s: float, end_s: float) -> Self:
        keep = (self.t_s >= start_s - 1e-9) & (self.t_s <= end_s + 1e-9)
        return type(self)(*(values[keep] for values in vars(self).values()))
