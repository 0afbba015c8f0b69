# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from sagecc.common.code import digest

CODE = '''
"""A module."""
import math


class Mine:
    """A scheme."""

    def on_tick(self, sample):
        return math.inf
'''


def test_comments_docstrings_and_layout_count_nothing() -> None:
    retold = (
        CODE.replace("A module", "Another word")
        .replace("A scheme", "A word")
        .replace("return", "# Why\n        return")
    )
    assert retold != CODE
    assert digest(retold) == digest(CODE)


@pytest.mark.parametrize(("old", "new"), [("math.inf", "math.pi"), ("import math", "import cmath as math")])
def test_code_counts(old: str, new: str) -> None:
    assert old in CODE
    assert digest(CODE.replace(old, new)) != digest(CODE)


def test_what_is_no_python_has_no_digest() -> None:
    with pytest.raises(SyntaxError):
        digest("class Mine(")
