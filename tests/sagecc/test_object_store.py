# SPDX-License-Identifier: Apache-2.0
"""Pools and raw trajectories in an object store: read as those on the disk are, by SQL, training and leagues."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sagecc.cli import main
from sagecc.collector.run.set_file import chosen_set
from sagecc.common import remote
from sagecc.common.errors import SageccError
from sagecc.common.remote import Remote, place
from sagecc.pool.derivation import build_pool
from tests.helpers import league_episodes
from tests.helpers.object_store import PYTHON, ObjectStore, breaking_off, running
from tests.helpers.raw_episodes import write_partition

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(not PYTHON.exists(), reason="no store to ask: make build/stores-venv/.locked"),
]

Command = Callable[..., tuple[int, str, str]]
PART = "set=I/scheme=cubic/part-000.parquet"


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with running() as store:
        yield store


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pool")
    for scheme in ("cubic", "vegas"):
        write_partition(folder / "raw", "I", scheme)
    build_pool(folder / "raw", folder / "pool", jobs=1, progress=False)
    return folder / "pool"


@pytest.fixture(scope="module")
def url(store: ObjectStore, pool: Path) -> str:
    return store.upload(pool, "team", "data/pool")


@pytest.fixture
def sagecc(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Command:
    """Run a command in an empty folder; return its exit status and what it said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{store.address}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")

    def run(*arguments: object) -> tuple[int, str, str]:
        remote.file_system.cache_clear()  # made with the variables of another test
        with pytest.raises(SystemExit) as end:
            main([str(argument) for argument in arguments])
        told = capfd.readouterr()
        return int(end.value.code or 0), told.out, told.err

    return run


def compiled(folder: Path) -> list[str]:
    """Return what lies in the cache of compiled pools, whole or not, but for the copies and locks."""
    return [path.name for path in folder.glob("*") if path.name != "copies" and not path.name.startswith(".lock-")]


def test_a_pool_in_a_store_is_compiled_as_its_copy_on_the_disk(sagecc: Command, pool: Path, url: str) -> None:
    assert sagecc("compile", "--pool", pool, "--cache", "a")[0] == 0
    assert sagecc("compile", "--pool", url, "--cache", "b")[0] == 0
    assert compiled(Path("a")) == compiled(Path("b")) != []
    assert (Path("b/copies/s3/team/data/pool") / PART).read_bytes() == (pool / PART).read_bytes()


def test_only_what_changed_in_the_store_is_copied_again(
    sagecc: Command, store: ObjectStore, pool: Path, tmp_path: Path
) -> None:
    url = store.upload(pool, "moving", "pool")
    copy = tmp_path / "cache/copies/s3/moving/pool"
    assert sagecc("compile", "--pool", url, "--cache", "cache")[0] == 0
    before = {path: path.stat().st_ino for path in copy.rglob("*.parquet")}
    with store.files.open_output_stream(f"moving/pool/{PART}") as sink:
        sink.write((pool / PART).read_bytes())
    store.files.delete_file("moving/pool/set=I/scheme=vegas/part-000.parquet")
    store.files.delete_file("moving/pool/manifest.json")
    status, _, told = sagecc("compile", "--pool", url, "--cache", "cache")
    assert status == 0, told
    after = {path: path.stat().st_ino for path in copy.rglob("*.parquet")}
    assert {path.relative_to(copy).as_posix() for path in before.keys() - after.keys()} == {
        "set=I/scheme=vegas/part-000.parquet"
    }
    changed = {path.relative_to(copy).as_posix() for path in after if after[path] != before[path]}
    assert changed <= {PART}


@pytest.mark.parametrize(
    "question",
    [
        "SELECT scheme, count(*) AS n, round(sum(reward), 3) AS r FROM transitions GROUP BY ALL ORDER BY 1",
        "SELECT count(*) AS n FROM episode((SELECT min(episode_id) FROM episodes))",
        "SELECT scheme, count(*) AS n, sum(cwnd_pkts) AS w FROM samples GROUP BY ALL ORDER BY 1",
    ],
)
def test_a_question_has_the_same_answer(
    sagecc: Command, store: ObjectStore, pool: Path, url: str, question: str
) -> None:
    raw = store.upload(pool.parent / "raw", "team", "data/raw")
    there = sagecc("sql", question, "--pool", url, "--raw", raw, "--format", "json")
    here = sagecc("sql", question, "--pool", pool, "--format", "json")
    assert there == here
    assert here[0] == 0 and json.loads(here[1])


