# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from sagecc.common.suggestions import did_you_mean


@pytest.mark.parametrize(
    ("word", "said"),
    [("cubik", "; did you mean cubic?"), ("CUBIC", "; did you mean cubic?"), ("tahoe", ""), ("", "")],
)
def test_the_nearest_name_is_meant(word: str, said: str) -> None:
    assert did_you_mean(word, ("cubic", "vegas", "bbr2")) == said
