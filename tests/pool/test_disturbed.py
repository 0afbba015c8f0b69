# SPDX-License-Identifier: Apache-2.0
"""Disturbed schemes in a pool: their actions at kicks are marked, and no plain file has other bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sagecc.pool.checks import check_pool
from sagecc.pool.derivation import build_pool
from sagecc.pool.exports import episodes as exported
from sagecc.pool.joining import join_pools
from sagecc.pool.views import open_pool
from sagecc.schemas.partitions import PARTS, partition
from sagecc.schemas.pool import IS_KICKED, POOL_SCHEMA
from sagecc.schemas.raw import KICK
from tests.helpers.raw_episodes import write_partition

KICKED_STEPS = (20, 21, 150)


def kick(rows: pa.Table) -> pa.Table:
    factors = np.where(np.isin(rows["step"].to_numpy(), KICKED_STEPS), 0.25, 1).astype(np.float32)
    return rows.append_column(KICK, pa.array(factors))


def derive(folder: Path, *schemes: str) -> Path:
    for scheme in schemes:
        change = {"change": kick} if "+" in scheme else {}
        write_partition(folder / "raw", "I", scheme, rows=(300, 200), **change)  # type: ignore[arg-type]
    build_pool(folder / "raw", folder / "pool", progress=False)
    return folder / "pool"


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return derive(tmp_path_factory.mktemp("both"), "cubic", "cubic+kicks")


def test_the_row_whose_action_is_a_kick_is_marked(both: Path) -> None:
    rows = pq.read_table(both / partition("I", "cubic+kicks"), partitioning=None)
    marked = rows.filter(rows[IS_KICKED.name])
    assert sorted(set(marked["step"].to_pylist())) == list(KICKED_STEPS)
    assert rows.num_rows == (300 - 1) + (200 - 1)


def test_plain_rows_are_the_bytes_that_they_were(both: Path, tmp_path: Path) -> None:
    alone = derive(tmp_path, "cubic")
    path = Path(partition("I", "cubic"), "part-000.parquet")
    assert (both / path).read_bytes() == (alone / path).read_bytes()
    assert pq.read_schema(both / path).equals(POOL_SCHEMA)
    assert IS_KICKED.name not in pq.read_table(alone / "columns.parquet")["name"].to_pylist()


def test_a_pool_of_both_is_sound(both: Path) -> None:
    assert not check_pool(both, progress=False).faults


def test_sql_has_the_mark_and_null_for_plain_schemes(both: Path) -> None:
    query = "SELECT scheme, count(*), count(is_kicked), sum(is_kicked::INT) FROM transitions GROUP BY ALL ORDER BY ALL"
    assert open_pool(both).execute(query).fetchall() == [("cubic", 498, 0, None), ("cubic+kicks", 498, 498, 6)]


def test_a_plain_pool_has_no_such_column(tmp_path: Path) -> None:
    columns = open_pool(derive(tmp_path, "cubic")).execute("DESCRIBE transitions").fetchall()
    assert IS_KICKED.name not in {name for name, *_ in columns}


def test_joined_pools_are_the_pool_of_both(both: Path, tmp_path: Path) -> None:
    pools = [derive(tmp_path / scheme, scheme) for scheme in ("cubic", "cubic+kicks")]
    join_pools(pools, tmp_path / "joined")
    for path in ("episodes.parquet", "columns.parquet", *(str(part.relative_to(both)) for part in both.glob(PARTS))):
        assert (tmp_path / "joined" / path).read_bytes() == (both / path).read_bytes()


def test_exports_say_which_episodes_are_perturbed(both: Path) -> None:
    found = list(exported.open_pool(both, exported.Choice()).episodes())
    assert {episode.about["scheme"]: episode.perturbed for episode in found} == {"cubic": False, "cubic+kicks": True}
    assert all(episode.is_kicked.sum() == 3 * episode.perturbed for episode in found)
