# SPDX-License-Identifier: Apache-2.0
"""What a command must leave alone: data of the user's, wherever unlucky options point."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import stat
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sagecc.cli import main
from sagecc.collector.kernel.identity import forget_identities, write_identities
from sagecc.collector.run.store import Partition, read_table
from sagecc.common.errors import SageccError
from sagecc.common.shipped import POLICIES
from sagecc.execution.stock import kernel_scheme
from sagecc.leagues import analysis
from sagecc.leagues.league import play, save
from sagecc.learner import runs
from sagecc.learner.online.lab_source import REPLAY_MARK, check_replay
from sagecc.policy.artefact import POLICY_MARK
from sagecc.pool.derivation import build_pool
from sagecc.pool.joining import join_pools
from sagecc.schemas.partitions import partition
from tests.helpers.league_episodes import StubLab, rows, set_one, smoke, write
from tests.helpers.raw_episodes import write_partition
from tests.helpers.stock import bpf_filesystem

pytestmark = pytest.mark.heavy

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="takes root")

ENVIRONMENT = set_one(12)
RUN_ID = "ab" * 32


def sagecc(*args: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(arg) for arg in args])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def content(folder: Path) -> dict[str, str]:
    """Return everything below a folder: its kind, and its bytes' hash."""
    found = {}
    for path in sorted(folder.rglob("*")):
        data = path.read_bytes() if path.is_file() else str(path.readlink()).encode() if path.is_symlink() else b""
        found[str(path.relative_to(folder))] = f"{stat.S_IFMT(path.lstat().st_mode)} {hashlib.sha256(data).hexdigest()}"
    return found


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/card.json").write_text("{}")
    return "policy:mine"


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    write(tmp_path / "raw", {(ENVIRONMENT, "cubic"): rows(ENVIRONMENT, "cubic", [9, 9], [40, 40])})
    return tmp_path / "raw"


@pytest.mark.parametrize("out", [".", "elsewhere/..", "link"])
def test_a_league_beside_the_heuristics_trajectories_removes_none(
    out: str, raw: Path, tmp_path: Path, policy: str
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path)
    before = content(raw)
    with pytest.raises(SageccError, match="name another folder with --out"):
        play(smoke(ENVIRONMENT), ("cubic", policy), raw, tmp_path / out, StubLab())
    assert content(raw) == before


def test_a_league_leaves_partitions_that_no_league_played(raw: Path, tmp_path: Path, policy: str) -> None:
    """`--out datasets` beside another `--raw`: datasets/raw was collected."""
    shutil.copytree(raw, tmp_path / "datasets/raw")
    before = content(tmp_path / "datasets")
    with pytest.raises(SageccError, match="scheme=cubic was played by no league"):
        play(smoke(ENVIRONMENT), ("cubic", policy), raw, tmp_path / "datasets", StubLab())
    assert content(tmp_path / "datasets") == before


def test_a_league_does_not_take_a_damaged_note_for_leave_to_remove(raw: Path, tmp_path: Path, policy: str) -> None:
    games = (smoke(ENVIRONMENT), ("cubic", policy), raw, tmp_path / "out")
    play(*games, StubLab())
    (tmp_path / "out/raw/policies.json").write_text("{")
    before = content(tmp_path / "out")
    with pytest.raises(SageccError, match=r"policies\.json is damaged: move .* away"):
        play(*games, StubLab())
    assert content(tmp_path / "out") == before


def test_a_leagues_tables_replace_a_leagues_and_nobody_elses(raw: Path, tmp_path: Path) -> None:
    league = play(smoke(ENVIRONMENT), ("cubic",), raw, tmp_path / "out", StubLab())
    (tmp_path / "metrics.json").write_text("of another program")
    with pytest.raises(SageccError, match=r"metrics\.json stands where a league's would be written"):
        save(league, tmp_path)
    assert (tmp_path / "metrics.json").read_text() == "of another program"
    assert not list(tmp_path.glob("*.parquet"))
    for _ in range(2):
        save(league, tmp_path / "out")
    assert not list((tmp_path / "out").glob(".*"))


def test_an_analysis_replaces_an_analysis_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "distance.json").write_text("{}")
    with pytest.raises(SageccError, match=r"distance\.json stands where an analysis's would be written"):
        analysis.save(tmp_path, "distance", pl.DataFrame({"x": [1]}), {})
    for _ in range(2):
        analysis.save(tmp_path / "out", "distance", pl.DataFrame({"x": [1]}), {})


