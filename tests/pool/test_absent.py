# SPDX-License-Identifier: Apache-2.0
"""What is null in a pool, from there to an export: the limit of a queue without one, the delay of no packet.

A queue without a limit is the default of an environment file; a league's page names it too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sagecc.common.errors import SageccError
from sagecc.common.manifest import FileEntry, Manifest
from sagecc.leagues.league import play, save
from sagecc.leagues.report.files import write_beside
from sagecc.leagues.trajectories import describe
from sagecc.pool.checks import check_pool
from sagecc.pool.derivation import build_pool
from sagecc.pool.exports.export import export
from sagecc.pool.joining import join_pools
from sagecc.pool.views import open_pool
from sagecc.schemas.environment import Environment
from sagecc.schemas.pool import POOL_EPISODE_SCHEMA, dictionary
from tests.helpers import league_episodes
from tests.helpers.files import hashes
from tests.helpers.raw_episodes import network, write_partition

pytestmark = pytest.mark.heavy

os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"  # nothing is to be fetched


def without_limit(environment: Environment) -> Environment:
    (link,) = environment.links
    return replace(environment, links=(replace(link, queue_bytes=None),))


LIMITED = network("I", 12)
UNLIMITED = without_limit(network("I", 24))
OF_QUEUE_LIMIT = ("queue_bdp", "queue_bytes")
OF_DELAY = ("delay_mean_ms", "delay_p95_ms")
FIRST = ("bandwidth_mbps", *OF_QUEUE_LIMIT)


def build(folder: Path, *partitions: tuple[str, tuple[Environment, ...]]) -> Path:
    for scheme, environments in partitions:
        write_partition(folder / "raw", "I", scheme, rows=(300,) * len(environments), environments=environments)
    build_pool(folder / "raw", folder / "pool", progress=False)
    return folder / "pool"


def silence(raw: Path, scheme: str) -> None:
    """Let a scheme's raw episodes say that no packet got through."""
    listing = pq.read_table(path := raw / "set=I" / f"scheme={scheme}" / "episodes.parquet", partitioning=None)
    rows = [row | dict.fromkeys((*OF_DELAY, "goodput_mbps"), 0.0) for row in listing.to_pylist()]
    pq.write_table(pa.Table.from_pylist(rows, schema=listing.schema), path)


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("some"), ("cubic", (LIMITED, UNLIMITED)), ("vegas", (LIMITED, UNLIMITED)))


@pytest.mark.parametrize("environments", [(UNLIMITED,), (LIMITED, UNLIMITED)])
def test_its_limit_is_null_and_said_to_be_so(tmp_path: Path, environments: tuple[Environment, ...]) -> None:
    pool = build(tmp_path, ("cubic", environments))
    listing = pq.read_table(pool / "episodes.parquet")
    expected = [(12.0, 1.0, 60_000), (24.0, None, None)][-len(environments) :]
    assert [tuple(row[name] for name in FIRST) for row in listing.to_pylist()] == expected
    assert [field.name for field in listing.schema if field.nullable] == list(OF_QUEUE_LIMIT)
    with open_pool(pool) as connection:
        assert connection.sql(f"SELECT {', '.join(FIRST)} FROM environments ORDER BY ALL").fetchall() == expected
        said = connection.sql("SELECT name FROM columns WHERE formula LIKE '%; null without one'").fetchall()
    assert said == [(name,) for name in OF_QUEUE_LIMIT]
    assert check_pool(pool, progress=False).faults == ()


def test_a_pool_with_limits_stays_as_it_was(tmp_path: Path) -> None:
    pool = build(tmp_path, ("cubic", (LIMITED,)))
    assert pq.read_schema(pool / "episodes.parquet").equals(POOL_EPISODE_SCHEMA)
    assert not any(field.nullable for field in POOL_EPISODE_SCHEMA)
    assert pq.read_table(pool / "columns.parquet").equals(dictionary())


def test_joined_pools_have_the_bytes_of_one(tmp_path: Path) -> None:
    limited, unlimited = ("cubic", (LIMITED,)), ("vegas", (UNLIMITED,))
    parts = [build(tmp_path / "limited", limited), build(tmp_path / "unlimited", unlimited)]
    both = hashes(build(tmp_path / "both", limited, unlimited), aside=".derived")
    for order in (parts, parts[::-1]):
        join_pools(order, tmp_path / "joined")
        assert hashes(tmp_path / "joined") == both


