# SPDX-License-Identifier: Apache-2.0
"""What kicks cost: CPU seconds of episodes with kicks and without, in turn on one core, over a sample of `small`."""

from __future__ import annotations

import os
import tempfile
from itertools import cycle
from pathlib import Path

from tqdm import tqdm

from evidence.machine import save
from evidence.speed.collect import cpu_s
from sagecc.cli import errors_in_one_line
from sagecc.collector.run.grid import profile_environments
from sagecc.schemas.disturbance import Disturbance, Kicks
from sagecc.schemas.schemes import SCHEMES

EVERY = 3
"""One environment in so many is in the sample, schemes taken in turn."""


def main() -> None:
    """Measure and save."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    suffix = Disturbance(Kicks()).suffix
    pairs = list(zip(profile_environments("small")[::EVERY], cycle(SCHEMES), strict=False))
    plain_s = kicked_s = 0.0
    kicks = 0
    with tempfile.TemporaryDirectory() as scratch:
        for environment, scheme in tqdm(pairs, desc="kicks"):
            plain_s += cpu_s(environment, scheme, Path(scratch))[0]
            spent_s, episode = cpu_s(environment, scheme + suffix, Path(scratch))
            kicked_s += spent_s
            kicks += int((episode.rows["kick"].to_numpy() != 1).sum())
    result = {"episodes": len(pairs), "kicks": kicks, "plain_cpu_s": plain_s, "kicked_cpu_s": kicked_s}
    save("kicks", result | {"ratio": kicked_s / plain_s})


if __name__ == "__main__":
    with errors_in_one_line("evidence.speed.kicks"):
        main()
