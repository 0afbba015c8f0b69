# SPDX-License-Identifier: Apache-2.0
"""The page: what it holds, that it reads back, and what a browser makes of it."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import shlex
import shutil
import subprocess
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from click.testing import CliRunner, Result

from sagecc.collector.run.grid import set_one as grid_network
from sagecc.commands.report import command
from sagecc.common.errors import SageccError
from sagecc.leagues.league import League, play, save
from sagecc.leagues.report.contents import Contents, in_order
from sagecc.leagues.report.files import write_beside
from sagecc.leagues.report.folder import load
from sagecc.leagues.report.made import Made
from sagecc.leagues.report.numbers import numbers
from sagecc.leagues.report.page import render
from sagecc.leagues.report.pictures import analysis_picture, example, friendliness, in_words, training_figures
from sagecc.leagues.report.series import LEVELS, NONE, binned, choose, grid, pack
from sagecc.leagues.scores import find_episodes
from sagecc.schemas.environment import Environment, RateStep
from tests.helpers.league_episodes import rows, set_one, set_two, smoke, write
from tests.helpers.lively import lively

pytestmark = pytest.mark.heavy

ENVIRONMENTS = (set_one(12), set_one(24, step=2), set_two(12))
SMOKE = smoke(*ENVIRONMENTS)
POLICY = "policy:models/<b>sage"
FIGURES = {"cubic": ([9, 9], [40, 40]), "vegas": ([7, 7], [12, 12]), POLICY: ([8, 6], [11, 20])}
SCHEMES = tuple(FIGURES)

Place = tuple[Path, League]
Change = Callable[[Path], object]
Browse = Callable[..., tuple[str, list[str]]]

CHROMIUM = shutil.which("chromium")
in_browser = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


def lab(environments: Sequence[Environment], policies: Sequence[str], out: Path) -> None:
    write(out, {(e, p): rows(e, p, *FIGURES[p]) for e in environments for p in policies})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A folder with a league in `out`, its trajectories in `raw`, and the policy's files."""
    folder = tmp_path_factory.mktemp("league")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        policy = folder / POLICY.removeprefix("policy:")
        policy.mkdir(parents=True)
        (policy / "card.json").write_text("1")
        (policy / "curves.csv").write_text("step,critic_loss,q_mean\n100,4.5,10\n200,3.5,12\n300,3,11\n")
        write(folder / "raw", {(e, s): rows(e, s, *FIGURES[s]) for e in ENVIRONMENTS for s in ("cubic", "vegas")})
        league = play(SMOKE, SCHEMES, folder / "raw", folder / "out", lab)
        save(league, folder / "out")
        write_beside(folder / "out", folder / "raw")
    return folder, league


@pytest.fixture
def league(place: Place, monkeypatch: pytest.MonkeyPatch) -> League:
    monkeypatch.chdir(place[0])
    return place[1]


@pytest.fixture
def contents(league: League) -> Contents:
    return load_it()


def load_it(league: str | Path = "out", raw: str | Path = "raw", analysis: str | Path = "analysis") -> Contents:
    return load(Path(league), Path(raw), Path(analysis))


def first(pattern: str, text: str) -> str:
    """What a pattern's group holds where it is found first."""
    found = re.search(pattern, text, re.DOTALL)
    assert found, pattern
    return found[1]


def series(text: str) -> dict[str, Any]:
    """The data of a page's charts."""
    found: dict[str, Any] = json.loads(first(r'<script type="application/json" id="series">(.*?)</script>', text))
    return found


def unpacked(environment: dict[str, Any]) -> npt.NDArray[np.float64]:
    """The numbers behind an environment's levels, [series, bins]: the format as the page's documentation has it."""
    flat = np.frombuffer(zlib.decompress(base64.b64decode(environment["data"])), np.uint8).reshape(2, -1)
    differences = (flat[0] + 256 * flat[1].astype(np.int64)).reshape(-1, environment["count"])
    levels = np.cumsum(differences, axis=1) % 65536
    return np.where(levels == NONE, np.nan, levels / LEVELS * np.array(environment["tops"])[:, None])


# What the page is made of


