# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from sagecc.common.arrays import Doubles
from sagecc.common.errors import SageccError
from sagecc.leagues.flow_metrics import flow_series
from sagecc.leagues.plots import to_svg
from sagecc.leagues.study import figures, page
from sagecc.leagues.study.catalogue import EXPERIMENTS, experiment
from sagecc.leagues.study.drawing import Look
from sagecc.leagues.study.results import cells_table, values_table, verdicts_table
from tests.helpers.flows import made_up_flows
from tests.helpers.study_runs import study_runs_of

pytestmark = pytest.mark.heavy

SCHEMES = ("cubic", "bbr2", "policy:models/sage")
LOOK = Look(SCHEMES)
NAMES = {"cubic": "Cubic", "policy:models/sage": "Sage"}


def cells_of(name: str) -> pl.DataFrame:
    return cells_table(values_table(study_runs_of(name, SCHEMES)), NAMES)


def xs(line: Line2D) -> Doubles:
    return np.asarray(line.get_xdata(), dtype=np.float64)


def ys(line: Line2D) -> Doubles:
    return np.asarray(line.get_ydata(), dtype=np.float64)


def hollow(axes: Axes) -> int:
    """Return how many points of published numbers a panel has."""
    return sum(len(xs(line)) for line in axes.lines if line.get_fillstyle() == "none")


def test_a_scheme_keeps_its_look() -> None:
    assert Look(("cubic", "vegas")).line("cubic") == Look(("cubic", "bbr2")).line("cubic")
    many = Look(tuple("abcdefgh"))
    assert len({many.colour(scheme) for scheme in many.schemes}) == 8
    assert len({many.mark(scheme) for scheme in many.schemes}) == 8


def test_ratios_have_a_panel_per_queue_with_the_published_points() -> None:
    figure = figures.ratio_figure(experiment("fairness"), cells_of("fairness"), LOOK)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["queue 0.2 BDP", "queue 1 BDP", "queue 4 BDP"]
    assert [hollow(axes) for axes in figure.axes] == [10, 10, 10]  # the predecessor's Cubic
    assert figure.axes[0].get_yscale() == "linear"
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["cubic", "bbr2", "“sage”", "published"]


def test_friendliness_has_a_logarithmic_axis() -> None:
    figure = figures.ratio_figure(experiment("friendliness"), cells_of("friendliness"), LOOK)
    assert {axes.get_yscale() for axes in figure.axes} == {"log"}
    assert [hollow(axes) for axes in figure.axes] == [0, 0, 0]  # what was published does not say who had more


def test_the_parking_lot_names_its_lines() -> None:
    figure = figures.ratio_figure(experiment("parking-lot"), cells_of("parking-lot"), LOOK)
    assert [text.get_text() for text in figure.axes[-1].texts] == ["max-min", "proportional"]


def test_efficiency_has_ellipses_and_the_authors_table() -> None:
    runs = study_runs_of("efficiency", SCHEMES)
    figure = figures.efficiency_figure(runs, cells_of("efficiency"), LOOK)
    assert [len(axes.patches) for axes in figure.axes] == [6, 6, 6]  # three schemes at two RTTs
    assert [hollow(axes) for axes in figure.axes] == [4, 4, 4]  # Cubic and Sage at both


def test_distributions_end_at_one() -> None:
    values = pl.concat(values_table(study_runs_of(name, SCHEMES)) for name in ("responsiveness", "responsiveness-loss"))
    figure = figures.distribution_figure(values, LOOK, NAMES)
    assert [len(axes.lines) for axes in figure.axes] == [5, 5]  # the optimum, three schemes, the predecessor's Cubic
    for axes in figure.axes:
        assert ys(axes.lines[0]).max() == 1


@pytest.mark.parametrize("name", ["dynamics", "convergence", "windows"])
def test_evolutions_have_a_row_per_scheme(name: str) -> None:
    figure = figures.evolution_figure(study_runs_of(name, SCHEMES), LOOK, windows=name == "windows")
    assert len(figure.axes) == 9
    unit = figure.axes[3].get_ylabel()
    assert unit == ("bbr2\n(pacing, Mbps)" if name == "windows" else "bbr2\n(Mbps)")
    for row in range(3):  # what is drawn last must not be cut off
        drawn = [line for axes in figure.axes[3 * row : 3 * row + 3] for line in axes.lines]
        top = max(float(ys(line).max()) for line in drawn)
        assert figure.axes[3 * row].get_ylim()[1] >= top


