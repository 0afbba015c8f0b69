# SPDX-License-Identifier: Apache-2.0
"""Identify the code that decides a result: a digest of a module and of every module of this package that it imports.

The digest is taken of the syntax tree, so that comments, layout, docstrings and help texts (`help=`) do not change it.
A changed line of code changes the digest of every module that can reach it, by imports at the top or in functions.
These digests decide what must be made anew; the files that are made do not hold them.

A module that decides no bytes, or only where it is asked for by name, says so in a line that begins with ASIDE and
gives the reason: imports of it are not followed.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
ASIDE = "# Not followed as an import: "
"""Beginning of the line that excludes a module from the digests of those that import it."""


@dataclass(frozen=True)
class Module:
    """A parsed module of the package."""

    digest: str
    """SHA-256 of its syntax tree, in hex."""

    imports: frozenset[str]
    """Dotted names that it imports."""

    aside: bool
    """Whether it has an ASIDE line, so that imports of it are not followed."""

    @classmethod
    def read(cls, path: Path) -> Module:
        """Parse a file. Not thread-safe, as Python 3.11's parser is not."""
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        _strip(tree)
        imports = frozenset(_imports(tree))
        digest = hashlib.sha256(ast.dump(tree).encode()).hexdigest()
        return cls(digest, imports, any(line.startswith(ASIDE) for line in text.splitlines()))


class Code:
    """The modules of the package, each read once.

    Args:
        package: the package's folder; by default, that of the running program.
    """

    def __init__(self, package: Path = PACKAGE) -> None:
        self._package = package
        self._modules: dict[str, Module | None] = {}

    def digests(self, *modules: str) -> dict[str, str]:
        """Return the digests of modules and of all that they import, directly or not.

        Args:
            modules: dotted names, such as `sagecc.common.code`.

        Returns:
            Digest by dotted name.

        Raises:
            KeyError: a module does not exist.
        """
        digests: dict[str, str] = {}
        queue = list(modules)
        while queue:
            name = queue.pop()
            module = self._read(name)
            if module is None:
                raise KeyError(name)
            if name not in digests:
                digests[name] = module.digest
                imports = {*module.imports, *_parents(name)}
                queue += [other for other in imports if (target := self._read(other)) and not target.aside]
        return digests

    def identity(self, *modules: str) -> str:
        """Return one digest over all that `digests` returns for these modules."""
        text = "".join(f"{name} {digest}\n" for name, digest in sorted(self.digests(*modules).items()))
        return hashlib.sha256(text.encode()).hexdigest()

    def _read(self, name: str) -> Module | None:
        """Return the module of that dotted name, or None where the package has none."""
        if name not in self._modules:
            first, *rest = name.split(".")
            stem = self._package.joinpath(*rest)
            files = (stem.with_suffix(".py"), stem / "__init__.py") if rest else (stem / "__init__.py",)
            path = next((file for file in files if file.is_file()), None) if first == "sagecc" else None
            self._modules[name] = Module.read(path) if path else None
        return self._modules[name]


def identity(*modules: str) -> str:
    """Return `Code.identity` of these modules of the running program."""
    return Code().identity(*modules)


def _parents(name: str) -> Iterator[str]:
    """Yield the packages that contain a module: their __init__ runs before it."""
    while "." in name:
        name = name.rpartition(".")[0]
        yield name


def _imports(tree: ast.AST) -> Iterator[str]:
    """Yield the dotted names that a module imports, at any depth; some name a member of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _strip(tree: ast.AST) -> None:
    """Remove what decides nothing: docstrings, and the `help` of options."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [item for item in body if not _is_text(item)]  # type: ignore[attr-defined]
        if isinstance(node, ast.Call):
            node.keywords = [keyword for keyword in node.keywords if keyword.arg != "help"]


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
