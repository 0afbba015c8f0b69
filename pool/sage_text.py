# SPDX-License-Identifier: Apache-2.0
"""A pool from the text that Sage's policy collector writes: 77 columns, a row a report.

The collector is pantheon-modified/third_party/tcpdatagen/src/sage_dataset.cc of https://github.com/Soheil-ab/ccBench
at commit 49b5ada; sage_rl/offline/gen_offline_data.py of https://github.com/Soheil-ab/sage takes the same columns. The
features are the collector's own: its windows count reports, not ticks, and losses are rises of the packets held lost.
What it does not say of an episode is null: delays, packets sent and lost, the mean window.

A file's name says scheme and network (pantheon-modified/src/experiments/cc_dataset_gen_solo.sh and _multi.sh):
`vegas_wired48_10_1000_0_cwnd.txt` is Vegas on 48 Mbps, 10 ms one way, a queue of 1000 packets, a loss of 0;
`cubic_2-cubic-added_wired48-2x-u-7s_10_1000_0_5_cwnd.txt` one of two flows, the other of Cubic, on a rate that doubles.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sagecc.common.errors import SageccError
from sagecc.common.files import sha256_file
from sagecc.common.inputs import read_regular
from sagecc.pool.derivation import PoolOptions, PoolPartition, PoolResult, metadata_of, write_pool
from sagecc.schemas.environment import CrossFlow, Environment, Link, RateStep, dumbbell, episode_id
from sagecc.schemas.partitions import PARTS
from sagecc.schemas.pool import FEATURE_NAMES, KERNEL_KEY, LABELS, pool_schema
from sagecc.schemas.pool import FEATURES as FEATURE_COLUMNS

MAKER = b"Sage's policy collector"
"""What stands in the files' metadata in place of the kernel that ran the episodes."""

VERSION = "sage-text-1"
"""Of what makes a pool of texts: raised where its bytes change."""

COLUMNS = 77
TEXT_BYTES = 2**30
TIME, CAPACITY, RATE, REWARD, RATIO = 0, 1, 71, 75, 76
FEATURES = (2, 3, 7, 9, *range(10, 64), *range(65, 73), 74, 73, RATIO)
"""Columns of FEATURE_NAMES, in their order: obs_cols of rl_module/config-rl-eval.yaml, where dr_max_ratio precedes
dr_max."""
PERIOD_S = 7.0
"""A step trace's: so long at the first rate, so long at the second."""
FAIR_SHARE = 0.95
"""Next to other flows, column 1 is this share of the rate (sage_dataset.cc, line 689)."""

MEANS = range(10, 64, 3)
"""Columns of means over a window; the next two are its least and most."""
ROUNDING = 1e-6
"""A mean that passed as text with seven decimals may be so much beyond these."""
REWARD_COLUMN = next(column for column in LABELS if column.name == "reward")

_NAME = re.compile(
    r"(?P<scheme>[A-Za-z0-9.+]+)_(?:(?P<flows>\d+)-cubic-added_)?"
    r"wired(?P<mbps>\d+(?:\.\d+)?)(?:-(?P<times>\d+)x-(?P<way>[ud])(?:-7s)?)?"
    r"_(?P<delay>\d+(?:\.\d+)?)_(?P<queue>\d+)_(?P<loss>\d*\.?\d+)(?:_(?P<interval>\d+(?:\.\d+)?))?_cwnd\.txt"
)

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Text:
    """A file of the collector's, read once and found sound."""

    path: Path
    """The file."""
    scheme: str
    """The scheme under test."""
    environment: Environment
    """The network."""
    rows: int
    """Its rows."""
    goodput_mbps: float
    """Mean of the rate delivered (Mbps)."""

    @classmethod
    def read(cls, path: Path) -> Text:
        """Read and check a file.

        Raises:
            SageccError: Its name or a line is not the collector's; the message names file and line.
        """
        rows = read_rows(path)
        _check(path, rows)
        scheme, environment = _named(path, rows)
        seconds = np.diff(rows[:, TIME])
        return cls(path, scheme, environment, len(rows), float((100 * rows[1:, RATE]) @ seconds / seconds.sum()))

    def episode(self, seed: int) -> dict[str, Any]:
        """Return its row of a list of episodes."""
        return {
            "episode_id": episode_id(self.environment.id, self.scheme, seed),
            "environment_id": self.environment.id,
            "set": self.environment.set,
            "scheme": self.scheme,
            "seed": seed,
            "environment": self.environment.to_json(),
            "rows": self.rows,
            "goodput_mbps": self.goodput_mbps,
            "delay_mean_ms": None,
            "delay_p95_ms": None,
            "sent_packets": None,
            "lost_packets": None,
            "cwnd_mean": None,
        }


