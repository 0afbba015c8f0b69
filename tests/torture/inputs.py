# SPDX-License-Identifier: Apache-2.0
"""The kinds of inputs, how each is damaged, and the way in that it takes: that of the command which reads it."""

from __future__ import annotations

import hashlib
import io
import json
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from evidence.training.runs import read_plan
from sagecc.cli import main
from sagecc.collector.run.grid import profile_set
from sagecc.collector.run.task import Task
from sagecc.execution.stock import driver
from sagecc.execution.stock.shared import ROW
from sagecc.leagues.league import play
from sagecc.leagues.report.folder import load as load_league
from sagecc.learner.compiled import CompiledPool, compile_pool
from sagecc.learner.selection import Selection
from sagecc.learner.specification import load
from sagecc.pool.exports.episodes import Choice, open_pool
from sagecc.schemas.environment import Environment
from sagecc.schemas.environment_file import load_environment
from tests.torture import damage, digests, special
from tests.torture.kills import lines_of
from tests.torture.stages import KERNEL, LEAST, ROOT

MOST_S = 3.0
"""Processor time that an episode in a damaged environment may take, as far as one can tell."""

Sagecc = Callable[..., str]
"""Runs the command line, here or as a process of its own; returns what it printed, raises Refused."""


class RefusedError(Exception):
    """The command said no. lines: what it said; found: that it lists what is wrong, as `sagecc pool check` does."""

    def __init__(self, lines: list[str], found: bool = False) -> None:
        super().__init__("; ".join(lines))
        self.lines, self.found = lines, found


@dataclass(frozen=True)
class Kind:
    """A kind of input.

    share: of 10,000. folder: of the material, what the way in needs. damaged: which of its files may be damaged.
    enter: the way in, of the folder and the damaged file: returns the result, in words that do not hang on the folder.
    guarded: whether checksums cover the files, so that what is accepted must have the result of a sound one; `bytes`:
    those of a file's pages, not of what was written anew. crafted: whether digests may be put right after the damage:
    not for runtimes that are for files one trusts (policy.runtime).
    """

    name: str
    share: int
    folder: str
    damaged: tuple[str, ...]
    enter: Callable[[Path, Path, Sagecc], str]
    guarded: bool | str = False
    crafted: bool = True

    def files(self, material: Path) -> list[Path]:
        """Return the files that may be damaged, within the folder."""
        folder = material / self.folder
        return sorted({path.relative_to(folder) for form in self.damaged for path in folder.glob(form)})


@dataclass(frozen=True)
class Damage:
    """What was done to a file (a path within the kind's folder)."""

    kind: Kind
    file: Path
    how: str
    anew: bool
    """Whether the file was written anew, whole: its checksums hold."""
    put_right: bool = False
    """Whether the digests of it that stand in other files were put right."""


def hurt(kind: Kind, material: Path, work: Path, rng: random.Random) -> Damage:
    """Copy a kind's folder to `work` and damage one file there."""
    shutil.copytree(material / kind.folder, work, copy_function=_link)
    file = rng.choice(kind.files(material))
    path = work / file
    data = path.read_bytes()
    path.unlink()
    if rng.random() < 0.04:
        how = rng.choice(list(special.FILES))
        special.FILES[how](path)
        return Damage(kind, file, how, anew=True)
    if rng.random() < 0.01 or not data:
        return Damage(kind, file, "gone", anew=True)
    anew = rng.random() < 0.5
    if path.suffix == ".parquet" and anew:
        how, content = damage.of_table(rng, material / kind.folder / file)
    elif path.suffix in (".yaml", ".json") and anew:
        how, content = damage.of_document(rng, data, path.name)
    elif path.suffix in (".yaml", ".json", ".down"):
        how, content = damage.of_text(rng, data)
    else:
        how, content = damage.of_bytes(rng, data)
        anew = False
    path.write_bytes(content)
    put_right = kind.crafted and rng.random() < 0.4 and digests.put_right(work, file)
    return Damage(kind, file, f"{how}, its digest put right" if put_right else how, anew, put_right)


def _link(source: str, target: str) -> None:
    Path(target).hardlink_to(source)