def test_a_replay_in_a_folder_of_ones_own_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years")
    with pytest.raises(SageccError, match=r"thesis\.tex is no part of a replay's"):
        check_replay(tmp_path, RUN_ID)
    (tmp_path / "thesis.tex").rename(tmp_path / "counters")
    with pytest.raises(SageccError, match=r"counters stands where a replay's would be written"):
        check_replay(tmp_path, RUN_ID)
    with pytest.raises(SageccError):
        REPLAY_MARK.remove_own(tmp_path)
    assert (tmp_path / "counters").read_text() == "years"


def test_the_replay_of_another_run_stays(tmp_path: Path) -> None:
    runs.write_run(tmp_path, RUN_ID)
    check_replay(tmp_path, RUN_ID)
    with pytest.raises(SageccError, match="holds the replay of another run, which has not ended"):
        check_replay(tmp_path, "cd" * 32)


@pytest.mark.parametrize("fingerprint", ["../../..", "", "AB" * 32, 7, None, "ab" * 31 + "/x"])
def test_a_crafted_run_moves_nothing_out_of_its_folder(fingerprint: object, tmp_path: Path) -> None:
    logs = tmp_path / "a/b/logs"
    logs.mkdir(parents=True)
    (logs / "run.json").write_text(json.dumps({"fingerprint": fingerprint}))
    (logs / ".bashrc").write_text("theirs")
    (tmp_path / ".bashrc").write_text("mine")
    before = content(tmp_path)
    with pytest.raises(SageccError, match=r"run\.json is not of 'sagecc train', or is damaged"):
        runs.claim(logs, RUN_ID, {})
    assert content(tmp_path) == before


