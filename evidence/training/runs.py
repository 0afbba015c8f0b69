# SPDX-License-Identifier: Apache-2.0
"""What is to be tried: evidence/training/runs.yaml as frozen values, read strictly."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from sagecc.collector.run.grid import PROFILES, profile_environments, profile_set
from sagecc.collector.run.set_file import load_set
from sagecc.common import versions
from sagecc.common.document import read_document
from sagecc.common.errors import SageccError
from sagecc.learner.specification import RunSpecification, load
from sagecc.schemas.environment_set import EnvironmentSet

NAME = re.compile(r"[a-z0-9][a-z0-9.+-]*")
RECIPES = Path(__file__).parent / "recipes"
"""Configurations that have left the package."""

LARGEST_SEED = 2**31 - 1
_SOURCES: Mapping[str, type] = {"pool": str, "grow": dict, "actors": int, "from": str}
"""Fields of what learns from a pool, or in labs."""


@dataclass(frozen=True)
class KeepBest:
    """How a run's policy is chosen: by its mean winning rate in a league, played every so many steps."""

    league: str
    every: int
    curve: str = ""
    """A league that it plays at the same steps, for its learning curve; none if empty."""

    def record(self) -> dict[str, Any]:
        """Return its fields that are set."""
        return {name: value for name, value in asdict(self).items() if value}


@dataclass(frozen=True)
class Grow:
    """How a run's pool grows: as `sagecc grow` has it."""

    profile: str
    """Where its policy plays."""
    rounds: int
    steps: int
    """Of every round's training but the first."""


@dataclass(frozen=True)
class Run:
    """One policy to train."""

    name: str
    base: str
    """The shipped configuration that it starts from."""
    changes: Mapping[str, Any]
    """What differs from that."""
    config: RunSpecification
    seed: int
    pool: Path | None
    """None where it learns in labs alone."""
    keep_best: KeepBest | None = None
    """None keeps the last one."""
    actors: int = 1
    """Processes that play, where it learns in labs."""
    grow: Grow | None = None
    """None where the pool stays as it is."""
    start: str = ""
    """The run whose policy it goes on from in labs; none if empty."""

    def fingerprint(self, learned: str, kernel_identity: str, plan: Plan) -> str:
        """Return what two runs share where the later one need not be done: policy, versions, kernel, where it plays.

        Args:
            learned: identity of the pool, or of the task in the labs (`learned_from`).
            kernel_identity: of the kernel that the leagues are played on.
            plan: where it plays.
        """
        played = {name: _ids(name) for name in (*plan.leagues, *plan.harm)}
        decides = [
            self._versions(),
            self.config.record(),
            self.seed,
            learned,
            kernel_identity,
            played,
            *self._choice(),
        ]
        return _digest(decides)

    @property
    def recipe(self) -> str:
        """The name of its recipe's first seed."""
        return self.name.removesuffix(f"-{self.seed}")

    def training(self, learned: str) -> str:
        """Return what two runs share whose trainings are one: what decides the weights; see `fingerprint`."""
        trained_by = self.config.trained_by(self.keep_best is not None)
        return _digest([self.config.algorithm.version, trained_by, self.seed, learned, *self._choice()])

    def _choice(self) -> list[Any]:
        """Return what decides its weights beside its configuration and what it learns from."""
        choice: list[Any] = [self.keep_best.record()] if self.keep_best else []
        if self.in_labs:
            choice.append(self.actors)
        if self.grow:
            choice += [asdict(self.grow), [e.id for e in profile_environments(self.grow.profile)]]
        return choice

    def _versions(self) -> list[int]:
        """Return those of what trains it and of what judges it (common.versions)."""
        judge = [versions.POLICY, versions.LEAGUE]
        growth = [versions.GROWTH, versions.POOL] if self.grow else []
        return [self.config.algorithm.version, *growth, *judge]

    @property
    def in_labs(self) -> bool:
        """Whether it learns in labs."""
        return self.config.task is not None


