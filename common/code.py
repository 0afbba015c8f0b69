# SPDX-License-Identifier: Apache-2.0
"""What identifies a user's own Python: a digest of its syntax, which comments, docstrings and layout do not change.

The project's own code is identified by versions (common.versions).
"""

from __future__ import annotations

import ast
import hashlib


def digest(text: str) -> str:
    """Return the SHA-256 of a module's syntax, in hex. Not thread-safe, as Python 3.11's parser is not.

    Raises:
        SyntaxError: It is no Python.
    """
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [item for item in body if not _is_text(item)]  # type: ignore[attr-defined]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
