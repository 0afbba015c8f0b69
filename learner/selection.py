# SPDX-License-Identifier: Apache-2.0
"""Which of the pool's trajectories a run learns from, and how often their windows are drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from sagecc.common.errors import SageccError
from sagecc.common.tables import UNREADABLE, first_line


@dataclass(frozen=True)
class Selection:
    """A subset of the pool and its weights. As it is by default: all trajectories, every window equally likely.

    schemes: only these schemes' trajectories; none named means all (section 7.5's Top and Top4, section 6.2's BC-top).
    sets: only these sets (I, II); none named means both.
    winners_of: the folder of a league's results, or its scores.parquet: only the trajectories that won most of their
        environment's scoring windows there, ties included (section 6.2's BCv2). Empty for all.
    scheme_weights, set_weights: how many times as often a window of that scheme or set is drawn as one of weight 1,
        which is what is not named here has. Both multiply.
    reward_weight: k of a factor exp(k (x - 1)), x the trajectory's mean reward between the lowest (0) and the highest
        (1) of its environment: 0 draws all alike, 3 draws an environment's worst e^3 times less often than its best.
    """

    schemes: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()
    winners_of: str = ""
    scheme_weights: Mapping[str, float] = field(default_factory=dict)
    set_weights: Mapping[str, float] = field(default_factory=dict)
    reward_weight: float = 0.0

    def __post_init__(self) -> None:
        for name in ("schemes", "sets"):
            value = getattr(self, name)
            if not isinstance(value, tuple) or not all(isinstance(x, str) for x in value):
                raise SageccError(f"data.{name} must be a list of names, not {value!r}")
        if not isinstance(self.winners_of, str):
            raise SageccError(f"data.winners_of must be a path, not {self.winners_of!r}")
        for name in ("scheme_weights", "set_weights"):
            value = getattr(self, name)
            if not isinstance(value, Mapping) or not all(
                isinstance(key, str) and _number(x) and x > 0 for key, x in value.items()
            ):
                raise SageccError(
                    f"data.{name} must be 'name: weight' with weights above 0, not {value!r}; to leave one out, name "
                    f"the others in data.{name.removesuffix('_weights')}s"
                )
        if not _number(self.reward_weight) or abs(self.reward_weight) > 100:
            raise SageccError(f"data.reward_weight must be a number within +-100, not {self.reward_weight!r}")

    @classmethod
    def of(cls, values: object) -> Selection:
        """Build one from what YAML gives. Raises SageccError for a field that is unknown or of another type."""
        if isinstance(values, Selection):
            return values
        if not isinstance(values, Mapping):
            raise SageccError(f"data must be 'field: value' lines, not {values!r}")
        known = [f.name for f in fields(cls)]
        if unknown := sorted(str(name) for name in values if name not in known):
            raise SageccError(f"data: unknown field {', '.join(unknown)}; known are {', '.join(known)}")
        arguments: dict[str, Any] = {name: tuple(x) if isinstance(x, list) else x for name, x in values.items()}
        return cls(**arguments)


def _number(x: Any) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool) and math.isfinite(x)


EVERYTHING = Selection()


@dataclass(frozen=True)
class Trajectories:
    """What a selection chooses from, an element a trajectory: id, set, scheme, mean reward."""

    ids: npt.NDArray[np.str_]
    sets: npt.NDArray[np.str_]
    schemes: npt.NDArray[np.str_]
    mean_rewards: npt.NDArray[np.float64]

    def environments(self) -> npt.NDArray[np.str_]:
        """Return each trajectory's environment: its id is `environment.scheme.seed`."""
        pairs = zip(self.ids, self.schemes, strict=True)
        return np.array([str(name).rpartition(f".{scheme}.")[0] or str(name) for name, scheme in pairs])


def weights(selection: Selection, found: Trajectories) -> npt.NDArray[np.float64]:
    """Return the weight of each trajectory's windows, 0 for those left out.

    Raises SageccError for a scheme or set that the pool lacks, an unreadable league and a selection of nothing.
    """
    result = np.ones(len(found.ids))
    for name, wanted, here, factors in (
        ("scheme", selection.schemes, found.schemes, selection.scheme_weights),
        ("set", selection.sets, found.sets, selection.set_weights),
    ):
        _known(name, [*wanted, *factors], here)
        if wanted:
            result *= np.isin(here, wanted)
        for key, factor in factors.items():
            result[here == key] *= factor
    if selection.winners_of:
        result *= _winners(Path(selection.winners_of), found)
    if not result.any():
        raise SageccError(f"the selection leaves nothing of the pool's {len(result)} trajectories: {selection}")
    if selection.reward_weight:
        result *= np.exp(selection.reward_weight * (_rank_in_environment(found) - 1))
    return result


def _known(kind: str, names: Sequence[str], here: npt.NDArray[np.str_]) -> None:
    there = sorted(set(here.tolist()))
    if unknown := [name for name in names if name not in there]:
        raise SageccError(f"the pool has no {kind} '{unknown[0]}'; it has {', '.join(there)}")


def _rank_in_environment(found: Trajectories) -> npt.NDArray[np.float64]:
    """Return the mean rewards, scaled to [0, 1] within each environment; 1 where all are equal."""
    _, group = np.unique(found.environments(), return_inverse=True)
    low = np.full(group.max() + 1, np.inf)
    high = -low
    np.minimum.at(low, group, found.mean_rewards)
    np.maximum.at(high, group, found.mean_rewards)
    span = (high - low)[group]
    scaled: npt.NDArray[np.float64] = np.where(
        span > 0, (found.mean_rewards - low[group]) / np.where(span > 0, span, 1), 1.0
    )
    return scaled


def _winners(league: Path, found: Trajectories) -> npt.NDArray[np.bool_]:
    """Mark the trajectories that won most windows of their environment in a league, ties included."""
    path = league / "scores.parquet" if league.is_dir() else league
    columns = ["environment_id", "scheme", "seed", "win"]
    try:
        table = pq.read_table(path, columns=columns, partitioning=None, page_checksum_verification=True)
        wins: dict[str, dict[str, int]] = {}
        for environment, scheme, seed, win in zip(*(table[name].to_pylist() for name in columns), strict=True):
            of = wins.setdefault(environment, {})
            name = f"{environment}.{scheme}.{seed}"
            of[name] = of.get(name, 0) + bool(win)
    except (*UNREADABLE, ValueError, KeyError, TypeError) as error:
        raise SageccError(
            f"data.winners_of: {path} is no league's scores ({first_line(error)}); play one with 'sagecc league'"
        ) from error
    ours = set(found.ids.tolist())
    best = []
    for of in wins.values():
        here = {name: n for name, n in of.items() if name in ours and n}
        best += [name for name, n in here.items() if n == max(here.values())]
    if not best:
        raise SageccError(f"data.winners_of: no trajectory of the pool won a window in {path}")
    return np.isin(found.ids, best)
