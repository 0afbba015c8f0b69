# SPDX-License-Identifier: Apache-2.0
"""Checks of what a configuration's file says, field by field."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, get_args, get_type_hints

from sagecc.common.errors import SageccError


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


def simple(name: str, value: Any, kind: Any) -> Any:
    """Check a value of a simple type; an integer serves where a float is asked for, and YAML reads 1e-4 as text.

    Raises:
        SageccError: It is of another type, or none of a Literal's choices.
    """
    if choices := get_args(kind):
        if value not in choices:
            raise SageccError(f"training configuration: {name} must be one of {', '.join(choices)}, not {value!r}")
        return value
    if kind is float and isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if math.isfinite(number):
            return number
    elif type(value) is kind:
        return value
    raise SageccError(f"training configuration: {name} must be of type {kind.__name__}, not {value!r}")


def whole_numbers(name: str, value: Any) -> tuple[int, ...]:
    """Check a list of whole numbers.

    Raises:
        SageccError: It is none.
    """
    if not isinstance(value, list | tuple) or not all(type(x) is int for x in value):
        raise SageccError(f"training configuration: {name} must be a list of whole numbers, not {value!r}")
    return tuple(value)
