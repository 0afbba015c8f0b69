# SPDX-License-Identifier: Apache-2.0
"""Damage to files: to their bytes, to text, to documents (YAML, JSON), to tables (Parquet). The same seed, the same."""

from __future__ import annotations

import io
import json
import math
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

NASTY_TEXTS = (
    *(
        "0",
        "-1",
        "1e-300",
        "1e309",
        "-1e309",
        ".nan",
        ".inf",
        "999999999999999999999999",
        "1_000",
        "0x1F",
        "012",
        "1:30",
    ),
    *("null", "~", "true", "''", "'x'", "[]", "{}", "[1, 2]", "{a: 1}", "2024-01-01", "!!binary aGk=", "!!set {a}"),
    *(
        "!!python/object/apply:os.getcwd []",
        "*nowhere",
        "&a [*a]",
        "&a {<<: *a}",
        "é",
        "\U0001f600",
        "\ufeff",
        "\t",
        "\0",
    ),
    *("%", "@", "`", "- - -", "---", "...", "|", ">", ":", "#", '"', "[" * 300, "{a: " * 150, "9" * 5000, "x" * 70_000),
)
"""What may stand in place of a number or a word."""

NASTY_VALUES: tuple[Any, ...] = (
    *(0, -1, 1, 2**31, 2**63, -(2**63), 10**30, 0.5, -0.0, 1e-300, 1e300, math.nan, math.inf, -math.inf),
    *(None, True, False, "", "x", "12", "../../etc/passwd", "\0", "é" * 100, [], [[]], {}, {"x": 1}, [1, "x", None]),
)
"""What may stand in place of a value of a document."""


TABLE_KINDS = (
    *("column gone", "columns swapped", "column twice", "column more", "name", "type", "value", "value", "missing"),
    *("row gone", "row twice", "rows swapped", "no rows", "metadata", "metadata gone", "version"),
)
"""What may be done to a table."""


def of_bytes(rng: random.Random, data: bytes) -> tuple[str, bytes]:
    """Damage bytes; return what was done and the result, which is another than `data`."""
    kinds: dict[str, Callable[[random.Random, bytes], bytes]] = {
        "bits": _flip,
        "cut": lambda rng, data: data[: rng.randrange(len(data))],
        "cut at the end": lambda rng, data: data[: -rng.randint(1, min(64, len(data)))],
        "overwritten": _overwrite,
        "without a piece": lambda rng, data: _splice(rng, data, b""),
        "with a piece twice": lambda rng, data: _splice(rng, data, None),
        "longer": lambda rng, data: data + rng.randbytes(rng.randint(1, 2000)),
        "empty": lambda rng, data: b"",
        "noise": lambda rng, data: rng.randbytes(rng.randint(1, 4000)),
    }
    weights = (12, 3, 2, 5, 2, 2, 1, 0.3, 0.3)
    (kind,) = rng.choices(list(kinds), weights)
    found = kinds[kind](rng, data)
    return (kind, found) if found != data else ("longer", data + b"\0")


