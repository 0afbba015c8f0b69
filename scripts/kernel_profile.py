# SPDX-License-Identifier: Apache-2.0
"""`make kernel-profile`: counts what the lab's kernel does, so that gcc makes its hot paths fast.

An instrumented copy of the built kernel plays the golden episodes and some loads; the counts of each object go to
collector/kernel/profile.tar.xz, which every build reads. A function that has changed since is built without its counts.
"""

from __future__ import annotations

import io
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tqdm import tqdm

from evidence.speed.kernel import variant
from sagecc.collector.kernel.build import PROFILE
from sagecc.collector.kernel.identity import POLICY, write_identities
from sagecc.collector.lab.boot import Guest, per_flow
from sagecc.collector.lab.spec import episode_spec, flow_drives
from sagecc.collector.run.golden import ENVIRONMENTS
from sagecc.collector.run.grid import set_one, set_two
from sagecc.collector.run.set_file import load_set
from sagecc.common.errors import SageccError
from sagecc.common.files import write_atomically
from sagecc.schemas.environment import Environment
from sagecc.schemas.schemes import POLICY_PREFIX

COUNTERS = "CFLAGS_GCOV=-fprofile-generate -fprofile-update=single"
WRITING_S = 60.0
LOADS_S = 20.0
DRIVEN = f"{POLICY_PREFIX}growing"


def main() -> None:
    """Build, play and pack."""
    counting = variant("counting", [COUNTERS], Path(__file__).with_name("kernel_counters.patch"))
    tree = counting.parent
    write_identities(counting)
    for file in tree.rglob("*.gcda"):
        file.unlink()
    golden = [(environment, scheme) for scheme, environment in ENVIRONMENTS.items() if scheme != POLICY]
    for environment, scheme in tqdm([*golden, *loads()], desc="episodes", disable=None):
        play(counting, environment, scheme)
    with write_atomically(PROFILE) as output:
        pack(tree, output)
    print(f"{PROFILE}: {PROFILE.stat().st_size:,} bytes")


def play(kernel: Path, environment: Environment, scheme: str) -> None:
    """Play an episode whose guest ends by itself: it writes its counts then."""
    controller = per_flow(lambda sample: (min(int(sample["cwnd_pkts"]) + 1, 300), 0))
    drives = flow_drives(environment, scheme, {})
    with Guest(kernel, episode_spec(environment, scheme, 0, drives=drives)) as guest:
        while (samples := guest.tick()) is not None:
            guest.act(*controller(samples))
        guest.let_end(WRITING_S)


def loads() -> Iterator[tuple[Environment, str]]:
    """Yield (network, scheme): links of the paper's rates, alone and next to Cubic, and impaired ones."""
    for rate_mbps in (12, 48, 192):
        for scheme in ("cubic", "bbr2", "vegas", "htcp", DRIVEN):
            yield replace(set_one(rate_mbps, 1, 40, 1), duration_s=LOADS_S, windows_s=((0, LOADS_S),)), scheme
    for scheme in ("cubic", "yeah", "bbr"):
        yield replace(set_two(48, 40, 4), duration_s=LOADS_S, windows_s=((0, LOADS_S),)), scheme
    for name in ("aqm", "jittery", "lossy"):
        for environment in load_set(name).environments[::8]:
            yield environment, "cubic"


def pack(tree: Path, output: Path) -> None:
    """Write a tree's counts as tar.xz: the same bytes for the same counts."""
    with tarfile.open(output, "w:xz", preset=9) as archive:
        for file in sorted(tree.rglob("*.gcda")):
            member = tarfile.TarInfo(file.relative_to(tree).as_posix())
            content = file.read_bytes()
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


if __name__ == "__main__":
    try:
        main()
    except SageccError as error:
        print(f"make kernel-profile: {error}", file=sys.stderr)
        sys.exit(2)
