# SPDX-License-Identifier: Apache-2.0
"""Strict reader of paths measured over time: a rate, and an RTT and a loss where they were measured, from moments on.

docs/reference/formats.md says what a file may hold, and how public data sets are read.
"""

from __future__ import annotations

import csv
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType

from sagecc.common.errors import SageccError
from sagecc.common.inputs import read_regular
from sagecc.schemas.environment import MAX_MBPS, MAX_MS, MAX_NAME, MIN_MBPS, DelayStep, Link, LossStep, RateStep
from sagecc.schemas.trace_file import TRACE_BYTES

QUANTITIES: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        "time": {"time_s": 1, "time_ms": 1e-3, "time_us": 1e-6, "time": 1},
        "rate": {"rate_mbps": 1, "rate_kbps": 1e-3, "rate_bps": 1e-6, "rate_bytes_per_s": 8e-6, "bytes": 8e-6},
        "elapsed": {"elapsed_s": 1, "elapsed_ms": 1e-3},
        "rtt": {"rtt_ms": 1, "rtt_s": 1e3},
        "loss": {"loss": 1, "loss_percent": 0.01},
    }
)
"""What a column may hold, by kind, and its unit in s, Mbps (bytes: Mbit), ms or as a share; `time` is a date and time.

`bytes` came within `elapsed_...`, which ends at the row's time."""

_KINDS = MappingProxyType({name: kind for kind, units in QUANTITIES.items() for name in units})
_NUMBER = re.compile(r"[-+]?([0-9]{1,20}(\.[0-9]{0,30})?|\.[0-9]{1,30})([eE][-+]?[0-9]{1,2})?")
_EMPTY = ("", "-", "nan")
_G_NETTRACK = "%Y.%m.%d_%H.%M.%S"
"""Dates and times of G-NetTrack, with which several 4G and 5G data sets were taken."""


@dataclass(frozen=True)
class Columns:
    """Which columns of a file hold what."""

    places: Mapping[str, str | int]
    """By kind of QUANTITIES, the column: its name in the first line, or its number from 1."""

    names: Mapping[str, str]
    """By kind, the quantity."""

    only: bool = False
    """Whether a row has these columns and no others."""

    @classmethod
    def parse(cls, text: str) -> Columns:
        """Read `QUANTITY=COLUMN,...`, such as `time_s=time,rate_mbps=2`.

        Raises:
            SageccError: a quantity is unknown, missing, or there twice.
        """
        places: dict[str, str | int] = {}
        names: dict[str, str] = {}
        for part in text.split(","):
            name, equals, column = (piece.strip() for piece in part.partition("="))
            if name not in _KINDS or not equals or not column:
                raise SageccError(f"--columns: '{part}' is no QUANTITY=COLUMN; quantities are {', '.join(_KINDS)}")
            kind = _KINDS[name]
            if kind in names:
                raise SageccError(f"--columns: {names[kind]} and {name} are the same; leave one of them out")
            places[kind] = int(column) if re.fullmatch("[1-9][0-9]{0,3}", column) else column
            names[kind] = name
        for kind in ("time", "rate"):
            if kind not in names:
                raise SageccError(f"--columns: the {kind} is missing; give one of {', '.join(QUANTITIES[kind])}")
        if (names["rate"] == "bytes") != ("elapsed" in names):
            raise SageccError("--columns: bytes and elapsed_ms (or elapsed_s) go together: bytes that came within it")
        return cls(places, names)

    @property
    def named(self) -> bool:
        """Whether the file's first line has names."""
        return any(isinstance(place, str) for place in self.places.values())


SECONDS_MBPS = Columns({"time": 1, "rate": 2}, {"time": "time_s", "rate": "rate_mbps"}, only=True)
"""Two columns: seconds and Mbps."""


