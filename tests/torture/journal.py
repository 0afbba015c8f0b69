# SPDX-License-Identifier: Apache-2.0
"""What has been tried so far, a JSON object a line: a killed benchmark goes on from there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sagecc.common.files import write_atomically

Row = dict[str, Any]


class Journal:
    """Rows in a file, in the order in which they were added."""

    def __init__(self, path: Path) -> None:
        """Read what there is; a last line that a kill has cut short is none."""
        path.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text() if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            with write_atomically(path) as beside:
                beside.write_text(whole)
        self._path = path
        self.rows: list[Row] = [json.loads(line) for line in whole.splitlines()]

    def add(self, row: Row) -> None:
        """Append a row."""
        with self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        self.rows.append(row)
