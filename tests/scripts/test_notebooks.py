# SPDX-License-Identifier: Apache-2.0
"""The notebooks run, and their saved outputs are what they put out."""

from __future__ import annotations

import shutil
from pathlib import Path

import nbformat
import pytest

from scripts.notebooks import FOLDER, executed
from tests.conftest import ROOT

NOTEBOOKS = ("add-your-own-scheme", "deploy-a-policy", "meet-the-pool", "reading-a-league", "train-a-policy")
SLOW = ("deploy-a-policy", "train-a-policy")
COMPARED = {"deploy-a-policy": 2}
"""Code cells whose outputs are the same everywhere, of a notebook in which not all are."""
MOST_BYTES = 120_000


def texts(notebook: nbformat.NotebookNode) -> list[list[str]]:
    """What each code cell put out, but for pictures, whose bytes are the drawing library's."""
    return [
        [str(output.get("text", output.get("data", {}).get("text/plain", ""))) for output in cell["outputs"]]
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]


def test_these_are_all() -> None:
    assert tuple(sorted(path.stem for path in FOLDER.glob("*.ipynb"))) == NOTEBOOKS


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in NOTEBOOKS]
)
def test_in_any_folder_it_puts_out_what_is_saved(kernel: Path, tmp_path: Path, name: str) -> None:
    path = Path(shutil.copy(FOLDER / f"{name}.ipynb", tmp_path))
    saved = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    cells = slice(COMPARED.get(name))
    assert texts(executed(path))[cells] == texts(saved)[cells], "out of date: make notebooks"
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


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
