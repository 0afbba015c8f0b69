# SPDX-License-Identifier: Apache-2.0
"""Which of the pool's trajectories a run learns from, and how often their windows are drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sagecc.common.errors import SageccError
from sagecc.common.parquet import read_parquet
from sagecc.common.tables import UNREADABLE, first_line
from sagecc.schemas.schemes import EXPLORERS


@dataclass(frozen=True)
class Selection:
    """A subset of the pool and its weights; by default all trajectories, with every window equally likely."""

    schemes: tuple[str, ...] = ()
    """Only these schemes' trajectories; empty for all (section 7.5's Top and Top4, section 6.2's BC-top)."""
    sets: tuple[str, ...] = ()
    """Only these sets (I, II); empty for both."""
    winners_of: str = ""
    """Folder of a league's results: only trajectories that won most of their environment's scoring windows there
    (section 6.2's BCv2). Empty for all.
    """
    scheme_weights: Mapping[str, float] = field(default_factory=dict)
    """How many times as often a window of each scheme is drawn; 1 for schemes not named."""
    set_weights: Mapping[str, float] = field(default_factory=dict)
    """The same for sets; both weights multiply."""
    reward_weight: float = 0.0
    """k of a factor exp(k (x - 1)), x the trajectory's mean reward between the lowest (0) and highest (1) of its
    environment; 0 draws all alike.
    """
    shares: Mapping[str, float] = field(default_factory=dict)
    """Share of all windows drawn from each of these sources: schemes by name or pattern, `policy:mine@*` for every
    round of a grown pool. The other fields apply to the rest, which is ranked among itself.
    """

    def __post_init__(self) -> None:
        for name in ("scheme_weights", "set_weights"):
            if not all(x > 0 for x in getattr(self, name).values()):
                raise SageccError(
                    f"data.selection.{name} must be above 0, not {getattr(self, name)!r}; to leave one out, name the "
                    f"others in data.selection.{name.removesuffix('_weights')}s"
                )
        if not all(x > 0 for x in self.shares.values()) or sum(self.shares.values()) >= 1:
            raise SageccError(f"data.selection.shares must be above 0 with a sum below 1, not {self.shares!r}")
        if abs(self.reward_weight) > 100:
            raise SageccError(f"data.selection.reward_weight must be within +-100, not {self.reward_weight!r}")


EVERYTHING = Selection()


@dataclass(frozen=True)
class Trajectories:
    """The trajectories that a selection chooses from; each array has one element per trajectory."""

    ids: npt.NDArray[np.str_]
    """Episode ids."""
    sets: npt.NDArray[np.str_]
    """Sets (I, II)."""
    schemes: npt.NDArray[np.str_]
    """Schemes."""
    mean_rewards: npt.NDArray[np.float64]
    """Mean reward per row."""

    def part(self, chosen: npt.NDArray[Any]) -> Trajectories:
        """Return some of the trajectories, by a mask or by their numbers."""
        return Trajectories(self.ids[chosen], self.sets[chosen], self.schemes[chosen], self.mean_rewards[chosen])

    def environments(self) -> npt.NDArray[np.str_]:
        """Return each trajectory's environment: its id is `environment.scheme.seed`."""
        pairs = zip(self.ids, self.schemes, strict=True)
        return np.array([str(name).rpartition(f".{scheme}.")[0] or str(name) for name, scheme in pairs])


REST = 0
"""The source of trajectories that no pattern of Selection.shares names."""


def sources(selection: Selection, trajectories: Trajectories) -> npt.NDArray[np.int64]:
    """Return the number of each trajectory's source: REST, or its pattern's place in Selection.shares, from 1.

    Raises:
        SageccError: The pool has no scheme of a pattern, or one of several.
    """
    result = np.full(len(trajectories.ids), REST)
    for number, pattern in enumerate(selection.shares, REST + 1):
        matching = [scheme for scheme in np.unique(trajectories.schemes) if fnmatchcase(scheme, pattern)]
        if not matching:
            _refuse_unknown("scheme", [pattern], trajectories.schemes)
        chosen = np.isin(trajectories.schemes, matching)
        if (result[chosen] != REST).any():
            raise SageccError(f"data.selection.shares: '{pattern}' names schemes that another pattern names too")
        result[chosen] = number
    return result