def read_rows(path: Path) -> Doubles:
    """Return a file's numbers [n, 77].

    Raises:
        SageccError: A line has others; the message names it.
    """
    try:
        lines = read_regular(path, TEXT_BYTES).decode("ascii").splitlines()
    except UnicodeDecodeError:
        raise SageccError(f"{path}: not the text of Sage's policy collector: it is no text") from None
    rows = np.empty((len(lines), COLUMNS))
    for number, line in enumerate(lines):
        words = line.split()
        try:
            if len(words) != COLUMNS:
                raise ValueError(f"has {len(words)} columns, not {COLUMNS}")
            rows[number] = [float(word) for word in words]
        except ValueError as error:
            raise SageccError(f"{path}, line {number + 1}: {error}: it is no text of Sage's policy collector") from None
    return rows


def _check(path: Path, rows: Doubles) -> None:
    """Raise SageccError where a row can be none of the collector's."""
    if len(rows) < 2:
        raise SageccError(f"{path}: has {len(rows)} rows; two at least make a transition")
    faults = {
        "holds a number that is not finite": ~np.isfinite(rows).all(axis=1),
        "its time (column 1) is not after that of the row before": np.diff(rows[:, TIME], prepend=-np.inf) <= 0,
        "column 77 is no ratio of two windows; is it the log2 that Sage prints at work?": rows[:, RATIO] <= 0,
    }
    named = ((FEATURES[index], column) for index, column in enumerate(FEATURE_COLUMNS))
    for place, column in (*named, (REWARD, REWARD_COLUMN)):
        low = -math.inf if column.low is None else column.low
        high = math.inf if column.high is None else column.high
        values = rows[:, place].astype(np.float32)
        faults[f"column {place + 1} ({column.name}) is not within {low:g} and {high:g}"] = (values < low) | (
            values > high
        )
    for place in MEANS:
        mean, least, most = rows[:, place : place + 3].T
        beyond = np.maximum(least - mean, mean - most)
        faults[f"column {place + 1}, a mean, is not within columns {place + 2} and {place + 3}"] = beyond > ROUNDING
    for fault, wrong in faults.items():
        if wrong.any():
            raise SageccError(f"{path}, line {int(np.argmax(wrong)) + 1}: {fault}")


def _named(path: Path, rows: Doubles) -> tuple[str, Environment]:
    """Return the scheme and the network that a file's name says."""
    match = _NAME.fullmatch(path.name)
    if match is None:
        raise SageccError(
            f"{path}: its name does not say scheme and network, as vegas_wired48_10_1000_0_cwnd.txt does"
            " (Mbps, one-way ms, packets of queue, loss)"
        )
    mbps, times, flows = float(match["mbps"]), int(match["times"] or 1), int(match["flows"] or 1)
    second = mbps * times if match["way"] == "u" else mbps / times
    said = sorted({mbps, second}) if flows == 1 else sorted({FAIR_SHARE * mbps, FAIR_SHARE * second})
    strange = ~np.isclose(rows[:, [CAPACITY]], said, rtol=1e-4).any(axis=1)
    if strange.any():
        row = int(np.argmax(strange))
        raise SageccError(
            f"{path}, line {row + 1}: the link has {rows[row, CAPACITY]:g} Mbps (column 2), its name says"
            f" {' or '.join(f'{each:g}' for each in said)}"
        )
    # In whole seconds, so that what each scheme did in a network is of one network.
    start_s, duration_s = math.floor(rows[0, TIME]), math.ceil(rows[-1, TIME])
    edges = np.arange(0, duration_s, PERIOD_S).tolist() if times > 1 else [0.0]
    rates = tuple(RateStep(t_s, second if number % 2 else mbps) for number, t_s in enumerate(edges))
    delay_ms, queue, loss = float(match["delay"]), int(match["queue"]), float(match["loss"])
    try:
        environment = dumbbell(
            "I" if flows == 1 else "II",
            Link(rates, delay_ms=delay_ms, queue_packets=queue, loss=loss),
            return_delay_ms=delay_ms,
            duration_s=float(duration_s),
            windows_s=((float(start_s), float(duration_s)),),
            reward="power" if flows == 1 else "friendliness",
            cross=(CrossFlow("cubic"),) * (flows - 1),
            start_s=float(start_s),
        )
    except SageccError as error:
        raise SageccError(f"{path}: its name: {error}") from None
    return match["scheme"], environment