@dataclass(frozen=True)
class Plan:
    """All runs, and where each of them plays."""

    runs: Mapping[str, Run]
    """By name."""
    leagues: Mapping[str, Path]
    """By profile, where the heuristics' trajectories lie."""
    harm: Mapping[str, Path] = field(default_factory=dict)
    """Further profiles and sets, in which a policy is held against Cubic alone: where Cubic's trajectories lie."""
    pool: Path | None = None
    """What runs learn from that name no other."""

    def chosen(self, names: tuple[str, ...]) -> list[Run]:
        """Return the runs of these names, all if there are none; SageccError for an unknown one."""
        if unknown := [name for name in names if name not in self.runs]:
            raise SageccError(f"no run '{unknown[0]}': the runs are {', '.join(self.runs)}")
        return [self.runs[name] for name in names or self.runs]

    def of_configuration(self, name: str) -> list[str]:
        """Return the names of the runs that are called like a shipped configuration: a recipe's seeds."""
        return [each for each, run in self.runs.items() if each == seed_name(name, run.seed)]


def _digest(values: list[Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


@cache
def _ids(name: str) -> list[str]:
    return [each.id for each in networks_of(name).environments]


def networks_of(name: str) -> EnvironmentSet:
    """Return the networks of a profile, or of a set that comes with sagecc; SageccError for any other name."""
    return profile_set(name) if name in PROFILES else load_set(name)


def read_plan(path: Path) -> Plan:
    """Read a file of runs. Raises SageccError, naming file and run, for whatever is unknown, missing or mistyped."""
    try:
        values = read_document(path)
    except FileNotFoundError:
        raise SageccError(f"{path}: there is no such file of runs") from None
    values = _fields(values, str(path), {"base": str, "pool": str, "leagues": dict, "harm": dict, "runs": dict})
    if lacking := [name for name in ("base", "pool", "leagues", "runs") if not values.get(name)]:
        raise SageccError(f"{path}: '{lacking[0]}' is missing or empty")
    harm = values.get("harm", {})
    for part, of in (("leagues", values["leagues"]), ("harm", harm)):
        for name, raw in of.items():
            if not isinstance(raw, str):
                raise SageccError(f"{path}: {part}: '{name}' needs the folder of the heuristics' trajectories")
            try:
                (profile_environments if part == "leagues" else networks_of)(name)
            except SageccError as error:
                raise SageccError(f"{path}: {part}: {error}") from error
    runs = {}
    for recipe, of in values["runs"].items():
        if not isinstance(recipe, str) or not NAME.fullmatch(recipe):
            raise SageccError(f"{path}: a run's name has small letters, digits, '.', '+' and '-' only, not {recipe!r}")
        where = f"{path}: run '{recipe}'"
        for name, fields in _seeded(where, recipe, {} if of is None else of):
            if name in runs:
                raise SageccError(f"{where}: there are two runs '{name}'")
            runs[name] = run = _run(where, name, fields, values["base"], values["pool"])
            if run.start and (run.start == name or run.start not in runs or runs[run.start].grow):
                raise SageccError(f"{where}: from: '{run.start}' is no run above it whose pool stays as it is")
            for league in (run.keep_best.league, run.keep_best.curve) if run.keep_best else ():
                if league and league not in values["leagues"]:
                    raise SageccError(f"{where}: keep_best: '{league}' is none of the leagues")
    leagues, harm = ({name: Path(raw) for name, raw in of.items()} for of in (values["leagues"], harm))
    return Plan(runs, leagues, harm, Path(values["pool"]))


def learned_from(identity: str, policy: str | None, pool: str | None) -> str:
    """Return the identity of all that a run learns from.

    Args:
        identity: that of its pool, or of its task in labs.
        policy: that of the policy that it goes on from in labs; None for none.
        pool: that of the pool in its replay; None for none.
    """
    return " ".join(each for each in (identity, policy, pool) if each is not None)


def seed_name(recipe: str, seed: int) -> str:
    """Return the name of a recipe's run with a seed: the first has the recipe's own."""
    return f"{recipe}-{seed}" if seed else recipe


def configuration(name: str) -> str:
    """Return what `load` takes for the name of a configuration: the path of one that has left the package."""
    path = RECIPES / f"{name}.yaml"
    return str(path) if path.exists() else name


def _seeded(where: str, recipe: str, of: object) -> list[tuple[str, object]]:
    """Return a run for each of its `seeds`, by name; the run as it is where it has none."""
    if not isinstance(of, dict) or "seeds" not in of:
        return [(recipe, of)]
    seeds = of["seeds"]
    if "seed" in of:
        raise SageccError(f"{where}: 'seed' and 'seeds': leave one out")
    if not isinstance(seeds, list) or not seeds or not all(type(seed) is int for seed in seeds):
        raise SageccError(f"{where}: 'seeds' must be a list of whole numbers, not {seeds!r}")
    alike = {name: value for name, value in of.items() if name != "seeds"}
    return [(seed_name(recipe, seed), {**alike, "seed": seed}) for seed in seeds]


def _run(where: str, name: str, of: object, base: str, pool: str) -> Run:
    kinds = {"config": str, "changes": dict, "steps": int, "seed": int, "keep_best": dict, **_SOURCES}
    values = _fields(of, where, kinds)
    changes = dict(values.get("changes", {}))
    if "steps" in values:
        changes["steps"] = values["steps"]
    start = values.get("config", base)
    try:
        config = load(configuration(start), **changes)
        online = config.task is not None
        common = load(configuration(base))
        if online or type(config.algorithm) is not type(common.algorithm):
            base, common = start, load(configuration(start))
        differs = _differing(config.record(), common.record())
    except SageccError as error:
        raise SageccError(f"{where}: {error}") from error
    fitting = {"actors", "from", *(["pool"] if config.pool else [])} if online else {"pool", "grow"}
    if odd := [field for field in _SOURCES if field in values and field not in fitting]:
        raise SageccError(
            f"{where}: '{odd[0]}' is for what learns {'from a pool' if online else 'in labs'}: leave it out"
        )
    seed = values.get("seed", 0)
    if not 0 <= seed <= LARGEST_SEED:
        raise SageccError(f"{where}: seed must be from 0 to {LARGEST_SEED}, not {seed}")
    keep_best = _keep_best(f"{where}: keep_best", values["keep_best"]) if "keep_best" in values else None
    grow = _grow(f"{where}: grow", values["grow"]) if "grow" in values else None
    if grow and keep_best:
        raise SageccError(f"{where}: 'grow' and 'keep_best': leave one out")
    place = Path(values.get("pool", pool)) if not online or config.pool else None
    start = seed_name(values["from"], seed) if "from" in values else ""
    return Run(name, base, differs, config, seed, place, keep_best, values.get("actors", 1), grow, start)


def _keep_best(where: str, of: object) -> KeepBest:
    values = _fields(of, where, {"league": str, "every": int, "curve": str})
    if lacking := [name for name in ("league", "every") if not values.get(name)]:
        raise SageccError(f"{where}: '{lacking[0]}' is missing or zero")
    if values["every"] < 1:
        raise SageccError(f"{where}: every {values['every']} steps is never: at least 1")
    return KeepBest(**values)


def _grow(where: str, of: object) -> Grow:
    values = _fields(of, where, {"profile": str, "rounds": int, "steps": int})
    if lacking := [name for name in ("profile", "rounds", "steps") if name not in values]:
        raise SageccError(f"{where}: '{lacking[0]}' is missing")
    if low := [name for name in ("rounds", "steps") if values[name] < 1]:
        raise SageccError(f"{where}: {low[0]}: at least 1, not {values[low[0]]}")
    try:
        profile_environments(values["profile"])
    except SageccError as error:
        raise SageccError(f"{where}: {error}") from error
    return Grow(**values)


def _fields(values: object, where: str, kinds: Mapping[str, type]) -> dict[str, Any]:
    """Check that `values` has known fields of the right types only."""
    if not isinstance(values, dict):
        raise SageccError(f"{where}: expected 'field: value' lines")
    if unknown := [str(name) for name in values if name not in kinds]:
        raise SageccError(f"{where}: unknown field '{unknown[0]}'; known are {', '.join(kinds)}")
    for name, value in values.items():
        if type(value) is not kinds[name]:
            raise SageccError(f"{where}: '{name}' must be of type {kinds[name].__name__}, not {value!r}")
    return values


def _differing(values: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """Return the values that are not the other's; of those that have fields themselves, only such fields."""
    differences = {}
    for name, value in values.items():
        if name not in others:
            differences[name] = value
        elif value != others[name]:
            sections = isinstance(value, dict) and isinstance(others[name], dict)
            differences[name] = _differing(value, others[name]) if sections else value
    return differences
