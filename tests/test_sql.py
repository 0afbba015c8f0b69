# SPDX-License-Identifier: Apache-2.0
"""`sagecc pool` and `sagecc sql` as a person calls them."""

from __future__ import annotations

import csv
import json
import os
import re
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sagecc.cli import main
from schemas import views
from schemas.errors import SageccError
from schemas.pool import EPISODE_COLUMNS, FEATURES, POOL_COLUMNS, POOL_SCHEMA
from schemas.raw import RAW_SCHEMA
from schemas.views import VIEWS, open_pool

from .collector.synthetic import write_partition

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_partition(folder / "raw", "I", "cubic", rows=(300, 200))
    write_partition(folder / "raw", "II", "vegas", rows=(250,))
    assert run("pool", "--raw", str(folder / "raw"), "--out", str(folder / "pool"), "--windows", "10,50,100") == 0
    return folder / "pool"


def run(*args: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(args)
    assert isinstance(stopped.value.code, int)
    return stopped.value.code


def ask(capsys: Capture, pool: Path, query: str, layout: str = "csv") -> str:
    assert run("sql", query, "--pool", str(pool), "--format", layout) == 0
    return capsys.readouterr().out


def values(capsys: Capture, pool: Path, query: str) -> list[list[str]]:
    return list(csv.reader(ask(capsys, pool, query).splitlines()))[1:]


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_has_rows(capsys: Capture, pool: Path, view: str) -> None:
    [[count]] = values(capsys, pool, f"SELECT count(*) FROM {view}")
    columns = len(POOL_COLUMNS) + len(EPISODE_COLUMNS) + len(RAW_SCHEMA)
    expected = {"transitions": 299 + 199 + 249, "episodes": 3, "environments": 3, "schemes": 2, "columns": columns}
    assert int(count) == expected[view]


def test_transitions_have_the_pools_columns_and_their_partition(capsys: Capture, pool: Path) -> None:
    header = ask(capsys, pool, "SELECT * FROM transitions LIMIT 0").strip().split(",")
    assert header == [*POOL_SCHEMA.names, "scheme", "set"]
    rows = values(capsys, pool, 'SELECT "set", scheme, count(*) FROM transitions GROUP BY ALL ORDER BY 1')
    assert rows == [["I", "cubic", "498"], ["II", "vegas", "249"]]


def test_the_dictionary_explains_every_column(capsys: Capture, pool: Path) -> None:
    header = ask(capsys, pool, "SELECT * FROM columns LIMIT 0").strip().split(",")
    assert header == ["name", "dtype", "unit", "formula", "paper_index", "table", "low", "high"]
    rows = values(capsys, pool, "SELECT * FROM columns")
    for table in ("transitions", "episodes", "raw"):
        described = ask(capsys, pool, f"SELECT * FROM {table} LIMIT 0").strip().split(",")
        if table != "episodes":
            assert described[-2:] == ["scheme", "set"]
            del described[-2:]
        assert [row[0] for row in rows if row[5] == table] == described
    assert [int(row[4]) for row in rows if row[4] != "0"] == list(range(1, 70))
    assert all(row[3] for row in rows)
    by_name = {row[0]: row for row in rows if row[5] == "transitions"}
    assert by_name["ca_state"][6:] == ["0.0", "4.0"] and by_name["reward"][6:] == ["", "25.0"]
    assert by_name["thr"][1:4] == ["float32", "100 Mbps", "delivery rate of the socket / 100 Mbps"]
    assert by_name["rtt_m.avg"][3] == "avg of srtt over the last 50 ticks"  # of this pool, not of the paper's
    assert len(FEATURES) == 69


def test_episodes_join_environments_and_add_up(capsys: Capture, pool: Path) -> None:
    query = """
        SELECT e."return" - r.total
        FROM episodes e
        JOIN environments USING (environment_id)
        JOIN (SELECT episode_id, sum(reward::DOUBLE) AS total FROM transitions GROUP BY ALL) r USING (episode_id)
    """
    rows = values(capsys, pool, query)
    assert len(rows) == 3 and all(abs(float(row[0])) < 1e-9 for row in rows)
    [[power, friendly]] = values(
        capsys, pool, "SELECT sum(reward_mean_set_i) > 0, sum(reward_mean_set_ii) > 0 FROM schemes"
    )
    assert (power, friendly) == ("True", "True")


def test_views_work_in_duckdb_itself(pool: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute(f"SET VARIABLE pool = '{pool}'")
        connection.execute(Path(views.__file__).with_name("views.sql").read_text())
        assert connection.execute("SELECT count(*) FROM transitions").fetchone() == (747,)


def queries_of_the_docs() -> list[str]:
    text = (Path(views.__file__).parent.parent / "docs" / "pool.md").read_text()
    return re.findall(r"```sql\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize("query", queries_of_the_docs())
def test_the_queries_of_the_docs_answer(capsys: Capture, pool: Path, query: str) -> None:
    assert values(capsys, pool, query)


def test_table_is_aligned_and_counted(capsys: Capture, pool: Path) -> None:
    query = "SELECT 'a' AS word, 1.5::DOUBLE AS x, NULL AS nothing UNION ALL SELECT 'long', 10, NULL"
    text = ask(capsys, pool, query, "table")
    assert text == "word    x  nothing\n----  ---  -------\na     1.5\nlong   10\n(2 rows)\n"


def test_table_stops_at_ten_thousand_rows_and_says_so(capsys: Capture, pool: Path) -> None:
    lines = ask(capsys, pool, "SELECT * FROM range(10001)", "table").splitlines()
    assert len(lines) == 2 + 10_000 + 1
    assert lines[-1] == "(the first 10,000 rows; --format csv prints all)"
    assert ask(capsys, pool, "SELECT * FROM range(10000)", "table").endswith("(10,000 rows)\n")
    assert len(values(capsys, pool, "SELECT * FROM range(25000)")) == 25_000


def test_json_is_json(capsys: Capture, pool: Path) -> None:
    query = "SELECT 1.5 AS a, NULL AS b, 'nan'::FLOAT AS c, [1, 2] AS d, DATE '2024-01-02' AS e, {'x': 1e0} AS f"
    assert json.loads(ask(capsys, pool, query, "json")) == [
        {"a": 1.5, "b": None, "c": None, "d": [1, 2], "e": "2024-01-02", "f": {"x": 1.0}}
    ]
    assert json.loads(ask(capsys, pool, "SELECT 1 WHERE false", "json")) == []
    assert len(json.loads(ask(capsys, pool, "SELECT * FROM range(12000)", "json"))) == 12_000


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("SELEC 1", 'syntax error at or near "SELEC"'),
        ("SELECT nosuch FROM episodes", 'column "nosuch" not found'),
        ("SELECT 'a'::INTEGER", "Conversion Error"),
    ],
)
def test_bad_sql_is_one_line(capsys: Capture, pool: Path, query: str, says: str) -> None:
    assert run("sql", query, "--pool", str(pool)) == 2
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1


def test_a_missing_damaged_or_foreign_pool_is_named(capsys: Capture, pool: Path, tmp_path: Path) -> None:
    assert run("sql", "SELECT 1", "--pool", str(tmp_path)) == 2
    assert capsys.readouterr().err == (
        f"sagecc: no pool at {tmp_path}: it has no episodes.parquet; make it with 'sagecc pool'\n"
    )
    listing = tmp_path / "episodes.parquet"
    pq.write_table(pa.table({"a": [1]}, metadata={b"sagecc.pool_version": b"2.0"}), listing)
    with pytest.raises(SageccError, match=r"pool version 2.0, this program reads 1\."):
        open_pool(tmp_path)
    listing.write_bytes((pool / "episodes.parquet").read_bytes())
    with pytest.raises(SageccError, match="cannot be opened"):
        open_pool(tmp_path)
    os.truncate(listing, 500)
    with pytest.raises(SageccError, match="truncated or corrupt"):
        open_pool(tmp_path)


def test_pool_command_reports_and_refuses(capsys: Capture, tmp_path: Path) -> None:
    raw, out = str(tmp_path / "raw"), str(tmp_path / "pool")
    assert run("pool", "--raw", raw, "--out", out) == 2
    assert "run 'sagecc collect' first" in capsys.readouterr().err
    write_partition(tmp_path / "raw", "I", "reno", rows=(20,))
    assert run("pool", "--raw", raw, "--out", out, "--windows", "5") == 0
    assert capsys.readouterr().out == (f"1 episodes, 19 rows in {out}: 1 partitions derived, 0 unchanged, 0 removed\n")
    assert run("pool", "--raw", raw, "--out", out, "--windows", "none") == 2
    assert "give one or three numbers of ticks" in capsys.readouterr().err