def in_process(*arguments: object) -> str:
    """Run `sagecc` here."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as ended:
            status = ended.code
    return answer(status, out.getvalue(), err.getvalue())


def answer(status: object, out: str, err: str) -> str:
    """Return what a command printed. Raises RefusedError where it said no, AssertionError where it broke."""
    if status == 0:
        return out
    if status == 1 and out:
        raise RefusedError(out.splitlines(), found=True)
    assert status == 2, f"exit status {status}: {err[-300:]}"
    raise RefusedError(lines_of(err))


def _environment(work: Path, file: Path, sagecc: Sagecc) -> str:
    listed = sagecc("environments", work / file, "--json")
    fields = json.loads(listed)
    name = fields.pop("id")
    assert Environment.from_json(json.dumps(fields)).id == name, "its listing is another environment"
    return listed


def _in_lab(work: Path, file: Path, sagecc: Sagecc) -> str:
    """Run it, where that takes no longer than a trial may."""
    environment = load_environment(work / file)
    if Task(environment, "cubic", 0, "").cost * environment.flow_count > MOST_S:
        return environment.id
    ran = ("run", "--scheme", "cubic", "--environment", work / file, "--kernel", KERNEL, "--json")
    return str(json.loads(sagecc(*ran))["sha256"])


def _trace(work: Path, file: Path, sagecc: Sagecc) -> str:
    return sagecc("environments", work / "cellular.yaml", "--json")


def _configuration(work: Path, file: Path, sagecc: Sagecc) -> str:
    return sagecc("train", "--config", work / file, "--count-parameters") + repr(load(str(work / file)))


def _plan(work: Path, file: Path, sagecc: Sagecc) -> str:
    return repr(read_plan(work / file))


def _to_pool(work: Path, file: Path, sagecc: Sagecc) -> str:
    sagecc("pool", "--raw", work / "raw", "--out", work / "derived", "--jobs", 1)
    parts = sorted((work / "derived").glob("set=*/scheme=*/part-*.parquet"))
    return _digest(f"{part.parent.name} {_values(pq.read_table(part, partitioning=None))}" for part in parts)


def _to_league(work: Path, file: Path, sagecc: Sagecc) -> str:
    none: Any = None
    league = play(profile_set("smoke"), LEAST, work / "raw", work / "league", none)
    return league.wins.write_json()


def _collect(work: Path, file: Path, sagecc: Sagecc) -> str:
    few = ("--profile", "smoke", "--set", "I", "--schemes", ",".join(LEAST))
    sagecc("collect", *few, "--out", work / "raw", "--jobs", 1, "--kernel", KERNEL)
    listings = sorted((work / "raw").glob("set=*/scheme=*/episodes.parquet"))
    return _digest(_values(pq.read_table(listing, partitioning=None)) for listing in listings)


def _check(work: Path, file: Path, sagecc: Sagecc) -> str:
    return sagecc("pool", "check", "--pool", work / "pool", "--jobs", 1)


def _compile(work: Path, file: Path, sagecc: Sagecc) -> str:
    sagecc("compile", "--pool", work / "pool", "--cache", work / "cache")
    (rows,) = (work / "cache").glob("*/rows.f32")
    return hashlib.sha256(rows.read_bytes()).hexdigest()


def _sql(work: Path, file: Path, sagecc: Sagecc) -> str:
    query = "SELECT scheme, count(*), sum(reward), sum(srtt), sum(dr) FROM transitions GROUP BY ALL ORDER BY ALL"
    return sagecc("sql", query, "--pool", work / "pool", "--format", "csv")


def _export(work: Path, file: Path, sagecc: Sagecc) -> str:
    found = open_pool(work / "pool", Choice()).episodes()
    return _digest(f"{e.observations.tobytes()!r}{e.actions.tobytes()!r}{e.rewards.tobytes()!r}" for e in found)


def _policy(runtime: str) -> Callable[[Path, Path, Sagecc], str]:
    def enter(work: Path, file: Path, sagecc: Sagecc) -> str:
        with redirect_stderr(io.StringIO()):
            agent = driver.load(str(work), runtime, 2)
            driver.warm_up(agent, 2)
        rows = np.zeros(2, ROW)
        rows["mss_bytes"], rows["min_rtt_us"] = 1448, 40_000
        windows = []
        for tick in range(30):
            rows["t_ns"], rows["cwnd_pkts"], rows["srtt_us"] = tick * 10_000_000, 10 + tick, 40_000 + 100 * tick
            rows["delivered_pkts"], rows["bytes_acked"] = 20 * tick, 28_960 * tick
            windows.append(agent.step(rows, np.arange(2)))
        return str([[cwnd.tolist(), pacing.tolist()] for cwnd, pacing in windows])

    return enter


def _league(work: Path, file: Path, sagecc: Sagecc) -> str:
    contents = load_league(work / "results", work / "raw", work / "none")
    frames = (contents.wins, contents.classes)
    episodes = sorted(episode.id for episode in contents.episodes.values())
    return json.dumps(contents.summary, sort_keys=True) + "".join(f.write_json() for f in frames) + str(episodes)


def _report(work: Path, file: Path, sagecc: Sagecc) -> str:
    page = work / "report.html"
    sagecc("report", "--league", work / "results", "--raw", work / "raw", "--analysis", work / "none", "--out", page)
    return hashlib.sha256(page.read_bytes()).hexdigest()


def _winners(work: Path, file: Path, sagecc: Sagecc) -> str:
    pool = _compiled(work.parent / "sound")
    chosen = pool.select(Selection(winners_of=str(work / "results")))
    return str([chosen.starts.tolist(), chosen.weights.tolist()])


@cache
def _compiled(cache_folder: Path) -> CompiledPool:
    return compile_pool(ROOT / "build" / "torture" / "material" / "least" / "pool", cache_folder)


def _values(table: pa.Table) -> str:
    """Return a hash of a table's columns, whatever else its file says."""
    frame = pl.from_arrow(table.replace_schema_metadata(None))
    assert isinstance(frame, pl.DataFrame)
    return hashlib.sha256(frame.hash_rows(seed=1).to_numpy().tobytes()).hexdigest() + str(frame.schema)


