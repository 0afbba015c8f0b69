# SPDX-License-Identifier: Apache-2.0
"""The pool taken out of here, read back by each ecosystem's own library and compared with the pool's files."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import gymnasium
import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
import yaml

from sagecc.common.errors import SageccError
from sagecc.pool import derivation as pool_module
from sagecc.pool.derivation import build_pool
from sagecc.pool.exports import to_huggingface
from sagecc.pool.exports.episodes import Choice, open_pool
from sagecc.pool.exports.export import export
from sagecc.pool.view_columns import OF_SAMPLES
from sagecc.schemas.partitions import EPISODES_FILE, PARTS, partition
from sagecc.schemas.pool import FEATURE_NAMES, VERSION_KEY, schema_of
from tests.conftest import ROOT
from tests.helpers.messages import facts
from tests.helpers.processes import sigint
from tests.helpers.raw_episodes import write_partition

pytestmark = pytest.mark.tensorflow

POLICY = "policy:models/mine"
FORMS = ("minari", "rlds", "huggingface", "samples")

# Nothing is to be fetched.
os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pool whose episodes span row groups and files, of a policy too."""
    folder = tmp_path_factory.mktemp("pool")
    write_partition(folder / "raw", "I", "cubic")
    write_partition(folder / "raw", "I", POLICY, rows=(300, 200))
    write_partition(folder / "raw", "II", "vegas", rows=(700, 300))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool_module, "ROW_GROUP_ROWS", 400)
        patch.setattr(pool_module, "FILE_BYTES", 200_000)
        build_pool(folder / "raw", folder / "pool", progress=False)
    assert len(list((folder / "pool").glob(PARTS))) > 3
    return folder / "pool"


@pytest.fixture
def damaged(pool: Path, tmp_path: Path) -> Path:
    """The same pool; its last partition cannot be read."""
    copy = tmp_path / "damaged"
    for path in pool.rglob("*.parquet"):
        (copy / path.relative_to(pool)).parent.mkdir(parents=True, exist_ok=True)
        (copy / path.relative_to(pool)).write_bytes(path.read_bytes())
    next(copy.glob("set=II/scheme=vegas/part-000.parquet")).write_bytes(b"PAR1 and no more")
    return copy


def rows_of(pool: Path) -> dict[str, pl.DataFrame]:
    """Return the pool's rows by episode, as its files have them."""
    frame = pl.concat([pl.read_parquet(path, hive_partitioning=False) for path in sorted(pool.glob(PARTS))])
    return {str(name): rows for (name,), rows in frame.group_by("episode_id", maintain_order=True)}


def listing_of(pool: Path) -> dict[str, dict[str, Any]]:
    return {row["episode_id"]: row for row in pq.read_table(pool / EPISODES_FILE).to_pylist()}


def observations(rows: pl.DataFrame) -> np.ndarray[Any, Any]:
    return rows.select(FEATURE_NAMES).to_numpy()


def log2(rows: pl.DataFrame) -> np.ndarray[Any, Any]:
    values: np.ndarray[Any, Any] = np.log2(rows["action"].to_numpy().astype(np.float64)).astype(np.float32)
    return values


def same(found: Any, expected: Any) -> None:
    """Hold that two arrays have the same type, shape and bits."""
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(found, expected)


def test_minari_reads_it(pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    minari = pytest.importorskip("minari")
    monkeypatch.chdir(tmp_path)  # relative paths are what people type
    export(Path("out"), "minari", pool, progress=False)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "out"))
    dataset = minari.load_dataset("sagecc-pool-v1")
    expected, listing = rows_of(pool), listing_of(pool)
    metadata = dataset.storage.get_episode_metadata(range(dataset.total_episodes))
    found = 0
    for episode, about in zip(dataset.iterate_episodes(), metadata, strict=True):
        rows = expected.pop(about["episode_id"])
        same(episode.observations, observations(rows))
        same(episode.actions, log2(rows)[:-1, None])
        same(episode.rewards, rows["reward"].to_numpy()[:-1])
        assert not episode.terminations.any()
        assert np.flatnonzero(episode.truncations).tolist() == [len(rows) - 2]
        assert about["last_action"] == log2(rows)[-1]
        assert about["last_reward"] == rows["reward"][-1]
        row = listing[about["episode_id"]]
        network = row.pop("environment")
        assert {name: about[name] for name in row} == row
        assert dataset.storage.metadata["environments"][row["environment_id"]] == json.loads(network)
        assert dataset.observation_space.contains(episode.observations[0])
        assert all(dataset.action_space.contains(action) for action in episode.actions)
        found += len(rows) - 1
    assert not expected
    assert dataset.total_steps == found
    assert dataset.storage.metadata["observation_names"] == list(FEATURE_NAMES)
    environment = dataset.recover_environment()
    assert isinstance(environment.observation_space, gymnasium.spaces.Box)
    assert environment.observation_space == dataset.observation_space
    environment.close()