def test_bins_are_differences_of_counters(tmp_path: Path) -> None:
    environment = set_two()
    raw = {(environment, s): lively(environment, s, 300, seed) for seed, s in enumerate(("cubic", "vegas", "bic"))}
    write(tmp_path, raw)
    episodes = find_episodes([tmp_path], [environment], ["cubic", "vegas", "bic"])
    found = binned([environment], episodes)
    first, width, count = grid(environment)
    assert (first * width, (first + count) * width) == pytest.approx((1, 4))
    for (_, scheme), table in raw.items():
        tick = {name: table[name].to_numpy().astype(float) for name in table.column_names if name != "episode_id"}
        values = found[episodes[environment.id, scheme].id]
        for i in range(count):
            end = (first + i + 1) * width
            inside = np.flatnonzero((tick["t_s"] > end - width + 1e-9) & (tick["t_s"] <= end + 1e-9))
            last, before = inside[-1], max(inside[0] - 1, 0)

            def grew(name: str, last: np.int64 = last, before: np.int64 = before, tick: dict[str, Any] = tick) -> float:
                return float(tick[name][last] - tick[name][before])

            seconds = grew("t_s")
            assert values[0, i] == pytest.approx(grew("received_bytes") / seconds / 125_000)
            assert values[1, i] == pytest.approx(grew("link_delay_ns") / grew("link_packets") / 1e6)
            assert values[2, i] == pytest.approx(tick["cwnd_pkts"][inside].mean())
            assert values[3, i] == grew("link_drops")
            assert values[4, i] == pytest.approx(grew("link_capacity_bytes") / seconds / 125_000)


def test_a_late_trajectory_leaves_bins_empty(tmp_path: Path) -> None:
    environment = set_one()
    write(tmp_path, {(environment, "cubic"): rows(environment, "cubic", [6, 6], [20, 20], 1.0, 2.0)})
    episodes = find_episodes([tmp_path], [environment], ["cubic"])
    (values,) = binned([environment], episodes).values()
    ends = (np.arange(values.shape[1]) + 1) * grid(environment)[1]
    there = (ends > 1 + 1e-9) & (ends < 2 + 1e-9)
    assert np.isfinite(values[0]).tolist() == there.tolist()
    assert values[0, there] == pytest.approx(6, rel=0.01)


def test_levels_read_back() -> None:
    random = np.random.default_rng(0)
    made = [random.random(50) * 1000, np.full(50, np.nan), np.zeros(50), np.append(random.random(49), np.nan)]
    tops, data = pack(made)
    back = unpacked({"data": data, "count": 50, "tops": tops})
    for values, read, top in zip(made, back, tops, strict=True):
        assert np.isnan(read).tolist() == np.isnan(values).tolist()
        assert np.nan_to_num(read) == pytest.approx(np.nan_to_num(values), abs=0.51 * top / LEVELS)


def test_a_sample_has_those_named_and_its_share_of_each_set() -> None:
    ones = [set_one(mbps, rtt_ms=rtt) for mbps in (12, 24, 48) for rtt in (10, 20, 40, 80)]
    twos = [set_two(mbps) for mbps in (12, 24, 48, 96)]
    everything = in_order([*twos, *ones])
    named = ones[1].id
    chosen = choose(everything, 8, [named])
    assert len(chosen) == 8
    assert named in {e.id for e in chosen}
    assert sum(e.set == "II" for e in chosen) == 2
    assert {e.bandwidth_mbps for e in chosen if e.set == "I"} == {12, 24, 48}
    assert chosen == [e for e in everything if e in chosen]
    assert choose(everything, 100) == everything


def test_friendliness_by_hand(contents: Contents) -> None:
    # Set II's fair share is 6 Mbps: cubic 9 and 9, vegas 7 and 7, the policy 8 and 6
    table = {row["scheme"]: row for row in friendliness(contents.wins).to_dicts()}
    assert [row["windows"] for row in table.values()] == [2, 2, 2]
    assert table["cubic"]["p50"] == pytest.approx(1.5, rel=1e-3)
    assert table["vegas"]["p05"] == pytest.approx(7 / 6, rel=1e-3)
    assert table[POLICY]["p95"] == pytest.approx(1 + 0.95 / 3, rel=1e-3)
    assert [table[s]["near"] for s in SCHEMES] == [0, 0, 0.5]
    assert list(table) == [POLICY, "vegas", "cubic"] or list(table) == ["vegas", POLICY, "cubic"]


def test_the_example_shows_the_policy_on_a_changing_link(contents: Contents, tmp_path: Path) -> None:
    assert example(contents, "I") == (ENVIRONMENTS[1], POLICY, "vegas")
    save(play(SMOKE, ("cubic",), Path("raw"), tmp_path, lab), tmp_path)
    assert example(load_it(tmp_path), "I") is None


