# SPDX-License-Identifier: Apache-2.0
"""What the full grid's pool is and what making it took: `make full` first, under `time`.

The files are measured as they lie in datasets/full. Times come from a file with a line `NAME USER_S SYSTEM_S WALL_S`
for each command that was needed, NAME being `collect` or `pool`:

    /usr/bin/time -a -o times.txt -f 'collect %U %S %e' sagecc collect --profile full --out datasets/full/raw
    /usr/bin/time -a -o times.txt -f 'pool %U %S %e' sagecc pool --raw datasets/full/raw --out datasets/full/pool
    python -m evidence.speed.full times.txt
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

import pyarrow.parquet as pq

from evidence.machine import save
from sagecc.cli import errors_in_one_line
from sagecc.common.errors import SageccError

FULL = Path("datasets/full")
STAGES = ("collect", "pool")


def main() -> None:
    """Measure the files, add the times, save."""
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    save("full", {"raw": size(FULL / "raw"), "pool": size(FULL / "pool"), "times": times(Path(sys.argv[1]))})


def size(folder: Path) -> dict[str, int]:
    """Return the trajectories in a folder of partitions: episodes, rows and bytes."""
    parts = sorted(folder.glob("set=*/scheme=*/part-*.parquet"))
    if not parts:
        raise SageccError(f"{folder} holds no trajectories: run 'make full' first")
    ids: set[str] = set()
    for part in parts:
        ids.update(pq.read_table(part, columns=["episode_id"], partitioning=None)["episode_id"].unique().to_pylist())
    return {
        "episodes": len(ids),
        "rows": sum(pq.read_metadata(part).num_rows for part in parts),
        "bytes": sum(file.stat().st_size for file in folder.rglob("*.parquet")),
    }


def times(path: Path) -> dict[str, dict[str, float]]:
    """Return the CPU and wall seconds of each stage, summed over the file's lines."""
    summed: dict[str, dict[str, float]] = defaultdict(lambda: {"cpu_s": 0.0, "wall_s": 0.0})
    for line in path.read_text().splitlines():
        stage, user, system, wall = line.split()
        if stage not in STAGES:
            raise SageccError(f"{path}: '{stage}' is none of {', '.join(STAGES)}")
        summed[stage]["cpu_s"] += float(user) + float(system)
        summed[stage]["wall_s"] += float(wall)
    return dict(summed)


if __name__ == "__main__":
    with errors_in_one_line("evidence.speed.full"):
        main()
