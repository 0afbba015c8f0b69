# SPDX-License-Identifier: Apache-2.0
"""Writes docs/reference/configuration.md: every field of a training run from its documentation in learner/config.py."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from sagecc.learner import config
from sagecc.learner.selection import Selection

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "configuration.md"
WHOLE = ("tiny", "small", "paper")
"""Configurations that name every field without a default; the others are variants of one of these."""

ENTRY = re.compile(r"^(\w+(?:, \w+)*): ")
HEAD = """# Configuration

Written by `make pages` from `learner/config.py`, `learner/selection.py` and `learner/configs/`. A configuration
is a YAML file of fields: `sagecc train --config NAME` takes one that comes with sagecc, `--config FILE.yaml` your own.
`base: NAME` takes what the file does not say from another; `paper+no-gru` is the variant `no-gru` of `paper`. An
unknown field, a wrong type or a value out of range is an error. [Train](../guide/train.md) says how to use them,
[the learner](../method/learner.md) why they are as they are. An empty cell is the default.
"""


def sections(documentation: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield (title, its fields' names and texts) of a docstring made of `name: text` entries below `Title:` lines."""
    title = ""
    for paragraph in inspect.cleandoc(documentation).split("\n\n")[1:]:
        lines = re.sub(r"\n +", " ", paragraph).split("\n")
        found = [ENTRY.match(line) for line in lines]
        listed = [
            (name, line[m.end() :]) for line, m in zip(lines, found, strict=True) if m for name in m[1].split(", ")
        ]
        if listed:
            yield title, listed
        else:
            title = paragraph.removesuffix(":")


def shipped(name: str) -> dict[str, Any]:
    """Return the fields that a configuration's own file names."""
    text = (resources.files("sagecc.learner") / "configs" / f"{name}.yaml").read_text(encoding="utf-8")
    values: dict[str, Any] = yaml.safe_load(text)
    return values


def tables(kind: type[Any], values: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield a table for each section of a dataclass's docstring, with each configuration's own values."""
    known = {each.name: each for each in fields(kind)}
    for title, listed in sections(kind.__doc__ or ""):
        if title:
            heading, _, note = title.partition(" (")
            yield f"### {heading}\n"
            if note:
                yield f"{note[0].upper()}{note[1:].removesuffix(')')}.\n"
        yield f"| field | default |{''.join(f' `{name}` |' for name in values)} meaning |"
        yield f"|---|---|{'---|' * len(values)}---|"
        for name, text in listed:
            cells = [_written(own.get(name, MISSING)) for own in values.values()]
            yield " | ".join([f"| `{name}`", _written(_default(known[name])), *cells, f"{_cell(text)} |"])
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


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def page() -> str:
    """Return the page."""
    others = {name: shipped(name) for name in config.shipped() if name not in WHOLE}
    parts = [
        HEAD,
        "## Fields\n",
        *tables(config.Config, {name: shipped(name) for name in WHOLE}),
        "## Fields of `data`\n",
        *tables(Selection, {}),
        "## Variants\n",
        "| name | base | what it changes |\n|---|---|---|",
        *(f"| `{name}` | `{own.pop('base')}` | `{_in_a_line(own)}` |" for name, own in others.items()),
    ]
    return "\n".join([*parts, ""])