def _flip(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _overwrite(rng: random.Random, data: bytes) -> bytes:
    size = min(rng.choice((1, 4, 64, 512, 4096)), len(data))
    at = rng.randrange(len(data) - size + 1)
    return data[:at] + rng.choice((bytes(size), b"\xff" * size, rng.randbytes(size))) + data[at + size :]


def _splice(rng: random.Random, data: bytes, piece: bytes | None) -> bytes:
    size = min(rng.choice((1, 4, 64, 512)), len(data))
    at = rng.randrange(len(data) - size + 1)
    return data[:at] + (data[at : at + size] * 2 if piece is None else piece) + data[at + size :]


def of_text(rng: random.Random, data: bytes) -> tuple[str, bytes]:
    """Damage a text where it matters: a number, a word, a line."""
    text = data.decode()
    lines = text.split("\n")
    at = rng.randrange(len(lines))
    kind = rng.choice(
        ("number", "number", "number", "word", "line gone", "line twice", "lines swapped", "indent", "bytes")
    )
    if kind in ("number", "word"):
        places = list(re.finditer(r"-?\d+(\.\d+)?" if kind == "number" else r"[A-Za-z_][\w-]*", text))
        if places:
            place = rng.choice(places)
            near = str(round(float(place[0]) * rng.uniform(0, 3), 2)) if kind == "number" else place[0][:-1] + "x"
            put = rng.choice((near, near, rng.choice(NASTY_TEXTS)))
            text = text[: place.start()] + put + text[place.end() :]
            return kind, text.encode(errors="surrogatepass")
    if kind == "line gone":
        del lines[at]
    elif kind == "line twice":
        lines.insert(at, lines[at])
    elif kind == "lines swapped":
        other = rng.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
    elif kind == "indent":
        lines[at] = " " * rng.randint(1, 5) + lines[at]
    else:
        return of_bytes(rng, data)
    return kind, "\n".join(lines).encode()


def of_document(rng: random.Random, data: bytes, name: str) -> tuple[str, bytes]:
    """Damage a YAML or JSON document: a value, a key, a branch."""
    as_json = name.endswith(".json")
    document = json.loads(data) if as_json else yaml.safe_load(data)
    places = list(_places(document))
    kind = rng.choice(("value", "value", "value", "near", "near", "gone", "renamed", "twice"))
    holder: Any = None
    key: Any = None
    if places:
        holder, key = rng.choice(places)
    if not places:
        document = rng.choice(NASTY_VALUES)
    elif kind == "value":
        holder[key] = rng.choice(NASTY_VALUES)
    elif kind == "near":
        holder[key] = _near(rng, holder[key])
    elif kind == "gone":
        del holder[key]
    elif kind == "renamed" and isinstance(holder, dict):
        holder[f"{key}s"] = holder.pop(key)
    elif isinstance(holder, list):
        holder.insert(key, holder[key])
    else:
        holder[key] = [holder[key]]
    text = json.dumps(document) if as_json else yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    return kind, text.encode(errors="surrogatepass")


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    for key, value in list(node.items()) if isinstance(node, dict) else enumerate(node):
        yield node, key
        if isinstance(value, (dict, list)):
            yield from _places(value)


def _near(rng: random.Random, value: Any) -> Any:
    """Return another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + rng.choice((-2, -1, 1, 2, value))
    if isinstance(value, float):
        return value * rng.uniform(-1, 3)
    if isinstance(value, str) and value:
        at = rng.randrange(len(value))
        return value[:at] + rng.choice("abc019-._/ ") + value[at + 1 :]
    return rng.choice(NASTY_VALUES)


def of_table(rng: random.Random, path: Path) -> tuple[str, bytes]:
    """Damage a Parquet file's table and write it anew, whole and with right checksums."""
    table = pq.read_table(path, partitioning=None)
    kind = rng.choice(TABLE_KINDS)
    column, other = rng.randrange(table.num_columns), rng.randrange(table.num_columns)
    row, rows = rng.randrange(max(len(table), 1)), len(table)
    name = table.column_names[column]
    meta = dict(table.schema.metadata or {})
    if kind == "column gone":
        table = table.drop_columns([name])
    elif kind == "columns swapped":
        names = table.column_names
        names[column], names[other] = names[other], names[column]
        table = table.rename_columns(names)
    elif kind == "name":
        table = table.rename_columns([f"{each}_" if each == name else each for each in table.column_names])
    elif kind in ("column twice", "column more"):
        table = table.append_column(name if kind == "column twice" else "more", table[column])
    elif kind == "type":
        table = _cast(rng, table, column)
    elif kind in ("value", "missing"):
        table = _with_value(rng, table, column, row, missing=kind == "missing")
    elif kind == "metadata" and meta:
        key = rng.choice(sorted(meta))
        meta[key] = rng.choice((b"", b"x", b"99.0", meta[key][:-1], b"\xff\xfe", meta[key] * 2))
    elif kind == "version" and meta:
        meta |= {key: b"99.0" for key in meta if key.endswith(b"version")}
    elif kind == "metadata gone":
        meta = {}
    elif kind == "no rows":
        table = table.slice(0, 0)
    else:
        table = _with_rows(rng, kind, table, row, rows)
    sink = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(meta), sink, compression="zstd", write_page_checksum=True)
    return kind, sink.getvalue()


def _cast(rng: random.Random, table: pa.Table, column: int) -> pa.Table:
    kind = rng.choice((pa.string(), pa.float64(), pa.float32(), pa.int64(), pa.int8(), pa.large_string(), pa.binary()))
    field = table.schema.field(column)
    try:
        values = table[column].cast(kind)
    except pa.ArrowException:
        values = pa.nulls(len(table), kind)
    return table.set_column(column, pa.field(field.name, kind, metadata=field.metadata), values)


def _with_value(rng: random.Random, table: pa.Table, column: int, row: int, missing: bool) -> pa.Table:
    field = table.schema.field(column)
    values = table[column].to_pylist()
    if values:
        kind = field.type
        if missing:
            values[row] = None
        elif pa.types.is_floating(kind):
            values[row] = rng.choice((math.nan, math.inf, -math.inf, -1.0, 0.0, 1e30, (values[row] or 0) * 1.5 + 1))
        elif pa.types.is_integer(kind):
            values[row] = rng.choice((0, 1, 127, ((values[row] or 0) + 1) % 128))
        elif pa.types.is_boolean(kind):
            values[row] = not values[row]
        else:
            values[row] = rng.choice(("", "x", f"{values[row]}x", "é"))
    loose = pa.field(field.name, field.type, nullable=True, metadata=field.metadata)
    return table.set_column(column, loose, pa.chunked_array([pa.array(values, field.type)]))


def _with_rows(rng: random.Random, kind: str, table: pa.Table, row: int, rows: int) -> pa.Table:
    order = list(range(rows))
    if kind == "row gone":
        del order[row : row + 1]
    elif kind == "row twice":
        order[row:row] = order[row : row + 1]
    elif order:
        other = rng.randrange(rows)
        order[row], order[other] = order[other], order[row]
    return table.take(pa.array(order, pa.int64()))
