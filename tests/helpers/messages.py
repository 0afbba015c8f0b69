# SPDX-License-Identifier: Apache-2.0
"""Messages are held by their facts: the file, the place in it, the value, what to do. Their wording is free."""

from __future__ import annotations

import re


def facts(wanted: str) -> str:
    """Return a pattern of messages that have these facts in this order, with any words for each `…` between them."""
    return ".*".join(map(re.escape, wanted.split("…")))
