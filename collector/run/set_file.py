# SPDX-License-Identifier: Apache-2.0
"""Strict reader of set files: YAML or JSON that names a set of networks; docs/reference/formats.md has the fields."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain, pairwise, product, repeat
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag

from sagecc.collector.run.grid import PROFILES, profile_set
from sagecc.common import shipped
from sagecc.common.errors import SageccError
from sagecc.common.suggestions import did_you_mean
from sagecc.schemas.environment import MAX_NAME, Discipline, Environment, step_rates
from sagecc.schemas.environment_file import (
    FIELDS,
    CrossPart,
    EnvironmentPart,
    FlowPart,
    Integer,
    LinkPart,
    Name,
    Number,
    Part,
    RateStepPart,
    Text,
    build,
    read,
)
from sagecc.schemas.environment_set import EnvironmentSet
from sagecc.schemas.schemes import NO_CODE, TrustedCode
from sagecc.schemas.trace_file import among, no_trace

MAX_NETWORKS = 20_000
"""Of a set file, so that a slip in a range is an error and no month of work; the paper's grid has 1,099."""

Tags = dict[Name, Text]


def load_set(choice: str, trusted: TrustedCode = NO_CODE) -> EnvironmentSet:
    """Read a set file.

    Args:
        choice: the file, or the name of one that is shipped with sagecc; then, after a colon, the folder in which the
            patterns of its traces are looked up.
        trusted: the code that it may name.

    Raises:
        SageccError: the file does not describe a set; the message names the file and the place in it.
    """
    path, folder = _file(choice)
    part = read(SetPart, path, _FIELDS)
    if part.name in _RESERVED:
        raise SageccError(f"{path}: name: {part.name} is one of the paper's sets; choose another")
    places: dict[str, str] = {}
    environments, tags = [], {}
    for place, environment, own_tags in _networks(part, path, folder, trusted):
        environment = replace(environment, set=part.name)
        _check(environment, place)
        _check_tags(own_tags, place)
        if environment.id in places:
            raise SageccError(f"{place}: is the same network as {places[environment.id]}; remove one of them")
        places[environment.id] = place
        environments.append(environment)
        tags[environment.id] = dict(own_tags)
    if not environments:
        raise SageccError(f"{path}: the set is empty: list networks under environments, or ranges under grids")
    return EnvironmentSet(
        part.name,
        f"--environments {choice}",
        tuple(environments),
        {key: value for key, value in tags.items() if value},
        skipped=_skipped(part, path, folder),
    )


def chosen_set(profile: str | None, choice: str | None, trusted: TrustedCode = NO_CODE) -> EnvironmentSet:
    """Return the set of a file where one is chosen, else a profile; errors are those of `load_set`."""
    return profile_set(profile or "") if choice is None else load_set(choice, trusted)


class NetworkPart(EnvironmentPart):
    """A network within the file."""

    tags: Tags = Field(default={}, description="what it is counted under in a league's breakdown")


class FilePart(Part):
    """A network in a file of its own."""

    file: Text = Field(description="an environment file, relative to this one, or the name of a shipped one")
    tags: Tags = Field(default={}, description="what it is counted under in a league's breakdown")


class GridPart(Part):
    """Ranges: one network for each combination of their values, all of one bottleneck."""

    bandwidth_mbps: tuple[Number, ...] = Field(default=(), description="base rates of the bottleneck (Mbps)")
    step: tuple[Number, ...] = Field(
        default=(1.0,), description="from 17 s on the rate is this times it, every other 7 s"
    )
    trace: tuple[Text, ...] = Field(
        default=(), description="instead: traces, or patterns such as * in the given folder"
    )
    rtt_ms: tuple[Number, ...] = Field(description="minimum RTTs, half in each direction (ms)")
    queue_bdp: tuple[Number, ...] = Field(default=(), description="queue limits (base rate x minimum RTT)")
    queue_bytes: tuple[Integer, ...] = Field(default=(), description="instead, in bytes")
    queue_packets: tuple[Integer, ...] = Field(default=(), description="instead, in packets")
    discipline: tuple[Discipline, ...] = Field(default=("tail-drop",), description="what the queue drops, and when")
    loss: tuple[Number, ...] = Field(default=(0.0,), description="probabilities that a packet is lost before the queue")
    jitter_ms: tuple[Number, ...] = Field(default=(0.0,), description="ACKs come up to this earlier or later (ms)")
    cross: tuple[tuple[CrossPart, ...], ...] = Field(default=((),), description="lists of competitors; [] is none")
    start_s: Number = Field(default=0.0, description="when the tested flow starts (s)")
    duration_s: Number = Field(description="virtual length of an episode (s)")
    windows_s: tuple[tuple[Number, Number], ...] | None = Field(
        default=None, description="scoring windows, start and end (s); by default the tested flow's life"
    )
    tags: Tags = Field(default={}, description="of each of its networks")