def test_rates_show_the_capacity() -> None:
    runs = [each for each in study_runs_of("responsiveness", SCHEMES) if each[0].cell.schedule == 1]
    (axes,) = figures.rates_figure(runs, LOOK).axes
    assert [line.get_label() for line in axes.lines] == ["capacity", "cubic", "bbr2", "“sage”"]
    assert axes.get_xlim() == (100, 200)


def test_all_flows_of_an_episode() -> None:
    series = flow_series(made_up_flows({0: [12.0] * 5, 1: [6.0] * 3}, starts_s={1: 2.0}))
    figure = figures.flows_figure(series, "two flows")
    labels = [axes.get_ylabel() for axes in figure.axes]
    assert labels == ["goodput (Mbps)", "RTT (ms)", "window (packets)", "queue (kB)"]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["capacity", "0: cubic", "1: cubic"]


def test_a_crowd_is_named_by_scheme() -> None:
    rates = {flow: [3.0] * 3 for flow in range(12)}
    series = flow_series(made_up_flows(rates, schemes=("vegas", *["cubic"] * 11)))
    (legend,) = figures.flows_figure(series).legends
    assert {text.get_text() for text in legend.get_texts()} == {"capacity", "vegas", "cubic"}


def test_a_long_episode_is_drawn_in_longer_intervals() -> None:
    series = flow_series(made_up_flows({0: [12.0] * 60}), 0.1)
    figure = figures.flows_figure(series, interval_s=0.1)
    assert len(xs(figure.axes[1].lines[0])) <= 300


def test_nothing_cannot_be_drawn() -> None:
    series = flow_series(made_up_flows({0: [12.0]})).clear()
    with pytest.raises(SageccError, match="without rows"):
        figures.flows_figure(series)


class _Tags(HTMLParser):
    """Checks that tags nest, and collects ids and links."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in {"meta", "br"}:
            self.open.append(tag)
        self.ids += [value for name, value in attrs if name == "id" and value]
        self.links += [value[1:] for name, value in attrs if name in {"href", "xlink:href"} and value]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def contents() -> page.StudyContents:
    runs = [each for name in EXPERIMENTS for each in study_runs_of(name, SCHEMES, quick=True)]
    values = values_table(runs)
    drawn = [each for each in runs if page.is_drawn(each[0])]
    return page.StudyContents(values, cells_table(values, NAMES), verdicts_table(values, NAMES), drawn, NAMES)


@pytest.fixture(scope="module")
def drawn(contents: page.StudyContents) -> list[page.StudyFigure]:
    return list(page.study_figures(contents))


def test_the_page_is_whole_and_needs_no_network(contents: page.StudyContents, drawn: list[page.StudyFigure]) -> None:
    text = page.render(contents, drawn)
    tags = _Tags()
    tags.feed(text)
    assert not tags.open
    assert len(tags.ids) == len(set(tags.ids))
    assert set(tags.links) <= set(tags.ids)
    assert not [scheme for scheme in ("http://", "https://") if f'src="{scheme}' in text or f"url({scheme}" in text]
    assert "<script" not in text
    for each in (each for each in EXPERIMENTS.values() if not each.traced):
        assert f'<h2 id="{each.name}">' in text


def test_figures_are_written_as_files_too(contents: page.StudyContents, tmp_path: Path) -> None:
    values = contents.values.filter(pl.col("experiment").is_in(["sage-23", "windows"]))
    some = page.StudyContents(values, contents.cells, contents.verdicts, contents.runs, contents.names)
    page.write(some, tmp_path / "study.html", tmp_path / "figures")
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {"sage-23.png", "windows.png"}
    assert (tmp_path / "study.html").read_text().endswith("</html>\n")


def test_the_page_tells_the_verdicts(contents: page.StudyContents) -> None:
    text = page.render(contents, [])
    known = contents.verdicts.filter(pl.col("verdict") != "not measured")
    assert len(known) > 10
    for row in known.rows(named=True):
        assert f"<td>{row['verdict']}</td>" in text
    assert "cubic, 0.2 BDP" in text


def test_a_page_of_one_experiment(contents: page.StudyContents) -> None:
    values = contents.values.filter(pl.col("experiment") == "fairness", pl.col("scheme") == "bbr2")
    alone = page.StudyContents(values, cells_table(values), verdicts_table(values))
    text = page.render(alone)
    assert f"None of the {len(alone.verdicts)} statements" in text
    assert '<h2 id="parking-lot">' not in text


def test_figures_are_pictures_of_their_own(drawn: list[page.StudyFigure]) -> None:
    assert len({each.name for each in drawn}) == len(drawn)
    ElementTree.fromstring(to_svg(drawn[0].figure, drawn[0].name).replace("xlink:href", "href"))
