# SPDX-License-Identifier: Apache-2.0
"""README.md in a pool's folder: what the pool has and how to ask it. No part of the pool's identity (.dvcignore)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from sagecc.common.files import write_atomically
from sagecc.common.markdown import literal_text
from sagecc.common.parquet import read_parquet
from sagecc.schemas.partitions import EPISODES_FILE
from sagecc.schemas.pool import COLUMNS_FILE

README_FILE = "README.md"
TITLE = "# A pool of trajectories of TCP congestion control, by sagecc\n"
"""Its first line; a file with another is somebody's own."""


def write_readme(pool: Path) -> None:
    """Describe a pool in its folder, in place of an earlier description; a README.md of somebody's own stays."""
    path, content = pool / README_FILE, text(pool).encode()
    if is_ours(path) and not (path.exists() and path.read_bytes() == content):
        with write_atomically(path) as temporary:
            temporary.write_bytes(content)


def is_ours(path: Path) -> bool:
    """Tell whether a pool's README.md is one of these, or none is there."""
    return not path.exists() or (path.is_file() and path.read_bytes().startswith(TITLE.encode()))


def text(pool: Path) -> str:
    """Return what describes a whole pool, in Markdown."""
    listing = read_parquet(pool / EPISODES_FILE, columns=["set", "scheme", "rows"])
    columns = read_parquet(pool / COLUMNS_FILE)
    parts = zip(*(listing[name].to_pylist() for name in ("set", "scheme")), strict=True)
    counts = "\n".join(
        f"| {literal_text(name)} | {literal_text(scheme)} | {count} |"
        for (name, scheme), count in sorted(Counter(parts).items())
    )
    return f"""{TITLE}
{listing.num_rows:,} episodes, {pc.sum(listing["rows"]).as_py():,} rows. A row each 10 ms has 69 features of a socket,
what its scheme did to the window, and the reward that followed. `sagecc pool` wrote this; `sagecc pool check` tests it.

```sh
sagecc sql --pool . "SELECT scheme, avg(goodput_mbps), avg(delay_mean_ms) FROM episodes GROUP BY scheme"
```

In Python, `polars.scan_parquet("set=*/scheme=*/part-*.parquet")` has the rows and `{EPISODES_FILE}` the episodes.

| set | scheme | episodes |
|---|---|---:|
{counts}

## Rows

{_columns(columns, "transitions")}

## Episodes

{_columns(columns, "episodes")}
"""


def column_table(columns: Iterable[tuple[str, str, str]]) -> str:
    """Return a table in Markdown of columns: each one's name, unit and meaning."""
    rows = (f"| `{name}` | {unit} | {meaning} |" for name, unit, meaning in columns)
    return "\n".join(("| column | unit | meaning |", "|---|---|---|", *rows))


def _columns(dictionary: pa.Table, table: str) -> str:
    return column_table(
        (row["name"], literal_text(row["unit"]), literal_text(row["formula"]))
        for row in dictionary.to_pylist()
        if row["table"] == table
    )
