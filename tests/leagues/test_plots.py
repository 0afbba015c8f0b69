# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import matplotlib.image
import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from PIL import Image

from sagecc.common.errors import SageccError
from sagecc.leagues.colours import stroke
from sagecc.leagues.plots import (
    INK,
    Track,
    comparison_figure,
    label,
    plane_figure,
    plot_episode,
    save_figure,
    standings_figure,
    to_svg,
    trajectory_figure,
)
from sagecc.leagues.scores import find_episodes, score
from sagecc.leagues.standings import mark_winners, standings
from tests.helpers.league_episodes import rows, set_one, set_two, write

pytestmark = pytest.mark.heavy

POLICY = "policy:models/sage"


@pytest.fixture
def wins(tmp_path: Path) -> pl.DataFrame:
    environments = [set_one(12), set_one(24), set_one(48), set_two(12), set_two(24), set_two(48)]
    games = {
        (e, scheme): rows(e, scheme, [rate + i / 10, rate], [delay + i, delay])
        for i, e in enumerate(environments)
        for scheme, rate, delay in (("cubic", 9, 40), ("vegas", 7, 15), (POLICY, 8, 20))
    }
    write(tmp_path / "raw", games)
    schemes = ["cubic", "vegas", POLICY]
    return mark_winners(score(environments, schemes, find_episodes([tmp_path / "raw"], environments, schemes)))


def test_standings_bars_are_the_rates(wins: pl.DataFrame) -> None:
    table = standings(wins)
    figure = standings_figure(table)
    for axes, set_name in zip(figure.axes, ("I", "II"), strict=True):
        own = [row for row in table.to_dicts() if row["set"] == set_name]
        bars = [patch.get_width() for patch in axes.patches if isinstance(patch, Rectangle)]
        assert bars == pytest.approx([row["winning_rate"] for row in own])
        assert [t.get_text() for t in axes.get_yticklabels()] == [label(row["scheme"]) for row in own]


def test_a_matplotlibrc_that_lies_around_changes_no_picture(wins: pl.DataFrame) -> None:
    """LaTeX, which it may ask for, would be run; and here it is not installed."""

    def picture() -> str:
        return to_svg(standings_figure(standings(wins)), "a")

    expected = picture()
    with matplotlib.rc_context({"text.usetex": True, "font.family": "monospace", "lines.linewidth": 9}):
        assert picture() == expected


def test_one_set_only(wins: pl.DataFrame) -> None:
    only = wins.filter(wins["set"] == "II")
    assert len(standings_figure(standings(only)).axes) == 1
    assert len(plane_figure(only).axes) == 1


def offsets(axes: Axes) -> dict[str, npt.NDArray[np.float64]]:
    """Where each labelled point lies."""
    return {str(c.get_label()): np.asarray(c.get_offsets(), np.float64)[0] for c in axes.collections}


def drawn(line: Line2D) -> npt.NDArray[np.float64]:
    """A line's abscissas and ordinates."""
    return np.asarray(line.get_data(), np.float64)


def test_plane_points(wins: pl.DataFrame) -> None:
    one, two = plane_figure(wins).axes
    points = offsets(one)
    assert points["cubic"][1] == pytest.approx(1, abs=1e-6)  # the highest goodput everywhere
    assert points["vegas"][0] == pytest.approx(0, abs=1e-6)  # log2 of the smallest delay over itself
    assert points[POLICY][0] > 0
    share = offsets(two)
    # set II environments: goodput 7 (and 7 + i/10) of fair shares 6, 12, 24
    expected = np.mean([(7 + i / 10 + 7) / 2 / f for i, f in zip((3, 4, 5), (6, 12, 24), strict=True)])
    assert share["vegas"][1] == pytest.approx(expected, rel=1e-3)


