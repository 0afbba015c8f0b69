# SPDX-License-Identifier: Apache-2.0
"""Strict and bounded reader of documents, YAML and JSON: keys are unique, numbers have one meaning, errors a place."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from sagecc.common import core_yaml
from sagecc.common.core_yaml import MAX_DEPTH
from sagecc.common.errors import SageccError
from sagecc.common.inputs import DOCUMENT_BYTES, read_regular
from sagecc.common.terminals import one_line


class DocumentError(SageccError):
    """What a document holds is none, as opposed to a document that is no file."""


_TOO_DEEP = f"values are nested more than {MAX_DEPTH} levels deep"


def read_document(path: Path) -> Any:
    """Return the content of a document: JSON where its name ends in `.json`, else YAML.

    Raises:
        SageccError: it is no regular file below DOCUMENT_BYTES.
        DocumentError: as `parse` says.
        OSError: it is missing, or out of reach.
    """
    return parse(read_regular(path, DOCUMENT_BYTES), str(path))


def parse(data: bytes, name: str) -> Any:
    """Return a document's content: JSON where `name` ends in `.json`, else YAML (common.core_yaml).

    Fractions may be infinite or NaN: who takes them decides.

    Args:
        data: the document, in UTF-8.
        name: the file's name, for error messages.

    Raises:
        DocumentError: the document cannot be parsed, repeats a key, or has values nested deeper, texts or whole numbers
            other than can be told apart and used anywhere.
    """
    try:
        text = _text(data)
        if name.endswith(".json"):
            value = json.loads(text, object_pairs_hook=_unique, parse_int=core_yaml.whole_number)
        else:
            value = core_yaml.load(text)
        _check(value)
        return value
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        problem = one_line(": ".join(part for part in (error.context, error.problem) if part))
        raise DocumentError(f"{name}{line}: no YAML: {problem}") from None
    except json.JSONDecodeError as error:
        raise DocumentError(f"{name}, line {error.lineno}: no JSON: {error.msg}") from None
    except RecursionError:
        raise DocumentError(f"{name}: cannot be read: {_TOO_DEEP}") from None
    except (ValueError, yaml.YAMLError) as error:
        raise DocumentError(f"{name}: cannot be read: {' '.join(str(error).split())}") from None


def _text(data: bytes) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ValueError("it is in UTF-16; save it as UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not in UTF-8: see byte {error.start + 1}") from None


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    index = core_yaml.repeated(key for key, _ in pairs)
    if index is not None:
        raise ValueError(f"the key '{pairs[index][0]}' stands in one object twice")
    return dict(pairs)


def _check(value: Any) -> None:
    """Raise ValueError where values are nested too deep, or a text holds half of a surrogate pair."""
    level = [value]
    for _ in range(MAX_DEPTH):
        for text in (each for each in level if isinstance(each, str) and not each.isascii()):
            _check_text(text)
        level = [part for each in level for part in _parts(each)]
    if level:
        raise ValueError(_TOO_DEEP)


def _parts(value: Any) -> Sequence[Any]:
    if isinstance(value, dict):
        return [*value, *value.values()]
    return value if isinstance(value, list) else ()


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"\\u{ord(text[error.start]):04x} is half of a character") from None
