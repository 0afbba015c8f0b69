# SPDX-License-Identifier: Apache-2.0
"""The page of measured paths: numbers by hand, what it refuses, hostile names, and a path that is measured for it."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sagecc.commands.report import command
from sagecc.common.errors import SageccError
from sagecc.execution.measure.campaign import measure
from sagecc.execution.measure.folders import load_measured
from sagecc.execution.measure.runs import add_failed, finished
from sagecc.leagues.report.measured import render_measured
from sagecc.schemas.measured import (
    DOWN,
    UP,
    FailedRun,
    HostVersions,
    MeasuredHost,
    MeasuredNumbers,
    MeasuredPath,
    read_measurement,
)
from tests.execution.test_measure import KEY, campaign, serving, silent

BEGAN_UNIX_S = 1_795_813_261.0
"""2026-11-27 21:01:01 UTC."""
HERE, THERE = HostVersions("Linux 6.1.0", "1.0"), HostVersions("Linux 5.15.0", "1.0")
COMMAND = "sagecc measure a --schemes bbr,cubic --runs 3 --duration 10"


def run(scheme: str, number: int, goodput: float, delay: float, direction: str = UP) -> MeasuredNumbers:
    began_unix_s = BEGAN_UNIX_S + 60 * number
    return MeasuredNumbers(
        direction, scheme, number, 10, goodput, delay, 2 * delay, 0.01, 0, 0, 5, 0, None, "0", began_unix_s
    )


def measured(host: str, *runs: MeasuredNumbers, failures: Sequence[FailedRun] = ()) -> MeasuredHost:
    paths = tuple(MeasuredPath(each, "id", 12, 40, 20) for each in dict.fromkeys(run.direction for run in runs))
    return MeasuredHost(host, paths, runs, (HERE,), (THERE,), (COMMAND,), tuple(failures))


def rows(page: str, kind: str = "measured") -> list[list[list[str]]]:
    """The rows of each table of a class, as text."""
    return [
        [
            [
                " ".join(html.unescape(re.sub(r"<[^>]+>", "", cell)).split())
                for cell in re.findall(r"<t[hd].*?</t[hd]>", row)
            ]
            for row in re.findall(r"<tr.*?</tr>", table, re.DOTALL)[1:]
        ]
        for table in re.findall(rf'<table class="{kind}">.*?</table>', page, re.DOTALL)
    ]


CUBIC = [run("cubic", number, goodput, 40) for number, goodput in enumerate((9, 10, 11))]
BBR = [run("bbr", 0, 8, 20), run("bbr", 1, 8, 30)]


def test_numbers_by_hand() -> None:
    """Student's 97.5 % quantiles: 4.303 at two degrees of freedom, 12.706 at one.

    Cubic has 10 Mbps, deviation 1: 4.303 / sqrt(3) = 2.48 more and less. Bbr's delay is 25 ms, deviation 7.071: 12.706
    times 5, which is 63.5, and no delay is below 0. Of the best goodput, 10, these are 1 and 0.8; of the least delay,
    25, 1.6 and 1.
    """
    failed = FailedRun(UP, "reno", 0, BEGAN_UNIX_S, "nothing got through for 10 s")
    notice = replace(CUBIC[2], notice="bound by its receiver")
    page = render_measured([measured("a", *CUBIC[:2], notice, *BBR, failures=[failed])])
    numbers, relative = rows(page)
    assert numbers == [
        ["bbr", "up", "8.00 [8.00, 8.00]", "25.0 [0.0, 88.5]", "50.0 [0.0, 177.1]", "1.00 [1.00, 1.00]", "2", "0", "0"],
        ["cubic", "up", "10.0 [7.5, 12.5]", "40.0 [40.0, 40.0]", "80.0 [80.0, 80.0]", "1.00 [1.00, 1.00]",
         "3", "0", "1"],
        ["reno", "up", "-", "-", "-", "-", "0", "1", "0"],
    ]  # fmt: skip
    assert relative == [
        ["bbr", "up", "0.80 [0.80, 0.80]", "1.00 [0.00, 3.54]", "2 runs"],
        ["cubic", "up", "1.00 [0.75, 1.25]", "1.60 [1.60, 1.60]", "3 runs"],
    ]
    assert rows(page, "paths") == [[["a", "up", "2026-11-27 21:01 to 21:03", "12.0", "40.0", "20.0", "± 5.00"]]]
    for text in (
        "Linux 6.1.0 with sagecc 1.0",
        "Linux 5.15.0 with sagecc 1.0",
        f"<code>{COMMAND}</code>",
        "a up, reno, run 0, 2026-11-27 21:01 UTC: nothing got through for 10 s",
        "a up, cubic, run 2 was bound by its receiver",
        "The clocks may make one-way delays wrong by 5.00 ms up",
        "5 runs of 10 s, and 1 that failed, 2026-11-27 21:01 to 21:03 UTC",
    ):
        assert text in page
    assert "http" not in re.sub(r'(xmlns(:xlink)?|http-equiv)="[^"]*"', "", page)


def test_over_all_paths_each_counts_once() -> None:
    """Goodput of bbr over the best: 0.8 and 1; the mean 0.9, and 12.706 times 0.1 more and less."""
    other = measured("b", run("cubic", 0, 4, 30), run("bbr", 0, 4, 30))
    overall, *_ = rows(render_measured([measured("a", *CUBIC, *BBR), other]))
    assert overall[0] == ["bbr", "up", "0.90 [0.00, 2.17]", "1.00 [1.00, 1.00]", "2 paths"]
    assert overall[1][2] == "1.00 [1.00, 1.00]"


def test_directions_and_what_was_not_recorded() -> None:
    """A folder of version 1.0, from before it said when, on what and by which command."""
    runs = [replace(each, began_unix_s=None) for each in (run("cubic", 0, 9, 40), run("cubic", 0, 5, 30, DOWN))]
    old = replace(measured("a", *runs), clients=(), servers=(), commands=())
    page = render_measured([old])
    assert [row[1:3] for row in rows(page)[0]] == [["up", "9.00"], ["down", "5.00"]]
    assert page.count("not recorded") == 5


def test_names_of_others_are_text() -> None:
    evil = "<script>alert(1)</script>"
    host = measured(evil, run(evil, 0, 9, 40), failures=[FailedRun(UP, "bic", 0, 1e300, evil)])
    page = render_measured([replace(host, commands=(evil,), servers=(HostVersions(evil, evil),))])
    assert evil not in page and page.count("&lt;script&gt;alert(1)&lt;/script&gt;") > 6


# ---- folders ----


def report(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def write(folder: Path, found: MeasuredHost) -> None:
    folder.mkdir(parents=True)
    found.write(folder)


def test_the_command_writes_one_page_of_all_folders(tmp_path: Path) -> None:
    write(tmp_path / "a", measured("example.org", *CUBIC))
    write(tmp_path / "b", measured("example.org", *BBR))
    done = report("--measured", tmp_path, "--measured", tmp_path / "a")
    assert done.exit_code == 0, done.output
    page = (tmp_path / "report.html").read_text()
    assert page.count('<section aria-labelledby="path-') == 2  # a path that is named twice counts once
    assert f"example.org in {tmp_path / 'a'}" in page and f"example.org in {tmp_path / 'b'}" in page
    done = report("--measured", tmp_path, "--league", "x", "--out", tmp_path / "other.html")
    assert isinstance(done.exception, SageccError) and "--measured excludes --league" in str(done.exception)
    assert not (tmp_path / "other.html").exists()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"version": "2.0"}, "has version 2.0, this program reads 1.1: measure again"),
        ({"runs": []}, "has no run: let the same 'sagecc measure' run to its end"),
        (
            {"servers": [{"kernel": "Linux 6.1", "sagecc": "1.0"}, {"kernel": "Linux 6.2", "sagecc": "1.0"}]},
            "its runs are of several versions of the server: Linux 6.1 with sagecc 1.0; Linux 6.2 with sagecc 1.0;",
        ),
        ({"commands": [7, None], "paths": ["x"]}, "is not what 'sagecc measure' writes"),
        ({"failures": [{"direction": "up"}]}, "is not what 'sagecc measure' writes"),
    ],
)
def test_a_folder_that_makes_no_page_is_one_line(tmp_path: Path, change: dict[str, object], says: str) -> None:
    folder = tmp_path / "a"
    write(folder, measured("a", *CUBIC))
    path = folder / "measure.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(SageccError, match=re.escape(says)) as raised:
        load_measured([folder])
    assert "\n" not in str(raised.value)


def test_numbers_that_are_none_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a", measured("a", run("cubic", 0, float("nan"), 40)))
    with pytest.raises(SageccError, match="goodput_mbps is no float"):
        load_measured([tmp_path])


def test_a_newer_minor_version_may_say_more(tmp_path: Path) -> None:
    write(tmp_path / "a", measured("a", *CUBIC))
    path = tmp_path / "a" / "measure.json"
    content = json.loads(path.read_text())
    content["version"] = "1.9"
    content["runs"][0]["colour"] = content["colour"] = "blue"
    path.write_text(json.dumps(content))
    assert read_measurement(path) == measured("a", *CUBIC)


def test_a_folder_without_runs_says_why(tmp_path: Path) -> None:
    with pytest.raises(SageccError, match=r"has no measure\.json: 'sagecc measure HOST --out .*' writes one"):
        load_measured([tmp_path])
    for reason in ("first", "nothing got through for 10 s"):
        add_failed(FailedRun(UP, "cubic", 0, BEGAN_UNIX_S, reason), tmp_path)
    with pytest.raises(SageccError, match="each of its 2 runs failed, the last because: nothing got through for 10 s"):
        load_measured([tmp_path])


# ---- measured ----


def test_a_path_is_measured_and_becomes_a_page(tmp_path: Path) -> None:
    folder = tmp_path / "measured" / "loopback"
    with serving() as port:
        asked = campaign(port)
        measure(asked, KEY, folder, silent, silent)
    done = report("--measured", tmp_path / "measured", "--out", tmp_path / "page.html")
    assert done.exit_code == 0, done.output
    page = (tmp_path / "page.html").read_text()
    (found,) = load_measured([folder])
    assert found.clients == found.servers == (HostVersions.here(),)
    assert found.commands == (asked.command,) and asked.command in html.unescape(page)
    numbers, _ = rows(page)
    assert [row[:2] for row in numbers] == [[scheme, way] for way in (UP, DOWN) for scheme in ("cubic", "reno")]
    for row in numbers:
        (own,) = (each for each in found.runs if (each.scheme, each.direction) == (row[0], row[1]))
        assert float(row[2]) == pytest.approx(own.goodput_mbps, rel=0.01)
        assert float(row[3]) == pytest.approx(own.delay_mean_ms, rel=0.01, abs=1e-6)
        assert row[6:] == ["1", "0", "0" if own.notice is None else "1"]
    assert page.count("<svg") == 2

    kept = finished(folder)
    kept[0].file(folder).unlink()
    with pytest.raises(SageccError, match=r"run 'down cubic 0' is in measure\.json and not in runs/: let the same"):
        load_measured([folder])
    replace(kept[0], number=7).save(folder)
    kept[0].save(folder)
    with pytest.raises(SageccError, match=r"run 'down cubic 7' is not in measure\.json: let the same"):
        load_measured([folder])
    kept[0].file(folder).write_bytes(b"PK\3\4 half of it")
    with pytest.raises(SageccError, match=r"down-cubic-0\.npz is no whole run of 'sagecc measure': remove it"):
        load_measured([folder])
    (folder / "measure.json").unlink()
    kept[0].save(folder)
    with pytest.raises(SageccError, match=r"has runs but no measure\.json: let the same 'sagecc measure' run to its"):
        load_measured([folder])
