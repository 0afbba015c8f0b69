# SPDX-License-Identifier: Apache-2.0
"""The pool as RLDS, in TensorFlow Datasets' form: `tfds.builder_from_directory(PATH).as_dataset(split="train")`.

An example is an episode: `steps`, a nested dataset of n steps for n rows, and `episode_metadata`. In RLDS only the
observation of the step with is_last counts, unless it is terminal; here its action and reward are nevertheless those of
the pool's last row. is_terminal is never set and discount is 1: an episode ends by its clock. TFRecords have no null:
FOR_NULL has what stands for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sagecc.common.optional import import_library
from sagecc.common.tensorflow_runtime import tf
from sagecc.pool.exports.about import CITATION, NAME, SUMMARY, conventions
from sagecc.pool.exports.episodes import PoolEpisode, PoolSource
from sagecc.schemas.pool import EPISODE_COLUMNS, FEATURE_NAMES

SPLIT = "train"
FOR_NULL: Mapping[str, float] = MappingProxyType(
    {"queue_bdp": math.inf, "queue_bytes": -1, "delay_mean_ms": math.nan, "delay_p95_ms": math.nan}
)
"""What stands in `episode_metadata` for a null of the pool's (schemas.pool.MAY_BE_ABSENT)."""

SHARD_BYTES = 200_000_000
"""Size at which a file is closed and the next begun, as TensorFlow Datasets advises."""


def write(folder: Path, source: PoolSource, advance: Callable[[int], object]) -> str:
    """Write shards of TFRecords and the metadata beside them.

    Args:
        folder: where to write them.
        source: the episodes.
        advance: called with the number of rows after each episode.

    Returns:
        Code that reads the result, with `{path}` for its folder.
    """
    tfds = import_library("tensorflow_datasets", "rlds")
    features = _features(tfds)
    shards = _Shards(folder)
    try:
        for episode in source.episodes(advance):
            shards.write(serialize(_example(episode)))
    finally:
        shards.close()
    name = NAME.replace("-", "_")
    template = tfds.core.ShardedFileTemplate(
        data_dir=folder, dataset_name=name, split=SPLIT, filetype_suffix="tfrecord"
    )
    for index, path in enumerate(shards.paths):
        path.rename(template.sharded_filepath(shard_index=index, num_shards=len(shards.paths)))
    split = tfds.core.SplitInfo(
        name=SPLIT, shard_lengths=shards.lengths, num_bytes=shards.bytes, filename_template=template
    )
    tfds.folder_dataset.write_metadata(
        data_dir=folder,
        features=features,
        split_infos=[split],
        version=f"{source.about['pool_version']}.0",
        check_data=False,
        description=SUMMARY,
        citation=CITATION,
        metadata=tfds.core.MetadataDict(conventions(source)),
    )
    return "tfds.builder_from_directory('{path}').as_dataset(split='train')"


def _features(tfds: Any) -> Any:
    f = tfds.features
    kinds = {pa.string(): f.Text(), pa.float64(): np.float64, pa.int32(): np.int32, pa.int64(): np.int64}
    step = {
        "observation": f.Tensor(shape=(len(FEATURE_NAMES),), dtype=np.float32),
        "action": f.Tensor(shape=(1,), dtype=np.float32),
        "reward": np.float32,
        "discount": np.float32,
        "is_first": np.bool_,
        "is_last": np.bool_,
        "is_terminal": np.bool_,
        "is_kicked": np.bool_,
    }
    about = {column.name: kinds[column.dtype] for column in EPISODE_COLUMNS} | {"perturbed": np.bool_}
    return f.FeaturesDict({"steps": f.Dataset(step), "episode_metadata": f.FeaturesDict(about)})


def _example(episode: PoolEpisode) -> dict[str, Any]:
    """Return an episode as its features encode it: each field of all steps in one array."""
    rows = len(episode)
    step = np.arange(rows)
    return {
        "steps": {
            "observation": episode.observations,
            "action": episode.actions[:, None],
            "reward": episode.rewards,
            "discount": np.ones(rows, np.float32),
            "is_first": step == 0,
            "is_last": step == rows - 1,
            "is_terminal": np.zeros(rows, np.bool_),
            "is_kicked": episode.is_kicked,
        },
        "episode_metadata": {
            column.name: FOR_NULL[column.name] if (value := episode.about[column.name]) is None else value
            for column in EPISODE_COLUMNS
        }
        | {"perturbed": episode.perturbed},
    }


def serialize(example: dict[str, Any]) -> bytes:
    """Return the bytes that TensorFlow Datasets' own serializer gives for an example, in less time."""
    features = {
        f"{group}/{name}": _feature(value) for group, fields in example.items() for name, value in fields.items()
    }
    return bytes(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


def _feature(value: Any) -> Any:
    if isinstance(value, str):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value.encode()]))
    values = np.asarray(value)
    if values.dtype == np.float32:
        return tf.train.Feature(float_list=tf.train.FloatList.FromString(_packed(values.astype("<f4"))))
    if values.dtype == np.bool_:  # a number below 128 is one byte
        return tf.train.Feature(int64_list=tf.train.Int64List.FromString(_packed(values.astype(np.uint8))))
    if np.issubdtype(values.dtype, np.floating):
        return tf.train.Feature(float_list=tf.train.FloatList(value=[float(values)]))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[int(values)]))


def _packed(values: npt.NDArray[Any]) -> bytes:
    """Return a message whose field 1 is these numbers, packed: tag, length, bytes."""
    raw = values.tobytes()
    length, rest = b"", len(raw)
    while rest > 127:
        length += bytes([rest & 127 | 128])
        rest >>= 7
    return b"\x0a" + length + bytes([rest]) + raw


class _Shards:
    """Numbered files of examples in a folder."""

    def __init__(self, folder: Path) -> None:
        self.paths: list[Path] = []
        """The files."""
        self.lengths: list[int] = []
        """Examples per file."""
        self.bytes = 0
        """Size of all examples."""
        self._folder, self._room = folder, 0
        self._writer: Any = None

    def write(self, example: bytes) -> None:
        """Append an example."""
        if self._writer is None or self._room <= 0:
            self.close()
            self.paths.append(self._folder / f"shard-{len(self.paths)}")
            self.lengths.append(0)
            self._writer, self._room = tf.io.TFRecordWriter(str(self.paths[-1])), SHARD_BYTES
        self._writer.write(example)
        self.lengths[-1] += 1
        self.bytes += len(example)
        self._room -= len(example)

    def close(self) -> None:
        """Close the open file, if there is one."""
        if self._writer is not None:
            self._writer.close()
        self._writer = None