def _entry_kind(value: object) -> str:
    return "one-file" if isinstance(value, FilePart) or (isinstance(value, dict) and "file" in value) else "one-network"


class SetPart(Part):
    """A set of networks."""

    name: Name = Field(description="the set's name: in tables, and that of its folders")
    environments: tuple[
        Annotated[
            Annotated[NetworkPart, Tag("one-network")] | Annotated[FilePart, Tag("one-file")],
            Discriminator(_entry_kind),
        ],
        ...,
    ] = Field(default=(), description="networks, one by one: environment files or what stands in them")
    grids: tuple[GridPart, ...] = Field(default=(), description="networks by ranges to cross")


_FIELDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        **FIELDS,
        "": tuple(SetPart.model_fields),
        "environments": tuple(NetworkPart.model_fields | FilePart.model_fields),
        "grids": tuple(GridPart.model_fields),
    }
)

_RESERVED = ("I", "II")

_RATES, _QUEUES = ("bandwidth_mbps", "trace"), ("queue_bdp", "queue_bytes", "queue_packets")
_CROSSED = (*_RATES, "step", "rtt_ms", *_QUEUES, "discipline", "loss", "jitter_ms", "cross")
"""The ranges of a grid, the last one's values next to each other."""

_OWN_CLASSES = ("bandwidth_mbps", "step", "rtt_ms", "queue_bdp")
"""Ranges that a league's breakdown has in any case (leagues.standings.CLASSES); the others become tags."""

Found = tuple[str, Environment, Mapping[str, str]]
"""Where a network stands in a file, the network, its tags."""


def _file(choice: str) -> tuple[Path, Path | None]:
    """Return the set file that an option names, and the folder of its traces where it names one."""
    path, folder = shipped.environment_set(choice), None
    if not path.is_file() and ":" in choice:
        name, _, traces = choice.partition(":")
        path, folder = shipped.environment_set(name), Path(traces)
        if not folder.is_dir():
            raise SageccError(f"--environments {choice}: there is no folder {folder}")
    if not path.is_file():
        if choice in PROFILES:
            raise SageccError(f"--environments {choice}: this is a profile; use --profile {choice}")
        sets = shipped.environment_sets()
        raise SageccError(
            f"--environments {choice}: there is no such file, and no set of that name comes with sagecc"
            + (did_you_mean(choice, sets) or f"; those are {', '.join(sets)}")
        )
    return path, folder


def _networks(part: SetPart, path: Path, folder: Path | None, trusted: TrustedCode) -> Iterator[Found]:
    """Return the networks of a file, once it is sure that they are not too many."""
    places = [f"{path}: grids[{index}]" for index in range(len(part.grids))]
    ranges = [_ranges(grid, folder, place) for grid, place in zip(part.grids, places, strict=True)]
    count = len(part.environments) + sum(prod(map(len, each.values())) for each in ranges)
    if count > MAX_NETWORKS:
        raise SageccError(f"{path}: makes {count:,} networks; a set has {MAX_NETWORKS:,} at most")
    return chain(
        _listed(part, path, trusted),
        *map(_crossed, part.grids, ranges, places, repeat(path.parent), repeat(trusted)),
    )


def _listed(part: SetPart, path: Path, trusted: TrustedCode) -> Iterator[Found]:
    for index, entry in enumerate(part.environments):
        place, given, folder = f"{path}: environments[{index}]", entry, path.parent
        if isinstance(entry, FilePart):
            file = shipped.environment(entry.file, path.parent)
            if not file.is_file():
                raise SageccError(f"{place}: there is no file {file}; the path is relative to this file")
            network, folder, source = read(EnvironmentPart, file, FIELDS), file.parent, str(file)
        else:
            network, source = entry, place
        yield place, _with_reward(build(network, source, folder, trusted), network), given.tags


Ranges = Mapping[str, tuple[Any, ...]]
"""By name, the values of a grid's ranges."""


def _ranges(grid: GridPart, folder: Path | None, place: str) -> Ranges:
    """Return the ranges of a grid, with files for patterns of traces."""
    ranges = {name: tuple(getattr(grid, name)) for name in _CROSSED}
    for names in (_RATES, _QUEUES):
        if len([name for name in names if ranges[name]]) != 1:
            raise SageccError(f"{place}: give one of {', '.join(names)}, with its values")
    if ranges["trace"]:
        ranges["trace"] = tuple(_traces(ranges["trace"], folder, place))
        if "step" in grid.model_fields_set:
            raise SageccError(f"{place}: step: a trace has no base rate to step from; remove it")
    ranges = {name: values for name, values in ranges.items() if values or name in grid.model_fields_set}
    if missing := [name for name, values in ranges.items() if not values]:
        raise SageccError(f"{place}: {missing[0]}: must have one value or more")
    return ranges


