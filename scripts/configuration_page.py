# SPDX-License-Identifier: Apache-2.0
"""Writes docs/reference/configuration.md: every field of a training run from its documentation in learner/."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from sagecc.learner.architectures import KINDS
from sagecc.learner.reader import own_values
from sagecc.learner.selection import Selection
from sagecc.learner.specification import (
    ControlSettings,
    Data,
    LabSettings,
    RunSpecification,
    algorithm_of,
    algorithms,
    shipped,
)

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "configuration.md"
HEAD = """# Configuration

Written by `make pages` from `learner/specification.py`, `learner/selection.py`, `learner/architectures.py`,
`learner/algorithms/` and the files in `learner/configs/` and in the rivals' folders of `execution/schemes/`.
A configuration is a YAML file: `sagecc train --config NAME` takes one that comes with sagecc,
 `--config FILE.yaml` your own. It has the fields of the first table and the sections
below: `data` (a pool) or `task` and `labs`, `network`, `algorithm`, `control`.

`base: NAME` takes what the file does not say from another, section by section, however deep. A section of another
`algorithm.name`, `network.kind` or `task.control.like` takes nothing from the base's, and the values `networks`,
`shares` and weights by name are replaced whole. `paper+no-gru` is the variant `no-gru` of `paper`. An unknown field, a
wrong type or a value out of range is an error. A network has at most 256 layers of 16,384 units and 2^27 parameters, a
step or a round of them takes at most 2^24 rows. [Train](../guide/train.md) says how to use them,
[the learner](../method/learner.md) why they are as they are. An empty cell is the default.
"""


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


def table(kind: type[Any], section: str, values: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines of a table of a section's fields, with each configuration's own values.

    Args:
        kind: the section's dataclass.
        section: its name; empty for the fields beside sections.
        values: by name, configurations that have the section.
    """
    texts = documented(kind)
    yield f"| field | default |{''.join(f' `{name}` |' for name in values)} meaning |"
    yield f"|---|---|{'---|' * len(values)}---|"
    for field in fields(kind):
        own = (of.get(section, {}) if section else of for of in values.values())
        shown = not section and field.name in SECTIONS
        cells = ["" if shown else _written(of.get(field.name, MISSING)) for of in own]
        yield " | ".join([f"| `{field.name}`", _written(_default(field)), *cells, f"{_cell(texts[field.name])} |"])
    yield ""


SECTIONS = ("data", "task", "labs", "network", "algorithm", "control")


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


def _in_a_line(values: Mapping[str, Any]) -> str:
    return yaml.safe_dump(values, default_flow_style=True, sort_keys=False, width=10**6).strip()[1:-1]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def page() -> str:
    """Return the page."""
    own = {name: own_values(name) for name in shipped()}
    whole = {name: of for name, of in own.items() if "base" not in of}
    pool = {name: of for name, of in whole.items() if "data" in of}

    def of(section: str, name: str, selector: str) -> dict[str, dict[str, Any]]:
        return {each: of for each, of in whole.items() if of[section][selector] == name}

    parts = [HEAD, "## Fields\n", *table(RunSpecification, "", pool)]
    parts += ["## Fields of `data`\n", *table(Data, "data", pool)]
    parts += ["## Fields of `data.selection`\n", *table(Selection, "data.selection", {})]
    for name, kind in KINDS.items():
        parts += [f"## Fields of `network`, kind `{name}`\n", *table(kind, "network", of("network", name, "kind"))]
    for name in algorithms():
        chosen = of("algorithm", name, "name") or {
            each: values for each, values in own.items() if values.get("algorithm", {}).get("name") == name
        }
        parts += [f"## Fields of `algorithm`, `{name}`\n", *table(algorithm_of(name), "algorithm", chosen)]
    in_labs = {name: of for name, of in whole.items() if "labs" in of}
    parts += ["## Fields of `labs`\n", *table(LabSettings, "labs", in_labs)]
    parts += ["## Fields of `control`\n", *table(ControlSettings, "control", {"small": own["small"]})]
    parts += ["## Variants\n", "| name | base | what it changes |\n|---|---|---|"]
    for name, values in own.items():
        if "base" in values:
            changes = _in_a_line({key: value for key, value in values.items() if key != "base"})
            parts.append(f"| `{name}` | `{values['base']}` | `{changes}` |")
    return "\n".join([*parts, ""])