def test_a_delay_of_no_packet_is_null(tmp_path: Path) -> None:
    for scheme in ("cubic", "vegas"):
        write_partition(tmp_path / "raw", "I", scheme, rows=(300,), environments=(LIMITED,))
    silence(tmp_path / "raw", "vegas")
    build_pool(tmp_path / "raw", tmp_path / "pool", progress=False)
    listing = pq.read_table(tmp_path / "pool" / "episodes.parquet")
    assert [[row[name] for name in OF_DELAY] for row in listing.to_pylist()] == [[30, 40], [None, None]]
    assert [field.name for field in listing.schema if field.nullable] == list(OF_DELAY)
    assert check_pool(tmp_path / "pool", progress=False).faults == ()
    with open_pool(tmp_path / "pool") as connection:
        delays = connection.sql("SELECT scheme, delay_ratio_set_i FROM schemes ORDER BY scheme").fetchall()
    assert delays == [("cubic", 1.5), ("vegas", None)]


@pytest.mark.parametrize(
    ("limits", "found"),
    [
        ([None, None], "its queue limit is not its environment's"),
        ([60_000, 60_000], "its queue limit is not its environment's"),
        ([-1, None], "'queue_bytes' is -1"),
    ],
)
def test_a_limit_that_is_not_the_networks_is_found(tmp_path: Path, limits: list[int | None], found: str) -> None:
    pool = build(tmp_path, ("cubic", (LIMITED, UNLIMITED)))
    listing = pq.read_table(path := pool / "episodes.parquet")
    column = listing.schema.get_field_index("queue_bytes")
    changed = listing.set_column(column, listing.schema.field(column), pa.array(limits, pa.int64()))
    pq.write_table(changed, path)
    manifest = Manifest.read(pool)
    Manifest(manifest.about, {**manifest.files, path.name: FileEntry.from_file(path, 2, "")}).write(pool)
    assert any(found in str(fault) for fault in check_pool(pool, progress=False).faults)


def minari_limits(out: Path) -> list[tuple[object, ...]]:
    minari = pytest.importorskip("minari")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINARI_DATASETS_PATH", str(out))
        dataset = minari.load_dataset("sagecc-pool-v1")
        episodes = dataset.storage.get_episode_metadata(range(dataset.total_episodes))
        return [tuple(episode.get(name) for name in FIRST) for episode in episodes]


def rlds_limits(out: Path) -> list[tuple[object, ...]]:
    tfds = pytest.importorskip("tensorflow_datasets")
    examples = tfds.as_numpy(tfds.builder_from_directory(str(out)).as_dataset(split="train"))
    about = [example["episode_metadata"] for example in examples]
    return [tuple(each[name].item() for name in FIRST) for each in about]


def huggingface_limits(out: Path) -> list[tuple[object, ...]]:
    datasets = pytest.importorskip("datasets")
    cache = str(out.with_name("cache"))
    episodes = datasets.load_dataset(str(out), "episodes", split="train", cache_dir=cache)
    return [tuple(episode[name] for name in FIRST) for episode in episodes]


@pytest.mark.parametrize(
    ("form", "limits", "unlimited"),
    [
        ("minari", minari_limits, (24.0, None, None)),
        ("rlds", rlds_limits, (24.0, float("inf"), -1)),
        ("huggingface", huggingface_limits, (24.0, None, None)),
    ],
)
def test_exports_say_that_there_is_none(
    pool: Path,
    tmp_path: Path,
    form: str,
    limits: Callable[[Path], list[tuple[object, ...]]],
    unlimited: tuple[object, ...],
) -> None:
    export(tmp_path / "out", form, pool, progress=False)
    assert limits(tmp_path / "out") == [(12.0, 1.0, 60_000), unlimited] * 2


def test_a_league_and_its_page_name_it(tmp_path: Path) -> None:
    environments = (league_episodes.set_one(12), without_limit(league_episodes.set_one(24)))
    figures = {"cubic": ([9, 9], [40, 40]), "vegas": ([7, 7], [12, 12])}
    raw, out = tmp_path / "raw", tmp_path / "out"
    league_episodes.write(raw, {(e, s): league_episodes.rows(e, s, *figures[s]) for e in environments for s in figures})

    def no_lab(*_: object) -> None:
        raise SageccError("a league of heuristics needs no lab")

    save(play(league_episodes.smoke(*environments), tuple(figures), raw, out, no_lab), out)
    write_beside(out, raw)
    page = (out / "report.html").read_text()
    assert "24 Mbps, 20 ms, no queue limit" in page
    assert "12 Mbps, 20 ms, queue 1 BDP" in page
    assert json.loads((out / "league.json").read_text())["episodes"] == 4
    assert describe(environments[1]) == "Set I: 24 Mbps, 20 ms, no queue limit"
