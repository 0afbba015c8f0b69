# SPDX-License-Identifier: Apache-2.0
"""Names in Markdown."""

from __future__ import annotations

import re
from html import escape


def literal_text(text: str) -> str:
    """Return text that Markdown shows as it is: one line, without a tag, link, code, emphasis or column of its own."""
    return re.sub(r"([\\`*\[\]|])", r"\\\1", escape(" ".join(text.split()), quote=False))
