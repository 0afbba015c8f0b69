# SPDX-License-Identifier: Apache-2.0
"""Jinja2 templates that turn what was measured into text.

A template lies beside what measures. Each `{% set name %}…{% endset %}` at its top level is a text that a page may show
by that name; names with an underscore in front are the template's own.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import jinja2

from sagecc.common.errors import SageccError
from sagecc.common.shipped import BEST_POLICY

ROOT = Path(__file__).resolve().parents[1]

Row = Mapping[str, Any]


def texts(path: Path, context: Mapping[str, Any]) -> dict[str, str]:
    """Return a template's texts by name. Raises SageccError, naming template and line, where one cannot be made."""
    with _told(path):
        template = ENVIRONMENT.get_template(_name(path))
        try:
            module = template.make_module(dict(context))
        except Exception:
            ENVIRONMENT.handle_exception()  # raises it again, with the template's own lines
    macros = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    for name, value in macros.items():
        if not isinstance(value, str):
            raise SageccError(f"{_name(path)}: '{name}' is no text; a name of the template's own begins with _")
    return {name: str(value).strip("\n") for name, value in macros.items()}


def whole(path: Path, context: Mapping[str, Any]) -> str:
    """Return a template's whole text; raises SageccError as `texts` does."""
    with _told(path):
        return ENVIRONMENT.get_template(_name(path)).render(context) + "\n"


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except (jinja2.TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        where = ":".join([_name(path), *map(str, lines[-1:])])
        raise SageccError(f"{where}: {error}") from error


def formatted(value: Any, form: str) -> str:
    """Return a number as an f-string with this format would write it."""
    return format(value, form)


def span(values: Iterable[float], form: str) -> str:
    """Return the median (lowest-highest) of what was measured several times."""
    numbers = list(values)
    middle = format(median(numbers), form)
    return middle if len(numbers) == 1 else f"{middle} ({format(min(numbers), form)}-{format(max(numbers), form)})"


def processor(name: str) -> str:
    """Return a processor's name without what every one of its maker has."""
    return re.sub(r"\((?:R|TM)\)| Processor\b", "", name)


def where(rows: Iterable[Row], **fields: object) -> list[Row]:
    """Return the rows with these fields."""
    return [row for row in rows if all(row[name] == value for name, value in fields.items())]


def one(rows: Iterable[Row], **fields: object) -> Row:
    """Return the one row with these fields."""
    matches = where(rows, **fields)
    if len(matches) != 1:
        raise ValueError(f"{len(matches)} rows have {fields}, where just one should")
    return matches[0]


def counted(counts: Mapping[str, int]) -> str:
    """Return counts by name, the most frequent first."""
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items(), key=lambda item: -item[1])) or "none"


def rules(columns: Sized | int) -> str:
    """Return the part of a table's second line that aligns so many columns, or one for each of these, to the right."""
    return "---:|" * (columns if isinstance(columns, int) else len(columns))


def environment(root: Path) -> jinja2.Environment:
    """Return Jinja2 with our filters, its templates named from `root`; `shipped` is the policy that comes along."""
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(root), undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    templates.filters |= {
        "f": formatted,
        "median": median,
        "processor": processor,
        "span": span,
        "where": where,
        "one": one,
        "counted": counted,
        "rules": rules,
    }
    templates.globals["shipped"] = BEST_POLICY
    return templates


ENVIRONMENT = environment(ROOT)
