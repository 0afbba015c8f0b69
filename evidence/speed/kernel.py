# SPDX-License-Identifier: Apache-2.0
"""What makes the lab's kernel fast: it and one without that play the same episodes in turn, to the same bytes.

The other one has no counts of hot code, enables interrupts by calls, clears registers for each event of virtual time,
and its init sends and receives by system calls. CPU time is the guest's.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from tqdm import tqdm

from evidence.machine import KERNEL, save
from evidence.speed.collect import FIXED_S, flat
from sagecc.cli import errors_in_one_line
from sagecc.collector.kernel.build import ABSENT_TOOLS, HERE, REPRODUCIBLE
from sagecc.collector.lab.boot import run_guest
from sagecc.collector.lab.spec import episode_spec
from sagecc.common.errors import SageccError

BUILD = Path("build")
EPISODES = ((12.0, FIXED_S), (12.0, 60.0), (48.0, 40.0), (192.0, 30.0))
"""Rate (Mbps), length (virtual s)."""
FASTER = ("0010-um-interrupts-are-enabled-inline.patch", "0009-um-a-virtual-timer-interrupts-no-registers.patch")
REPEATS = 11


def main() -> None:
    """Build the other kernel, measure and save."""
    without = [HERE / "patches" / name for name in FASTER]
    plain = variant("plain", [], Path(__file__).with_name("kernel_unserved.patch"), without)
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    save("kernel", {"episodes": [compare(plain, *episode) for episode in tqdm(EPISODES, disable=None)]})


def variant(name: str, options: Sequence[str], patch: Path | None = None, without: Sequence[Path] = ()) -> Path:
    """Return a kernel of the built tree's source and configuration, without its counts and flags.

    Args:
        name: what it is, for its folder in build/.
        options: more variables for make.
        patch: what to change in the tree.
        without: patches of the tree to take back, in this order.

    Raises:
        SageccError: there is no built tree, or make fails.
    """
    trees = list((BUILD / "kernel").glob("linux-????????????"))
    if not trees:
        raise SageccError(f"{BUILD}/kernel: there is no built tree: remove {KERNEL} and run 'make kernel'")
    folder = BUILD / f"kernel-{name}"
    tree = folder / trees[0].name
    if not tree.exists():
        shutil.rmtree(folder, ignore_errors=True)
        partial = folder / "partial"
        shutil.copytree(trees[0], partial, symlinks=True, ignore=shutil.ignore_patterns("*.gcda"))
        changes = [["-R", "-i", str(old.resolve())] for old in without]
        if patch:
            changes.append(["-i", str(patch.resolve())])
        for change in changes:
            subprocess.run(["patch", "-s", "-p1", "--fuzz=0", *change], cwd=partial, check=True)
        partial.rename(tree)
    command = ["make", "-s", "ARCH=um", *ABSENT_TOOLS, f"-j{os.cpu_count()}", *options, "linux"]
    if subprocess.run(command, cwd=tree, env={**os.environ, **REPRODUCIBLE}).returncode:
        raise SageccError(f"make failed in {tree}")
    return tree / "linux"


def compare(plain: Path, rate_mbps: float, duration_s: float) -> dict[str, float]:
    """Run Cubic in both kernels in turn; return medians of the guests' CPU time (s) and of their ratio."""
    spec = episode_spec(flat(rate_mbps, duration_s), "cubic", 0)
    spent: dict[Path, list[float]] = {KERNEL: [], plain: []}
    bytes_of = {}
    for _ in range(REPEATS):
        for kernel, found in spent.items():
            before = _children_s()
            recording = run_guest(kernel, spec)
            found.append(_children_s() - before)
            bytes_of[kernel] = recording.samples.tobytes() + recording.packets.tobytes()
    if bytes_of[KERNEL] != bytes_of[plain]:
        raise SageccError(f"{plain} gives other bytes than {KERNEL} at {rate_mbps:g} Mbps")
    return {
        "rate_mbps": rate_mbps,
        "duration_s": duration_s,
        "cpu_s": median(spent[KERNEL]),
        "plain_cpu_s": median(spent[plain]),
        "ratio": median(b / a for a, b in zip(spent[KERNEL], spent[plain], strict=True)),
    }


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    with errors_in_one_line("evidence.speed.kernel"):
        main()
