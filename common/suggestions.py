# SPDX-License-Identifier: Apache-2.0
"""What somebody who wrote a name that is none may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """Return `; did you mean X?` of the name that is nearest to a word, whatever its case, or nothing if none is."""
    by_lower = {name.lower(): name for name in names}
    close = difflib.get_close_matches(word.lower(), by_lower, 1)
    return f"; did you mean {by_lower[close[0]]}?" if close else ""
