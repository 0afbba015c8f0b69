# SPDX-License-Identifier: Apache-2.0
"""Commands as a user types them, on the oldest processor that there may be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT

OLDEST = {
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR",
}
"""Makes processors with AVX-512 round as those without."""


def sagecc(folder: Path, *arguments: str) -> None:
    """Run a command in `folder`."""
    _run(folder, "-m", "sagecc", *arguments)


def python(folder: Path, text: str) -> str:
    """Run Python in `folder`; return what it prints."""
    return _run(folder, "-c", text)


def _run(folder: Path, *arguments: str) -> str:
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, **OLDEST, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout
