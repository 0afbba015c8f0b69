# SPDX-License-Identifier: Apache-2.0
"""`sagecc pool` and `sagecc sql` as a person calls them."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sagecc.answers import ALLOW, LAYOUTS
from sagecc.cli import main
from sagecc.collector.run.grid import set_one, set_two
from sagecc.common.errors import SageccError
from sagecc.pool import views
from sagecc.pool.derivation import build_pool
from sagecc.pool.view_columns import COMPUTED, OF_SAMPLES
from sagecc.pool.views import VIEWS, confine, open_pool
from sagecc.schemas.capacity import capacity_bytes
from sagecc.schemas.environment import Environment
from sagecc.schemas.pool import EPISODE_COLUMNS, FEATURES, POOL_COLUMNS, POOL_SCHEMA, VERSION_KEY
from sagecc.schemas.raw import RAW_SCHEMA
from tests.conftest import ROOT
from tests.helpers.messages import facts
from tests.helpers.raw_episodes import write_partition

pytestmark = pytest.mark.heavy

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
    columns = len(POOL_COLUMNS) + len(EPISODE_COLUMNS) + len(RAW_SCHEMA) + sum(map(len, COMPUTED.values()))
    expected = {"transitions": 299 + 199 + 249, "episodes": 3, "environments": 3, "schemes": 2, "rounds": 0}
    expected["columns"] = columns
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
    for table in ("transitions", "episodes", "raw", "samples"):
        described = ask(capsys, pool, f"SELECT * FROM {table} LIMIT 0").strip().split(",")
        if table in ("transitions", "raw"):
            assert described[-2:] == ["scheme", "set"]
            del described[-2:]
        assert [row[0] for row in rows if row[5] == table] == described
    assert [int(row[4]) for row in rows if row[4] != "0"] == list(range(1, 70))
    assert all(row[3] for row in rows)
    by_name = {row[0]: row for row in rows if row[5] == "transitions"}
    assert by_name["ca_state"][6:] == ["0.0", "4.0"] and by_name["reward"][6:] == ["", "25.0"]
    assert by_name["thr"][1:3] == ["float32", "100 Mbps"]
    assert re.search(facts("srtt…50 ticks"), by_name["rtt_m.avg"][3])  # of this pool, not of the paper's
    assert len(FEATURES) == 69


def test_no_progress_bar_goes_among_the_rows(capsys: Capture, pool: Path) -> None:
    """DuckDB prints one where __main__ has no file, as here in a worker, and a question takes two seconds."""
    assert ask(capsys, pool, "SELECT current_setting('enable_progress_bar') AS bar") == "bar\nFalse\n"


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
        connection.execute(f"SET VARIABLE pool = '{pool}'; SET VARIABLE raw = '{pool.parent / 'raw'}'")
        for name in ("views.sql", "views_raw.sql", "views_samples.sql"):
            connection.execute(Path(views.__file__).with_name(name).read_text())
        for view in ("transitions", "samples"):
            assert connection.execute(f"SELECT count(*) FROM {view}").fetchone() == (747,)
        columns = len(POOL_COLUMNS) + len(EPISODE_COLUMNS) + len(RAW_SCHEMA)
        assert connection.execute("SELECT count(*) FROM columns").fetchone() == (columns,)


def test_a_natural_join_of_episodes_and_transitions_has_every_row(capsys: Capture, pool: Path) -> None:
    assert values(capsys, pool, "SELECT count(*) FROM episodes NATURAL JOIN transitions") == [["747"]]
    for query in ("SELECT step FROM episodes", "SELECT e.step FROM environments e"):
        assert run("sql", query, "--pool", str(pool)) == 2
        assert "capacity_step" in capsys.readouterr().err


def test_every_column_of_a_pools_views_has_a_comment(pool: Path) -> None:
    with open_pool(pool, pool.parent / "raw") as connection:
        found = connection.execute(
            "SELECT table_name, column_name, comment FROM duckdb_columns() WHERE NOT internal"
        ).fetchall()
    comments = {(view, name): comment for view, name, comment in found}
    views_with_meanings = {"transitions", "episodes", "raw", "samples", "schemes"}
    assert {view for view, _ in comments} > views_with_meanings
    assert not [key for key, comment in comments.items() if key[0] in views_with_meanings and not comment]
    assert comments["samples", "srtt_ms"] == "smoothed RTT [ms]"
    assert comments["environments", "rtt_ms"].endswith("[ms]")


def test_samples_are_the_counters_in_physical_units(capsys: Capture, pool: Path) -> None:
    query = """
        SELECT count(*), max(abs(s.srtt_ms - t.srtt * 100)), max(abs(s.delivery_mbps - t.thr * 100)),
               bool_and(s.cwnd_pkts = r.cwnd_pkts AND s.action = t.action AND s.reward = t.reward),
               string_agg(DISTINCT s.ca_state, ' ' ORDER BY s.ca_state)
        FROM samples s
        JOIN transitions t USING (episode_id, step)
        JOIN raw r USING (episode_id, step)
    """
    [[rows, srtt, thr, same, states]] = values(capsys, pool, query)
    assert (rows, same, states) == ("747", "True", "open recovery")
    assert float(srtt) < 1e-3 and float(thr) < 1e-3
    assert ask(capsys, pool, "FROM samples LIMIT 0").strip().split(",") == [column.name for column in OF_SAMPLES]


def test_samples_want_raw_trajectories(capsys: Capture, pool: Path, tmp_path: Path) -> None:
    shutil.copytree(pool, tmp_path / "alone")
    assert run("sql", "FROM samples", "--pool", str(tmp_path / "alone")) == 2
    assert re.fullmatch(facts("sagecc: …view 'samples'…--raw\n"), capsys.readouterr().err)


def test_an_episodes_capacity_is_what_the_link_counted(grid: Path) -> None:
    """Also on a link whose rate steps."""
    with open_pool(grid / "pool", grid / "raw") as connection:
        rows = connection.execute(
            "SELECT e.capacity_mbps, e.environment, e.start_s, e.duration_s FROM episodes e"
        ).fetchall()
    for capacity_mbps, network, start_s, duration_s in rows:
        link = Environment.from_json(network).bottleneck
        begin, end = capacity_bytes(link, np.round(np.array([start_s, duration_s]) * 1e9).astype(np.int64))
        assert capacity_mbps == pytest.approx((end - begin) * 8e-6 / (duration_s - start_s), rel=1e-6)
    assert len({round(row[0], 3) for row in rows}) > 2


def test_an_episodes_shares_and_queueing_follow_from_its_row(grid: Path) -> None:
    with open_pool(grid / "pool") as connection:
        rows = connection.sql("FROM episodes").to_arrow_table().to_pylist()
    assert {row["flows"] for row in rows} == {1, 2}
    for row in rows:
        assert row["utilisation"] == pytest.approx(row["goodput_mbps"] / row["capacity_mbps"])
        assert row["queueing_mean_ms"] == pytest.approx(max(row["delay_mean_ms"] - row["rtt_ms"] / 2, 0))
        if row["flows"] == 1:
            assert row["competitor_mbps"] is row["jain_index"] is None
            continue
        own, other = row["goodput_mbps"], max(row["capacity_mbps"] * 1448 / 1500 - row["goodput_mbps"], 0)
        assert row["competitor_mbps"] == pytest.approx(other)
        assert row["jain_index"] == pytest.approx((own + other) ** 2 / (2 * (own**2 + other**2)))


def test_least_propagation_of_a_chain_is_of_the_links_that_the_flow_crosses(pool: Path) -> None:
    links = [{"delay_ms": 5}, {"delay_ms": 20, "delays": [{"t_s": 3, "delay_ms": 8}]}, {"delay_ms": 40}]
    with open_pool(pool) as connection:
        for flow, delay_ms in (({}, 53), ({"links": [0, 1]}, 13), ({"links": [2, 2]}, 40)):
            network = json.dumps({"links": links, "flow": flow})
            assert connection.execute("SELECT propagation_of(?::VARCHAR)", [network]).fetchone() == (delay_ms,)


def test_a_transfer_that_ended_has_its_time(pool: Path) -> None:
    """1 MB at 8 Mbps takes 1 s; at 0.5 Mbps in 4 s it did not end, nor did 1 byte that came with its FIN."""
    cases = [(10**6, 8, 1.0), (10**6, 0.5, None), (1, 2 * 8e-6 / 4, None), (None, 8, None), (10**6, 0, None)]
    with open_pool(pool) as connection:
        for size_bytes, mbps, took_s in cases:
            network = json.dumps({"flow": {"size_bytes": size_bytes, "stop_s": 5} if size_bytes else {}})
            query = "SELECT completion_of(?::VARCHAR, ?::DOUBLE, 1, 10)"
            assert connection.execute(query, [network, mbps]).fetchone() == (took_s,)


def queries_of_the_docs() -> dict[str, str]:
    """The questions of docs/examples/questions.sql by their titles."""
    _, *questions = (ROOT / "docs/examples/questions.sql").read_text().split("\n\n-- ")
    pairs = (question.partition("\n")[::2] for question in questions)
    return {title: re.sub(r"^--.*\n", "", query).rstrip(";\n") for title, query in pairs}


def test_the_guide_shows_questions_of_the_file() -> None:
    section = (ROOT / "docs/guide/query.md").read_text().partition("\n## Questions\n")[2].partition("\n## ")[0]
    shown = dict(re.findall(r"^### (.+?)\n.*?```sql\n(.*?)\n```", section, re.DOTALL | re.MULTILINE))
    assert len(shown) >= 3
    assert shown.items() <= queries_of_the_docs().items()


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data of two schemes in the same networks, long enough for a step up, and a league of theirs."""
    folder = tmp_path_factory.mktemp("grid")
    one = [set_one(12, 2, 40, 1), set_one(12, 2, 40, 4), set_one(24, 1, 20, 0.5)]
    two = [set_two(12, 40, 1), set_two(12, 40, 4)]
    wins = []
    for scheme in ("cubic", "vegas"):
        write_partition(folder / "raw", "I", scheme, rows=(2450,) * 3, environments=one)
        write_partition(folder / "raw", "II", scheme, rows=(500,) * 2, environments=two)
        wins += [{"set": e.set, "environment_id": e.id, "scheme": scheme, "win": scheme == "vegas"} for e in one + two]
    build_pool(folder / "raw", folder / "pool", progress=False)
    (folder / "league").mkdir()
    pq.write_table(pa.Table.from_pylist(wins), folder / "league" / "scores.parquet")
    return folder