@dataclass(frozen=True)
class MeasuredTrace:
    """What was measured, from moments on."""

    name: str
    """The file's name without its last suffix."""

    times_s: tuple[float, ...]
    """Moments from which the values hold, the first 0 (s) [rows]."""

    rates_mbps: tuple[float, ...]
    """Rates, 0 in an outage (Mbps) [rows]."""

    rtts_ms: tuple[float, ...] | None
    """RTTs (ms) [rows]; None where none was measured."""

    losses: tuple[float, ...] | None
    """Shares of packets lost [rows]; None where none was measured."""

    duration_s: float
    """When the last row ends (s)."""

    def __post_init__(self) -> None:
        if not (self.name.isprintable() and len(self.name) <= MAX_NAME):
            raise SageccError(
                f"{self.name[:MAX_NAME]!r}: a trace has a name of {MAX_NAME} printable characters at most"
            )

    def part(self, from_s: float, for_s: float | None) -> MeasuredTrace:
        """Return a part, whose time begins at 0.

        Args:
            from_s: where it begins (s).
            for_s: how long it is (s); None for all that follows.

        Raises:
            SageccError: the trace ends before it does.
        """
        end_s = self.duration_s if for_s is None else from_s + for_s
        if not 0 <= from_s < end_s <= self.duration_s + 1e-9:
            raise SageccError(f"{self.name} lasts {self.duration_s:g} s: {from_s:g} to {end_s:g} s is no part of it")
        steps = slice(bisect_right(self.times_s, from_s) - 1, max(bisect_right(self.times_s, end_s - 1e-9), 1))
        return replace(
            self,
            times_s=tuple(round(max(t_s - from_s, 0.0), 9) for t_s in self.times_s[steps]),
            rates_mbps=self.rates_mbps[steps],
            rtts_ms=self.rtts_ms and self.rtts_ms[steps],
            losses=self.losses and self.losses[steps],
            duration_s=round(end_s - from_s, 9),
        )

    @property
    def mean_mbps(self) -> float:
        """Mean rate (Mbps), outages included."""
        return self._mean(self.rates_mbps)

    @property
    def mean_rtt_ms(self) -> float | None:
        """Mean RTT (ms); None where none was measured."""
        return None if self.rtts_ms is None else self._mean(self.rtts_ms)

    @property
    def outages_s(self) -> float:
        """How long the rate is 0 (s)."""
        return self._mean([float(rate == 0) for rate in self.rates_mbps]) * self.duration_s

    def _mean(self, values: Sequence[float]) -> float:
        lengths_s = (end - start for start, end in pairwise((*self.times_s, self.duration_s)))
        return sum(value * length_s for value, length_s in zip(values, lengths_s, strict=True)) / self.duration_s

    @property
    def steps(self) -> int:
        """How many changes of rate, delay and loss the links have."""
        link, back = self.links(1.0)
        return len(link.rates) + len(link.delays) + len(link.losses) + len(back.delays)

    @property
    def rates(self) -> tuple[RateStep, ...]:
        """The schedule of the rate."""
        return tuple(RateStep(*step) for step in self._changes(self.rates_mbps))

    def links(self, rtt_ms: float) -> tuple[Link, Link]:
        """Return a bottleneck without a queue limit, and its way back; each takes half of the RTT.

        Args:
            rtt_ms: where none was measured (ms).

        Raises:
            SageccError: no link can have these values.
        """
        (_, first_ms), *later = self._changes((rtt_ms,) if self.rtts_ms is None else self.rtts_ms)
        halves = tuple(DelayStep(t_s, round(each_ms / 2, 6)) for t_s, each_ms in later)
        back = Link(delay_ms=round(first_ms / 2, 6), delays=halves)
        (_, first_loss), *later = self._changes(self.losses or (0.0,))
        losses = tuple(LossStep(*step) for step in later)
        return replace(back, rates=self.rates, loss=first_loss, losses=losses), back

    def _changes(self, values: Sequence[float]) -> list[tuple[float, float]]:
        """Return the moments at which a value changes, the first one included, and what it is then."""
        rows = list(zip(self.times_s, values, strict=False))
        return rows[:1] + [row for before, row in pairwise(rows) if row[1] != before[1]]


def read_measured_trace(path: Path, columns: Columns = SECONDS_MBPS) -> MeasuredTrace:
    """Read a file of rows that hold from their times on, each until the next; the last as long as the one before it.

    Columns are separated by commas, semicolons, tabs or spaces, whichever the first row has; `#` begins a comment of a
    whole line. A rate below MIN_MBPS is an outage. A row in which nothing comes through needs no RTT.

    Args:
        path: the file.
        columns: what its columns hold.

    Raises:
        SageccError: the file is none of that kind; the message names file and line.
    """
    rows = [_row(cells, columns, place) for place, cells in _cells(path, columns)]
    if not rows:
        raise SageccError(f"{path}: there is no row in it")
    for before, row in pairwise(rows):
        if row.begin_s <= before.begin_s:
            raise SageccError(f"{row.place}: its time must come after that of the row before; remove one of the two")
    if "elapsed" in columns.names:
        end_s = rows[-1].end_s
    elif len(rows) > 1:
        end_s = 2 * rows[-1].begin_s - rows[-2].begin_s
    else:
        raise SageccError(f"{path}: a trace needs two rows or more: the last one lasts as long as the one before it")
    *times_s, duration_s = (float(round(moment - rows[0].begin_s, 9)) for moment in (*(r.begin_s for r in rows), end_s))
    return MeasuredTrace(
        name=path.stem,
        times_s=tuple(times_s),
        rates_mbps=tuple(row.rate_mbps for row in rows),
        rtts_ms=_rtts(path, rows) if "rtt" in columns.names else None,
        losses=tuple(row.loss for row in rows) if "loss" in columns.names else None,
        duration_s=duration_s,
    )


@dataclass(frozen=True)
class _Row:
    """One row of a file."""

    place: str
    """Path and line, for errors."""
    begin_s: Decimal
    """From when it holds (s)."""
    end_s: Decimal
    """Its time in the file (s)."""
    rate_mbps: float
    rtt_ms: float | None
    """None where nothing came through."""
    loss: float
    """0 where none was measured."""


