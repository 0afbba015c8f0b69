# SPDX-License-Identifier: Apache-2.0
"""Golden runs of what plays in the lab, and of what is made of it: commands as a user types them, on `smoke`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import polars.selectors as cs
from safetensors.numpy import load_file

from sagecc.collector.run.grid import PROFILES, profile_environments
from tests.golden.commands import python, sagecc
from tests.golden.digests import Made, of_floats, of_table

SCHEMES = "cubic,vegas"
PLAYER, CAREFUL = "sagecc-10", "sagecc-12"
"""Of the latter the slow rule and the floor of `sagecc bound` are part."""
STEADY = """
class Steady:
    def __init__(self, random):
        pass

    def on_tick(self, sample):
        return sample.cwnd_pkts + 1, 750_000
"""
STEPS = """
import hashlib
import gymnasium
import numpy as np
import sagecc.execution.environments

random, digest = np.random.default_rng(1), hashlib.sha256()
with gymnasium.make("sagecc/Congestion-v0") as environment:
    shown, _ = environment.reset(seed=1)
    for _ in range(60):
        digest.update(np.asarray(shown).tobytes())
        shown, reward, *_ = environment.step(random.normal(0, 0.05, environment.action_space.shape).astype(np.float32))
        digest.update(np.float64(reward).tobytes())
print(digest.hexdigest())
"""


def profiles(folder: Path) -> Made:
    """Return the ids of every profile's networks."""
    return Made("\n".join(each.id for name in PROFILES for each in profile_environments(name)))


def raw(folder: Path) -> Path:
    """Collect two schemes in three networks, unless `folder` has them; return where they lie."""
    place = folder / "lab"
    if not place.exists():
        sagecc(folder, "collect", "--profile", "smoke", "--schemes", SCHEMES, "--out", str(place))
    return place


def pool(folder: Path) -> Path:
    """Derive the pool of what was collected, unless `folder` has it; return where it lies."""
    place = folder / "lab-pool"
    if not place.exists():
        sagecc(folder, "pool", "--raw", str(raw(folder)), "--out", str(place))
    return place


def collected(folder: Path) -> Made:
    """Return what the collected files hold."""
    return _tables(raw(folder), "**/*.parquet")


def played(folder: Path, scheme: str, bandwidth_mbps: str = "12") -> Made:
    """Return an episode's rows, beside a flow of Cubic."""
    out = folder / "episode.parquet"
    network = ("--bandwidth", bandwidth_mbps, "--rtt", "20", "--duration", "4", "--cross", "cubic")
    sagecc(folder, "run", "--scheme", scheme, *network, "--out", str(out))
    return Made(of_table(out))


def own_scheme(folder: Path) -> Made:
    """Return an episode's rows of a scheme in a file of one's own."""
    (folder / "steady.py").write_text(STEADY)
    return played(folder, "python:steady.py:Steady")


def grown(folder: Path) -> Made:
    """Return the episodes of a growing pool's first round, and the weights of the second."""
    place = folder / "grown"
    steps = ("--config", "tiny", "--steps", "3", "--round-steps", "3", "--rounds", "1", "--profile", "smoke")
    places = ("--pool", str(pool(folder)), "--cache", str(folder / "cache"), "--out", str(place))
    sagecc(folder, "grow", *steps, *places, "--jobs", "2")
    weights = load_file(place / "round-1" / "policy" / "policy.safetensors")
    found = of_floats([np.asarray(weights[key]) for key in sorted(weights)])
    # Their metadata has the policy's digest, in which every field of a configuration is, new ones too.
    raw = [of_table(path, metadata=False) for path in sorted((place / "round-0" / "raw").glob("**/*.parquet"))]
    return Made("".join([*raw, found.text]), found.numbers)


def stepped(folder: Path) -> Made:
    """Return what a Gymnasium environment observes and rewards."""
    return Made(python(folder, STEPS))


def league(folder: Path) -> Path:
    """Play a league of two heuristics and a policy, unless `folder` has it; return where it lies."""
    place = folder / "league"
    if not place.exists():
        _on_smoke(folder, "league", place, "--policy", PLAYER, "--schemes", SCHEMES, "--no-report")
    return place


def ranked(folder: Path) -> Made:
    """Return a league's tables."""
    place = league(folder)
    return Made(_tables(place, "*.parquet").text + (place / "standings.csv").read_text())


def distances(folder: Path) -> Made:
    """Return what `sagecc distance` measures, in a sample and in an index of the pool."""
    about = ("--policy", PLAYER, "--schemes", "vegas", "--every", "10", "--environment", _first("I"))
    places = [folder / "distance-sample", folder / "distance-index"]
    for place in places:
        _analyse(folder, "distance", place, *about, "--search", place.name.removeprefix("distance-"))
    # Which of neighbours equally far is named, and what an index finds, differs by processor.
    return Made(_numbers(places).text, _numbers(places[:1], "distance").numbers)


def similarities(folder: Path) -> Made:
    """Return what `sagecc similarity` measures."""
    place = folder / "similarity"
    _analyse(folder, "similarity", place, "--scheme", f"policy:{PLAYER}", "--schemes", SCHEMES)
    return _numbers([place])


def embedded(folder: Path) -> Made:
    """Return what `sagecc tsne` draws: elsewhere than here, how many points are all that is the same."""
    place = folder / "tsne"
    _on_smoke(
        folder, "tsne", place, "--policy", PLAYER, "--points", "20", "--draw", "1", "--league", str(league(folder))
    )
    found = _numbers([place])
    return Made(found.text, (float(len(pl.read_parquet(next(place.glob("*.parquet"))))),))


def page(folder: Path) -> Made:
    """Return the page of `sagecc report`."""
    out = folder / "report.html"
    places = ("--league", str(league(folder)), "--raw", str(raw(folder)), "--analysis", str(folder / "none"))
    sagecc(folder, "report", *places, "--out", str(out))
    return Made(re.sub(r"<footer>.*?</footer>\n", "", out.read_text()))  # says in which folder it was made


def studied(folder: Path) -> Made:
    """Return the tables and the page of a study."""
    out = folder / "study"
    sagecc(
        folder, "study", "orca-9", "--quick", "--schemes", SCHEMES, "--out", str(out), "--runs", str(folder / "runs")
    )
    texts = [path.read_text() for path in sorted(out.rglob("*")) if path.suffix in {".csv", ".html", ".json"}]
    return Made(_tables(out, "**/*.parquet").text + "".join(texts))


def _first(name: str) -> str:
    return next(each.id for each in profile_environments("smoke") if each.set == name)


def _on_smoke(folder: Path, command: str, out: Path, *options: str) -> None:
    sagecc(folder, command, "--profile", "smoke", "--raw", str(raw(folder)), "--out", str(out), *options)


def _analyse(folder: Path, command: str, out: Path, *options: str) -> None:
    places = ("--pool", str(pool(folder)), "--cache", str(folder / "cache"), "--league", str(league(folder)))
    _on_smoke(folder, command, out, *places, *options)


def _tables(place: Path, pattern: str) -> Made:
    return Made("".join(of_table(path) for path in sorted(place.glob(pattern))))


def _numbers(places: Sequence[Path], *columns: str) -> Made:
    """Return the numbers of tables, of some columns where these are named."""
    tables = [pl.read_parquet(path) for place in places for path in sorted(place.glob("*.parquet"))]
    return of_floats(
        [np.nan_to_num(table.select(columns or cs.numeric()).to_numpy().astype(np.float64)) for table in tables]
    )