def test_logs_in_a_folder_of_ones_own_replace_nothing(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("of another program")
    with pytest.raises(SageccError, match=r"metrics\.jsonl stands where a training run's would be written"):
        runs.claim(tmp_path, RUN_ID, {})
    assert content(tmp_path).keys() == {"metrics.jsonl"}


@pytest.mark.parametrize("name", ["../.bashrc", "/etc/hostname", "notes.txt", "policy.safetensors/../../.bashrc"])
def test_a_card_names_no_file_outside_its_policy(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = tmp_path / "in/evil"
    shutil.copytree(POLICIES / "sagecc-1", evil)
    (tmp_path / "in/.bashrc").write_text("secret")
    card = json.loads((evil / "card.json").read_text())
    card["files"][name] = hashlib.sha256(b"secret").hexdigest()
    card["export_errors"][name] = 0.0
    (evil / "card.json").write_text(json.dumps(card))
    (tmp_path / "out").mkdir()
    assert sagecc("bound", evil, "--out", tmp_path / "out/a", "--window-bound", 2) == 2
    assert "is no file of a network" in capsys.readouterr().err
    assert not any((tmp_path / "out").iterdir())


def test_a_policy_replaces_a_policy_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "card.json").write_text('{"format_version": 1, "cards": ["ace", "king"]}')
    with pytest.raises(SageccError, match=r"card\.json stands where a policy's would be written"):
        POLICY_MARK.check(tmp_path)
    POLICY_MARK.check(POLICIES / "sagecc-1")


def test_a_collection_into_a_pool_is_refused(tmp_path: Path) -> None:
    write_partition(tmp_path / "raw", "I", "cubic", rows=(60,))
    build_pool(tmp_path / "raw", tmp_path / "pool", progress=False)
    before = content(tmp_path / "pool")
    folder = min((tmp_path / "pool").glob("set=*/scheme=*"))
    name, scheme = folder.parent.name.removeprefix("set="), folder.name.removeprefix("scheme=")
    with (
        pytest.raises(SageccError, match=r"part-000\.parquet stands where a partition of 'sagecc collect' would be"),
        Partition(tmp_path / "pool", name, scheme, "kernel"),
    ):
        pytest.fail("nothing may be collected there")
    assert content(tmp_path / "pool") == before


def test_a_collection_leaves_notes_beside_trajectories(raw: Path) -> None:
    folder = raw / partition(ENVIRONMENT.set, "cubic")
    (folder / "notes.txt").write_text("what I saw")
    with (
        pytest.raises(SageccError, match=r"notes\.txt is no part of a partition of 'sagecc collect'"),
        Partition(raw, ENVIRONMENT.set, "cubic", "kernel"),
    ):
        pytest.fail("nothing may be collected there")
    assert (folder / "notes.txt").exists()


def test_a_pool_replaces_a_pool_and_nothing_else(tmp_path: Path) -> None:
    write_partition(tmp_path / "raw", "I", "cubic", rows=(60,))
    theirs = tmp_path / "out" / min((tmp_path / "raw").glob("set=*/scheme=*")).relative_to(tmp_path / "raw")
    theirs.mkdir(parents=True)
    pq.write_table(pa.table({"x": [1]}), theirs / "part-000.parquet")
    before = content(tmp_path / "out")
    with pytest.raises(SageccError, match=r"part-000\.parquet stands where a partition of 'sagecc pool' would be"):
        build_pool(tmp_path / "raw", tmp_path / "out", progress=False)
    assert content(tmp_path / "out") == before
    (tmp_path / "other").mkdir()
    (tmp_path / "other/manifest.json").write_text('{"name": "of a web page"}')
    with pytest.raises(SageccError, match=r"manifest\.json stands where a pool's would be written"):
        build_pool(tmp_path / "raw", tmp_path / "other", progress=False)


def test_joined_pools_replace_a_pool_and_nothing_else(tmp_path: Path) -> None:
    write_partition(tmp_path / "raw", "I", "cubic", rows=(60,))
    build_pool(tmp_path / "raw", tmp_path / "pool", progress=False)
    for _ in range(2):
        join_pools([tmp_path / "pool"], tmp_path / "joined")
    (tmp_path / "joined/manifest.json").unlink()
    (tmp_path / "joined/thesis.tex").write_text("years")
    with pytest.raises(SageccError, match=r"thesis\.tex is no part of a pool's"):
        join_pools([tmp_path / "pool"], tmp_path / "joined")
    assert (tmp_path / "joined/thesis.tex").read_text() == "years"


def test_a_kernels_identities_replace_no_file_of_the_users(tmp_path: Path) -> None:
    (tmp_path / "kernel-identity").mkdir()
    (tmp_path / "kernel-identity/passport").write_text("a user's")
    write_identities(tmp_path / "linux")
    forget_identities(tmp_path / "linux")
    assert [path.name for path in (tmp_path / "kernel-identity").iterdir()] == ["passport"]


@as_root
def test_pins_of_other_programs_stay() -> None:
    with bpf_filesystem() as root:
        (root / "theirs").mkdir()
        (root / "theirs/inner").mkdir()
        with pytest.raises(SageccError, match="inner was not pinned by sagecc"):
            kernel_scheme.remove(root / "theirs")
        assert (root / "theirs/inner").exists()


@as_root
def test_an_output_that_is_a_device_or_a_link_stays_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernel: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mknod("null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    (tmp_path / "link.parquet").symlink_to("target")
    run = ("run", "--scheme", "cubic", "--bandwidth", 12, "--duration", 1, "--kernel", kernel)
    for options in (("--out", "null"), ("--plot", "null"), ("--flows", "null"), ("--out", "link.parquet")):
        assert sagecc(*run, *options) == 0
    assert stat.S_ISCHR(Path("null").lstat().st_mode)
    assert Path("link.parquet").is_symlink() and read_table(tmp_path / "target").num_rows > 50


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.EMFILE, "Too many open files"), "cannot be read: Too many open files"),
        (PermissionError(errno.EACCES, "Permission denied"), "cannot be read: Permission denied"),
        (OSError(errno.EIO, "Input/output error"), "cannot be read: Input/output error"),
        (pa.ArrowMemoryError("malloc of size 64 failed"), "cannot be read: out of memory"),
    ],
)
def test_no_advice_to_remove_what_is_not_proved_damaged(
    error: Exception, said: str, raw: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **options: object) -> None:
        raise error

    path = raw / partition(ENVIRONMENT.set, "cubic") / "episodes.parquet"
    monkeypatch.setattr(pq, "ParquetFile", fail)
    with pytest.raises(SageccError) as caught:
        read_table(path)
    assert str(caught.value) == f"{path} {said}"


def test_what_is_proved_damaged_is_told_so(raw: Path) -> None:
    path = raw / partition(ENVIRONMENT.set, "cubic") / "episodes.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(SageccError, match=r"is damaged \(.+\): remove its folder and collect it again"):
        read_table(path)


def test_a_finished_episode_that_cannot_be_read_now_is_not_run_again(tmp_path: Path) -> None:
    spool = tmp_path / ".spool" / partition("I", "cubic")
    spool.mkdir(parents=True)
    (spool / "a.arrow").write_bytes(b"x")
    with Partition(tmp_path, "I", "cubic", "kernel") as found:
        monkeypatch = pytest.MonkeyPatch()
        with monkeypatch.context() as patched:
            patched.setattr(pa, "memory_map", _refuse)
            with pytest.raises(SageccError, match=r"a\.arrow cannot be read: Too many open files"):
                found.spooled()
        assert (spool / "a.arrow").exists()
        assert found.spooled() == {}  # that one is damaged
        assert not (spool / "a.arrow").exists()


def _refuse(path: str) -> None:
    raise OSError(errno.EMFILE, "Too many open files", path)