def test_a_window_without_goodput_is_left_out_of_the_plane(wins: pl.DataFrame) -> None:
    """Packets left the bottleneck, and the receiver got none in order: of no scheme, then no rate is relative."""
    silent = set_one(12).id
    quiet = wins.with_columns(
        goodput_mbps=pl.when(pl.col("environment_id") != silent).then("goodput_mbps").otherwise(0)
    )
    rest = wins.filter(pl.col("environment_id") != silent)
    for ours, theirs in zip(plane_figure(quiet).axes, plane_figure(rest).axes, strict=True):
        assert {name: point.tolist() for name, point in offsets(ours).items()} == {
            name: point.tolist() for name, point in offsets(theirs).items()
        }
    assert plane_figure(wins.with_columns(goodput_mbps=pl.lit(0.0)).filter(pl.col("set") == "I")).axes


def test_trajectory_lines(tmp_path: Path) -> None:
    env = set_one(24, step=2)
    figure = trajectory_figure([Track("goodput", rows(env, "cubic", [6, 9], [20, 40]), stroke("cubic"))], "title")
    rate, delay, cwnd = figure.axes
    goodput = next(line for line in rate.lines if line.get_label() == "goodput")
    t, mbps = drawn(goodput)
    assert mbps[(t > 1.05) & (t < 1.95)] == pytest.approx(6, rel=0.01)
    assert mbps[(t > 2.15)] == pytest.approx(9, rel=0.01)
    _, capacity = drawn(next(line for line in rate.lines if line.get_label() == "capacity"))
    assert (capacity[0], capacity[-1]) == pytest.approx((24, 48), rel=0.01)
    t, ms = drawn(delay.lines[0])
    assert ms[(t > 2.15)] == pytest.approx(40, rel=0.01)
    assert drawn(cwnd.lines[0])[1] == pytest.approx(10)
    assert [a.get_ylabel() for a in figure.axes] == ["rate (Mbps)", "one-way delay (ms)", "cwnd (packets)"]


def test_plot_episode_writes_a_png(tmp_path: Path) -> None:
    path = tmp_path / "episode.png"
    plot_episode(rows(set_two(), "cubic", [6, 3], [20, 40]), path, "cubic")
    assert matplotlib.image.imread(path).shape[:2] == (990, 1350)
    with Image.open(path) as image:
        assert image.mode == "P"
    assert list(tmp_path.iterdir()) == [path]


def test_competitors_are_drawn_with_their_own_goodput() -> None:
    table = rows(set_one(24), "cubic", [6, 9], [20, 40])
    track = Track("cubic", table, stroke("cubic"), table["received_bytes"].to_numpy().astype(np.int64) * 2)
    rate, delay = comparison_figure([track], 12, "title").axes
    capacity, own, others = rate.lines
    assert [line.get_label() for line in (capacity, own)] == ["capacity", "cubic"]
    assert drawn(others)[1] == pytest.approx(2 * drawn(own)[1])
    assert drawn(delay.lines[0])[1][-1] == pytest.approx(40 - 12, rel=0.01)


def test_another_suffix_is_no_picture(tmp_path: Path) -> None:
    figure = trajectory_figure([Track("goodput", rows(set_one(), "cubic", [6, 3], [20, 40]), stroke("cubic"))], "title")
    for name in ("a.jpg", "a", "a.png.gz"):
        with pytest.raises(SageccError, match=r"a picture's name ends in \.png, \.svg or \.pdf"):
            save_figure(figure, tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_one_row_cannot_be_drawn(tmp_path: Path) -> None:
    path = tmp_path / "episode.png"
    with pytest.raises(SageccError, match="1 rows cannot be drawn"):
        plot_episode(rows(set_one(), "cubic", [6, 3], [20, 40]).slice(0, 1), path, "cubic")
    assert not path.exists()


def test_svg_is_inline_and_repeatable(wins: pl.DataFrame) -> None:
    first, second = (to_svg(plane_figure(wins), "plane") for _ in range(2))
    assert first == second
    assert INK not in first
    root = ElementTree.fromstring(first)
    ids = [identifier for e in root.iter() if (identifier := e.get("id"))]
    assert all(i.startswith("plane-") for i in ids)
    assert len(ids) == len(set(ids))
    used = {a.split("#")[1].rstrip(")") for e in root.iter() for a in e.attrib.values() if "#plane" in a}
    assert used <= set(ids)
    assert "“sage”" in "".join(root.itertext())


def test_names() -> None:
    assert label("cubic") == "cubic"
    assert label("policy:models/sage/") == "“sage”"
