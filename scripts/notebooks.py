# SPDX-License-Identifier: Apache-2.0
"""Executes notebooks/*.ipynb and saves them with their outputs: `make notebooks`."""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from PIL import Image

from sagecc.common.files import write_atomically

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
TIMEOUT_S = 600
PNG, COLOURS = "image/png", 32


def executed(path: Path) -> NotebookNode:
    """Return a notebook with the outputs that it has now, in its own folder as Jupyter runs it.

    Only what the cells put out is kept: no times, no version of Python; pictures have COLOURS, which keeps them small.
    Raises CellExecutionError where a cell fails.
    """
    notebook: NotebookNode = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    client = NotebookClient(
        notebook,
        timeout=TIMEOUT_S,
        kernel_name="python3",
        extra_arguments=["--log-level=40"],
        record_timing=False,
        resources={"metadata": {"path": str(path.parent)}},
    )
    with TemporaryDirectory() as folder:  # for what the cells leave
        client.execute(env={**os.environ, "TMPDIR": folder})
    notebook.metadata["language_info"] = {"name": "python"}
    for output in (output for cell in notebook["cells"] for output in cell.get("outputs", ())):
        if PNG in output.get("data", {}):
            output["data"][PNG] = _smaller(output["data"][PNG])
    return notebook


def _smaller(picture: str) -> str:
    """Return a picture in base64 with a palette."""
    packed = BytesIO()
    with Image.open(BytesIO(base64.b64decode(picture))) as image:
        image.convert("RGB").quantize(COLOURS).save(packed, "PNG", optimize=True)
    return base64.b64encode(packed.getvalue()).decode()


def main(names: Sequence[str]) -> None:
    """Execute the notebooks of these names, or all."""
    for path in sorted(FOLDER.glob("*.ipynb")):
        if not names or path.stem in names:
            notebook = executed(path)
            with write_atomically(path) as temporary:
                nbformat.write(notebook, temporary)  # type: ignore[no-untyped-call]
            print(f"{path.relative_to(FOLDER.parent)}: {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