def test_an_example_says_how_its_rate_changes() -> None:
    flat = grid_network(12, 1, 40, 2)
    assert in_words(flat) == "12 Mbps, 40 ms, queue 2 BDP"
    assert in_words(grid_network(12, 4, 40, 2)).startswith("12 Mbps, rate x 4 every other 7 s, 40 ms")
    rates = tuple(RateStep(t_s, mbps) for t_s, mbps in ((0, 0), (5, 12), (9, 0)))
    outages = replace(flat, links=(replace(flat.bottleneck, rates=rates),))
    assert in_words(outages).startswith("12 Mbps at first, 2 changes of rate, 40 ms")


def test_training_curves_are_the_files(contents: Contents) -> None:
    loss, q = training_figures(contents.curves)[POLICY].axes
    assert np.array(loss.lines[0].get_data()).tolist() == [[100, 200, 300], [4.5, 3.5, 3]]
    assert np.array(q.lines[0].get_data()).tolist() == [[100, 200, 300], [10, 12, 11]]
    assert training_figures({}) == {}


def test_each_policy_is_drawn_on_axes_of_its_own(contents: Contents) -> None:
    long = contents.curves[POLICY].with_columns(pl.col("step") * 1000)
    figures = training_figures({**contents.curves, "policy:long": long})
    limits = {name: figure.axes[0].get_xlim()[1] for name, figure in figures.items()}
    assert limits["policy:long"] > 300_000
    assert limits[POLICY] < 1000


def test_numbers_are_means_of_windows_and_of_episodes_losses(contents: Contents) -> None:
    table = {(row["set"], row["scheme"]): row for row in numbers(contents.wins, contents.episodes).to_dicts()}
    assert set(table) == {(name, scheme) for name in ("I", "II") for scheme in SCHEMES}
    found = table["II", POLICY]
    assert found["goodput_mbps"] == pytest.approx((8 + 6) / 2, rel=1e-3)
    assert found["used"] == pytest.approx((8 + 6) / 2 / 12, rel=1e-3)
    assert found["delay_ms"] == pytest.approx((11 + 20) / 2 + 10, rel=1e-3)  # and the way back's
    assert found["loss"] == contents.episodes[ENVIRONMENTS[2].id, POLICY].loss_rate


def test_curves_of_a_policy_that_was_trained_again_are_left_out(contents: Contents, place: Place) -> None:
    card = place[0] / POLICY.removeprefix("policy:") / "card.json"
    assert list(contents.curves) == [POLICY]
    card.write_text("2")
    assert not load_it().curves
    card.write_text("1")


# The page


class _Page(HTMLParser):
    """Notes unbalanced tags, headers without a scope, tables without a caption, what is loaded, repeated ids."""

    void = frozenset(("meta", "br", "img", "link", "use", "path", "rect", "input", "image"))

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.open: list[str] = []
        self.faults: list[str] = []
        self.ids: list[str | None] = []
        self.references: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] += 1
        if tag not in self.void:
            self.open.append(tag)
        values = dict(attrs)
        if "id" in values:
            self.ids.append(values["id"])
        if tag == "th" and "scope" not in values:
            self.faults.append("th without scope")
        if tag in ("link", "iframe", "object") or any(k in ("src", "srcset") for k in values):
            self.faults.append(f"loads something: {tag}")
        for name in ("href", "xlink:href"):
            if not (values.get(name) or "#").startswith(("#", "data:")):
                self.faults.append(f"leads elsewhere: {values[name]}")
        if tag == "a":
            self.references.append(values["href"] or "")
        if tag == "label" and "for" in values:
            self.references.append(f"#{values['for']}")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.void:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.void and self.open.pop() != tag:
            self.faults.append(f"unbalanced {tag}")


@pytest.fixture
def text(place: Place) -> str:
    """The page beside the league's tables."""
    return (place[0] / "out/report.html").read_text()


def test_the_page_is_sound_and_loads_nothing(text: str) -> None:
    page = _Page()
    page.feed(text)
    assert page.faults == []
    assert page.open == []
    assert page.counts["caption"] == page.counts["table"]
    assert len(page.ids) == len(set(page.ids))
    assert {reference[1:] for reference in page.references} <= set(page.ids)
    assert "url(http" not in text
    assert "prefers-color-scheme: dark" in text
    assert "<b>sage" not in text


