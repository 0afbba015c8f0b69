# SPDX-License-Identifier: Apache-2.0
"""How long `sagecc compare` takes: with nothing compiled, as at its first use, and after that."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from evidence.machine import CpuTime, save
from sagecc.cli import errors_in_one_line
from sagecc.common.shipped import BEST_POLICY

SCHEMES = ("cubic", "bbr2", BEST_POLICY)
ROUNDS = 3


def main() -> None:
    """Measure and save."""
    rounds = []
    for _ in range(ROUNDS):
        with TemporaryDirectory() as folder:
            kept = {"NUMBA_CACHE_DIR": f"{folder}/numba", "MPLCONFIGDIR": f"{folder}/matplotlib"}
            rounds.append({name: once(Path(folder), kept) for name in ("first", "later")})
    figures = {
        f"{name}_{clock}_s": median(found[name][clock] for found in rounds)
        for name in ("first", "later")
        for clock in ("wall", "cpu")
    }
    save("compare", {"schemes": SCHEMES, "rounds": ROUNDS, "load_average": round(os.getloadavg()[0], 1), **figures})


def once(folder: Path, kept: Mapping[str, str]) -> dict[str, float]:
    """Run the command with its picture; return the seconds, of the wall's clock and of processors.

    Args:
        folder: where the picture goes.
        kept: variables that say where compiled code and the list of fonts are kept.
    """
    command = [sys.executable, "-m", "sagecc", "compare", *SCHEMES, "--plot", str(folder / "compared.svg")]
    start, began_s = CpuTime.now(), time.perf_counter()
    subprocess.run(command, env={**os.environ, **kept}, check=True, stdout=subprocess.DEVNULL)
    return {"wall": time.perf_counter() - began_s, "cpu": CpuTime.now().since(start)}


if __name__ == "__main__":
    with errors_in_one_line("evidence.speed.compare"):
        main()