def _crossed(grid: GridPart, ranges: Ranges, place: str, folder: Path, trusted: TrustedCode) -> Iterator[Found]:
    """Yield a network for each combination of a grid's values."""
    several = [name for name, values in ranges.items() if len(values) > 1]
    tag_names = [name for name in several if name not in _OWN_CLASSES]
    for cell in (dict(zip(ranges, values, strict=True)) for values in product(*ranges.values())):
        network = _network(grid, cell)
        combination = ", ".join(f"{name} {_text(cell[name])}" for name in several)
        where = f"{place} ({combination})" if several else place
        tags = {_TAG_NAMES.get(name, name): _text(cell[name]) for name in tag_names}
        yield where, _with_reward(build(network, where, folder, trusted), network), tags | grid.tags


_TAG_NAMES: Mapping[str, str] = MappingProxyType({"cross": "beside"})


def _network(grid: GridPart, cell: Mapping[str, Any]) -> EnvironmentPart:
    """Return one combination of a grid's values as what stands in an environment file."""
    link = {name: cell[name] for name in ("trace", *_QUEUES, "discipline", "loss") if name in cell}
    if "bandwidth_mbps" in cell:
        steps = step_rates(float(cell["bandwidth_mbps"]), float(cell["step"]), grid.duration_s)
        link["rates"] = tuple(RateStepPart(t_s=step.t_s, rate_mbps=step.rate_mbps) for step in steps)
    return EnvironmentPart(
        links=(LinkPart(**link),),
        return_links=(LinkPart(jitter_ms=cell["jitter_ms"]),),
        rtt_ms=cell["rtt_ms"],
        duration_s=grid.duration_s,
        flow=FlowPart(start_s=grid.start_s),
        cross=cell["cross"],
        windows_s=grid.windows_s,
    )


def _with_reward(environment: Environment, part: EnvironmentPart) -> Environment:
    """Return a network whose rule, where its file names none, is a fair share beside competitors and power alone."""
    if "reward" in part.model_fields_set:
        return environment
    return replace(environment, reward="friendliness" if environment.competitors > 1 else "power")


def _check(environment: Environment, place: str) -> None:
    """Raise SageccError for what an environment may be but no network of a league's."""
    if not environment.windows_s:
        raise SageccError(
            f"{place}: windows_s: there is none, so that nothing would be scored; leave it out, or fill it"
        )
    for one, after in pairwise(sorted(environment.windows_s)):
        if after[0] < one[1]:
            raise SageccError(
                f"{place}: windows_s: {list(one)} and {list(after)} overlap; what lies in both would count twice"
            )


def _check_tags(tags: Mapping[str, str], place: str) -> None:
    """Raise SageccError for a tag that no table could show."""
    for name, value in tags.items():
        if not value.isprintable() or len(value) > MAX_NAME:
            raise SageccError(
                f"{place}: tags.{name}: must have {MAX_NAME} printable characters at most, not {value!r:.60}"
            )


def _traces(names: tuple[str, ...], folder: Path | None, place: str) -> Iterator[str]:
    """Yield the paths of traces: as they are, and for a pattern all traces in the folder that match, by name."""
    for name in names:
        if not _is_pattern(name):
            yield name
            continue
        traces, others = among(_matching(name, folder, place))
        if not traces:
            raise SageccError(f"{place}: trace: {name}: {no_trace(folder, others)}")
        yield from (str(path.absolute()) for path in traces)


def _skipped(part: SetPart, path: Path, folder: Path | None) -> tuple[Path, ...]:
    """Return the files that match the patterns of a set's traces and are none."""
    patterns = {name for grid in part.grids for name in grid.trace if _is_pattern(name)}
    files = {file for name in patterns for file in _matching(name, folder, str(path))}
    return tuple(among(sorted(files))[1])


def _is_pattern(name: str) -> bool:
    return bool(set("*?[") & set(name))


def _matching(name: str, folder: Path | None, place: str) -> list[Path]:
    """Return the files in the folder that a pattern matches, by name; a file of exactly that name alone."""
    if folder is None:
        raise SageccError(f"{place}: trace: {name} are files in a folder of yours; name it: --environments NAME:FOLDER")
    exact = folder / name  # a file's name may have such characters too
    if exact.is_file():
        return [exact]
    if Path(name).is_absolute() or ".." in Path(name).parts or "**" in name:
        raise SageccError(f"{place}: trace: {name} is no pattern of files in {folder}: leave out '/', '..' and '**'")
    return sorted(path for path in folder.glob(name) if path.is_file())


def _text(value: Any) -> str:
    """Return a value of a range as a tag has it."""
    if isinstance(value, tuple):
        names = (f"{part.count} {part.scheme}" if part.count > 1 else part.scheme for part in value)
        return " + ".join(names) or "none"
    return Path(value).name if isinstance(value, str) else f"{value:g}"


def json_schema() -> str:
    """Return the format as a JSON Schema, with which editors complete and check."""
    return json.dumps(SetPart.model_json_schema(), indent=2) + "\n"


if __name__ == "__main__":
    print(json_schema(), end="")
