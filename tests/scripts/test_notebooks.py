# SPDX-License-Identifier: Apache-2.0
"""The notebooks run, and their saved outputs are what they put out."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from scripts.notebooks import FOLDER, executed
from tests.conftest import ROOT

NOTEBOOKS = ("add-your-own-scheme", "meet-the-pool", "reading-a-league")
MOST_BYTES = 300_000


def texts(notebook: nbformat.NotebookNode) -> list[list[str]]:
    """What each code cell put out, but for pictures, whose bytes are the drawing library's."""
    return [
        [str(output.get("text", output.get("data", {}).get("text/plain", ""))) for output in cell["outputs"]]
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]


def test_these_are_all() -> None:
    assert tuple(sorted(path.stem for path in FOLDER.glob("*.ipynb"))) == NOTEBOOKS


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_it_puts_out_what_is_saved(kernel: Path, name: str) -> None:
    path = FOLDER / f"{name}.ipynb"
    saved = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    assert texts(executed(path)) == texts(saved), "out of date: make notebooks"


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_it_is_saved_whole_and_small(name: str) -> None:
    path = FOLDER / f"{name}.ipynb"
    assert path.stat().st_size < MOST_BYTES
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    nbformat.validate(notebook)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    kinds = [(output["output_type"], *output.get("data", {})) for cell in code for output in cell["outputs"]]
    assert not any("error" in kind for kind in kinds)
    assert sum("image/png" in kind for kind in kinds) >= 2
    text = path.read_text(encoding="utf-8")
    assert "SPDX-License-Identifier: Apache-2.0" in text
    assert str(ROOT) not in text
    assert '"name": "stderr"' not in text
