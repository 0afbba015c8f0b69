# SPDX-License-Identifier: Apache-2.0
"""What code decides a result: a digest of a module and of all that it imports of this package.

A module counts by its syntax tree, so that comments, layout, docstrings and what an option says of itself (`help=`)
cost nothing; a changed line of code changes the digest of whatever can reach it, by imports at the top or in functions.
Data are no code: what must be made anew hangs on these digests, the bytes that are made do not hold them.

A module that decides no bytes, or only where it is asked for by name, says so in a line that begins with ASIDE and goes
on with why: imports of it are not followed.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
ASIDE = "# Not followed as an import: "


@dataclass(frozen=True)
class Module:
    """A module of the package: the digest of its syntax tree, the dotted names it imports, whether it stands aside."""

    digest: str
    imports: frozenset[str]
    aside: bool

    @classmethod
    def read(cls, path: Path) -> Module:
        """Parse a file. Not for use in several threads at once: Python 3.11's parser cannot bear it."""
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        _strip(tree)
        imports = frozenset(_imports(tree))
        digest = hashlib.sha256(ast.dump(tree).encode()).hexdigest()
        return cls(digest, imports, any(line.startswith(ASIDE) for line in text.splitlines()))


class Code:
    """The modules of the package in a folder (by default, this one), each read once."""

    def __init__(self, package: Path = PACKAGE) -> None:
        self._package = package
        self._modules: dict[str, Module | None] = {}

    def digests(self, *modules: str) -> dict[str, str]:
        """Return the digests of these modules and of all that is followed from them, by name (`sagecc.common.code`).

        Raises KeyError where there is no such module.
        """
        found: dict[str, str] = {}
        waiting = list(modules)
        while waiting:
            name = waiting.pop()
            module = self._read(name)
            if module is None:
                raise KeyError(name)
            if name not in found:
                found[name] = module.digest
                wanted = {*module.imports, *_parents(name)}
                waiting += [other for other in wanted if (there := self._read(other)) and not there.aside]
        return found

    def identity(self, *modules: str) -> str:
        """Return one digest of all of `digests`."""
        text = "".join(f"{name} {digest}\n" for name, digest in sorted(self.digests(*modules).items()))
        return hashlib.sha256(text.encode()).hexdigest()

    def _read(self, name: str) -> Module | None:
        """Return the module of that dotted name, if it is one of the package's."""
        if name not in self._modules:
            first, *rest = name.split(".")
            inside = self._package.joinpath(*rest)
            files = (inside.with_suffix(".py"), inside / "__init__.py") if rest else (inside / "__init__.py",)
            path = next((file for file in files if file.is_file()), None) if first == "sagecc" else None
            self._modules[name] = Module.read(path) if path else None
        return self._modules[name]


def identity(*modules: str) -> str:
    """Return the identity of the code behind these modules of the program that runs."""
    return Code().identity(*modules)


def _parents(name: str) -> Iterator[str]:
    """Yield the packages that a module lies in, whose __init__ runs before it."""
    while "." in name:
        name = name.rpartition(".")[0]
        yield name


def _imports(tree: ast.AST) -> Iterator[str]:
    """Yield the dotted names that a module imports, wherever it does; some are of what is in a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _strip(tree: ast.AST) -> None:
    """Remove what decides nothing: texts that stand for themselves, and the `help` of options."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [item for item in body if not _is_text(item)]  # type: ignore[attr-defined]
        if isinstance(node, ast.Call):
            node.keywords = [keyword for keyword in node.keywords if keyword.arg != "help"]


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
