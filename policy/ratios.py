# SPDX-License-Identifier: Apache-2.0
"""By what an action multiplies a window, or a rate: the formulas of the action maps (policy.artefact.Control)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from sagecc.common.arrays import Doubles
from sagecc.policy import exact
from sagecc.policy.artefact import ACTION_MAP, CEILED_MAP, HUNDREDTHS_MAP, LINEAR_MAP, RATE_MAP, SPREAD_MAP, Control


def ratios(control: Control, actions: Doubles) -> Doubles:
    """Return what windows, or rates, are multiplied by, before any rounding.

    base**a: Sage's action (section 4.1: log2 of the ratio), and with base 4 and a within 1 Orca's 2**alpha with |alpha|
    < 2 (its Eq. 3). The linear map is Astraea's Eq. 3, whose alpha is base - 1: 1 + alpha a from a = 0 on, and
    1 / (1 - alpha a) below; Aurora changes rates by the same.

    Args:
        control: names the map and its base.
        actions: a [B].

    Returns:
        Ratios [B].
    """
    return RATIOS[control.map](control.base, actions)


def _linear(base: float, actions: Doubles) -> Doubles:
    change = (base - 1.0) * actions
    return np.asarray((1.0 + np.maximum(change, 0.0)) / (1.0 - np.minimum(change, 0.0)))


RATIOS: Mapping[str, Callable[[float, Doubles], Doubles]] = MappingProxyType(
    {
        ACTION_MAP: exact.power,
        CEILED_MAP: exact.power,
        SPREAD_MAP: exact.power,
        HUNDREDTHS_MAP: exact.power,
        LINEAR_MAP: _linear,
        RATE_MAP: _linear,
    }
)
"""By a map that multiplies, what it multiplies by: from base and actions to ratios."""