def test_only_its_own_script_may_run(text: str) -> None:
    policy = html.unescape(first(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text))
    *fixed, script = policy.split("; ")
    assert sorted(fixed) == [
        "base-uri 'none'",
        "default-src 'none'",
        "form-action 'none'",
        "img-src data:",
        "style-src 'unsafe-inline'",
    ]
    assert script.startswith("script-src 'sha256-")
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert [f"sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}" for s in scripts] == [
        first(r"script-src '([^']*)'", policy)
    ]


def test_the_league_and_the_command_write_the_same_page(contents: Contents, text: str) -> None:
    assert render(contents) == text


def test_a_footer_says_how_it_was_made(contents: Contents, text: str) -> None:
    footed = render(contents, made=Made.by(["report", "--out", "a b<i>.html"]))
    foot = html.unescape(first("<footer>(.*?)</footer>", footed))
    assert re.fullmatch(r"sagecc [\d.]+: sagecc report --out 'a b<i>\.html'\.", foot)
    assert re.sub(r"<footer>.*?</footer>\n", "", footed) == text


def test_the_mean_that_ranks_is_shown(contents: Contents, text: str) -> None:
    best = contents.summary["ranking"][0]
    row = first(r'<table class="standings">.*?<tbody>\s*(<tr.*?</tr>)', text)
    assert f"<td>1</td><td>{100 * best['winning_rate']:.1f} %</td>" in re.sub(r"\s*\n\s*", "", row)


def test_what_there_is_nothing_of_has_no_section(text: str) -> None:
    for name in ("distance", "similarity", "tsne", "repeats", "lost"):
        assert f'id="{name}"' not in text


