# SPDX-License-Identifier: Apache-2.0
"""How many windows of 50 steps a second a learner gets from a compiled pool larger than it would keep in memory.

A file of 17 GB (60 million rows; every block written, none alike) stands in for
the compiled pool of the whole grid. Before each cold figure it is dropped from this machine's page cache, and what is
left of it there is counted. What caches the disk has of its own (a virtual machine's host) is out of reach.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from tqdm import tqdm

from evidence.machine import CpuTime, save
from sagecc.cli import errors_in_one_line
from sagecc.common.arrays import Floats
from sagecc.common.files import sync
from sagecc.learner.compiled import CompiledPool
from sagecc.learner.data import THREADS, Prefetch, WindowSampler
from sagecc.learner.rows import COLUMNS, ROW_BYTES, ROWS_FILE, RowWriter
from sagecc.learner.selection import Trajectories
from sagecc.policy.scaling import Scaling, unscaled

FILE_BYTES = 17 * 10**9
EPISODE_ROWS = 3_400
BATCH, WINDOW = 256, 50
COUNTS = (1, 2, 4, 8, 16)
COLD_BATCHES = 400
"""102,400 windows, 1.5 GB: few of them fall on what an earlier one brought into memory."""

WARM_BATCHES = 100
MMAP_BATCHES = 2
AS_IS = unscaled(69)
SYMLOG = Scaling("symlog", np.zeros(69, np.float32), np.ones(69, np.float32), 5.0)


def main() -> None:
    """Write the file, measure, save, remove the file."""
    folder = Path(".cache") / "bench-feeding"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        pool = write(folder)
        plan = [
            *(("cold", threads, "none", AS_IS) for threads in COUNTS),
            ("cold", THREADS, "symlog", SYMLOG),
            *(("warm", threads, "none", AS_IS) for threads in (1, THREADS)),
            ("warm", THREADS, "symlog", SYMLOG),
        ]
        rows = [measure(pool, *case, seed) for seed, case in enumerate(tqdm(plan, desc="feeding", disable=None))]
        save(
            "feeding",
            {
                "file_gb": pool.rows_file.stat().st_size / 1e9,
                "batch": BATCH,
                "window": WINDOW,
                "cold_windows": COLD_BATCHES * BATCH,
                "rows": rows,
                "mmap": mapped(pool),
            },
        )
    finally:
        shutil.rmtree(folder)


def write(folder: Path) -> CompiledPool:
    """Write rows.f32; return it as a pool of equal episodes."""
    episodes = FILE_BYTES // (EPISODE_ROWS * ROW_BYTES)
    rows = np.random.default_rng(0).normal(size=(64 * EPISODE_ROWS, COLUMNS)).astype(np.float32)
    with RowWriter(folder) as file:
        for begin in tqdm(range(0, episodes, 64), desc="write 17 GB", disable=None):
            rows += 1
            file.write(rows[: min(64, episodes - begin) * EPISODE_ROWS])
    sync(folder / ROWS_FILE)
    lengths = np.full(episodes, EPISODE_ROWS)
    names = np.full(episodes, "")
    return CompiledPool(
        folder=folder,
        starts=np.arange(episodes) * EPISODE_ROWS,
        lengths=lengths,
        weights=np.ones(episodes),
        trajectories=Trajectories(names, names, names, np.zeros(episodes)),
        sums=np.zeros((episodes, 4, 69)),
        counted=lengths,
        kicks=np.empty(0, np.int64),
        identity="",
    )


def drop(path: Path) -> float:
    """Drop a file from the page cache; return the GB of it that stay there, as fincore counts them."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)
    counted = subprocess.run(["fincore", "-b", "-n", "-o", "RES", path], capture_output=True, text=True, check=True)
    return int(counted.stdout) / 1e9


def timed(batches: int, make: Callable[[int], tuple[Floats, ...]]) -> dict[str, float]:
    """Take batches as a training run does; return windows per second of wall clock and of CPU time."""
    cpu, begun = CpuTime.now(), time.perf_counter()
    with Prefetch(make, range(batches)) as coming:
        for _ in range(batches):
            coming.next()
    seconds, spent = time.perf_counter() - begun, CpuTime.now().since(cpu)
    return {"windows_per_s": batches * BATCH / seconds, "windows_per_cpu_s": batches * BATCH / spent}


def measure(
    pool: CompiledPool, cache: str, threads: int, transform: str, scaling: Scaling, seed: int
) -> dict[str, object]:
    """Draw batches with so many threads, from disk or, drawn once already, from the page cache."""
    with WindowSampler(pool, scaling, BATCH, WINDOW, seed, threads) as sampler:
        batches = COLD_BATCHES if cache == "cold" else WARM_BATCHES
        left_gb = drop(pool.rows_file) if cache == "cold" else None
        if cache == "warm":
            for step in range(batches):
                sampler.batch(step)
        speed = timed(batches, sampler.batch)
    load = os.getloadavg()[0]
    return {"load": load, "cache": cache, "threads": threads, "transform": transform, "left_gb": left_gb, **speed}


def mapped(pool: CompiledPool) -> dict[str, float]:
    """Draw cold batches through a plain memory map, as numpy indexes it: what was done before."""
    drop(pool.rows_file)
    rows = np.memmap(pool.rows_file, dtype="<f4", mode="r").reshape(-1, COLUMNS)
    with WindowSampler(pool, AS_IS, BATCH, WINDOW, seed=99) as sampler:
        return timed(MMAP_BATCHES, lambda step: (rows[sampler.first_rows(step)[:, None] + np.arange(WINDOW)],))


if __name__ == "__main__":
    with errors_in_one_line("evidence.speed.feeding"):
        main()
