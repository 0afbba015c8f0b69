# SPDX-License-Identifier: Apache-2.0
"""Names for the arrays that are passed around; shapes stand with the functions that take them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
