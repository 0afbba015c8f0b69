# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from sagecc.common.markdown import literal_text


@pytest.mark.parametrize("name", ["cubic", "policy:models/sage_1@3", "python:a.py:Mine", "1.5 %"])
def test_an_ordinary_name_stays_as_it_is(name: str) -> None:
    assert literal_text(name) == name


def test_a_name_has_no_markup() -> None:
    assert literal_text("<img src=x>&amp;") == "&lt;img src=x&gt;&amp;amp;"
    assert literal_text("a|b\n# c\r\n\u2028d") == r"a\|b # c d"
    assert literal_text("[x](javascript:y) `z` *b* \\") == r"\[x\](javascript:y) \`z\` \*b\* \\"