def test_its_charts_are_the_trajectories(contents: Contents, text: str) -> None:
    data = series(text)
    assert set(data["environments"]) == {e.id for e in ENVIRONMENTS}
    for environment in ENVIRONMENTS:
        own = data["environments"][environment.id]
        assert [data["schemes"][i] for i in own["schemes"]] == contents.schemes
        values = unpacked(own)
        middle = slice(own["count"] // 2 + 3, own["count"])  # the second window, 2 s to the end
        for at, scheme in enumerate(contents.schemes):
            goodput, delay, cwnd, drops = values[1 + 4 * at : 5 + 4 * at, middle]
            assert goodput == pytest.approx(FIGURES[scheme][0][1], rel=0.02)
            assert delay == pytest.approx(FIGURES[scheme][1][1], rel=0.02)
            assert cwnd == pytest.approx(10)
            assert not drops.any()
        assert values[0, middle] == pytest.approx(environment.bottleneck.rates[-1].rate_mbps, rel=0.01)


def test_a_large_league_is_sampled_and_says_so(contents: Contents, text: str) -> None:
    sampled = render(contents, [], trajectories=6)  # two environments: the examples
    assert set(series(sampled)["environments"]) == {ENVIRONMENTS[1].id, ENVIRONMENTS[2].id}
    assert "2 of the league's 3 environments" in sampled
    assert len(series(render(contents, [], trajectories=6, named=[ENVIRONMENTS[0].id]))["environments"]) == 3
    assert "of the league's" not in text


def test_what_was_not_measured_says_how_to(text: str) -> None:
    text = html.unescape(text)
    assert f"sagecc distance --policy {shlex.quote(POLICY.removeprefix('policy:'))} --schemes vegas" in text
    assert "sagecc similarity --scheme policy:" in text
    assert "sagecc tsne" in text


def analyses(folder: Path, environment: Environment) -> None:
    """Write the tables of sagecc distance and similarity, as small as they get."""
    titles = {environment.id: "here"}
    keys = {"environment_id": [environment.id] * 4}
    tables = {
        "distance": (
            pl.DataFrame({**keys, "scheme": ["cubic", "cubic", POLICY, POLICY], "distance": [0.1, 0.2, 0.001, 0.3]}),
            {"searched": 1000, "pool_transitions": 2000},
        ),
        "similarity": (
            pl.DataFrame(
                {
                    **keys,
                    "scheme": [POLICY] * 4,
                    "other": ["a", "b", "c", "d"],
                    "index": [0.1, 0.2, 0.9, 0.4],
                    "nearest": [0.5, 0.6, 0.7, 0.8],
                }
            ),
            {},
        ),
    }
    for name, (table, summary) in tables.items():
        (folder / name).mkdir(parents=True)
        table.write_parquet(folder / name / f"{name}.parquet")
        (folder / name / f"{name}.json").write_text(json.dumps({"version": "1.3", "environments": titles, **summary}))


def test_what_was_measured_is_drawn(league: League, tmp_path: Path) -> None:
    analyses(tmp_path, ENVIRONMENTS[0])
    found = load_it(analysis=tmp_path)
    assert set(found.analyses) == {"distance", "similarity"}
    (axes,) = analysis_picture("distance", found.analyses["distance"]).figure.axes
    assert sorted(np.asarray(axes.lines[0].get_xdata())) == pytest.approx([0.1, 0.2])
    text = render(found, [])
    assert "1,000 of its 2,000 transitions" in text
    assert "sagecc similarity --scheme" not in text
    assert "sagecc tsne" in text
    page = _Page()
    page.feed(text)
    assert page.faults == []


# The command


def run(*options: object) -> Result:
    return CliRunner().invoke(command, [*map(str, options)], catch_exceptions=False)


def test_command(league: League, tmp_path: Path) -> None:
    out = tmp_path / "new/report.html"
    result = run("--league", "out", "--raw", "raw", "--analysis", "nowhere", "--out", out)
    assert result.exit_code == 0
    assert re.fullmatch(r"report: .*report\.html \(\d\.\d MB\)\n", result.output)
    assert "League of 3 congestion-control schemes" in out.read_text()
    assert [path.name for path in out.parent.iterdir()] == ["report.html"]
    run("--league", "out", "--raw", "raw", "--analysis", "nowhere", "--out", out, "--pictures", tmp_path / "drawn")
    names = {path.name for path in (tmp_path / "drawn").iterdir()}
    assert names == {"standings.png", "plane.png", "example-I.png", "example-II.png"}
    assert all((tmp_path / "drawn" / name).read_bytes() == (Path("out") / name).read_bytes() for name in names)


def as_text(change: Callable[[str], str]) -> Change:
    def spoil(folder: Path) -> None:
        path = folder / "league.json"
        path.write_text(change(path.read_text()))

    return spoil


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (as_text(lambda text: text.replace('"rank": 1', '"rank": 2', 1)), "league.json: is damaged"),
        (as_text(lambda text: text.replace('"sha256"', '"sha257"')), "league.json: is damaged"),
        (
            lambda folder: shutil.copy(folder / "robustness.parquet", folder / "breakdown.parquet"),
            "breakdown.parquet: is",
        ),
    ],
)
def test_a_league_that_is_not_as_it_was_written_is_refused(
    league: League, place: Place, tmp_path: Path, change: Change, says: str
) -> None:
    """A bit, or tables of one league beside another's summary, as a kill between them leaves them."""
    folder = tmp_path / "out"
    shutil.copytree(place[0] / "out", folder)
    change(folder)
    with pytest.raises(SageccError, match=re.escape(says)):
        load(folder, place[0] / "raw", tmp_path / "analysis")


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("league.json", None, "there is no league; play it with 'sagecc league --out"),
        ("league.json", "{", "line 1: no JSON"),
        ("league.json", "[]", "is no object"),
        ("league.json", '{"profile": "small"}', "its version is unknown, this program reads 1.x"),
        ("league.json", '{"version": "2.0"}', "its version is 2.0"),
        ("league.json", '{"version": "1.0"}', "parts of the league are missing"),
        ("scores.parquet", "x", "scores.parquet: is not the file that"),
        ("breakdown.parquet", None, "breakdown.parquet: is not the file that"),
    ],
)
def test_a_damaged_league_is_one_line(
    league: League, place: Place, tmp_path: Path, name: str, text: str | None, says: str
) -> None:
    folder = tmp_path / "out"
    shutil.copytree(place[0] / "out", folder)
    (folder / name).unlink()
    if text is not None:
        (folder / name).write_text(text)
    with pytest.raises(SageccError, match=re.escape(says)):
        load_it(folder)


def test_trajectories_of_another_kernel_are_refused(league: League, tmp_path: Path) -> None:
    write(tmp_path, {(e, "cubic"): rows(e, "cubic", [9, 9], [40, 40]) for e in ENVIRONMENTS}, kernel="cd" * 32)
    with pytest.raises(SageccError, match="not of the kernel that the league was played on"):
        load_it(raw=tmp_path)


def test_a_damaged_analysis_is_named(league: League, tmp_path: Path) -> None:
    analyses(tmp_path, ENVIRONMENTS[0])
    (tmp_path / "distance/distance.json").write_text('{"version": "2.0"}')
    with pytest.raises(SageccError, match=r"version is 2\.0.*'sagecc distance' again, or remove"):
        load_it(analysis=tmp_path)