def import_texts(paths: Sequence[Path], out: Path, jobs: int = 1, progress: bool = True) -> PoolResult:
    """Write the pool of some files; the same files give the same bytes.

    Args:
        paths: the files, or folders of them.
        out: folder of the pool; new, empty, or an earlier import.
        jobs: partitions written at a time.
        progress: whether to show a progress bar on stderr.

    Raises:
        SageccError: A file is none of the collector's, or `out` is another pool.
    """
    files = sorted(file for path in paths for file in (path.glob("**/*_cwnd.txt") if path.is_dir() else [path]))
    if not files:
        raise SageccError(f"{', '.join(map(str, paths))}: no *_cwnd.txt of Sage's policy collector is there")
    if any(metadata_of(part).get(KERNEL_KEY) != MAKER for part in out.glob(PARTS)):
        raise SageccError(f"{out} is a pool of other trajectories: choose another --out")
    groups: dict[tuple[str, str], list[Text]] = defaultdict(list)
    for file in files:
        text = Text.read(file)
        groups[text.environment.set, text.scheme].append(text)
    settings = PoolOptions()
    makers = [partial(_TextPartition, texts, out, settings) for _, texts in sorted(groups.items())]
    return write_pool(makers, out, settings, VERSION, jobs, progress)


class _TextPartition(PoolPartition):
    """A partition of texts of one set and scheme; a network's second file has the seed 1."""

    def __init__(self, texts: Sequence[Text], out: Path, options: PoolOptions) -> None:
        seeds: Counter[str] = Counter()
        self._texts: dict[str, Text] = {}
        episodes = []
        for text in texts:
            episode = text.episode(seeds[text.environment.id])
            seeds[text.environment.id] += 1
            episodes.append(episode)
            self._texts[episode["episode_id"]] = text
        episodes.sort(key=lambda row: str(row["episode_id"]))
        environments = {text.environment.id: text.environment for text in texts}
        super().__init__(out, options, VERSION, episodes, environments, texts[0].path)
        self.identity = self._identity([(name, sha256_file(text.path)) for name, text in sorted(self._texts.items())])

    def _write(self, advance: Callable[[int], object], stop: Event) -> None:
        with self._writer({KERNEL_KEY: MAKER}) as writer:
            for episode in self.episodes:
                if stop.is_set():
                    return
                rows = read_rows(self._texts[episode["episode_id"]].path)
                writer.write(_transitions(episode, rows, self._options))
                advance(len(rows))


def _transitions(episode: Mapping[str, Any], rows: Doubles, options: PoolOptions) -> pa.Table:
    """Return the pool's rows of an episode: each report but the last, with the action that the next one shows."""
    count = len(rows) - 1
    for place in MEANS:
        rows[:, place] = np.clip(rows[:, place], rows[:, place + 1], rows[:, place + 2])
    ratio = rows[:, RATIO].astype(np.float32)
    after = int(options.alignment == "after")
    columns: dict[str, Any] = {"episode_id": pa.array([episode["episode_id"]] * count, pa.string())}
    columns |= {"step": np.arange(count, dtype=np.int32), "t_s": rows[:-1, TIME]}
    columns |= {name: rows[:-1, place].astype(np.float32) for name, place in zip(FEATURE_NAMES, FEATURES, strict=True)}
    columns |= {"action": ratio[1:], "reward": rows[after : count + after, REWARD].astype(np.float32)}
    columns |= {"is_first": np.arange(count) == 0, "is_last": np.arange(count) == count - 1}
    return pa.table(columns, schema=pool_schema(options.windows.ticks))