def _digest(texts: Iterator[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


RAW = ("raw/set=*/scheme=*/*.parquet",)
POOL = ("pool/set=*/scheme=*/*.parquet", "pool/*.parquet", "pool/manifest.json")
KINDS = (
    Kind("environment", 2350, "environments", ("*.yaml", "*-*.json"), _environment),
    Kind("environment, in the lab", 150, "environments", ("*.yaml", "*-*.json"), _in_lab),
    Kind("trace", 900, "environments", ("cellular.down",), _trace),
    Kind("training configuration", 1500, "configs", ("*.yaml",), _configuration),
    Kind("plan of runs", 200, "plan", ("runs.yaml",), _plan),
    Kind("raw data, to the pool", 900, "few", RAW, _to_pool, guarded="bytes"),
    Kind("raw data, to a league", 600, "least", RAW, _to_league, guarded="bytes"),
    Kind("raw data, to go on with", 100, "few", ("raw/set=*/scheme=*/episodes.parquet",), _collect, guarded="bytes"),
    Kind("pool, to check", 600, "few", POOL, _check, guarded=True),
    Kind("pool, to compile", 600, "few", POOL, _compile, guarded=True),
    Kind("pool, to export", 200, "few", POOL, _export, guarded="bytes"),
    Kind("pool, in SQL", 200, "few", POOL, _sql),
    Kind("policy's weights", 250, "policy", ("policy.safetensors",), _policy("exact"), guarded=True),
    Kind("policy as LiteRT", 175, "policy", ("policy.tflite",), _policy("litert"), guarded=True, crafted=False),
    Kind("policy as ONNX", 175, "policy", ("policy.onnx",), _policy("onnx"), guarded=True, crafted=False),
    Kind("policy's card", 500, "policy", ("card.json",), _policy("exact")),
    Kind("league", 400, "least", ("results/*.json", "results/*.parquet", *RAW), _league, guarded="bytes"),
    Kind("league, to its report", 60, "least", ("results/*.json", "results/*.parquet", *RAW), _report, guarded="bytes"),
    Kind("league, to learn from", 140, "least", ("results/scores.parquet",), _winners, guarded="bytes"),
)
assert sum(kind.share for kind in KINDS) == 10_000


def kind_of(index: int) -> Kind:
    """Return the kind of input `index` of 10,000; the same order again after that."""
    spread = index * 7919 % 10_000  # a prime: every stretch of indices has some of each kind
    for kind in KINDS:
        if spread < kind.share:
            return kind
        spread -= kind.share
    raise AssertionError