def d3rlpy_code() -> str:
    """Return the example for d3rlpy."""
    return (ROOT / "docs" / "examples" / "train_with_d3rlpy.py").read_text()


def d3rlpy_stand_in() -> tuple[ModuleType, dict[str, Any]]:
    """Return what stands in for d3rlpy, which brings PyTorch, and what its data set was made of."""
    given: dict[str, Any] = {}
    module = ModuleType("d3rlpy")
    module.dataset = SimpleNamespace(MDPDataset=lambda **arrays: given.update(arrays))  # type: ignore[attr-defined]
    module.algos, module.preprocessing = MagicMock(), MagicMock()  # type: ignore[attr-defined]
    return module, given


def test_rows_for_d3rlpy_are_those_of_the_pool(pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the guide does: each action beside the observation that it followed, and where episodes end."""
    pytest.importorskip("minari")
    export(tmp_path / "out", "minari", pool, progress=False)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "out"))
    module, given = d3rlpy_stand_in()
    monkeypatch.setitem(sys.modules, "d3rlpy", module)
    exec(d3rlpy_code(), {})
    episodes = [rows_of(pool)[name][:-1] for name in listing_of(pool)]
    same(given["observations"], np.concatenate([observations(rows) for rows in episodes]))
    same(given["actions"], np.clip(np.concatenate([log2(rows)[:, None] for rows in episodes]), -2, 2))
    same(given["rewards"], np.concatenate([rows["reward"].to_numpy() for rows in episodes]))
    assert not given["terminals"].any()
    assert (np.flatnonzero(given["timeouts"]) + 1).tolist() == np.cumsum([len(rows) for rows in episodes]).tolist()


def test_d3rlpy_takes_them(pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    d3rlpy = pytest.importorskip("d3rlpy")
    minari = pytest.importorskip("minari")
    code = d3rlpy_code()
    export(tmp_path / "out", "minari", pool, progress=False)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "out"))
    monkeypatch.chdir(tmp_path)  # it writes a log
    learned = code.replace("n_steps=1000, n_steps_per_epoch=500", "n_steps=2, n_steps_per_epoch=1")
    assert learned != code
    names: dict[str, Any] = {}
    exec(learned, names)
    found = names["data"].episodes
    for episode, expected in zip(found, minari.load_dataset("sagecc-pool-v1"), strict=True):
        assert isinstance(episode, d3rlpy.dataset.Episode) and not episode.terminated
        np.testing.assert_array_equal(episode.observations, expected.observations[:-1])


def test_tensorflow_datasets_reads_it(pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tfds = pytest.importorskip("tensorflow_datasets")
    from sagecc.pool.exports import to_rlds

    monkeypatch.setattr(to_rlds, "SHARD_BYTES", 400_000)
    export(tmp_path / "out", "rlds", pool, progress=False)
    builder = tfds.builder_from_directory(str(tmp_path / "out"))
    assert builder.info.splits["train"].num_shards > 2
    assert builder.info.metadata["observation_names"] == list(FEATURE_NAMES)
    expected, listing = rows_of(pool), listing_of(pool)
    for example in tfds.as_numpy(builder.as_dataset(split="train")):
        about = {name: _plain(value) for name, value in example["episode_metadata"].items()}
        rows = expected.pop(about["episode_id"])
        steps = list(example["steps"])
        columns = {name: np.stack([step[name] for step in steps]) for name in steps[0]}
        same(columns["observation"], observations(rows))
        same(columns["action"], log2(rows)[:, None])
        same(columns["reward"], rows["reward"].to_numpy())
        same(columns["is_first"], rows["is_first"].to_numpy())
        same(columns["is_last"], rows["is_last"].to_numpy())
        assert not columns["is_terminal"].any()
        assert (columns["discount"] == 1).all()
        row = listing[about["episode_id"]]
        floats = {name: value for name, value in row.items() if isinstance(value, float)}
        assert {name: about[name] for name in row.keys() - floats.keys()} == {
            name: row[name] for name in row.keys() - floats.keys()
        }
        # TFRecords hold 32 bits of a float.
        assert {name: about[name] for name in floats} == pytest.approx(floats, rel=1e-7)
    assert not expected


def _plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value.item()


def test_examples_have_the_bytes_of_tensorflow_datasets_own_serializer(pool: Path) -> None:
    tfds = pytest.importorskip("tensorflow_datasets")
    from tensorflow_datasets.core.example_serializer import ExampleSerializer

    from sagecc.common.tensorflow_runtime import tf
    from sagecc.pool.exports import to_rlds

    theirs = ExampleSerializer(to_rlds._features(tfds).get_serialized_info())
    for episode in open_pool(pool, Choice()).episodes():
        example = to_rlds._example(episode)
        parse = tf.train.Example.FromString
        assert parse(to_rlds.serialize(example)) == parse(theirs.serialize_example(example))


@pytest.mark.parametrize("streaming", [False, True])
def test_hugging_face_reads_it(pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, streaming: bool) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(to_huggingface, "ROW_GROUP_ROWS", 500)
    monkeypatch.setattr(to_huggingface, "FILE_ROWS", 1000)
    out = tmp_path / "out"
    export(out, "huggingface", pool, progress=False)

    def load(*config: str) -> Any:
        cache = str(tmp_path / "cache")
        found = datasets.load_dataset(str(out), *config, split="train", streaming=streaming, cache_dir=cache)
        return found.with_format("numpy")

    expected = rows_of(pool)
    for name, group in itertools.groupby(load(), key=lambda row: str(row["episode_id"])):
        found = list(group)
        columns = {key: np.stack([row[key] for row in found]) for key in found[0]}
        rows = expected.pop(name)
        same(columns["observation"], observations(rows))
        same(columns["action"], log2(rows))
        same(columns["reward"], rows["reward"].to_numpy())
        same(columns["t_s"], rows["t_s"].to_numpy())
        np.testing.assert_array_equal(columns["step"], rows["step"].to_numpy())
        same(columns["is_first"], rows["is_first"].to_numpy())
        same(columns["is_last"], rows["is_last"].to_numpy())
        same(columns["truncated"], rows["is_last"].to_numpy())
        assert not columns["terminated"].any()
        about = listing_of(pool)[name]
        assert {(str(row["set"]), str(row["scheme"])) for row in found} == {(about["set"], about["scheme"])}
    assert not expected
    assert {str(row["set"]) for row in load("set-II")} == {"II"}
    listed = {str(row["episode_id"]): row for row in load("episodes").with_format(None)}
    assert listed == {name: row | {"perturbed": False} for name, row in listing_of(pool).items()}


def test_the_ratio_itself(pool: Path, tmp_path: Path) -> None:
    export(tmp_path / "out", "huggingface", pool, Choice(("I",), ("cubic",), 1), "ratio", progress=False)
    found = pl.read_parquet(tmp_path / "out" / "transitions" / "I" / "cubic-000.parquet")
    rows = rows_of(pool)[found["episode_id"][0]]
    same(found["action"].to_numpy(), rows["action"].to_numpy())
    header = yaml.safe_load((tmp_path / "out" / "README.md").read_text().split("---")[1])
    assert header["size_categories"] == ["n<1K"]
    assert [config["config_name"] for config in header["configs"]] == ["transitions", "set-I", "episodes"]


@pytest.mark.parametrize(
    ("choice", "count"),
    [
        (Choice(), 7),
        (Choice(sets=("I",)), 5),
        (Choice(schemes=("cubic", POLICY)), 5),
        (Choice(limit=1), 3),
        (Choice(("II",), ("vegas",), 5), 2),
    ],
)
def test_only_the_chosen_episodes(pool: Path, choice: Choice, count: int) -> None:
    source = open_pool(pool, choice)
    told: list[int] = []
    found = list(source.episodes(told.append))
    assert [episode.about["episode_id"] for episode in found] == [row["episode_id"] for row in source.listing]
    assert len(found) == count
    assert [len(episode) for episode in found] == told == [row["rows"] for row in source.listing]
    assert sum(told) == source.rows


def test_no_more_is_read_than_the_episode_needs(pool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    whole = pq.ParquetFile.read_row_group

    def counting(file: pq.ParquetFile, group: int, **options: Any) -> Any:
        read.append(group)
        return whole(file, group, **options)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", counting)
    episodes = open_pool(pool, Choice()).episodes()
    first = next(episodes)
    assert len(read) == -(-len(first) // 400)
    assert first.observations.base is None  # a copy: it keeps no row group in memory
    list(episodes)
    assert len(read) == sum(pq.read_metadata(path).num_row_groups for path in pool.glob(PARTS))


@pytest.mark.parametrize(
    ("choice", "reason"),
    [
        (Choice(sets=("III",)), "'III'.*I, II"),
        (Choice(schemes=("cubik",)), "'cubik'.*cubic, policy:models/mine, vegas"),
        (Choice(("II",), ("cubic",)), "no episode"),
    ],
)
def test_what_is_not_there_is_refused(pool: Path, tmp_path: Path, choice: Choice, reason: str) -> None:
    with pytest.raises(SageccError, match=reason):
        export(tmp_path / "out", "huggingface", pool, choice, progress=False)
    assert not list(tmp_path.iterdir())


def test_no_pool(tmp_path: Path) -> None:
    with pytest.raises(SageccError, match=f"no pool at {tmp_path}: make it with 'sagecc pool'"):
        open_pool(tmp_path, Choice())


def test_a_pool_of_another_major_version(damaged: Path) -> None:
    path = damaged / EPISODES_FILE
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({**table.schema.metadata, VERSION_KEY: b"2.0"}), path)
    with pytest.raises(SageccError, match=r"has pool version 2\.0"):
        open_pool(damaged, Choice())


def test_rows_that_are_missing(damaged: Path) -> None:
    first = damaged / partition("I", "cubic") / "part-000.parquet"
    first.unlink()
    with pytest.raises(SageccError, match=r"set=I/scheme=cubic: the \d+ rows of episode I-.* are not there"):
        list(open_pool(damaged, Choice(schemes=("cubic",))).episodes())


def test_samples_are_the_views_rows_with_their_meanings(pool: Path, tmp_path: Path) -> None:
    found = export(tmp_path / "out", "samples", pool, Choice(limit=1), progress=False)
    files = [pq.read_table(path, partitioning=None) for path in sorted((tmp_path / "out").glob(PARTS))]
    assert sum(map(len, files)) == found.rows == open_pool(pool, Choice(limit=1)).rows
    for table in files:
        assert table.schema.equals(schema_of(OF_SAMPLES), check_metadata=True)
        assert table["step"].to_pylist() == list(range(len(table)))
    episodes = pq.read_table(tmp_path / "out" / EPISODES_FILE)
    assert episodes["utilisation"].null_count == 0 and "capacity_step" in episodes.column_names
    readme = (tmp_path / "out" / "README.md").read_text()
    assert all(f"| `{name}` |" in readme for name in (*files[0].column_names, *episodes.column_names))


def test_samples_without_raw_trajectories_are_refused(damaged: Path, tmp_path: Path) -> None:
    with pytest.raises(SageccError, match="holds no raw trajectories"):
        export(tmp_path / "out", "samples", damaged, progress=False)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("form", FORMS)
def test_a_failed_export_leaves_nothing(pool: Path, damaged: Path, tmp_path: Path, form: str) -> None:
    out = tmp_path / "there" / "out"
    (tmp_path / "raw").symlink_to(pool.parent / "raw")
    with pytest.raises(SageccError, match=r"(?s)damaged.*vegas/part-000.parquet|vegas/part-000.parquet is damaged"):
        export(out, form, damaged, progress=False)
    assert not list(out.parent.iterdir())


def test_nothing_is_overwritten(pool: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text("mine")
    with pytest.raises(SageccError, match=f"{out} is there already"):
        export(out, "huggingface", pool, progress=False)
    assert out.read_text() == "mine"
    with pytest.raises(SageccError, match="is in the pool"):
        export(pool / "out", "huggingface", pool, progress=False)


def test_a_full_disk_is_said_first(pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.raises(SageccError, match=r"0.0 GB.*0.0 GB free"):
        export(tmp_path / "out", "rlds", pool, progress=False)
    assert not list(tmp_path.iterdir())


def _slow(pool: Path, out: Path) -> subprocess.Popen[str]:
    """Start an export that stops for a while after its second episode."""
    script = f"""
        import sys, time
        import sagecc.cli
        from sagecc.pool.exports.episodes import PoolSource
        whole = PoolSource._episode
        count = []
        def slow(*args):
            count.append(1)
            if len(count) == 3:
                print("under way", flush=True)
                for _ in range(600):  # a signal just before one sleep waits for its end
                    time.sleep(0.1)
            return whole(*args)
        PoolSource._episode = slow
        sagecc.cli.main(["pool", "export", "--to", "minari", "--pool", {str(pool)!r}, {str(out)!r}])
    """
    with sigint():
        started = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    assert started.stdout is not None
    assert started.stdout.readline() == "under way\n"
    return started


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_terminated_export_leaves_nothing(pool: Path, tmp_path: Path, number: int, status: int) -> None:
    started = _slow(pool, tmp_path / "out")
    started.send_signal(number)
    started.communicate(timeout=60)
    assert started.returncode == status
    assert not list(tmp_path.iterdir())


def test_what_a_killed_export_leaves_is_removed_by_the_next(pool: Path, tmp_path: Path) -> None:
    started = _slow(pool, tmp_path / "out")
    started.kill()
    started.communicate(timeout=60)
    (left,) = tmp_path.iterdir()
    assert re.fullmatch(r"\.tmp-[0-9a-f]{8}-out", left.name)
    other = tmp_path / ".tmp-0123abcd-out-other"  # of another export
    other.mkdir()
    export(tmp_path / "out", "minari", pool, Choice(limit=1), progress=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == [other.name, "out"]


def test_the_command_at_the_root_of_the_repository(pool: Path, tmp_path: Path) -> None:
    """There is a folder `datasets` in it, which Python would take for a package of that name."""
    assert (ROOT / "datasets").is_dir()
    args = ["pool", "export", "--to", "huggingface", "--pool", str(pool), "--limit", "1", str(tmp_path / "out")]
    done = subprocess.run(
        [sys.executable, "-m", "sagecc", *args], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        f"3 episodes, {sum(row['rows'] for row in open_pool(pool, Choice(limit=1)).listing):,} rows in"
        f" {tmp_path}/out; read it with datasets.load_dataset('{tmp_path}/out', split='train')\n"
    )
    script = (
        "import datasets, sys; print(len(datasets.load_dataset(sys.argv[1], split='train', cache_dir=sys.argv[2])))"
    )
    again = [sys.executable, "-c", script, str(tmp_path / "out"), str(tmp_path / "cache")]
    read = subprocess.run(again, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert read.returncode == 0, read.stderr
    assert int(read.stdout) == open_pool(pool, Choice(limit=1)).rows


@pytest.mark.parametrize(
    ("form", "package"), [("minari", "minari"), ("rlds", "tensorflow_datasets"), ("huggingface", "datasets")]
)
def test_a_missing_library_is_one_line(pool: Path, tmp_path: Path, form: str, package: str) -> None:
    """The library is hidden, and a folder of its name in the working directory is not taken for it."""
    (tmp_path / package).mkdir()
    script = f"""
        import sys
        from importlib.machinery import PathFinder
        class Hiding:
            @staticmethod
            def find_spec(name, path=None, target=None):
                return PathFinder.find_spec(name, [{str(tmp_path)!r}]) if name == {package!r} else None
        sys.meta_path.insert(0, Hiding)
        import sagecc.cli
        sagecc.cli.main(["pool", "export", "--to", {form!r}, "--pool", {str(pool)!r}, {str(tmp_path / "out")!r}])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2
    wanted = f"sagecc: …No module named '{package}'…pip install 'sagecc[{form}]'\n"
    assert re.search(facts(wanted), done.stderr)
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_size_categories() -> None:
    found = [to_huggingface.size_category(rows) for rows in (999, 1000, 68_000_000, 10**9)]
    assert found == ["n<1K", "1K<n<10K", "10M<n<100M", "n>1B"]