def test_an_unknown_environment_leaves_no_file(league: League, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    with pytest.raises(SageccError, match="--network I-nowhere"):
        run("--league", "out", "--raw", "raw", "--out", out, "--network", "I-nowhere")
    assert list(tmp_path.iterdir()) == []


def test_a_league_without_trajectories_still_has_its_tables(league: League, tmp_path: Path) -> None:
    bare = load_it(raw=tmp_path, league="out")
    assert {scheme for _, scheme in bare.episodes} == {POLICY}
    assert "Standings" in render(bare, [])


# In a browser


@pytest.fixture(scope="module")
def browse(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Browse:
    """Open the page at an address' hash in headless Chromium: what it made of it, and what its console said."""
    folder = tmp_path_factory.mktemp("chromium")

    def browse(at: str = "") -> tuple[str, list[str]]:
        options = ("--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--no-first-run")
        budget = ("--virtual-time-budget=5000", "--window-size=1100,900", f"--user-data-dir={folder}", "--dump-dom")
        address = f"file://{place[0]}/out/report.html{at}"
        done = subprocess.run([str(CHROMIUM), *options, *budget, address], capture_output=True, text=True, timeout=120)
        console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
        return done.stdout, console

    return browse


def cells(dom: str, name: str) -> list[list[str]]:
    """The rows of a table's body, as text."""
    body = first(rf'<tbody id="{name}">(.*?)</tbody>', dom)
    return [
        [html.unescape(re.sub(r"<[^>]+>", "", cell)).strip() for cell in re.findall(r"<t[hd].*?</t[hd]>", row)]
        for row in re.findall(r"<tr>(.*?)</tr>", body, re.DOTALL)
    ]


@in_browser
def test_it_opens_with_the_example_drawn(browse: Browse) -> None:
    dom, console = browse()
    assert console == []
    assert "hidden" not in first(r'(<div id="explorer"[^>]*>)', dom)
    assert f'<code id="name" class="soft">{ENVIRONMENTS[1].id}</code>' in dom
    drawn = [html.unescape(name) for name in re.findall(r'class="series" style="[^"]*" data-scheme="([^"]*)"', dom)]
    assert sorted(set(drawn)) == [POLICY, "vegas"]
    assert len(drawn) == 6


@in_browser
def test_what_is_asked_for_is_drawn(browse: Browse) -> None:
    environment = ENVIRONMENTS[2]
    dom, console = browse(f"#env={environment.id}&schemes=cubic,vegas&at=3")
    assert console == []
    assert cells(dom, "reading") == [
        ["vegas", "7 Mbps", "12 ms", "10 packets", "0"],
        ["cubic", "9 Mbps", "40 ms", "10 packets", "0"],
    ]
    assert cells(dom, "windows") == [  # as scored: with the 10 ms of the way back
        ["vegas", "7 Mbps, 22 ms, won", "7 Mbps, 22 ms"],  # in the second the policy has the fair share, 6 Mbps
        ["cubic", "9 Mbps, 50 ms", "9 Mbps, 50 ms"],
    ]
    drawn = re.findall(r'<path d="([^"]*)" class="series" style="[^"]*" data-scheme="(\w+)"', dom)
    assert [scheme for _, scheme in drawn] == ["vegas", "cubic"] * 3
    heights = {}
    for path, scheme in drawn[:2]:  # the panel of rates: 190 pixels up to 1.15 times the capacity
        last = float(path.rsplit(" ", 1)[1])
        heights[scheme] = (190 - last) / 190 * 1.15 * 12
    assert heights == pytest.approx({"vegas": 7, "cubic": 9}, rel=0.02)


@in_browser
def test_what_the_page_does_not_have_is_said(browse: Browse) -> None:
    dom, console = browse("#env=I-nowhere&schemes=cubic")
    assert console == []
    assert "This page has no environment I-nowhere" in dom
    dom, _ = browse(f"#env={ENVIRONMENTS[0].id}&schemes=cubic,nothing")
    assert "This page has no scheme nothing" in dom
    assert [row[0] for row in cells(dom, "reading")] == ["cubic"]


@in_browser
def test_tables_sort_and_are_saved_as_csv(browse: Browse) -> None:
    dom, _ = browse()
    standings = first(r'(<table class="standings">.*?</table>)', dom)
    assert standings.count('class="sort"') == 5
    assert standings.count('class="csv"') == 1
    assert 'class="sort"' not in first(r'(<div id="explorer".*?</table>)', dom)
