# SPDX-License-Identifier: Apache-2.0
"""Which of the project's modules import which."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import ROOT

LAYERS = {
    "common": set(),
    "schemas": {"common"},
    "collector": {"common", "schemas"},
    "pool": {"common", "schemas", "collector"},
    "policy": {"common", "schemas"},
    "learner": {"common", "schemas", "policy"},
    "execution": {"common", "schemas", "collector", "pool", "policy"},
    "growth": {"common", "schemas", "collector", "pool", "policy", "learner", "execution"},
    "leagues": {"common", "schemas", "collector", "pool", "policy", "learner", "execution"},
    "sagecc": {"common", "schemas", "collector", "pool", "policy", "learner", "execution", "growth", "leagues"},
}
"""What each package may import beside itself."""


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imported(file: Path) -> Iterator[str]:
    """Yield the dotted names that a file imports, wherever in the file it does."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def code_behind(file: Path, seen: set[Path]) -> set[Path]:
    """Return the project's own modules that a module reaches, itself included."""
    if file not in seen:
        seen.add(file)
        for name in imported(file):
            target = source(name)
            if target.exists():
                code_behind(target, seen)
    return seen


def package(name: str) -> str:
    """Return the package (a folder) that a dotted name of ours lies in, or "" for another's."""
    first, _, rest = name.partition(".")
    inner = rest.partition(".")[0]
    return "" if first != "sagecc" else inner if inner in LAYERS else first


def source(name: str) -> Path:
    """Return where a module of ours would lie."""
    inside = name.removeprefix("sagecc.") if package(name) != "sagecc" else name
    return ROOT / f"{inside.replace('.', '/')}.py"