def test_a_question_reads_no_other_object_and_copies_nothing(sagecc: Command, url: str, tmp_path: Path) -> None:
    status, _, told = sagecc("sql", f"FROM read_text('{url}/manifest.json')", "--pool", url)
    assert status == 2 and "disabled" in told
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_league_reads_its_own_schemes_alone(sagecc: Command, store: ObjectStore, tmp_path: Path) -> None:
    trajectories = {
        (network, scheme): league_episodes.rows(network, scheme, [8.0] * windows, [11.0 + i] * windows)
        for network in chosen_set("smoke", None).environments
        for i, scheme in enumerate(("cubic", "vegas", "bbr2"))
        for windows in [len(network.windows_s)]
    }
    league_episodes.write(tmp_path / "raw", trajectories)
    url = store.upload(tmp_path / "raw", "league", "raw")
    of = ("league", "--profile", "smoke", "--schemes", "cubic,vegas", "--no-report", "--json", "--raw")
    there, here = sagecc(*of, url, "--out", "there"), sagecc(*of, tmp_path / "raw", "--out", "here")
    assert there == here
    assert here[0] == 0 and json.loads(here[1])
    copied = (tmp_path / ".cache/raw/s3/league/raw").rglob("part-*")
    assert {path.parent.name for path in copied} == {"scheme=cubic", "scheme=vegas"}


@pytest.mark.slow
def test_a_training_learns_from_a_pool_in_a_store(sagecc: Command, pool: Path, url: str) -> None:
    assert sagecc("compile", "--pool", pool, "--cache", "here")[0] == 0
    command = [sys.executable, "-m", "sagecc", "train", "--config", "tiny", "--steps", "2", "--pool", url]
    subprocess.run([*command, "--cache", "there", "--out", "policy"], check=True, capture_output=True)
    assert compiled(Path("there")) == compiled(Path("here"))
    assert (Path("policy") / "card.json").exists()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("s3://no-such-bucket/pool", "s3://no-such-bucket/pool cannot be read (When listing objects"),
        ("s3://team/no-such-folder", "s3://team/no-such-folder does not exist"),
        ("s3://", "names no folder of a bucket"),
        ("s3://team/../pool", "names no folder of a bucket"),
        ("ftp://team/pool", "'ftp://' is not read"),
    ],
)
def test_a_place_that_is_none_is_told_in_a_line(sagecc: Command, url: str, name: str, told: str) -> None:
    for command in (("compile", "--cache", "cache"), ("sql", "SELECT 1")):
        status, _, error = sagecc(*command, "--pool", name)
        assert status == 2 and error.count("\n") == 1
        assert told in error or (command[0] == "sql" and f"no pool at {name}" in error)
    assert compiled(Path("cache")) == []


@pytest.mark.parametrize("key", ["wrong", None])
def test_whoever_has_no_valid_key_is_told_in_a_line(
    sagecc: Command, store: ObjectStore, url: str, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name) if key is None else monkeypatch.setenv(name, key)
    with store.asking_for_keys():
        for command in (("compile", "--cache", "cache"), ("sql", "SELECT 1")):
            status, _, error = sagecc(*command, "--pool", url)
            assert status == 2 and error.count("\n") == 1
            assert "AWS_ACCESS_KEY_ID" in error
    assert compiled(Path("cache")) == []


def test_an_object_that_is_cut_off_is_named(sagecc: Command, store: ObjectStore, pool: Path) -> None:
    url = store.upload(pool, "cut", "pool")
    with store.files.open_output_stream(f"cut/pool/{PART}") as sink:
        sink.write((pool / PART).read_bytes()[:-1000])
    status, _, error = sagecc("compile", "--pool", url, "--cache", "cache")
    assert (status, error) == (2, f"sagecc: {url}/{PART} is cut off, or no Parquet file: upload it again\n")
    assert compiled(Path("cache")) == []
    status, _, error = sagecc("sql", "SELECT count(*) FROM transitions", "--pool", url)
    assert status == 2 and error.count("\n") == 1 and PART in error


def test_a_download_that_breaks_off_leaves_nothing_half_done_and_the_next_one_continues(
    sagecc: Command, store: ObjectStore, pool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = store.upload(pool, "broken", "pool")
    with breaking_off(store, PART.replace("=", "%3D")) as address, monkeypatch.context() as patched:
        patched.setenv("AWS_ENDPOINT_URL", f"http://{address}")
        status, _, error = sagecc("compile", "--pool", url, "--cache", "cache")
        assert status == 2 and error.count("\n") == 1 and f"{url}/{PART} cannot be read" in error
        status, _, error = sagecc("sql", "SELECT sum(reward) FROM transitions", "--pool", url)
        assert status == 2 and error.count("\n") == 1 and f"{url}/{PART} cannot be read" in error
    assert compiled(Path("cache")) == []
    copy = Path("cache/copies/s3/broken/pool")
    assert not (copy / PART).exists() and not list(copy.rglob(".tmp-*"))
    there = {path: path.stat().st_ino for path in copy.rglob("*.parquet")}
    assert sagecc("compile", "--pool", url, "--cache", "cache")[0] == 0
    assert there and {path: path.stat().st_ino for path in there} == there


def test_a_path_stays_a_path() -> None:
    assert place("data/pool") == Path("data/pool")
    assert place("s3:/data/pool") == Path("s3:/data/pool")
    there = place("s3://team/data/pool/")
    assert isinstance(there, Remote) and str(there / "x") == "s3://team/data/pool/x"
    with pytest.raises(SageccError, match="S3://"):
        place("S3://team/pool")
