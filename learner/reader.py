# SPDX-License-Identifier: Apache-2.0
"""The strict reader of specifications: YAML files with a `base`, merged section by section into frozen dataclasses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from sagecc.common.document import parse
from sagecc.common.errors import SageccError
from sagecc.common.inputs import read_regular
from sagecc.common.shipped import configurations

WHERE = "training configuration"

LARGEST = 10**9
"""Largest magnitude of a number in a configuration."""

SELECTORS = ("name", "kind", "like")
"""Fields that say what the others of their section are: where they differ, nothing is taken from the base's section."""

VALUES = ("networks", "reward_weights", "scheme_weights", "set_weights", "shares")
"""Fields whose mapping is one value: it replaces the base's whole."""

T = TypeVar("T")


def shipped() -> tuple[str, ...]:
    """Return the names of the configurations that come with the package."""
    return tuple(sorted(configurations()))


def own_values(name: str, referrer: str = "") -> dict[str, Any]:
    """Return what a configuration says itself, without its base.

    Args:
        name: a shipped one's, or the path of a YAML file.
        referrer: what refers to it, for an error.

    Raises:
        SageccError: There is none, or it is no YAML with fields.
    """
    if path := configurations().get(name):
        data = path.read_bytes()
    elif Path(name).is_file():
        data = read_regular(Path(name))
    else:
        raise SageccError(f"no {WHERE} '{name}'{referrer}: give a file or one of {', '.join(shipped())}")
    values = parse(data, f"{WHERE} {name}")
    if not isinstance(values, dict):
        raise SageccError(f"{WHERE} {name}: expected 'field: value' lines")
    return values


def whole_values(name: str) -> dict[str, Any]:
    """Return what a configuration says together with its bases.

    Args:
        name: a shipped one's, or the path of a YAML file, whose base may be a file beside it. `paper+no-gru` is the
            first with the second's own values in place of its own, whatever base the second names.

    Raises:
        SageccError: A file is missing, no YAML with fields, or its own base.
    """
    first, *others = [name] if Path(name).exists() else name.split("+")
    values = _with_base(first, ())
    for other in others:
        values = merged(values, own_values(other))
    values.pop("base", None)
    return values


