# SPDX-License-Identifier: Apache-2.0
"""How observations are scaled before a network sees them: one implementation, for training and for live flows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Floats

InputTransform = Literal["none", "linear", "symlog"]
"""What is done to an observation before it is shifted and scaled; `linear` does nothing, `none` not even these."""


@dataclass(frozen=True)
class Scaling:
    """(transform(x) - shift) / scale, clipped to plus or minus limit."""

    transform: InputTransform
    """What is done to an observation first."""
    shift: Floats
    """Subtracted from each feature, float32 [F]."""
    scale: Floats
    """Divisor of each feature, float32 [F]."""
    limit: float
    """Largest absolute value of a scaled feature; 0 for no limit."""

    def __call__(self, observation: Floats) -> Floats:
        """Scale observations [..., F] (float32), leaving the argument as it was."""
        if self.transform == "none" and not self.limit:
            return observation
        x = symlog(observation) if self.transform == "symlog" else observation
        scaled = (x - self.shift) / self.scale
        return np.clip(scaled, -self.limit, self.limit) if self.limit else scaled

    def select(self, columns: list[int]) -> Scaling:
        """Return the scaling of these inputs alone, in this order."""
        return Scaling(self.transform, self.shift[columns], self.scale[columns], self.limit)


def unscaled(inputs: int) -> Scaling:
    """Return the Scaling that leaves so many features as they are."""
    return Scaling("none", np.zeros(inputs, np.float32), np.ones(inputs, np.float32), 0.0)


def symlog(x: Floats) -> Floats:
    """sign(x) * log(1 + |x|), element by element."""
    return np.copysign(np.log1p(np.abs(x)), x)


@dataclass(frozen=True)
class Moments:
    """Mean and standard deviation of each feature over the pool, as it is and after symlog."""

    mean: npt.NDArray[np.float64]
    """Mean, float64 [F]."""
    deviation: npt.NDArray[np.float64]
    """Standard deviation, float64 [F]."""
    symlog_mean: npt.NDArray[np.float64]
    """Mean after symlog, float64 [F]."""
    symlog_deviation: npt.NDArray[np.float64]
    """Standard deviation after symlog, float64 [F]."""

    def scaling(self, transform: InputTransform, limit: float) -> Scaling:
        """Return the Scaling that gives each feature mean 0 and deviation 1; a constant feature keeps its scale."""
        if transform == "none":
            shift, scale = np.zeros_like(self.mean), np.ones_like(self.mean)
        elif transform == "linear":
            shift, scale = self.mean, self.deviation
        else:
            shift, scale = self.symlog_mean, self.symlog_deviation
        scale = np.where(scale > 1e-6, scale, 1.0)
        return Scaling(transform, shift.astype(np.float32), scale.astype(np.float32), limit)
