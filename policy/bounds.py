# SPDX-License-Identifier: Apache-2.0
"""Bounds of networks and actions: far above what anybody uses, and below what would fill a machine."""

from __future__ import annotations

import math
from collections.abc import Mapping

MAX_UNITS = 16_384
"""Inputs, units of a layer, Gaussians, actions to choose from."""

MAX_LAYERS = 256
"""Hidden layers, residual blocks."""

MAX_PARAMETERS = 2**27
"""Weights of a network: 512 MiB."""

NETWORK_BYTES = 4 * MAX_PARAMETERS + 2**20
"""Limit of a file that holds a network."""

MAX_CWND_PACKETS = 2**24
"""Largest window: 25 GB."""

MAX_PERIOD_MS = 60_000
"""Longest time between decisions."""

MAX_BASE, MAX_ACTION = 1000, 100
"""Of base**action, which so is a finite number."""


def are_sizes(*sizes: int, least: int = 1, most: int = MAX_UNITS) -> bool:
    """Tell whether all are whole numbers within bounds."""
    return all(type(size) is int and least <= size <= most for size in sizes)


def check_parameters(shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise ValueError where a network has more than MAX_PARAMETERS.

    Args:
        shapes: the shape of every weight by name.
    """
    parameters = sum(math.prod(shape) for shape in shapes.values())
    if parameters > MAX_PARAMETERS:
        raise ValueError(f"a network of {parameters:,} parameters is above the {MAX_PARAMETERS:,} that one may have")
