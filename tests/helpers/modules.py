# SPDX-License-Identifier: Apache-2.0
"""Which of the project's modules import which."""

from __future__ import annotations

import ast
from functools import cache
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


@cache
def imported(file: Path) -> frozenset[str]:
    """Return the dotted names that a file imports, wherever in the file it does."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(names)


@cache
def imported_modules(file: Path) -> frozenset[Path]:
    """Return the project's own modules that a file imports."""
    return frozenset(target for name in imported(file) if (target := source(name)).exists())


def code_behind(file: Path, seen: set[Path]) -> set[Path]:
    """Return the project's own modules that a module reaches, itself included."""
    if file not in seen:
        seen.add(file)
        for target in imported_modules(file):
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