def exploring(explorers: Sequence[str], trajectories: Trajectories) -> npt.NDArray[np.bool_]:
    """Return which trajectories are of explorers [E]; SageccError where the pool lacks one that is not in EXPLORERS."""
    _refuse_unknown("scheme", [name for name in explorers if name not in EXPLORERS], trajectories.schemes)
    return np.isin(trajectories.schemes, explorers)


def weights(selection: Selection, trajectories: Trajectories) -> npt.NDArray[np.float64]:
    """Return the weight of each trajectory's windows beside its source's others, 0 for those left out.

    Raises:
        SageccError: The pool lacks a scheme or set, the league cannot be read, or the selection is empty.
    """
    result, rest = np.ones(len(trajectories.ids)), sources(selection, trajectories) == REST
    for kind, chosen, names, factors in (
        ("scheme", selection.schemes, trajectories.schemes, selection.scheme_weights),
        ("set", selection.sets, trajectories.sets, selection.set_weights),
    ):
        _refuse_unknown(kind, [*chosen, *factors], names)
        if chosen:
            result *= np.isin(names, chosen) | ((kind == "scheme") & ~rest)
        for name, factor in factors.items():
            result[names == name] *= factor
    if selection.winners_of:
        result *= _winners(Path(selection.winners_of), trajectories) | ~rest
    if not result[rest].any():
        raise SageccError(f"the selection leaves nothing of the pool's {len(result)} trajectories: {selection}")
    if selection.reward_weight:
        result[rest] *= np.exp(selection.reward_weight * (_rank_in_environment(trajectories.part(rest)) - 1))
    return result


def _refuse_unknown(kind: str, names: Sequence[str], present: npt.NDArray[np.str_]) -> None:
    known = sorted(set(present.tolist()))
    if unknown := [name for name in names if name not in known]:
        raise SageccError(f"the pool has no {kind} '{unknown[0]}'; it has {', '.join(known)}")


def _rank_in_environment(trajectories: Trajectories) -> npt.NDArray[np.float64]:
    """Return the mean rewards, scaled to [0, 1] within each environment; 1 where all are equal."""
    _, group = np.unique(trajectories.environments(), return_inverse=True)
    low = np.full(group.max() + 1, np.inf)
    high = -low
    np.minimum.at(low, group, trajectories.mean_rewards)
    np.maximum.at(high, group, trajectories.mean_rewards)
    span = (high - low)[group]
    scaled: npt.NDArray[np.float64] = np.where(
        span > 0, (trajectories.mean_rewards - low[group]) / np.where(span > 0, span, 1), 1.0
    )
    return scaled


def _winners(league: Path, trajectories: Trajectories) -> npt.NDArray[np.bool_]:
    """Mark the trajectories that won most windows of their environment in a league, ties included."""
    path = league / "scores.parquet" if league.is_dir() else league
    columns = ["environment_id", "scheme", "seed", "win"]
    try:
        table = read_parquet(path, columns)
        wins: dict[str, dict[str, int]] = {}
        for environment, scheme, seed, win in zip(*(table[name].to_pylist() for name in columns), strict=True):
            counts = wins.setdefault(environment, {})
            name = f"{environment}.{scheme}.{seed}"
            counts[name] = counts.get(name, 0) + bool(win)
    except (*UNREADABLE, ValueError, KeyError, TypeError) as error:
        raise SageccError(
            f"data.selection.winners_of: {path} is no league's scores ({first_line(error)}); play one: 'sagecc league'"
        ) from error
    pool_ids = set(trajectories.ids.tolist())
    best = []
    for counts in wins.values():
        pool_wins = {name: count for name, count in counts.items() if name in pool_ids and count}
        best += [name for name, count in pool_wins.items() if count == max(pool_wins.values())]
    if not best:
        raise SageccError(f"data.selection.winners_of: no trajectory of the pool won a window in {path}")
    return np.isin(trajectories.ids, best)
