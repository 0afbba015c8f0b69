# SPDX-License-Identifier: Apache-2.0
"""The study's runs, each kept as one small file as it ends, so that a killed study goes on."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NoReturn, TypeAlias

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from sagecc.collector.kernel.identity import kernel_identity
from sagecc.collector.lab.under_way import lateness
from sagecc.common.errors import SageccError
from sagecc.common.files import write_atomically
from sagecc.common.parquet import parquet_schema, read_parquet
from sagecc.common.tables import UNREADABLE, column_fault, is_damage, reading_error
from sagecc.execution.schemes.registry import driver_sha256
from sagecc.leagues.flow_metrics import SERIES_SCHEMA
from sagecc.leagues.study.experiments import StudyRun, distinct
from sagecc.schemas.schemes import is_driven

Outcome: TypeAlias = pa.Table | SageccError
"""A run's series (SERIES_SCHEMA, at the run's interval), or why it has none."""

Runner = Callable[[Sequence[StudyRun]], Iterator[tuple[StudyRun, Outcome]]]
"""Runs what it is given, in any order, and yields each as it ends."""

Identity = Callable[[StudyRun], str]
"""What a run's series hangs on besides its network: the kernel it runs on, its policies' files."""


@dataclass(frozen=True)
class Collected:
    """What a collection has: a file for each run that ended well, and why the others did not."""

    files: Mapping[StudyRun, Path]
    failures: Mapping[StudyRun, str]

    def series(self) -> Iterator[tuple[StudyRun, pl.DataFrame]]:
        """Yield each run with its series; raises SageccError where a file cannot be read."""
        for run, path in self.files.items():
            yield run, read_series(path)


def collect(
    runs: Sequence[StudyRun],
    runner: Runner,
    folder: Path,
    identity: Identity,
    *,
    progress: bool = True,
    title: str = "study",
) -> Collected:
    """Run what the folder does not hold yet; one run of each network.

    A run that fails is told in a line at once and left out; the next call tries it again.

    Args:
        runs: wanted; several may be the same network.
        runner: runs those that are not there.
        folder: where the files lie.
        identity: of each run (`lab_identity`).
        progress: whether to show a bar, where somebody watches.
        title: of the bar.

    Raises:
        SageccError: The runner yields a run that it was not given, or a table that is no series.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = {run: folder / f"{run_key(run, identity(run))}.parquet" for run in distinct(runs)}
    left = [run for run, path in paths.items() if not _is_whole(path)]
    left.sort(key=lambda run: -run.environment.duration_s)  # a long one must not be left for the end, alone
    failures = dict.fromkeys(left, "it was not run")
    with (
        _bar(list(paths), left, progress, title) as bar,
        closing(_started(runner, left)) as outcomes,
    ):
        for run, outcome in outcomes:
            if run not in failures:
                raise SageccError(f"study: the runner returned {run.id}, which it was not given, or twice")
            if isinstance(outcome, SageccError):
                failures[run] = str(outcome)
                tqdm.write(f"failed: {run.id}: {outcome}", file=sys.stderr)
            else:
                _keep(run, outcome, paths[run], identity(run))
                del failures[run]
            bar.update(run.environment.duration_s)
    by_network = {run.network: run for run in paths}
    first = {run: by_network[run.network] for run in runs}
    return Collected(
        {run: paths[ran] for run, ran in first.items() if ran not in failures},
        {run: failures[ran] for run, ran in first.items() if ran in failures},
    )


def run_key(run: StudyRun, identity: str) -> str:
    """Return a run's file's stem: a digest of its network, scheme, seed, interval, latency, kernel and policies."""
    fields = [run.environment.to_json(), run.scheme, str(run.seed), f"{run.interval_s:g}", identity]
    if run.latency_us:
        fields.append(lateness(run.latency_us))
    return hashlib.sha256("\0".join(fields).encode()).hexdigest()[:32]


def lab_identity(kernel: Path) -> Identity:
    """Return what tells runs apart by the kernel at `kernel` and the files of the policies that take part."""
    of_policy = cache(driver_sha256)
    of_kernel = cache(lambda schemes: kernel_identity(kernel, sorted(schemes)))

    def identity(run: StudyRun) -> str:
        schemes = frozenset(run.schemes)
        policies = (f"{name}={of_policy(name)}" for name in sorted(schemes) if is_driven(name))
        return " ".join((of_kernel(schemes), *policies))

    return identity


def read_series(path: Path) -> pl.DataFrame:
    """Read a run's file; raises SageccError, naming it, where it cannot be read."""
    try:
        table = read_parquet(path)
    except UNREADABLE as error:
        raise reading_error(path, error, "remove it, and the run is made again") from error
    if fault := column_fault(table.schema, SERIES_SCHEMA):
        raise SageccError(f"{path}: {fault}; remove it, and the run is made again")
    return pl.DataFrame(pl.from_arrow(table))


def _started(runner: Runner, runs: Sequence[StudyRun]) -> Generator[tuple[StudyRun, Outcome], None, None]:
    yield from runner(runs) if runs else ()


def _is_whole(path: Path) -> bool:
    """Tell whether a file is there with a series in it; what is damaged is made again."""
    try:
        return column_fault(parquet_schema(path), SERIES_SCHEMA) is None
    except UNREADABLE as error:
        if not is_damage(error) and path.exists():
            raise reading_error(path, error, "") from error
        return False


def _keep(run: StudyRun, series: pa.Table, path: Path, identity: str) -> None:
    if fault := column_fault(series.schema, SERIES_SCHEMA):
        raise SageccError(f"study: the series of {run.id} {fault}")
    about = {
        "environment": run.environment.to_json(),
        "scheme": run.scheme,
        "seed": str(run.seed),
        "interval_s": f"{run.interval_s:g}",
        "identity": identity,
    }
    table = series.select(SERIES_SCHEMA.names).cast(SERIES_SCHEMA).replace_schema_metadata(about)
    with write_atomically(path) as temporary:
        pq.write_table(table, temporary, compression="zstd", write_page_checksum=True)


def _bar(runs: Sequence[StudyRun], left: Sequence[StudyRun], progress: bool, title: str) -> tqdm[NoReturn]:
    """Return a bar over virtual seconds, as runs are of unlike lengths; hidden where nobody watches."""
    total, to_do = (sum(run.environment.duration_s for run in some) for some in (runs, left))
    hidden = None if progress else True
    return tqdm(total=total, initial=total - to_do, desc=title, unit=" virtual s", unit_scale=True, disable=hidden)
