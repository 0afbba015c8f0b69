# SPDX-License-Identifier: Apache-2.0
"""The rivals, found by their folders, and what tasks and cards may name of them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from sagecc.execution.schemes.rival import Expert, GlobalState, Rival
from sagecc.pool.reward import REWARDS, Reward

RIVALS: tuple[Rival, ...] = tuple(
    import_module(f"{__package__}.{module.name}").RIVAL
    for module in sorted(iter_modules([str(Path(__file__).parent)]), key=lambda module: module.name)
    if module.ispkg
)
"""One for each folder here, by name."""


def rewards() -> dict[str, Reward]:
    """Return all rewards that a task may name, by name: those of ticks and the rivals'."""
    return REWARDS | {reward.name: reward for rival in RIVALS for reward in rival.rewards}


def global_state() -> GlobalState:
    """Return what critics see of all flows of a network: that of the rival that has one."""
    return next(rival.global_state for rival in RIVALS if rival.global_state)


def expert() -> Expert:
    """Return the expert to imitate: that of the rival that has one."""
    return next(rival.expert for rival in RIVALS if rival.expert)
