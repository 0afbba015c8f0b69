# SPDX-License-Identifier: Apache-2.0
"""YAML of bounded size by the core schema of YAML 1.2, with anchors, aliases and merge keys.

The schema: https://yaml.org/spec/1.2.2/#103-core-schema. A plain scalar that YAML 1.1 reads as a number and 1.2 as
another, or as text, is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import yaml

MAX_BYTES = 4 * 2**20
MAX_VALUES = 100_000
"""Bounds that keep reading within seconds; an alias counts with all that it stands for."""

MAX_DEPTH = 64
"""How deep values may be nested."""

MAX_INTEGER = 2**63 - 1
"""Largest magnitude of a whole number."""


def load(text: str) -> Any:
    """Return the content of a document.

    Raises:
        yaml.YAMLError: it cannot be read, repeats a key or is beyond the bounds.
        ValueError: it is longer than MAX_BYTES characters.
    """
    if len(text) > MAX_BYTES:
        raise ValueError(f"YAML of more than {MAX_BYTES:,} characters; write it as JSON, in a file that ends in .json")
    return yaml.load(text, _Loader)


def whole_number(digits: str) -> int:
    """Return a number in decimal digits; ValueError beyond MAX_INTEGER, before time is spent on many digits."""
    if len(digits) <= 20 and abs(number := int(digits)) <= MAX_INTEGER:
        return number
    raise ValueError(f"the number {digits[:20]}{'...' if len(digits) > 20 else ''} is beyond 2^63")


def repeated(keys: Iterable[str]) -> int | None:
    """Return the index of the first key that stood there before."""
    known: set[str] = set()
    for index, key in enumerate(keys):
        if key in known:
            return index
        known.add(key)
    return None


def _whole(text: str) -> int:
    return whole_number(str(int(text, 16)) if text.startswith("0x") and len(text) <= 20 else text)


def _float(text: str) -> float:
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))


def _ambiguous(text: str) -> Any:
    raise ValueError(
        f"{text[:40]} is not the same in YAML 1.1 and 1.2: write the number in decimal (020 is 16 or 20, 1:30 is 90 or"
        " text), or quote the text"
    )


_PREFIX = "tag:yaml.org,2002:"
_CORE: dict[str, tuple[re.Pattern[str], Callable[[str], Any]]] = {
    f"{_PREFIX}null": (re.compile("~|null|Null|NULL|"), lambda text: None),
    f"{_PREFIX}bool": (re.compile("true|True|TRUE|false|False|FALSE"), lambda text: text.lower() == "true"),
    f"{_PREFIX}int": (re.compile("[-+]?(0|[1-9][0-9]*)|0x[0-9a-fA-F]+"), _whole),
    "!ambiguous": (
        re.compile(
            r"[-+]?(0[0-9_]+|0b[01_]+|0o[0-7_]+|0x[0-9a-fA-F_]+|[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?"
            r"|(?=.*_)\.?[0-9][0-9_]*(\.[0-9_]*)?([eE][-+]?[0-9]+)?)"
        ),
        _ambiguous,
    ),
    f"{_PREFIX}float": (
        re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"),
        _float,
    ),
}
"""By tag, the plain scalars that are of it, the first that matches, and what makes a value of one."""


class _Loader(yaml.SafeLoader):
    yaml_constructors: ClassVar[dict[str | None, Any]] = {}

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._values = self._depth = 0
        self._sizes: dict[int, int] = {}  # values of a finished node, by its id

    def resolve(self, kind: type[yaml.Node], value: str, implicit: tuple[bool, bool]) -> str:
        if kind is not yaml.ScalarNode:
            return f"{_PREFIX}{'seq' if kind is yaml.SequenceNode else 'map'}"
        if implicit[0] and value == "<<":
            return f"{_PREFIX}merge"
        kinds = _CORE.items() if implicit[0] else ()  # a quoted one is text
        return next((tag for tag, (pattern, _) in kinds if pattern.fullmatch(value)), f"{_PREFIX}str")

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event, before = self._upcoming(), self._values
        self._values += 1
        self._depth += 1
        _require(self._depth <= MAX_DEPTH, f"values are nested more than {MAX_DEPTH} levels deep", event)
        node = super().compose_node(parent, index)
        self._depth -= 1
        if isinstance(event, yaml.AliasEvent):
            _require(id(node) in self._sizes, f"*{event.anchor} stands for what it is a part of", event)
            self._values += self._sizes[id(node)]
        else:
            self._sizes[id(node)] = self._values - before
        _require(self._values <= MAX_VALUES, f"more than {MAX_VALUES:,} values; write it as JSON, or in parts", event)
        return node

    def _upcoming(self) -> yaml.Event:
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]
        return event

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        if isinstance(node, yaml.MappingNode):
            keys = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            index = repeated(key.value for key in keys)
            if index is not None:
                _require(False, f"the key '{keys[index].value}' stands here twice", keys[index])
        return super().construct_mapping(node, deep)

    def construct_constant(self, node: yaml.ScalarNode) -> Any:
        text = str(self.construct_scalar(node))
        pattern, value = _CORE[node.tag]
        _require(bool(pattern.fullmatch(text)), f"'{text[:40]}' is no {node.tag.removeprefix(_PREFIX)}", node)
        try:
            return value(text)
        except ValueError as error:
            raise yaml.MarkedYAMLError(problem=str(error), problem_mark=node.start_mark) from None


def _require(holds: bool, problem: str, place: yaml.Event | yaml.Node) -> None:
    if not holds:
        mark: Any = place.start_mark
        raise yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


_CONSTRUCTORS: dict[str | None, Any] = {
    **dict.fromkeys(_CORE, _Loader.construct_constant),
    f"{_PREFIX}str": _Loader.construct_yaml_str,
    f"{_PREFIX}seq": _Loader.construct_yaml_seq,
    f"{_PREFIX}map": _Loader.construct_yaml_map,
    None: _Loader.construct_undefined,
}
_Loader.yaml_constructors = _CONSTRUCTORS