def _rtts(path: Path, rows: Sequence[_Row]) -> tuple[float, ...]:
    """Return every row's RTT; where there is none, as it was before, at first as it will be."""
    measured_ms = [row.rtt_ms for row in rows if row.rtt_ms is not None]
    if not measured_ms:
        raise SageccError(f"{path}: no row has an RTT; leave its column out and give --rtt")
    rtts_ms, last_ms = [], measured_ms[0]
    for row in rows:
        last_ms = last_ms if row.rtt_ms is None else row.rtt_ms
        rtts_ms.append(last_ms)
    return tuple(rtts_ms)


def _cells(path: Path, columns: Columns) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each row's place, and its cells by kind."""
    try:
        lines = read_regular(path, TRACE_BYTES).decode("utf-8-sig").split("\n")
    except UnicodeDecodeError:
        raise SageccError(f"{path}: not a trace: it is no text") from None
    separator, places = "", dict(columns.places)
    for number, line in enumerate(map(str.strip, lines), 1):
        place = f"{path}, line {number}"
        if not line or line.startswith("#"):
            continue
        first = not separator
        if first:
            separator = next((each for each in ",;\t" if each in line), " ")
        cells = _split(line, separator, place)
        if first and columns.named:
            places = _numbers(cells, columns, place)
            continue
        if columns.only and len(cells) != len(places):
            raise SageccError(
                f"{place}: expected seconds and Mbps such as '12.0 3.5', found '{line[:40]}';"
                " --columns says what other files hold"
            )
        numbers = {}
        for kind, column in places.items():
            if int(column) > len(cells):
                raise SageccError(f"{place}: has {len(cells)} columns, and {columns.names[kind]} is in column {column}")
            numbers[kind] = cells[int(column) - 1].strip()
        yield place, numbers


def _split(line: str, separator: str, place: str) -> list[str]:
    if separator == " ":
        return line.split()
    try:
        return next(csv.reader([line], delimiter=separator, strict=True))
    except csv.Error as error:
        raise SageccError(f"{place}: cannot be split at '{separator}' ({error})") from None


def _numbers(header: list[str], columns: Columns, place: str) -> dict[str, str | int]:
    """Return the columns' numbers from their names in the first line."""
    header = [name.strip() for name in header]
    places: dict[str, str | int] = {}
    for kind, column in columns.places.items():
        if isinstance(column, str) and header.count(column) != 1:
            fault = "there is no column" if column not in header else "there are several columns"
            titles = ", ".join(header)[:300]
            raise SageccError(f"{place}: {fault} '{column}' for {columns.names[kind]}; there are {titles}")
        places[kind] = header.index(column) + 1 if isinstance(column, str) else column
    return places


def _row(cells: Mapping[str, str], columns: Columns, place: str) -> _Row:
    def value(kind: str, low: float, high: float) -> float:
        name = columns.names[kind]
        number = _number(cells[kind], name, place) * QUANTITIES[kind][name]
        if not low <= number <= high:
            unit = QUANTITIES[kind][name]
            raise SageccError(f"{place}: {name} must be {low / unit:g} to {high / unit:g}, not {cells[kind]}")
        return number

    time_s = _time_s(cells["time"], columns.names["time"], place)
    begin_s = time_s
    if "elapsed" in cells:
        elapsed_s = value("elapsed", 1e-6, 86_400)
        begin_s = time_s - Decimal(repr(elapsed_s))
        rate = value("rate", 0, MAX_MBPS * elapsed_s) / elapsed_s
    else:
        rate = value("rate", 0, MAX_MBPS)
    rate = round(rate, 6) if rate >= MIN_MBPS else 0.0
    loss = round(value("loss", 0, 1), 9) if "loss" in cells else 0.0
    rtt_ms, nothing_came = None, rate == 0 or loss == 1
    if "rtt" in cells and not (nothing_came and cells["rtt"].lower() in _EMPTY):
        rtt_ms = round(value("rtt", 0.001, MAX_MS), 6)
    return _Row(place, begin_s, time_s, rate, rtt_ms, loss)


def _number(text: str, name: str, place: str) -> float:
    if not _NUMBER.fullmatch(text):
        raise SageccError(f"{place}: {name}: expected a number such as 12.5, found '{text[:40]}'")
    return float(text)


def _time_s(text: str, name: str, place: str) -> Decimal:
    """Return a time (s), with all its digits: those since 1970 leave a float few."""
    if name != "time":
        _number(text, name, place)
        return Decimal(text) * Decimal(repr(QUANTITIES["time"][name]))
    for read in (datetime.fromisoformat, lambda each: datetime.strptime(each, _G_NETTRACK)):
        try:
            moment = read(text)
        except ValueError:
            continue
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return Decimal(repr(moment.timestamp()))
    raise SageccError(f"{place}: {name}: expected a date and time such as 2024-05-01T12:00:00, found '{text[:40]}'")
