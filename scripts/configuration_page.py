# SPDX-License-Identifier: Apache-2.0
"""Writes docs/reference/configuration.md: every field of a training run from its documentation in learner/config.py."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from sagecc.learner import config
from sagecc.learner.online import config as online
from sagecc.learner.selection import Selection

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "configuration.md"
WHOLE = ("tiny", "small", "paper")
"""Configurations that name every field without a default; the others are variants of one of these."""

HEAD = """# Configuration

Written by `make pages` from `learner/config.py`, `learner/selection.py`, `learner/online/config.py` and the files in
`configs/` beside them. A configuration is a YAML file of fields: `sagecc train --config NAME` takes one that comes with
sagecc, `--config FILE.yaml` your own.
`base: NAME` takes what the file does not say from another; `paper+no-gru` is the variant `no-gru` of `paper`. An
unknown field, a wrong type or a value out of range is an error. A network has at most 256 layers of 16,384 units and
2^27 parameters, a step or a round of them takes at most 2^24 rows. [Train](../guide/train.md) says how to use them,
[the learner](../method/learner.md) why they are as they are. An empty cell is the default.
"""


def documented(kind: type[Any]) -> dict[str, str]:
    """Return the text below each field of a dataclass, in a line."""
    (node,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(node, ast.ClassDef)
    texts = {}
    for field, text in pairwise(node.body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
        ):
            texts[field.target.id] = " ".join(str(text.value.value).split())
    return texts


def table(kind: type[Any], values: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines of a table of a dataclass's fields, with each configuration's own values."""
    texts = documented(kind)
    yield f"| field | default |{''.join(f' `{name}` |' for name in values)} meaning |"
    yield f"|---|---|{'---|' * len(values)}---|"
    for field in fields(kind):
        cells = [_written(own.get(field.name, MISSING)) for own in values.values()]
        yield " | ".join([f"| `{field.name}`", _written(_default(field)), *cells, f"{_cell(texts[field.name])} |"])
    yield ""


def _default(field: Field[Any]) -> object:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _written(value: object) -> str:
    if value is MISSING:
        return ""
    if value is None or isinstance(value, bool):
        return "`null`" if value is None else f"`{str(value).lower()}`"
    if isinstance(value, Selection) or value in ((), {}, ""):
        return "all" if not isinstance(value, dict) else "1 each"
    if isinstance(value, dict):
        return ", ".join(f"`{name}: {part}`" for name, part in value.items())
    return f"`{list(value) if isinstance(value, tuple) else value}`"


def _in_a_line(values: Mapping[str, Any]) -> str:
    return yaml.safe_dump(values, default_flow_style=True, sort_keys=False, width=10**6).strip()[1:-1]


def _changes(own: Mapping[str, Any], base: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the fields that a variant has, of its task those that differ from the base's."""
    changes = {name: value for name, value in own.items() if name not in ("base", "task")}
    if base and "task" in own:
        for name, value in own["task"].items():
            before = base["task"][name]
            if isinstance(value, dict):
                value = {key: part for key, part in value.items() if before.get(key) != part}
            if value not in ({}, before):
                changes[f"task.{name}"] = value
    return changes


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def page() -> str:
    """Return the page."""
    others = {name: config.CONFIGURATIONS.read(name) for name in config.shipped() if name not in WHOLE}
    in_labs = {name: online.CONFIGURATIONS.read(name) for name in online.shipped()}
    parts = [
        HEAD,
        "## Fields\n",
        *table(config.Config, {name: config.CONFIGURATIONS.read(name) for name in WHOLE}),
        "## Fields of `data`\n",
        *table(Selection, {}),
        "## Fields of online training\n",
        *table(online.OnlineConfig, {name: own for name, own in in_labs.items() if "base" not in own}),
        "## Variants\n",
        "| name | base | what it changes |\n|---|---|---|",
        *(f"| `{name}` | `{own['base']}` | `{_in_a_line(_changes(own))}` |" for name, own in others.items()),
        *(
            f"| `{name}` | `{own['base']}` | `{_in_a_line(_changes(own, online.values_of(own['base'])))}` |"
            for name, own in in_labs.items()
            if "base" in own
        ),
    ]
    return "\n".join([*parts, ""])
