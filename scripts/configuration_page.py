# SPDX-License-Identifier: Apache-2.0
"""Writes docs/reference/configuration.md: every field of a training run from its documentation in learner/."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from sagecc.learner.architectures import KINDS
from sagecc.learner.selection import Selection
from sagecc.learner.specification import (
    ControlSettings,
    Data,
    LabSettings,
    PoolShare,
    RunSpecification,
    algorithm_of,
    algorithms,
)

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "configuration.md"
HEAD = """# Configuration

Every field of a configuration, written by `make pages` from `learner/`. The shipped ones are short files to
read and copy, `learner/configs/*.yaml` and `execution/schemes/*/*.yaml`.

`base: NAME` gives the fields that a file
does not set, section by section. A section of another `algorithm.name`, `network.kind` or `task.control.like` takes
nothing from the base's; `networks`, `shares` and weights by name are replaced whole. A field without a default
is needed; those after "Also" are told above. An unknown field, a wrong type or a value out of range is an error.
"""
Told = dict[tuple[str, str], object]
"""Fields and texts of tables above, with their defaults there."""


def documented(kind: type[Any]) -> dict[str, str]:
    """Return the text below each field of a dataclass, in a line."""
    (node,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(node, ast.ClassDef)
    texts: dict[str, str] = {}
    for base in kind.__bases__:
        texts |= documented(base) if is_dataclass(base) else {}
    for field, text in pairwise(node.body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
        ):
            texts[field.target.id] = " ".join(str(text.value.value).split())
    return texts


def table(kind: type[Any], told: Told) -> Iterator[str]:
    """Yield the lines of a table of a section's own fields, and the names of those that stand above.

    Args:
        kind: the section's dataclass.
        told: what tables above have; the fields of this one are added.
    """
    texts = documented(kind)
    own, again = [], []
    for field in fields(kind):
        key, default = (field.name, texts[field.name]), _written(_default(field))
        if key in told:
            again.append(f"`{field.name}`{f' ({default})' if default not in ('', told[key]) else ''}")
        else:
            own.append(f"| `{field.name}` | {default} | {_cell(texts[field.name])} |")
            told[key] = default
    if own:
        yield from ("| field | default | meaning |", "|---|---|---|", *own, "")
    if again:
        yield from (f"Also: {', '.join(again)}.", "")


def _default(field: Field[Any]) -> object:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _written(value: object) -> str:
    if value is MISSING:
        return ""
    if value is None or isinstance(value, bool):
        return "`null`" if value is None else f"`{str(value).lower()}`"
    if isinstance(value, Selection | ControlSettings) or value in ((), {}, ""):
        return "all" if not isinstance(value, dict | ControlSettings) else "1 each" if isinstance(value, dict) else ""
    if isinstance(value, dict):
        return ", ".join(f"`{name}: {part}`" for name, part in value.items())
    return f"`{list(value) if isinstance(value, tuple) else value}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def page() -> str:
    """Return the page."""
    sections = {
        "Fields": RunSpecification,
        "Fields of `data`": Data,
        "Fields of `data.selection`": Selection,
        **{f"Fields of `network`, kind `{name}`": kind for name, kind in KINDS.items()},
        **{f"Fields of `algorithm`, `{name}`": algorithm_of(name) for name in algorithms()},
        "Fields of `labs`": LabSettings,
        "Fields of `pool`": PoolShare,
        "Fields of `control`": ControlSettings,
    }
    told: Told = {}
    parts = [line for title, kind in sections.items() for line in (f"## {title}\n", *table(kind, told))]
    return "\n".join([HEAD, *parts])
