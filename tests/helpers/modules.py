# SPDX-License-Identifier: Apache-2.0
"""Which of the project's modules import which."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from tests.conftest import ROOT

_COLLECTOR = "collector/kernel collector/lab collector/run"
_ROOMS = {
    "common": "",
    "schemas": "common",
    "collector/kernel": "common schemas",
    "collector/lab": "common schemas collector/kernel",
    "collector/run": "common schemas collector/kernel collector/lab",
    "collector/realtime": "common schemas collector/lab",
    "pool": "common schemas collector/run",
    "pool/exports": "common schemas pool",
    "policy": "common schemas",
    "learner": "common schemas pool policy",
    "learner/algorithms": "common policy learner",
    "learner/online": "common schemas policy learner",
    "learner/judging": "common schemas pool policy learner",
    "execution/flow": "common schemas",
    "execution/schemes": "common schemas pool policy execution/flow",
    "execution/schemes/*": "common schemas pool policy execution/flow execution/schemes",
    "execution/agent": "common schemas pool policy execution/flow execution/schemes",
    "execution/lab": f"common schemas {_COLLECTOR} execution/agent execution/schemes",
    "execution/environments": f"common schemas {_COLLECTOR} pool policy execution/flow execution/schemes "
    "execution/agent execution/lab",
    "execution/stock": "common schemas policy execution/agent",
    "execution/measure": "common schemas collector/lab collector/run collector/realtime execution/stock",
    "growth": "common schemas collector/run pool learner execution/agent execution/lab",
    "leagues": f"common schemas {_COLLECTOR} pool policy learner execution/agent execution/schemes execution/lab",
    "leagues/report": "common schemas collector/kernel collector/run policy execution/lab leagues",
    "leagues/study": f"common schemas {_COLLECTOR} execution/schemes execution/lab leagues",
    "leagues/vetting": "common schemas leagues leagues/study",
    "sagecc/doctor": f"common schemas {_COLLECTOR} collector/realtime execution/stock",
    "sagecc": f"common schemas {_COLLECTOR} collector/realtime policy learner learner/online execution/lab "
    "execution/environments leagues",
    "sagecc/commands": f"common schemas {_COLLECTOR} collector/realtime pool pool/exports policy learner "
    "learner/online learner/judging execution/schemes/* execution/agent execution/lab execution/stock "
    "execution/measure growth leagues "
    "leagues/report leagues/study leagues/vetting sagecc sagecc/doctor",
}
ROOMS: Mapping[str, frozenset[str]] = {room: frozenset(names.split()) for room, names in _ROOMS.items()}
"""Each folder of an installation, and the folders from which its modules import; data pass them in this order.

A folder `*` stands for each one there: a rival knows of no other.
"""

LAYERS: dict[str, set[str]] = {}
"""Each package, and those from which its modules import."""
for _room, _others in ROOMS.items():
    _package = _room.split("/")[0]
    LAYERS.setdefault(_package, set()).update({name.split("/")[0] for name in _others} - {_package})


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


@cache
def imported(file: Path) -> frozenset[str]:
    """Return the dotted names that a file imports, wherever in the file it does."""
    return _names(ast.walk(ast.parse(file.read_text())))


@cache
def imported_at_head(file: Path) -> frozenset[str]:
    """Return the dotted names that a file imports as soon as it is imported itself."""
    return _names(ast.parse(file.read_text()).body)


def _names(nodes: Iterable[ast.AST]) -> frozenset[str]:
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(names)


def identifiers(file: Path) -> set[str]:
    """Return the names in a file's code: of modules, variables, attributes, arguments and what it defines."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        found |= {
            value
            for name in ("id", "attr", "arg", "name", "module")
            if isinstance(value := getattr(node, name, None), str)
        }
    return found


@cache
def imported_modules(file: Path) -> frozenset[Path]:
    """Return the project's own modules that a file imports."""
    return frozenset(target for name in imported(file) if (target := source(name)).exists())


@cache
def modules_at_head(file: Path) -> frozenset[Path]:
    """Return the project's own modules that are imported as soon as a file is."""
    return frozenset(target for name in imported_at_head(file) if (target := source(name)).exists())


def code_behind(file: Path, seen: set[Path]) -> set[Path]:
    """Return the project's own modules that a module reaches, itself included."""
    if file not in seen:
        seen.add(file)
        for target in imported_modules(file):
            code_behind(target, seen)
    return seen


def code_behind_the_head(file: Path, seen: set[Path]) -> set[Path]:
    """Return the project's own modules that are imported together with a module, itself included."""
    if file not in seen:
        seen.add(file)
        for target in modules_at_head(file):
            code_behind_the_head(target, seen)
    return seen


def room(file: Path) -> str:
    """Return the room that a module of ours lies in."""
    folder = file.parent.relative_to(ROOT)
    return str(folder if str(folder) in ROOMS or str(folder.parent / "*") not in ROOMS else folder.parent / "*")


def rooms_behind(file: Path) -> set[str]:
    """Return the other folders from which a module imports."""
    targets = {source(name) for name in imported(file) if package(name)}
    modules_of = {room(target) for target in targets if target.is_file()}
    packages = {room(target.with_suffix("") / "__init__.py") for target in targets if _is_package(target)}
    return (modules_of | packages) - {room(file)}


def _is_package(target: Path) -> bool:
    return (target.with_suffix("") / "__init__.py").is_file()


def package(name: str) -> str:
    """Return the package (a folder) that a dotted name of ours lies in, or "" for another's."""
    first, _, rest = name.partition(".")
    inner = rest.partition(".")[0]
    return "" if first != "sagecc" else inner if inner in LAYERS else first


def source(name: str) -> Path:
    """Return where a module of ours would lie."""
    inside = name.removeprefix("sagecc.") if package(name) != "sagecc" else name
    return ROOT / f"{inside.replace('.', '/')}.py"