def _with_base(name: str, above: tuple[str, ...]) -> dict[str, Any]:
    """Return what a configuration and its bases say; `above` names those that are based on it."""
    if name in above:
        raise SageccError(f"{WHERE} {name} is its own base: {' -> '.join((*above, name))}")
    values = own_values(name, f", the base of {above[-1]}" if above else "")
    base = values.pop("base", None)
    if base is None:
        return values
    beside = Path(name).parent / str(base) if Path(name).is_file() else Path(str(base))
    return merged(_with_base(str(beside) if beside.is_file() else str(base), (*above, name)), values)


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the base with the changes in place of its own values, section by section (SELECTORS, VALUES)."""
    result = dict(base)
    for name, value in changes.items():
        before = base.get(name)
        sections = isinstance(value, Mapping) and name not in VALUES
        result[name] = _section(before, value) if sections and isinstance(before, Mapping) else value
    return result


def _section(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    other = any(key in changes and changes[key] != base.get(key) for key in SELECTORS)
    return dict(changes) if other else merged(base, changes)


def read(kind: type[T], values: object, section: str = "") -> T:
    """Build a frozen dataclass from plain values.

    Args:
        kind: the dataclass. Its fields are numbers, texts, choices, tuples, mappings and dataclasses, or None.
        values: by field's name.
        section: name of the section, for errors; empty for the whole.

    Raises:
        SageccError: A field is unknown, missing, of another type or out of range.
    """
    inside = f"{section}: " if section else ""
    if not isinstance(values, Mapping):
        raise SageccError(f"{WHERE}: {section} must have fields, not {values!r:.60}")
    types, known = get_type_hints(kind), fields(kind)  # type: ignore[arg-type]
    if unknown := sorted(str(name) for name in values.keys() - {f.name for f in known}):
        raise SageccError(
            f"{WHERE}: {inside}unknown field {', '.join(unknown)}; known are {', '.join(f.name for f in known)}"
        )
    optional = {f.name for f in known if f.default is not MISSING or f.default_factory is not MISSING}
    if missing := [f.name for f in known if f.name not in optional and f.name not in values]:
        raise SageccError(f"{WHERE}: {inside}field {', '.join(missing)} is missing")
    prefix = f"{section}." if section else ""
    return kind(**{name: _value(f"{prefix}{name}", value, types[name]) for name, value in values.items()})


def require(*checks: tuple[object, str]) -> None:
    """Raise SageccError with the text of the first check that does not hold."""
    for holds, text in checks:
        if not holds:
            raise SageccError(f"{WHERE}: {text}")


def bounds(
    algorithm: object,
    *,
    above_0: Iterable[str] = (),
    at_least_0: Iterable[str] = (),
    at_least_1: Iterable[str] = (),
    at_most_1: Iterable[str] = (),
    up_to_1: Iterable[str] = (),
    below_1: Iterable[str] = (),
) -> Iterator[tuple[bool, str]]:
    """Yield what `require` checks of an algorithm's fields by name; of those whose default is None, None holds.

    Args:
        algorithm: its section.
        above_0: positive ones.
        at_least_0: those that are not negative.
        at_least_1: counts.
        at_most_1: those that end at 1.
        up_to_1: shares, 1 among them.
        below_1: shares, 1 not among them.
    """
    kinds: tuple[tuple[Iterable[str], Callable[[Any], bool], str], ...] = (
        (at_least_1, lambda x: x >= 1, "must be at least 1"),
        (above_0, lambda x: x > 0, "must be above 0"),
        (at_least_0, lambda x: x >= 0, "cannot be negative"),
        (at_most_1, lambda x: x <= 1, "must be at most 1"),
        (up_to_1, lambda x: 0 <= x <= 1, "must be from 0 to 1"),
        (below_1, lambda x: 0 <= x < 1, "must be from 0 to below 1"),
    )
    for names, holds, text in kinds:
        for name in names:
            value, unset = getattr(algorithm, name), getattr(type(algorithm), name, MISSING) is None
            yield (unset and value is None) or holds(value), f"algorithm.{name} {text}"


def _value(name: str, value: Any, kind: Any) -> Any:
    """Check a value of a field's type; an integer serves where a float is asked for."""
    if is_dataclass(value) and isinstance(value, kind):
        return value
    if isinstance(kind, type) and is_dataclass(kind):
        return read(kind, value, name)
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (UnionType, Union):
        return _of_one(name, value, parts)
    if origin is Literal:
        if value in parts:
            return value
        raise SageccError(f"{WHERE}: {name} must be one of {', '.join(map(str, parts))}, not {value!r:.60}")
    if origin is tuple:
        return _tuple(name, value, parts)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
            return {key: _value(f"{name}.{key}", each, parts[1]) for key, each in value.items()}
        raise SageccError(f"{WHERE}: {name} must be 'name: value' lines, not {value!r:.60}")
    return value if kind is Any else _simple(name, value, kind)


def _of_one(name: str, value: Any, kinds: tuple[Any, ...]) -> Any:
    """Check a value that may be of several types, None among them."""
    if value is None and NoneType in kinds:
        return None
    *others, last = (kind for kind in kinds if kind is not NoneType)
    for kind in others:
        try:
            return _value(name, value, kind)
        except SageccError:
            continue
    return _value(name, value, last)


def _tuple(name: str, value: Any, parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """Check a list: of any length where the type ends with an ellipsis, else of as many as it has."""
    count = None if parts[-1] is Ellipsis else len(parts)
    if not isinstance(value, list | tuple) or (count is not None and len(value) != count):
        of = "" if count is None else f" of {count}"
        raise SageccError(f"{WHERE}: {name} must be a list{of}, not {value!r:.60}")
    kinds = [parts[0]] * len(value) if count is None else parts
    return tuple(_value(f"each of {name}", each, kind) for each, kind in zip(value, kinds, strict=True))


def _simple(name: str, value: Any, kind: Any) -> Any:
    if kind in (int, float) and type(value) in (int, kind):
        if abs(value) <= LARGEST:  # NaN is not
            return kind(value)
        raise SageccError(f"{WHERE}: {name} must be a number up to {LARGEST:,}, not {value!r:.60}")
    if kind not in (int, float) and type(value) is kind:
        return value
    raise SageccError(f"{WHERE}: {name} must be of type {kind.__name__}, not {value!r:.60}")
