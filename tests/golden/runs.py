# SPDX-License-Identifier: Apache-2.0
"""The golden runs of every part, by name: the part's version, and what makes it."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

import numpy as np

from sagecc.common import versions
from sagecc.execution.schemes.rivals import RIVALS
from tests.golden import playing, training
from tests.golden.digests import Made
from tests.helpers.specifications import placed

FILE = Path(__file__).with_name("golden.json")
NEAR = 1e-3
"""How far the numbers of most trainings differ between makers of processors, at most."""


_RIVALS = {rival.name: rival for rival in RIVALS}


@dataclass(frozen=True)
class Golden:
    """A golden run."""

    part: str
    """The version that stands for it: a name of common.versions, or a rival's."""
    make: Callable[[Path], Made]
    """Makes it in a folder, which others of them use too."""
    near: float = NEAR
    """How far its numbers may be off on a processor whose bytes are not pinned."""

    @property
    def version(self) -> int:
        found: int = vars(versions)[self.part] if self.part.isupper() else _RIVALS[self.part].version
        return found

    @property
    def place(self) -> str:
        """Where that version is raised."""
        return f"{self.part} in common/versions.py" if self.part.isupper() else f"execution/schemes/{self.part}'s"


def _crr(name: str, **changes: Any) -> Golden:
    return Golden("CRR", lambda folder: training.offline(folder, name, **changes))


def _playing(part: str, scheme: str) -> Golden:
    return Golden(part, lambda folder: playing.played(folder, scheme))


def _in_labs(part: str, name: str, **changes: Any) -> Golden:
    return Golden(part, lambda folder: training.trained(folder, name, placed(training.TD3, changes)))


def _dense(part: str, name: str, algorithm: dict[str, Any], **changes: Any) -> Golden:
    return Golden(part, lambda folder: training.dense(folder, name, algorithm, **changes))


TD3_BC = {"name": "td3_bc", "alpha_shared": 0.5, "unit": "deviation", "beta": 0.5}
REBRAC = {"name": "td3_bc", "follows": "lower", "critic_cloning": 0.1, "huber": 1}
RUNS: Mapping[str, Golden] = MappingProxyType(
    {
        "pool": Golden("POOL", training.pool),
        "pool-medium": Golden("POOL", lambda folder: training.pool(folder, "--windows", "medium")),
        "pool-public": Golden("POOL", lambda folder: training.pool(folder, "--reward-alignment", "public")),
        "pool-effective": Golden("POOL", lambda folder: training.pool(folder, "--effective-windows", "true")),
        "compiled": Golden("COMPILED", training.compiled),
        "profiles": Golden("RAW", playing.profiles),
        "collected": Golden("RAW", playing.collected),
        "labs": Golden("LABS", playing.stepped),
        # It learns from what a policy played whose last bits differ.
        "grown": Golden("GROWTH", playing.grown, near=0.01),
        "policy": Golden("POLICY", lambda folder: playing.played(folder, f"policy:{playing.PLAYER}")),
        # At such a rate its bound is that of slow flows.
        "careful": Golden("POLICY", lambda folder: playing.played(folder, f"policy:{playing.CAREFUL}", "1.5")),
        "own-scheme": Golden("USER_SPACE", playing.own_scheme),
        **{name: _playing(rival.name, name) for rival in RIVALS for name in rival.schemes},
        "league": Golden("LEAGUE", playing.ranked),
        "distance": Golden("DISTANCE", playing.distances),
        "similarity": Golden("SIMILARITY", playing.similarities),
        "tsne": Golden("TSNE", playing.embedded),
        "report": Golden("REPORT", playing.page),
        "study": Golden("STUDY", playing.studied),
        "crr": _crr("crr"),
        "crr-bc": _crr("crr-bc", filter="identity", period_ms=50, start_share=0.2, selection={"reward_weight": 8}),
        "crr-no-gru": _crr("crr-no-gru", gru=0, mixture=1, filter="binary", n_step=3, final_rate=0.1, average=0.9),
        "crr-trace": _crr("crr-trace", trace=0.9, states="network"),
        "bc": Golden("BC", lambda folder: training.trained(folder, "bc", training.DENSE)),
        "judged": Golden("JUDGING", training.judged),
        "awr": Golden("AWR", lambda folder: training.trained(folder, "awr", training.AWR)),
        "td3_bc": _dense("TD3_BC", "td3_bc", TD3_BC),
        "td3_bc-slope": _dense("TD3_BC", "td3_bc-slope", TD3_BC | {"unit": "slope"}, inputs="no-acked-rate"),
        "rebrac": _dense("TD3_BC", "rebrac", REBRAC, network=training.RECURRENT, burn_in=1),
        "cql": _dense("CQL", "cql", {"name": "cql", "alpha": 0.1, "thinning": 2}),
        "td3": _in_labs("TD3", "td3", hidden=[32, 16], average=0.9, final_rate=0.05, drop_every=40, drop_hold=10),
        "td3-recurrent": _in_labs("TD3", "td3-recurrent", network=training.RECURRENT, returns="step", burn_in=1),
        "dagger": Golden("DAGGER", lambda folder: training.trained(folder, "dagger", training.DAGGER)),
    }
)


SLOW = frozenset({"crr-bc", "crr-no-gru", "crr-trace", "rebrac", "td3-recurrent", "grown", "judged"})
"""Runs of parts that have another, or take longer."""


def processor() -> str:
    """Return who made the processor: what rounds alike, once told to do without AVX-512."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    found = [line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id")]
    return found[0] if found else platform.machine()


def pinned() -> dict[str, Any]:
    """Return the content of golden.json, by run."""
    found: dict[str, Any] = json.loads(FILE.read_text())
    return found


def pins(golden: Golden, made: Made, before: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is pinned of a run: its digest, that on other processors where it was trained, and its numbers."""
    if not made.numbers:
        return {"version": golden.version, "sha256": made.sha256}
    others = before["sha256"] if before.get("version") == golden.version else {}
    digests = dict(sorted({**others, processor(): made.sha256}.items()))
    return {"version": golden.version, "sha256": digests, "numbers": list(made.numbers)}


def check(name: str, made: Made) -> str:
    """Return what is wrong where a run came to something else than is pinned; "" where it did not.

    A training's last bits are known by maker of the processor; on another maker's, its numbers are nearly the same.
    """
    golden, of = RUNS[name], pinned()[name]
    digests = of["sha256"]
    known = digests.get(processor()) if made.numbers else digests
    if known == made.sha256 or (known is None and np.allclose(made.numbers, of["numbers"], golden.near, golden.near)):
        return ""
    return (
        f"the golden run '{name}' comes to other bytes: where that is meant, raise {golden.place}, "
        "then run: make golden"
    )


def main() -> None:
    """Pin what every run comes to now; say what changed."""
    before = pinned() if FILE.exists() else {}
    with TemporaryDirectory() as folder:
        after = {name: pins(of, of.make(Path(folder)), before.get(name, {})) for name, of in RUNS.items()}
    FILE.write_text(json.dumps(after, indent=1) + "\n")
    changed = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    print(f"golden runs that changed: {', '.join(changed) or 'none'}", file=sys.stderr)


if __name__ == "__main__":
    main()
