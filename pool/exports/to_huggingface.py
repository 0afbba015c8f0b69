# SPDX-License-Identifier: Apache-2.0
"""The pool as a Hugging Face dataset: Parquet files and a card; `datasets.load_dataset(PATH, split="train")`.

Configurations: `transitions` (one row per tick, the default), one per set, and `episodes`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from sagecc.common.markdown import literal_text
from sagecc.common.optional import import_library
from sagecc.common.parts import PartWriter
from sagecc.pool.exports.about import CITATION, LICENCE, PAPER, SUMMARY, TAGS, TITLE, conventions
from sagecc.pool.exports.episodes import PoolEpisode, PoolSource
from sagecc.schemas.pool import EPISODE_COLUMNS, FEATURE_NAMES
from sagecc.schemas.schemes import is_disturbed

ROW_GROUP_ROWS = 32_768
FILE_ROWS = 4_000_000

SCHEMA = pa.schema(
    [
        pa.field("episode_id", pa.string()),
        pa.field("set", pa.string()),
        pa.field("scheme", pa.string()),
        pa.field("step", pa.int32()),
        pa.field("t_s", pa.float64()),
        pa.field("observation", pa.list_(pa.float32(), len(FEATURE_NAMES))),
        pa.field("action", pa.float32()),
        pa.field("reward", pa.float32()),
        pa.field("is_first", pa.bool_()),
        pa.field("is_last", pa.bool_()),
        pa.field("terminated", pa.bool_()),
        pa.field("truncated", pa.bool_()),
        pa.field("is_kicked", pa.bool_()),
    ]
)
EPISODE_SCHEMA = pa.schema(
    [*(pa.field(column.name, column.dtype) for column in EPISODE_COLUMNS), pa.field("perturbed", pa.bool_())]
)

_FLOATS = ("t_s", "observation.list.element", "action", "reward")


_PARQUET_OPTIONS: Mapping[str, Any] = MappingProxyType(
    {"use_dictionary": ["episode_id", "set", "scheme"], "use_byte_stream_split": list(_FLOATS)}
)


def write(folder: Path, source: PoolSource, advance: Callable[[int], object]) -> str:
    """Write the dataset's files and its card.

    Args:
        folder: where to write them.
        source: the episodes.
        advance: called with the number of rows after each episode.

    Returns:
        Code that reads the result, with `{path}` for its folder.
    """
    datasets = import_library("datasets", "huggingface")
    counts: dict[str, int] = {}  # files per stem: two schemes may share a plain name
    for (set_name, scheme), batches in _by_partition(source, advance):
        stem = f"{plain(set_name)}/{plain(scheme)}"
        with PartWriter(
            folder / "transitions",
            _annotated(datasets, SCHEMA),
            ROW_GROUP_ROWS,
            _PARQUET_OPTIONS,
            stem=stem,
            first=counts.get(stem, 0),
            file_rows=FILE_ROWS,
        ) as out:
            for batch in batches:
                out.write(batch)
        counts[stem] = out.next_number
    rows = [{**row, "perturbed": is_disturbed(row["scheme"])} for row in source.listing]
    table = pa.Table.from_pylist(rows, schema=EPISODE_SCHEMA)
    pq.write_table(table.cast(_annotated(datasets, EPISODE_SCHEMA)), folder / "episodes.parquet", compression="zstd")
    (folder / "README.md").write_text(card(source))
    return "datasets.load_dataset('{path}', split='train')"


def plain(name: str) -> str:
    """Return a name that any file system can hold: a policy's has colons and slashes."""
    return re.sub(r"[^A-Za-z0-9._]+", "_", name)


def _annotated(datasets: Any, schema: pa.Schema) -> pa.Schema:
    """Return the schema with the library's own description of the features in its metadata."""
    result: pa.Schema = datasets.Features.from_arrow_schema(schema).arrow_schema
    return result


def _by_partition(
    source: PoolSource, advance: Callable[[int], object]
) -> Iterator[tuple[tuple[str, str], Iterator[pa.Table]]]:
    episodes = source.episodes(advance)
    for key in source.partitions:
        count = sum((row["set"], row["scheme"]) == key for row in source.listing)
        yield key, (_table(next(episodes)) for _ in range(count))


def _table(episode: PoolEpisode) -> pa.Table:
    rows = len(episode)
    last = np.arange(rows) == rows - 1
    constant = {name: pa.repeat(pa.scalar(episode.about[name]), rows) for name in ("episode_id", "set", "scheme")}
    return pa.table(
        {
            **constant,
            "step": np.arange(rows, dtype=np.int32),
            "t_s": episode.t_s,
            "observation": pa.FixedSizeListArray.from_arrays(episode.observations.ravel(), len(FEATURE_NAMES)),
            "action": episode.actions,
            "reward": episode.rewards,
            "is_first": np.arange(rows) == 0,
            "is_last": last,
            "terminated": np.zeros(rows, np.bool_),
            "truncated": last,
            "is_kicked": episode.is_kicked,
        },
        schema=SCHEMA,
    )


def size_category(rows: int) -> str:
    """Return Hugging Face's name for a number of rows."""
    names = ["1K", "10K", "100K", "1M", "10M", "100M", "1B"]
    edges = [10 ** (3 + index) for index in range(len(names))]
    if rows < edges[0]:
        return f"n<{names[0]}"
    categories = [f"{names[i]}<n<{names[i + 1]}" for i in range(len(names) - 1) if edges[i] <= rows < edges[i + 1]]
    return categories[0] if categories else f"n>{names[-1]}"


def header(rows: int, configs: Sequence[dict[str, Any]]) -> str:
    """Return a card's YAML header."""
    fields = {
        "pretty_name": TITLE,
        "license": LICENCE,
        "task_categories": ["reinforcement-learning"],
        "tags": list(TAGS),
        "size_categories": [size_category(rows)],
        "configs": list(configs),
    }
    return f"---\n{yaml.safe_dump(fields, sort_keys=False, width=120)}---\n"


def card(source: PoolSource) -> str:
    """Return the card of an export."""
    sets = list(dict.fromkeys(row["set"] for row in source.listing))
    files = {"transitions": "transitions/*/*.parquet"}
    files |= {f"set-{plain(name)}": f"transitions/{plain(name)}/*.parquet" for name in sets}
    files["episodes"] = "episodes.parquet"
    configs = [
        {"config_name": name, "data_files": pattern} | ({"default": True} if name == "transitions" else {})
        for name, pattern in files.items()
    ]
    described = conventions(source)
    names = "\n".join(f"{index}. `{name}`" for index, name in enumerate(described.pop("observation_names")))
    facts = "\n".join(f"- `{name}`: {literal_text(str(value))}" for name, value in described.items())
    schemes = ", ".join(literal_text(name) for name in dict.fromkeys(row["scheme"] for row in source.listing))
    return f"""{header(source.rows, configs)}
# {TITLE}

{SUMMARY}

{len(source.listing):,} episodes, {source.rows:,} rows. Sets: {", ".join(map(literal_text, sets))}. Schemes: {schemes}.

Configurations: {", ".join(f"`{name}`" for name in files)}; each has the split `train`.
`episodes` has a row for each episode: network, scheme, seed, goodput, delay, losses, return.

{facts}

After {PAPER}

```bibtex
{CITATION}
```

## Observation

{names}
"""