def test_there_are_ten_questions_at_least() -> None:
    assert len(queries_of_the_docs()) >= 10


@pytest.mark.parametrize("title", queries_of_the_docs())
def test_the_queries_of_the_docs_answer(
    capsys: Capture, grid: Path, title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = ["--pool", str(grid / "pool"), "--league", str(grid / "league"), "--format", "json"]
    options += [ALLOW] if title == "A part to take away" else []
    assert run("sql", queries_of_the_docs()[title], *options) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows
    checks: dict[str, Callable[[list[dict[str, Any]]], bool]] = {
        "The return of every scheme in one environment": lambda r: len(r) == 2 and r[0]["reward"] >= r[1]["reward"],
        "Delay against buffer size": lambda r: all(
            (row["0.5"], row["1.0"], row["4.0"], row["16.0"]) == (3, 1.5, 1.5, None) for row in r
        ),
        "The congestion window over time": lambda r: len(r) == 245 and all(row["cwnd_pkts"] > 0 for row in r),
        "Rate, delay, action and reward over time": lambda r: [round(row["t_s"]) for row in r] == list(range(25)),
        "States before losses": lambda r: len(r) == 2 and all(row["srtt_over_min"] > 1.2 for row in r),
        "What a scheme does with its window": lambda r: all(
            abs(sum(row[name] for name in ("leaves", "grows", "shrinks", "cuts")) - 1) < 1e-3 for row in r
        ),
        "How soon new bandwidth is used": lambda r: all(row["reached"] == 2 and 4 < row["median_s"] < 6 for row in r),
        "Share next to Cubic": lambda r: all(0 < row["1.0"] < 4 and row["0.5"] is None for row in r),
        "Who is best where": lambda r: sum(row["best_in_set_i"] + row["best_in_set_ii"] for row in r) == 5,
        "Winning windows by buffer size": lambda r: [row["1.0"] for row in r] == [0, 1],
        "A part to take away": lambda r: r[0]["Count"] == 3 * 245 == pq.read_metadata("vegas.parquet").num_rows,
    }
    assert checks[title](rows), rows


def test_table_is_aligned_and_counted(capsys: Capture, pool: Path) -> None:
    query = "SELECT 'a' AS word, 1.5::DOUBLE AS x, NULL AS nothing UNION ALL SELECT 'long', 10, NULL"
    text = ask(capsys, pool, query, "table")
    assert text == "word    x  nothing\n----  ---  -------\na     1.5\nlong   10\n(2 rows)\n"


def test_table_stops_at_ten_thousand_rows_and_says_so(capsys: Capture, pool: Path) -> None:
    lines = ask(capsys, pool, "SELECT * FROM range(10001)", "table").splitlines()
    assert len(lines) == 2 + 10_000 + 1
    assert re.search(facts("10,000 rows…--format csv"), lines[-1])
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
    wanted = f"sagecc: …{tmp_path}…episodes.parquet…'sagecc pool'\n"
    assert re.fullmatch(facts(wanted), capsys.readouterr().err)
    listing = tmp_path / "episodes.parquet"
    pq.write_table(pa.table({"a": [1]}, metadata={b"sagecc.pool_version": b"2.0"}), listing)
    with pytest.raises(SageccError, match=r"pool version 2.0, this program reads 1\."):
        open_pool(tmp_path)
    listing.write_bytes((pool / "episodes.parquet").read_bytes())
    with pytest.raises(SageccError, match="cannot be read"):
        open_pool(tmp_path)
    os.truncate(listing, 500)
    with pytest.raises(SageccError, match="is damaged"):
        open_pool(tmp_path)


def test_a_first_file_without_a_column_is_named(capsys: Capture, pool: Path, tmp_path: Path) -> None:
    """DuckDB takes every file's columns from the first one's."""
    copy = shutil.copytree(pool, tmp_path / "pool")
    path = min(copy.glob("set=*/scheme=*/part-*.parquet"))
    pq.write_table(pq.read_table(path, partitioning=None).drop_columns("srtt"), path)
    assert run("sql", "SELECT sum(srtt) FROM transitions", "--pool", str(copy)) == 2
    said = capsys.readouterr().err
    assert str(path) in said
    assert "'srtt'" in said


def test_a_pool_of_a_newer_minor_version_is_read(capsys: Capture, pool: Path, tmp_path: Path) -> None:
    shutil.copytree(pool, tmp_path / "pool")
    for path in (tmp_path / "pool").rglob("*.parquet"):
        table = pq.read_table(path, partitioning=None)
        table = table.append_column("more", pa.array([0] * len(table)))
        pq.write_table(table.replace_schema_metadata(table.schema.metadata | {VERSION_KEY: b"1.9"}), path)
    [[more]] = values(capsys, tmp_path / "pool", "SELECT count(more) FROM transitions")
    assert more == "747"


def test_an_episode_comes_whole_and_in_order(capsys: Capture, pool: Path) -> None:
    rows = values(capsys, pool, "SELECT episode_id FROM episodes")
    for (name,) in rows:
        whole = values(capsys, pool, f"SELECT * FROM transitions WHERE episode_id = '{name}' ORDER BY step")
        assert values(capsys, pool, f"SELECT * FROM episode('{name}')") == whole
        assert len(whole) > 100
    assert values(capsys, pool, "SELECT * FROM episode('no such')") == []


def test_a_policy_has_its_name(capsys: Capture, tmp_path: Path) -> None:
    write_partition(tmp_path / "raw", "I", "policy:models/mine", rows=(30,))
    assert run("pool", "--raw", str(tmp_path / "raw"), "--out", str(tmp_path / "pool")) == 0
    capsys.readouterr()
    for view in ("transitions", "episodes"):
        [[scheme]] = values(capsys, tmp_path / "pool", f"SELECT DISTINCT scheme FROM {view}")
        assert scheme == "policy:models/mine"
    [[count]] = values(
        capsys, tmp_path / "pool", "FROM transitions SELECT count(*) WHERE scheme = 'policy:models/mine'"
    )
    assert count == "29"


def test_raw_lies_beside_the_pool_or_where_it_is_said_to(capsys: Capture, pool: Path, tmp_path: Path) -> None:
    count = "SELECT count(*), min(cwnd_pkts) > 0 FROM raw"
    assert values(capsys, pool, count) == [["750", "True"]]
    shutil.copytree(pool, tmp_path / "alone")
    assert run("sql", count, "--pool", str(tmp_path / "alone")) == 2
    wanted = f"sagecc: …view 'raw'…{tmp_path / 'raw'}…--raw\n"
    assert re.fullmatch(facts(wanted), capsys.readouterr().err)
    elsewhere = str(pool.parent / "raw")
    assert run("sql", count, "--pool", str(tmp_path / "alone"), "--raw", elsewhere) == 0
    capsys.readouterr()
    assert run("sql", count, "--pool", str(pool), "--raw", str(tmp_path)) == 2
    assert "no raw trajectories at" in capsys.readouterr().err


def test_league_is_there_where_one_was_played(
    capsys: Capture, pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    query = "SELECT scheme, win FROM league"
    assert run("sql", query, "--pool", str(pool)) == 2
    wanted = "sagecc: …view 'league'…leagues/results…'sagecc league'…--league\n"
    assert re.fullmatch(facts(wanted), capsys.readouterr().err)
    assert run("sql", query, "--pool", str(pool), "--league", "elsewhere") == 2
    assert re.search(facts("elsewhere…scores.parquet"), capsys.readouterr().err)
    for folder in ("leagues/results", "elsewhere"):
        (tmp_path / folder).mkdir(parents=True)
        pq.write_table(pa.table({"scheme": [folder], "win": [True]}), tmp_path / folder / "scores.parquet")
    assert values(capsys, pool, query) == [["leagues/results", "True"]]
    assert run("sql", query, "--pool", str(pool), "--league", "elsewhere", "--format", "csv") == 0
    assert "elsewhere,True" in capsys.readouterr().out


# ---- paths that DuckDB would take for patterns, partitions or no text ----


@pytest.mark.parametrize(
    "name", ["a*b", "run [1]", "q?x", "it's", "k=v", "set=II", "srtt=5", "a\\b", "{a,b}", "two\nlines", "no\udcffutf8"]
)
def test_a_pool_is_the_one_that_is_named(
    capsys: Capture, pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for other in ("axb", "run 1", "qxx"):
        shutil.copytree(pool, tmp_path / other / "pool")
    shutil.copytree(pool.parent, tmp_path / name)
    header = ask(capsys, pool, "SELECT * FROM transitions LIMIT 0")
    query = 'SELECT count(*), (SELECT count(*) FROM raw), min("set"), avg(srtt) != 5 FROM transitions'
    for place in (tmp_path / name, Path(name)):
        monkeypatch.chdir(tmp_path)
        assert values(capsys, place / "pool", query) == [["747", "750", "I", "True"]]
        assert ask(capsys, place / "pool", "SELECT * FROM transitions LIMIT 0") == header
        for scheme, rows in (("cubic", 299 + 199), ("vegas", 249)):
            asked = f"SELECT count(*) FROM transitions WHERE scheme = '{scheme}'"
            assert values(capsys, place / "pool", asked) == [[str(rows)]]
    monkeypatch.chdir(tmp_path / name)
    assert values(capsys, Path("pool"), query) == [["747", "750", "I", "True"]]


def test_an_error_names_the_file_and_no_other_name_of_it(capsys: Capture, pool: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(pool, tmp_path / "k=v" / "pool")
    part = copy / "set=II" / "scheme=vegas" / "part-000.parquet"
    os.truncate(part, 100)
    assert run("sql", "SELECT sum(srtt) FROM transitions", "--pool", str(copy)) == 2
    assert str(part) in capsys.readouterr().err


def test_a_partition_whose_name_is_a_pattern_is_refused(capsys: Capture, pool: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(pool, tmp_path / "pool")
    (copy / "set=II" / "scheme=vegas").rename(copy / "set=II" / "scheme=*")
    assert run("sql", "SELECT 1", "--pool", str(copy)) == 2
    assert re.fullmatch(facts(f"sagecc: {copy}/set=II/scheme=*/part-000.parquet…\n"), capsys.readouterr().err)


# ---- what a question may do ----

FILES = (
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_text('{here}/secret.csv')",
    "SELECT * FROM '{here}/secret.csv'",
    "SELECT * FROM glob('/etc/*')",
    "FROM sniff_csv('{here}/secret.csv')",
    "SELECT * FROM 'https://example.org/x.parquet'",
    "SELECT * FROM read_parquet('s3://somewhere/x.parquet')",
    "CREATE MACRO m() AS TABLE FROM read_csv('{here}/secret.csv')",
    "CREATE TABLE t (a INT); COPY t FROM '{here}/secret.csv'",
    "COPY (SELECT 1) TO 'out.csv'",
    "SELECT 1; COPY (SELECT 1) TO 'out.csv'",
    "/* */ cOpY(SELECT 1) TO 'out.csv'",
    "\u00a0COPY (SELECT 1) TO 'out.csv'",
    "EXPORT DATABASE 'out'",
    "IMPORT DATABASE '{here}'",
    "ATTACH 'out.db'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "LOAD '{here}/secret.csv'",
    "CREATE PERSISTENT SECRET s (TYPE http, EXTRA_HTTP_HEADERS MAP {{'a': 'b'}})",
    "SET threads = 1",
    "RESET memory_limit",
    "SET enable_external_access = true",
    "PRAGMA profiling_output = 'out.json'",
)


@pytest.mark.parametrize("query", FILES)
def test_a_question_reads_the_pool_and_nothing_else(
    capsys: Capture, pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    (tmp_path / "secret.csv").write_text("a\n1\n")
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    assert run("sql", query.format(here=tmp_path), "--pool", str(pool)) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert ALLOW in said.err and said.err.count("\n") == 1
    assert not list(Path().iterdir())


@pytest.mark.parametrize(
    "query", ["{}", "EXPLAIN ANALYZE {}", "PREPARE p AS {}; EXECUTE p", "WITH a AS ({}) SELECT * FROM a"]
)
@pytest.mark.parametrize("shell", [False, True])
def test_a_question_leaves_the_pools_files_alone(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, pool: Path, query: str, shell: bool
) -> None:
    """DuckDB itself would let it: where a file may be read, it may be written over."""
    listing = pool / "episodes.parquet"
    before = listing.read_bytes()
    text = query.format(f"COPY (SELECT 1 AS a) TO '{listing}' (FORMAT parquet, USE_TMP_FILE false)")
    if shell:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert run("sql", "--shell" if shell else text, "--pool", str(pool)) == 2
    assert "COPY reads or writes files" in capsys.readouterr().err
    assert listing.read_bytes() == before


def test_the_word_copy_may_stand_in_a_text(capsys: Capture, pool: Path) -> None:
    query = "SELECT 'copy' AS word, $$export$$ AS other, count(*) /* import */ FROM episodes -- a copy"
    assert values(capsys, pool, query) == [["copy", "export", "3"]]


def test_tables_of_ones_own_are_no_files(capsys: Capture, pool: Path) -> None:
    query = "CREATE TABLE t AS FROM episodes; CREATE VIEW v AS FROM t WHERE scheme = 'cubic'; SELECT count(*) FROM v"
    assert values(capsys, pool, query) == [["2"]]


def test_a_variable_of_this_program_is_no_table(capsys: Capture, pool: Path) -> None:
    for name in ("asked", "query", "connection", "LAYOUTS"):
        assert run("sql", f"SELECT * FROM {name}", "--pool", str(pool)) == 2
        assert f"Table with name {name} does not exist" in capsys.readouterr().err


def test_files_are_open_to_who_says_so(capsys: Capture, pool: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    assert run("sql", f"COPY (SELECT 1 AS a) TO '{out}'", "--pool", str(pool), ALLOW) == 0
    assert out.read_text() == "a\n1\n"
    with open_pool(pool) as connection:  # of Python: the program's own question
        assert connection.execute(f"FROM '{out}'").fetchall() == [(1,)]


def test_files_of_a_pool_may_be_links(capsys: Capture, pool: Path, tmp_path: Path) -> None:
    """As DVC leaves them with `cache.type symlink`."""
    copy = shutil.copytree(pool, tmp_path / "pool")
    for number, path in enumerate(sorted(copy.rglob("*.parquet"))):
        path.rename(tmp_path / f"{number}")
        path.symlink_to(tmp_path / f"{number}")
    assert values(capsys, copy, "SELECT count(*), (SELECT count(*) FROM episodes) FROM transitions") == [["747", "3"]]


def test_a_question_larger_than_memory_spills(pool: Path, tmp_path: Path) -> None:
    with open_pool(pool) as connection:
        connection.execute("SET memory_limit = '40MB'")
        connection.execute("SET threads = 1")
        connection.execute("SET temp_directory = ?", [str(tmp_path / "spilled")])
        confine(connection, [pool / "episodes.parquet"])
        connection.execute("CREATE TABLE t AS SELECT hash(range) AS h, range FROM range(4_000_000) ORDER BY h")
        assert (tmp_path / "spilled").exists()
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (4_000_000,)


@pytest.mark.parametrize("query", ["", " ;", "SELECT '\udcff'"])
def test_no_question_is_one_line(capsys: Capture, pool: Path, query: str) -> None:
    assert run("sql", query, "--pool", str(pool)) == 2
    assert re.fullmatch(facts("sagecc: the question …\n"), capsys.readouterr().err)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_times_with_a_zone_are_printed(capsys: Capture, pool: Path, layout: str) -> None:
    query = "SELECT TIMESTAMPTZ '2024-05-06 07:08:09+02' AS at, [TIMESTAMPTZ '2024-05-06 07:08:09Z'] AS those"
    assert "2024-05-0" in ask(capsys, pool, query, layout)
    assert ask(capsys, pool, "SELECT now() AS at", layout)


def test_no_bar_goes_into_a_file(capsys: Capture, tmp_path: Path) -> None:
    raw, out = tmp_path / "raw", str(tmp_path / "pool")
    write_partition(raw, "I", "cubic", rows=(300, 200))
    capsys.readouterr()
    assert run("pool", "--raw", str(raw), "--out", out) == 0
    assert run("pool", "check", "--pool", out) == 0
    assert run("pool", "export", str(tmp_path / "out"), "--to", "samples", "--pool", out) == 0
    told = capsys.readouterr().err
    assert told.startswith("no findings: ") and told.count("\n") == 1 and "\r" not in told


def test_check_says_what_is_wrong_and_exits_with_one(capsys: Capture, pool: Path, tmp_path: Path) -> None:
    shutil.copytree(pool, tmp_path / "pool")
    arguments = ("pool", "check", "--pool", str(tmp_path / "pool"))
    assert run(*arguments) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert re.search(facts("no findings: 5 files…3 episodes, 747 rows"), said.err)
    assert run(*arguments, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["episodes"], told["rows"], told["files"], told["findings"]) == (3, 747, 5, [])
    part = tmp_path / "pool" / "set=I" / "scheme=cubic" / "part-000.parquet"
    whole = bytearray(part.read_bytes())
    whole[len(whole) // 2] ^= 4
    part.write_bytes(whole)
    assert run(*arguments, "--json") == 1
    told = json.loads(capsys.readouterr().out)
    assert part.is_relative_to(tmp_path / "pool" / told["findings"][0]["path"])
    assert run(*arguments) == 1
    found = capsys.readouterr().out.splitlines()
    assert any(re.match(facts(f"{part}: …manifest.json"), line) for line in found)
    assert all(line.startswith(str(tmp_path / "pool")) for line in found)
    assert run("pool", "check", "--pool", str(tmp_path / "none")) == 2
    assert re.fullmatch(facts(f"sagecc: …{tmp_path / 'none'}…'sagecc pool'\n"), capsys.readouterr().err)


@pytest.mark.parametrize(
    ("text", "ticks"), [("all", "10,200,1000"), ("medium", "200,200,200"), ("7", "7,7,7"), ("1,2,3", "1,2,3")]
)
def test_windows_go_by_name_or_by_ticks(tmp_path: Path, text: str, ticks: str) -> None:
    write_partition(tmp_path / "raw", "I", "reno", rows=(20,))
    assert run("pool", "--raw", str(tmp_path / "raw"), "--out", str(tmp_path / "pool"), "--windows", text) == 0
    assert pq.read_schema(tmp_path / "pool" / "episodes.parquet").metadata[b"sagecc.windows"].decode() == ticks


def test_pool_command_reports_and_refuses(capsys: Capture, tmp_path: Path) -> None:
    raw, out = str(tmp_path / "raw"), str(tmp_path / "pool")
    assert run("pool", "--raw", raw, "--out", out) == 2
    assert "run 'sagecc collect' first" in capsys.readouterr().err
    write_partition(tmp_path / "raw", "I", "reno", rows=(20,))
    assert run("pool", "--raw", raw, "--out", out, "--windows", "5") == 0
    assert re.fullmatch(facts(f"1 episodes, 19 rows in {out}: 1…0…0…\n"), capsys.readouterr().out)
    assert run("pool", "--raw", raw, "--out", out, "--windows", "none") == 2
    assert re.search(facts("one…three…ticks"), capsys.readouterr().err)


RUNS = '{"name": "a", "training": {"cpu_h": 0.5}}\n{"name": "b", "training": {"cpu_h": 1.5}, "curve": [1]}\n'


def test_a_file_of_the_users_is_a_view_with_a_pool_or_without(
    pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("it's.jsonl").write_text(RUNS)
    Path("b.csv").write_text("scheme,cost\ncubic,2\n")
    runs = ("--table", "runs=it's.jsonl", "--format", "csv")
    assert run("sql", "SELECT sum(training.cpu_h) FROM runs", *runs) == 0
    assert capsys.readouterr().out.splitlines()[1] == "2.0"
    joined = "SELECT cost FROM costs JOIN schemes USING (scheme)"
    assert run("sql", joined, "--table", "costs=b.csv", "--pool", str(pool), "--format", "csv") == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["2"]
    assert run("sql", "FROM episodes", *runs) == 2
    assert "datasets/pool holds no pool" in capsys.readouterr().err
    assert run("sql", "FROM read_csv('b.csv')", *runs) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
    ("table", "error"),
    [
        ("runs", "--table runs: write NAME=FILE"),
        ("a-b=x.csv", "'a-b' can be no table's name"),
        ("episodes=x.csv", "'episodes' can be no table's name"),
        ("x=x.txt", "x.txt: a table is a file of .parquet, .csv, .json, .jsonl"),
        ("x=none.csv", "none.csv"),
        ("x=bad.parquet", "bad.parquet"),
        ("x=a*.csv", "DuckDB takes such a name for a pattern"),
    ],
)
def test_what_is_no_table_is_one_line(
    table: str, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.parquet").write_bytes(b"PAR1 no")
    assert run("sql", "SELECT 1", "--table", table) == 2
    told = capsys.readouterr().err
    assert error in told and len(told.splitlines()) == 1
