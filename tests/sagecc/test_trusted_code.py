# SPDX-License-Identifier: Apache-2.0
"""A file of networks is data: the Python code that it names runs only where the command line names it too."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from sagecc.cli import cli, main
from sagecc.common.errors import SageccError
from sagecc.execution.environments.networks import candidates
from sagecc.learner.specification import load
from sagecc.online import online_task
from sagecc.schemas.environment_file import load_environment
from sagecc.schemas.schemes import ANY_CODE, NO_CODE, TrustedCode

REFUSED = (
    "python:evil.py:X would run evil.py, which the command line does not name; if you trust it, give --allow-python"
)
EVIL = """
open("RAN", "w").write("this file was run")
class X:
    def __init__(self, random): ...
    def on_tick(self, sample): return 10, 0
"""
NETWORK = {
    "links": [{"rate_mbps": 12, "queue_bdp": 1}],
    "rtt_ms": 20,
    "duration_s": 0.5,
    "cross": [{"scheme": "python:evil.py:X"}],
}
GRID = {"bandwidth_mbps": [12], "queue_bdp": [1], "rtt_ms": [20], "duration_s": 0.5, "cross": [NETWORK["cross"]]}
ONLINE = {"base": "labs-tiny", "task": {"networks": ["net.yaml"]}}
SETS = {
    "inline.yaml": {"name": "s", "environments": [NETWORK]},
    "file.yaml": {"name": "s", "environments": [{"file": "net.yaml"}]},
    "grid.yaml": {"name": "s", "grids": [GRID]},
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with the stranger's files in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text(f"{EVIL}\n# {tmp_path}")  # what was run once is known by its text
    for name, content in {"net.yaml": NETWORK, "online.yaml": ONLINE, **SETS}.items():
        (tmp_path / name).write_text(yaml.safe_dump(content))
    return tmp_path


def ran() -> bool:
    return Path("RAN").exists()


def outcome(words: list[str]) -> str:
    found = CliRunner().invoke(cli, words)
    assert found.exception is None or isinstance(found.exception, SageccError), found.exception
    return str(found.exception or "")


RUN = ["run", "--environment", "net.yaml"]
COMMANDS = [
    [*RUN, "--scheme", "cubic"],
    ["collect", "--schemes", "cubic", "--environments", "inline.yaml"],
    ["league", "--schemes", "cubic", "--environments", "file.yaml"],
    ["grow", "--environments", "inline.yaml"],
    ["distance", "--schemes", "cubic", "--environments", "grid.yaml"],
    ["similarity", "--scheme", "cubic", "--environments", "inline.yaml"],
    ["tsne", "--policy", "sagecc-1", "--environments", "inline.yaml"],
    ["train", "--config", "tiny", "--evaluate-every", "9", "--evaluate-environments", "inline.yaml"],
    ["train", "--config", "online.yaml"],
]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words[:2]))
def test_no_command_runs_the_code_of_a_file(words: list[str]) -> None:
    assert REFUSED in outcome(words)
    assert not ran()


def test_a_refusal_is_one_line_and_a_status(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*RUN, "--scheme", "cubic"])
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"sagecc: net.yaml: cross[0]: {REFUSED}\n"


@pytest.mark.parametrize("name", SETS)
def test_nor_does_any_place_in_a_set(name: str) -> None:
    assert REFUSED in outcome(["collect", "--environments", name])
    assert not ran()


@pytest.mark.parametrize("text", ["no Python(", None])
def test_what_is_refused_is_not_even_read(text: str | None) -> None:
    Path("evil.py").unlink()
    if text:
        Path("evil.py").write_text(text)
    assert REFUSED in outcome([*RUN, "--scheme", "cubic"])


def test_what_runs_nothing_reads_any_file() -> None:
    assert outcome(["environments", "net.yaml"]) == ""
    assert outcome(["environments", "--environments", "file.yaml"]) == ""
    assert "no pool at" in outcome(["pool", "check", "--environments", "grid.yaml"])
    assert "there is no league" in outcome(["report", "--environments", "inline.yaml"])
    assert not ran()


@pytest.mark.parametrize("path", ["evil.py", "here/../evil.py", "{}/evil.py", "link.py"])
def test_the_command_line_may_name_the_same_file(kernel: Path, folder: Path, path: str) -> None:
    Path("here").mkdir()
    Path("link.py").symlink_to("evil.py")
    scheme = f"python:{path.format(folder)}:X"
    assert outcome([*RUN, "--scheme", scheme, "--kernel", str(kernel)]) == ""
    assert ran()


def test_another_file_is_not_named_by_it() -> None:
    Path("mine.py").write_text(EVIL)
    assert REFUSED in outcome([*RUN, "--scheme", "python:mine.py:X"])
    assert REFUSED in outcome(["collect", "--schemes", "cubic,python:mine.py:X", "--environments", "inline.yaml"])
    assert not ran()


def test_whoever_trusts_a_file_says_so(kernel: Path) -> None:
    assert outcome([*RUN, "--scheme", "cubic", "--allow-python", "--kernel", str(kernel)]) == ""
    assert ran()


def test_the_heuristics_of_an_evaluation_are_named_too() -> None:
    words = ["train", "--config", "tiny", "--evaluate-every", "9", "--evaluate-schemes", "python:evil.py:X"]
    assert REFUSED not in outcome([*words, "--evaluate-environments", "inline.yaml", "--kernel", "nowhere"])


def test_an_online_configuration_hands_its_trust_to_the_labs(kernel: Path) -> None:
    task = online_task(load("online.yaml"), kernel, ANY_CODE)
    labs = pickle.loads(pickle.dumps(task.make_labs))(labs=1)
    labs.close()
    with pytest.raises(SageccError, match="would run evil"):
        online_task(load("online.yaml"), kernel)


def test_a_program_says_what_it_trusts() -> None:
    with pytest.raises(SageccError, match="would run evil"):
        candidates("net.yaml")
    named = TrustedCode.named_by(["cubic", "python:./evil.py:Y"])
    [network] = candidates((load_environment(Path("net.yaml"), named),))  # type: ignore[misc]
    assert candidates("net.yaml", named) == (network,)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("a\0.py", "printable characters"),
        ("a\n.py", "printable characters"),
        ("\ud800.py", "half of a character"),
        ("a.sh", "name a file and a class in it"),
    ],
)
def test_a_name_that_is_no_path_of_a_python_file(path: str, message: str) -> None:
    Path("net.json").write_text(json.dumps({**NETWORK, "cross": [{"scheme": f"python:{path}:X"}]}))
    with pytest.raises(SageccError, match=message):
        load_environment(Path("net.json"))


def test_other_schemes_are_no_code() -> None:
    for scheme in ("cubic", "vivace", "policy:evil.py", "no such scheme"):
        NO_CODE.check(scheme)
