# SPDX-License-Identifier: Apache-2.0
"""Options in groups, and older names that work for one version."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from sagecc import cli
from sagecc.command import GROUPS, Command
from sagecc.commands import schemes


@click.command(cls=Command, renamed={"--count": "--draw"})
@click.option("--draw", type=int, default=1)
@click.option("--jobs", type=int, default=1)
@click.option("--plain", is_flag=True)
@click.argument("rest", nargs=-1)
def renaming(draw: int, jobs: int, plain: bool, rest: tuple[str, ...]) -> None:
    click.echo(f"{draw} {jobs} {plain} {rest}")


@pytest.mark.parametrize(
    ("arguments", "told", "notices"),
    [
        (["--draw", "3"], "3 1 False ()", 0),
        (["--count", "3"], "3 1 False ()", 1),
        (["--count=3", "--plain"], "3 1 True ()", 1),
        (["--", "--count"], "1 1 False ('--count',)", 0),
    ],
)
def test_an_old_name_works_with_a_notice(arguments: list[str], told: str, notices: int) -> None:
    done = CliRunner().invoke(renaming, arguments)
    assert done.stdout == f"{told}\n"
    assert done.stderr.count("--count is called --draw now") == done.stderr.count("\n") == notices


def every_command() -> Iterator[tuple[str, click.Command]]:
    """Yield every command and sub-command with its words."""
    for name in cli.cli.list_commands(click.Context(cli.cli)):
        command = cli.cli.get_command(click.Context(cli.cli), name)
        assert command is not None
        yield name, command
        if isinstance(command, click.Group):
            yield from ((f"{name} {each}", command.commands[each]) for each in command.commands)


def test_a_help_has_each_option_once_in_its_group() -> None:
    text = CliRunner().invoke(renaming, ["--help"]).output
    assert "  REST" not in text, "an argument is no option"
    sections = {part.partition(":")[0]: part for part in text.split("\n\n")}
    assert "--plain" in sections["Options"] and "--help" in sections["Options"]
    assert "--draw" in sections["Network"] and "--jobs" in sections["Machine"]
    assert [text.count(name) for name in ("--draw", "--jobs", "--plain", "--count")] == [1, 1, 1, 0]


def test_every_name_in_a_group_is_an_option_of_a_command() -> None:
    names = {
        name: {opt for option in command.params for opt in (*option.opts, *option.secondary_opts)}
        for name, command in every_command()
    }
    assert {name for group in GROUPS.values() for name in group} <= set().union(*names.values())
    for name, command in every_command():
        own = getattr(command, "groups", GROUPS)
        assert {opt for group in own.keys() - GROUPS.keys() for opt in own[group]} <= names[name]


def test_many_options_are_in_groups() -> None:
    for name, command in every_command():
        options = [each for each in command.params if isinstance(each, click.Option)]
        assert isinstance(command, Command) or len(options) <= 8, name


def test_a_store_where_only_a_folder_will_do_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tried = set()
    for name, command in every_command():
        for option in command.params:
            if isinstance(option, click.Option) and isinstance(option.type, click.Path):
                with pytest.raises(SystemExit) as ended:
                    cli.main([*name.split(), option.opts[-1], "s3://team/data"])
                told = capsys.readouterr().err
                assert ended.value.code == cli.EXIT_ERROR and told.count("\n") == 1
                assert option.opts[-1] in told and "'s3://team/data' lies in an object store" in told
                tried.add((name, option.opts[-1]))
    assert {("pool check", "--pool"), ("report", "--raw"), ("grow", "--pool"), ("collect", "--out")} <= tried
    assert not list(tmp_path.iterdir())


def test_schemes_are_told_as_json() -> None:
    told = {each["name"]: each for each in json.loads(CliRunner().invoke(schemes.command, ["--json"]).output)}
    assert told["cubic"]["in_pool"] and told["cubic"]["where"] == "kernel"
    assert not told["copa"]["in_pool"] and told["vivace"]["where"] == "user space"
    assert len(json.loads(CliRunner().invoke(schemes.command, ["--pool", "--json"]).output)) == 13


def test_a_shell_completes_commands_and_options() -> None:
    for words, wanted in (("sagecc comp", "compare"), ("sagecc run --queue-b", "--queue-bdp")):
        asked = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1), "_SAGECC_COMPLETE": "bash_complete"}
        done = subprocess.run(
            [sys.executable, "-m", "sagecc"], env={**os.environ, **asked}, capture_output=True, text=True
        )
        assert f"plain,{wanted}" in done.stdout.splitlines()
