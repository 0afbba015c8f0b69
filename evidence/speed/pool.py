# SPDX-License-Identifier: Apache-2.0
"""What the full grid's pool costs on two cores: deriving it, checking it, asking it. `make full` first.

Each figure is taken in a process of its own, pinned to two cores. The pool is derived anew from datasets/full/raw, of a
few partitions and of all of them, into a folder that is removed afterwards. Cold means that the pool's files were
dropped from this machine's page cache before; what caches the disk has of its own is out of reach.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import duckdb

from evidence.machine import CpuTime, save
from evidence.speed.feeding import drop
from sagecc.cli import errors_in_one_line
from sagecc.common.errors import SageccError
from sagecc.pool.checks import check_pool
from sagecc.pool.derivation import build_pool
from sagecc.pool.views import open_pool

RAW = Path("datasets/full/raw")
LEAGUE = Path("leagues/results")
QUERIES = Path("docs/examples/questions.sql")
CORES = 2
PARTITIONS = (2, 8, 26)
LOOK_UPS = 20
REPEATS = 5
SCAN = "SELECT avg(srtt), avg(action), avg(reward) FROM transitions"
LOOK_UP = "SELECT {columns} FROM episode('{episode}')"

Figures = dict[str, Any]


def main() -> None:
    """Measure and save."""
    if len(list(RAW.glob("set=*/scheme=*"))) < PARTITIONS[-1]:
        raise SageccError(f"{RAW} does not hold the full grid: run 'make full' first")
    folder = Path(".cache") / "bench-pool"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        derived = [apart(derive, folder, count) for count in PARTITIONS]
        pool = folder / "pool"
        save(
            "pool",
            {
                "derive": derived,
                "check": apart(check, pool),
                "scan": apart(scan, pool),
                "look_up": apart(look_up, pool),
                "queries": apart(queries, pool),
                "command_s": command_s(pool),
                "load": os.getloadavg()[0],
            },
        )
    finally:
        shutil.rmtree(folder)


def apart(work: Callable[..., Figures], *arguments: object) -> Figures:
    """Return what `work` returns in a fresh process on two cores, with its wall and CPU seconds and peak memory."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=_report, args=(theirs, work, arguments))
    process.start()
    theirs.close()
    try:
        figures: Figures = ours.recv()
    except EOFError:
        raise SageccError(f"{work.__name__} failed (its own words are above)") from None
    process.join()
    return figures


def _report(to: Any, work: Callable[..., Figures], arguments: tuple[object, ...]) -> None:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    cpu, begun = CpuTime.now(), time.perf_counter()
    figures = work(*arguments)
    spent = {"wall_s": time.perf_counter() - begun, "cpu_s": CpuTime.now().since(cpu)}
    to.send(figures | spent | {"peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6})


def derive(folder: Path, count: int) -> Figures:
    """Derive the pool of so many partitions, each set's schemes in turn."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        by_scheme = sorted(RAW.glob("set=*/scheme=*"), key=lambda path: (path.name, path.parent.name))
        for source in by_scheme[:count]:
            link = Path(scratch) / source.relative_to(RAW)
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(source.resolve())
        shutil.rmtree(folder / "pool", ignore_errors=True)
        result = build_pool(Path(scratch), folder / "pool", jobs=CORES)
    return {"partitions": count, "rows": result.rows}


def check(pool: Path) -> Figures:
    """Check the whole pool."""
    report = check_pool(pool, jobs=CORES)
    if report.faults:
        raise SageccError(f"the pool is not sound: {report.faults[0]}")
    return {"rows": report.rows, "bytes": report.bytes, "profile": report.grid.name if report.grid else None}


def _drop(pool: Path) -> float:
    return sum(drop(path) for path in pool.rglob("*.parquet"))


def _seconds(connection: duckdb.DuckDBPyConnection, query: str) -> float:
    begun = time.perf_counter()
    connection.sql(query).to_arrow_table()
    return time.perf_counter() - begun


def _seconds_anew(pool: Path, query: str) -> float:
    """Ask on a connection of its own, opening it included."""
    begun = time.perf_counter()
    with open_pool(pool) as connection:
        connection.sql(query).to_arrow_table()
    return time.perf_counter() - begun


def _summary(times: list[float]) -> Figures:
    return {"s": median(times), "worst_s": max(times)}


def scan(pool: Path) -> Figures:
    """Scan three columns of all rows: cold and warm on a new connection each time, and again on an open one."""
    cold, left_gb = [], 0.0
    for _ in range(REPEATS):
        left_gb = max(left_gb, _drop(pool))
        cold.append(_seconds_anew(pool, SCAN))
    warm = [_seconds_anew(pool, SCAN) for _ in range(REPEATS)]
    with open_pool(pool) as connection:
        again = [_seconds(connection, SCAN) for _ in range(REPEATS + 1)][1:]
    figures = {"cold, new connection": cold, "warm, new connection": warm, "warm, open connection": again}
    return {"left_gb": left_gb, "times": {name: _summary(times) for name, times in figures.items()}}


def look_up(pool: Path) -> Figures:
    """Look up episodes, three columns and all of them: cold on a new connection and on an open one, and warm."""
    with open_pool(pool) as connection:
        names = [row[0] for row in connection.execute("SELECT episode_id FROM episodes ORDER BY ALL").fetchall()]
        sample = random.Random(0).sample(names, LOOK_UPS)
        figures: Figures = {}
        for label, columns in (("three columns", "t_s, srtt, action"), ("every column", "*")):
            new, cold, warm = [], [], []
            for episode in sample:
                query = LOOK_UP.format(columns=columns, episode=episode)
                _drop(pool)
                new.append(_seconds_anew(pool, query))
                _drop(pool)
                cold.append(_seconds(connection, query))
                warm.append(_seconds(connection, query))
            cases = {"cold, new connection": new, "cold, open connection": cold, "warm, open connection": warm}
            figures |= {f"{label}, {name}": _summary(times) for name, times in cases.items()}
    return {"episodes": LOOK_UPS, "times": figures}


def queries(pool: Path) -> Figures:
    """Ask the questions of docs/examples/questions.sql on the whole pool, warm; raw and league as they lie here."""
    league = LEAGUE.resolve() if (LEAGUE / "scores.parquet").exists() else None
    _, *questions = QUERIES.read_text().split("\n\n-- ")
    times = {}
    with tempfile.TemporaryDirectory() as scratch, open_pool(pool.resolve(), RAW.resolve(), league) as connection:
        os.chdir(scratch)  # for what a question writes
        for title, _, query in (question.partition("\n") for question in questions):
            if league is None and "league" in query:
                continue
            begun = time.perf_counter()
            connection.execute(query).fetchall()
            times[title] = time.perf_counter() - begun
    return {"times": times}


def command_s(pool: Path) -> float:
    """Return the seconds that `sagecc sql` takes for the smallest question."""
    command = [sys.executable, "-m", "sagecc", "sql", "SELECT 1", "--pool", str(pool)]
    times = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - begun)
    return median(times)


if __name__ == "__main__":
    with errors_in_one_line("evidence.speed.pool"):
        main()
