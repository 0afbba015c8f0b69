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

Written by `make pages` from `learner/` and the configurations in `learner/configs/` and `execution/schemes/`.

A configuration is a YAML file: `sagecc train --config NAME` takes a shipped one, `--config FILE.yaml` yours.
`base: NAME` gives the fields that a file does not set, section by section. A section of another `algorithm.name`,
`network.kind` or `task.control.like` takes nothing from the base's; `networks`, `shares` and weights by name are
replaced whole. `paper+no-gru` is the variant `no-gru` of `paper`. An unknown field, a wrong type or a value out of
range is an error. [The learner](../method/learner.md) gives reasons.
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


def table(
    kind: type[Any], section: str, values: Mapping[str, Mapping[str, Any]], told: set[tuple[str, str]]
) -> Iterator[str]:
    """Yield the lines of a table of a section's fields, with each configuration's own values.

    Args:
        kind: the section's dataclass.
        section: its name; empty for the fields beside sections.
        values: by name, configurations that have the section.
        told: fields and texts of tables above, which stand there alone; those of this table are added.
    """
    texts = documented(kind)
    titles = ["default", *(["set by"] if values else []), "meaning"]
    yield f"| field | {' | '.join(titles)} |"
    yield f"|---|{'---|' * len(titles)}"
    for field in fields(kind):
        own = {name: of.get(section, {}) if section else of for name, of in values.items()}
        shown = {name: of[field.name] for name, of in own.items() if field.name in of and field.name not in SECTIONS}
        cells = [_set_by(shown)] if values else []
        text = "As above." if (field.name, texts[field.name]) in told else _cell(texts[field.name])
        told.add((field.name, texts[field.name]))
        yield " | ".join([f"| `{field.name}`", _written(_default(field)), *cells, f"{text} |"])
    yield ""


SECTIONS = ("data", "task", "labs", "network", "algorithm", "control")


def _set_by(values: Mapping[str, object]) -> str:
    """Return who sets a field to what, those with the same value together."""
    names: dict[str, list[str]] = {}
    for name, value in values.items():
        names.setdefault(_written(value), []).append(name)
    return "; ".join(f"{', '.join(of)}: {value}" for value, of in names.items())


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

    told: set[tuple[str, str]] = set()
    parts = [HEAD, "## Fields\n", *table(RunSpecification, "", pool, told)]
    parts += ["## Fields of `data`\n", *table(Data, "data", pool, told)]
    parts += ["## Fields of `data.selection`\n", *table(Selection, "data.selection", {}, told)]
    for name, kind in KINDS.items():
        parts += [
            f"## Fields of `network`, kind `{name}`\n",
            *table(kind, "network", of("network", name, "kind"), told),
        ]
    for name in algorithms():
        chosen = of("algorithm", name, "name") or {
            each: values for each, values in own.items() if values.get("algorithm", {}).get("name") == name
        }
        parts += [f"## Fields of `algorithm`, `{name}`\n", *table(algorithm_of(name), "algorithm", chosen, told)]
    in_labs = {name: of for name, of in whole.items() if "labs" in of}
    parts += ["## Fields of `labs`\n", *table(LabSettings, "labs", in_labs, told)]
    parts += ["## Fields of `control`\n", *table(ControlSettings, "control", {"small": own["small"]}, told)]
    parts += ["## Variants\n", "| name | base | what it changes |\n|---|---|---|"]
    for name, values in own.items():
        if "base" in values:
            changes = _in_a_line({key: value for key, value in values.items() if key != "base"})
            parts.append(f"| `{name}` | `{values['base']}` | `{changes}` |")
    return "\n".join([*parts, ""])
