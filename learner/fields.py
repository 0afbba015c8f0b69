# SPDX-License-Identifier: Apache-2.0
"""Configurations' files: where they lie, and checks of what they say, field by field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from importlib import resources
from pathlib import Path
from typing import Any, get_args, get_type_hints

from sagecc.common.document import parse
from sagecc.common.errors import SageccError
from sagecc.common.inputs import read_regular


@dataclass(frozen=True)
class Configurations:
    """The configurations that come with a package, and files beside them."""

    package: str
    """The package; its folder `configs` has them as YAML."""

    def shipped(self) -> tuple[str, ...]:
        """Return the names of those that come with the package."""
        folder = resources.files(self.package) / "configs"
        return tuple(sorted(Path(f.name).stem for f in folder.iterdir() if f.name.endswith(".yaml")))

    def read(self, name: str, referrer: str = "") -> dict[str, Any]:
        """Return the fields that one of them, or a file, names.

        Args:
            name: A shipped one's, or the path of a YAML file.
            referrer: What refers to it, for an error.

        Raises:
            SageccError: There is none, or it is no YAML with fields.
        """
        if name in self.shipped():
            data = (resources.files(self.package) / "configs" / f"{name}.yaml").read_bytes()
        elif Path(name).is_file():
            data = read_regular(Path(name))
        else:
            offered = ", ".join(self.shipped())
            raise SageccError(f"no training configuration '{name}'{referrer}: give a file or one of {offered}")
        values = parse(data, f"training configuration {name}")
        if not isinstance(values, dict):
            raise SageccError(f"training configuration {name}: expected 'field: value' lines")
        return values


def checked(kind: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the types of a dataclass's fields, once it is sure that the values name all that have no default.

    Raises:
        SageccError: A field is unknown or missing.
    """
    types, known = get_type_hints(kind), fields(kind)
    unknown = sorted(str(name) for name in values.keys() - {f.name for f in known})
    missing = [f.name for f in known if f.default is MISSING and f.default_factory is MISSING and f.name not in values]
    if unknown:
        raise SageccError(
            f"training configuration: unknown field {', '.join(unknown)}; known are {', '.join(f.name for f in known)}"
        )
    if missing:
        raise SageccError(f"training configuration: field {', '.join(missing)} is missing")
    return types


LARGEST = 10**9
"""Largest magnitude of a number in a configuration."""

MAX_ROWS = 2**24
"""Most rows of observations that a step may take at once: gigabytes."""


def simple(name: str, value: Any, kind: Any) -> Any:
    """Check a value of a simple type; an integer serves where a float is asked for.

    Raises:
        SageccError: It is of another type, beyond LARGEST, or none of a Literal's choices.
    """
    if choices := get_args(kind):
        if value not in choices:
            raise SageccError(f"training configuration: {name} must be one of {', '.join(choices)}, not {value!r:.60}")
        return value
    if kind in (int, float) and type(value) in (int, kind):
        if abs(value) <= LARGEST:  # NaN is not
            return kind(value)
        raise SageccError(f"training configuration: {name} must be a number up to {LARGEST:,}, not {value!r:.60}")
    if kind not in (int, float) and type(value) is kind:
        return value
    raise SageccError(f"training configuration: {name} must be of type {kind.__name__}, not {value!r:.60}")


def whole_numbers(name: str, value: Any) -> tuple[int, ...]:
    """Check a list of whole numbers.

    Raises:
        SageccError: It is none.
    """
    if not isinstance(value, list | tuple) or not all(type(x) is int for x in value):
        raise SageccError(f"training configuration: {name} must be a list of whole numbers, not {value!r:.60}")
    return tuple(value)
