# SPDX-License-Identifier: Apache-2.0
"""What `make verify` runs once set up: whether this machine makes the bytes and numbers that are published.

The kernel is built, a few schemes of the profile `small` are collected in all its networks, and the policy that comes
with sagecc plays there. dvc.lock has the digests of kernel and trajectories, evidence/plays/small.parquet each window's
numbers. Killed, it goes on: what was collected and played stays in build/verify.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import yaml

from evidence.kept import RULES, path_of, played, read_kept
from evidence.machine import KERNEL
from sagecc.cli import errors_in_one_line
from sagecc.collector.run.grid import profile_set
from sagecc.common.errors import SageccError
from sagecc.common.limits import usable_cores
from sagecc.common.shipped import BEST_POLICY
from sagecc.leagues.standings import mark_winners, standings
from sagecc.schemas.partitions import partition
from sagecc.schemas.schemes import POLICY_PREFIX, SCHEMES

PROFILE = "small"
COLLECTED = ("cubic", "vegas", "bbr2")
"""Of the 13 schemes, those that are collected; all would take a quarter of an hour."""
POLICY = f"models/{BEST_POLICY}"
PLACE = Path("build/verify")
LOCK = Path("dvc.lock")
SAME = "the same bytes"


@dataclass(frozen=True)
class Checked:
    """Whether something is what is published."""

    what: str
    same: bool
    said: str


def main() -> int:
    """Verify; return the exit status: 0 all is as published, 1 something is not."""
    began_s = time.monotonic()
    differing = []
    for finding in findings():
        print(f"{finding.what}: {finding.said}", flush=True)
        if not finding.same:
            differing.append(finding.what)
    minutes = (time.monotonic() - began_s) / 60
    if differing:
        print(f"make verify: {', '.join(differing)}: not what is published ({minutes:.1f} minutes)")
        return 1
    print(f"make verify: trajectories are {SAME}, the policy's numbers the same ({minutes:.1f} minutes)")
    return 0


def findings() -> Iterator[Checked]:
    """Make each thing, and yield whether it is as published.

    Raises:
        SageccError: a command fails, or what is published is not at hand.
    """
    published = read_published(LOCK)
    _announce("1/3 the kernel, about 4 minutes where it is not built")
    _sagecc("kernel")
    kernel_md5 = _md5(KERNEL.read_bytes())
    is_same = kernel_md5 == published[str(KERNEL)]
    yield Checked("kernel", True, SAME if is_same else "other bytes, of another compiler; its trajectories decide")
    _announce(f"2/3 {', '.join(COLLECTED)} in all networks of {PROFILE}")
    raw = PLACE / "raw"
    _sagecc("collect", "--profile", PROFILE, "--schemes", ",".join(COLLECTED), "--out", str(raw))
    for scheme in COLLECTED:
        for set_name in ("I", "II"):
            name = partition(set_name, scheme)
            is_same = folder_md5(raw / name) == published[f"datasets/raw/{name}"]
            yield Checked(f"{scheme}, Set {set_name}", is_same, SAME if is_same else "other bytes")
    _announce(f"3/3 {POLICY} in the same networks")
    kept = read_kept(path_of(PROFILE))
    own = played(profile_set(PROFILE), POLICY, f"{POLICY_PREFIX}{POLICY}", PLACE / POLICY, KERNEL, usable_cores())
    yield compared(own, kept)


def compared(own: pl.DataFrame, kept: pl.DataFrame) -> Checked:
    """Return whether a policy's rows are those that are kept, and how often it wins against the pool's schemes.

    Args:
        own: its rows of now (evidence.kept).
        kept: the kept rows of all contestants.
    """
    keys = ["environment_id", "window"]
    before = kept.filter(pl.col("scheme") == POLICY).select(own.columns)
    now, before = (table.sort(*keys) for table in (own, before))
    if now.height != before.height:
        return Checked(POLICY, False, f"{now.height} windows, {before.height} published")
    differing = sum(a != b for a, b in zip(now.rows(), before.rows(), strict=True))
    rates = {name: winning_rates(table, kept) for name, table in (("now", now), ("published", before))}
    text = ", ".join(f"{rate:.1%} in Set {name}" for name, rate in rates["now"].items())
    said = f"the same numbers in {now.height} windows; of these it wins {text}"
    if differing:
        published = ", ".join(f"{rate:.1%}" for rate in rates["published"].values())
        said = f"{differing} of {now.height} windows differ; it wins {text}, published {published}"
    return Checked(POLICY, not differing, said)


def winning_rates(own: pl.DataFrame, kept: pl.DataFrame) -> dict[str, float]:
    """Return the share of windows that a policy wins against the pool's schemes, by set."""
    table = pl.concat([kept.filter(pl.col("scheme").is_in(list(SCHEMES))), own.select(kept.columns)])
    won = standings(mark_winners(table, RULES.margin, RULES.friendly_margin)).filter(pl.col("scheme") == POLICY)
    return dict(won.sort("set").select("set", "winning_rate").iter_rows())


def read_published(lock: Path) -> Mapping[str, str]:
    """Return the digests of a lock's results by their paths.

    Raises:
        SageccError: the lock is of another profile.
    """
    stages: Mapping[str, Any] = yaml.safe_load(lock.read_text())["stages"]
    found = {out["path"]: str(out["md5"]) for stage in stages.values() for out in stage["outs"]}
    if f"--profile {PROFILE} " not in stages[f"collect@{COLLECTED[0]}"]["cmd"]:
        raise SageccError(f"{lock} is not of the profile {PROFILE}: 'git checkout {lock}' brings the published one")
    return found


def folder_md5(folder: Path) -> str:
    """Return the digest of a folder as DVC writes it into its lock."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    entries = [{"md5": _md5(path.read_bytes()), "relpath": path.relative_to(folder).as_posix()} for path in files]
    return f"{_md5(json.dumps(entries, sort_keys=True).encode())}.dir"


def _announce(text: str) -> None:
    print(f"make verify: {text}", file=sys.stderr, flush=True)


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def _sagecc(*arguments: str) -> None:
    command: Sequence[str] = [sys.executable, "-m", "sagecc", *arguments]
    done = subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
    if done.returncode:
        raise SageccError(f"'sagecc {' '.join(arguments)}' failed: what it says is above")


if __name__ == "__main__":
    with errors_in_one_line("make verify"):
        sys.exit(main())
