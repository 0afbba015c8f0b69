# SPDX-License-Identifier: Apache-2.0
"""YAML and JSON that people write: keys are unique, `1e-3` is a number, and an error names file and line."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import yaml

from sagecc.common.errors import SageccError


class _Loader(yaml.SafeLoader):
    """YAML whose keys are unique, and in which 1e-3 is a number."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for index, key in enumerate(keys):
            if any(key.value == earlier.value for earlier in keys[:index]):
                raise yaml.MarkedYAMLError(None, None, f"the key '{key.value}' stands here twice", key.start_mark)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), [*"-+0123456789"]
)


def parse(data: bytes, name: str) -> Any:
    """Return what a document says: JSON where `name` ends in `.json`, YAML elsewhere.

    Args:
        data: the document, in UTF-8.
        name: the file's name, for the error.

    Raises:
        SageccError: it is not what its name says, or has a key twice.
    """
    try:
        text = data.decode()
        if name.endswith(".json"):
            return json.loads(text, object_pairs_hook=_unique)
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        raise SageccError(f"{name}{line}: no YAML: {error.problem or error.context}") from None
    except json.JSONDecodeError as error:
        raise SageccError(f"{name}, line {error.lineno}: no JSON: {error.msg}") from None
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise SageccError(f"{name}: cannot be read: {error}") from None


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    for index, (key, _) in enumerate(pairs):
        if any(key == earlier for earlier, _ in pairs[:index]):
            raise ValueError(f"the key '{key}' stands in one object twice")
    return dict(pairs)
