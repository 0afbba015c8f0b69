# SPDX-License-Identifier: Apache-2.0
"""`sagecc compare`: what it prints and draws."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from numba import config

from sagecc.commands.compare import command as compare
from sagecc.commands.run import command as run
from sagecc.common.errors import SageccError
from sagecc.common.machine_code import compiled, telling_of_compilation
from sagecc.naming import short_names
from tests.helpers.messages import facts
from tests.helpers.policies import save_still_policy
from tests.helpers.processes import guests

pytestmark = pytest.mark.heavy

LINK = ("--bandwidth", "12", "--rtt", "20", "--duration", "2")


def compared(kernel: Path, *options: str) -> str:
    done = CliRunner().invoke(compare, [*options, *LINK, "--kernel", str(kernel)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_line_of_the_network_and_one_of_each_scheme(kernel: Path) -> None:
    text = compared(kernel, "cubic", "vegas", "cubic")
    lines = text.splitlines()
    assert lines[0] == "Link: 12 Mbps, 10 ms propagation one way (20 ms RTT), queue 1 BDP (20 ms); 2 s"
    assert lines[2].split() == ["goodput", "utilisation", "queueing", "mean", "queueing", "p95", "loss"]
    assert [line.split()[0] for line in lines[4:]] == ["cubic", "vegas"]
    assert len(lines[4].split()) == 6


def test_it_says_what_run_says(kernel: Path) -> None:
    found = json.loads(compared(kernel, "cubic", "--cross", "reno:2", "--json"))
    options = ["--scheme", "cubic", "--cross", "reno:2", *LINK, "--kernel", str(kernel), "--json"]
    alone: dict[str, Any] = json.loads(CliRunner().invoke(run, options, catch_exceptions=False).stdout)
    (cubic,) = found["schemes"]
    assert cubic["goodput_mbps"] == alone["goodput_mbps"]
    assert cubic["queueing_p95_ms"] == pytest.approx(alone["delay_p95_ms"] - found["network"]["propagation_ms"])
    assert cubic["loss_rate"] == alone["loss_rate"]
    assert cubic["runs"][0]["sha256"] == alone["sha256"]
    assert cubic["runs"][0]["competitors_mbps"] == [flow["goodput_mbps"] for flow in alone["flows"][1:]]
    assert (found["network"]["competitors"], cubic["intervals"]) == (["reno", "reno"], {})


def test_transfers_that_did_not_end_are_counted(kernel: Path, tmp_path: Path) -> None:
    network = "links: [{rate_mbps: 12, queue_bdp: 1}]\nrtt_ms: 20\nduration_s: 2\nflow: {size_bytes: 100000}\n"
    (tmp_path / "short.yaml").write_text(f"{network}cross: [{{scheme: cubic, start_s: 1, size_bytes: 1000000000}}]\n")
    options = ["cubic", "--environment", str(tmp_path / "short.yaml"), "--kernel", str(kernel)]
    done = CliRunner().invoke(compare, options, catch_exceptions=False)
    title, *_, last = (line for line in done.stdout.splitlines() if line)
    assert "transfer" in done.stdout and "their transfers" not in done.stdout
    assert last == "cubic: 1 of 2 transfers did not end" and title.startswith("Link: ")


def test_repeats_fit_into_a_hundred_columns(kernel: Path) -> None:
    lines = compared(kernel, "cubic", "illinois", "--cross", "cubic", "--repeats", "3").splitlines()
    assert lines[0].endswith("queue 1 BDP (20 ms); 2 s, against cubic")
    assert lines[4].count("±") == 6
    assert max(map(len, lines)) <= 100


def test_a_policy_by_its_name_and_one_by_its_folder(kernel: Path, tmp_path: Path) -> None:
    mine = save_still_policy(tmp_path / "mine")
    found = json.loads(compared(kernel, "sagecc-10", f"policy:{mine}", "--json"))
    assert [each["scheme"] for each in found["schemes"]] == ["policy:sagecc-10", f"policy:{mine}"]


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_picture_is_what_its_name_says_and_the_same_again(suffix: str, kernel: Path, tmp_path: Path) -> None:
    pictures = []
    for name in ("one", "two"):
        path = tmp_path / f"{name}.{suffix}"
        compared(kernel, "cubic", "vegas", "--cross", "reno", "--plot", str(path))
        pictures.append(path.read_bytes())
    head = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix]
    assert pictures[0] == pictures[1] and pictures[0].startswith(head)
    if suffix == "svg":
        assert b"queueing delay (ms)" in pictures[0] and b"vegas" in pictures[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("cubic tahoe", "unknown scheme 'tahoe'"),
        ("cubic --plot a.jpg", "a.jpg…png…svg…pdf"),
        ("cubic --plot no/where/a.png", "no/where/a.png…no/where does not exist"),
        ("cubic --environment a.yaml --rtt 40", "--environment excludes --rtt"),
    ],
)
def test_what_it_refuses(options: str, message: str) -> None:
    with pytest.raises(SageccError, match=facts(message)):
        CliRunner().invoke(compare, options.split(), catch_exceptions=False)


def test_names_are_as_short_as_tells_them_apart() -> None:
    names = short_names(["cubic", "policy:models/a", "policy:old/a/", "policy:models/b", "python:x.py:Mine"])
    assert list(names.values()) == ["cubic", "models/a", "old/a", "b", "Mine"]


def test_that_something_compiles_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))  # the checkout's may have it from an earlier run

    @compiled
    def twice(x: float) -> float:
        return 2.0 * x

    told: list[int] = []
    with telling_of_compilation(lambda: told.append(1)):
        assert (twice(1.0), twice(2)) == (2.0, 4.0)
    with telling_of_compilation(lambda: told.append(2)):
        twice(3.0)
    assert told == [1]


@pytest.mark.parametrize("schemes", [("cubic",), ("cubic", "vegas", "reno")])
def test_it_ends_at_once_when_it_is_interrupted(schemes: tuple[str, ...], kernel: Path) -> None:
    """One long run, and several, in processes of their own."""
    command = [sys.executable, "-m", "sagecc", "compare", *schemes, "--duration", "20000", "--kernel", str(kernel)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        until = time.monotonic() + 60
        while not guests(process.pid) and time.monotonic() < until:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr is not None and process.stderr.read().strip() == "sagecc: interrupted"
