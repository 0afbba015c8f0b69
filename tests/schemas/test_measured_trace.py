# SPDX-License-Identifier: Apache-2.0
"""Paths measured over time: public data sets' formats as they are documented, and what is none of them.

Rows are made up, in the formats of: Pensieve's traces (SIGCOMM 2017); Norway's HSDPA logs (Riiser et al., MMSys 2013);
Ghent's 4G logs (van der Hooft et al., 2016); UCC's 5G traces, from G-NetTrack (Raca et al., MMSys 2020); Lumos5G
(Narayanan et al., IMC 2020).
"""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagecc.common.errors import SageccError
from sagecc.schemas.environment import DelayStep, LossStep, RateStep
from sagecc.schemas.measured_trace import SECONDS_MBPS, Columns, MeasuredTrace, read_measured_trace
from tests.helpers.messages import facts

PENSIEVE = "0.0\t1.5\n1.0\t2.25\n2.0\t0.0\n3.0\t4.1\n"
HSDPA = """\
1289406399 549692 59.851754 10.781778 250000 1000
1289406400 550792 59.851864 10.781833 275000 1100
1289406401 551792 59.851964 10.781901 0 1000
"""
GHENT = """\
1453121790686 39287 51.0386528885778 3.73220785642186 2500000 1000
1453121791687 40288 51.0386532820580 3.73222847166054 1001000 1001
1453121792686 41287 51.0386553301824 3.73225142858955 0 0999
"""
G_NETTRACK = """\
Timestamp,Longitude,Latitude,Speed,Operatorname,NetworkMode,DL_bitrate,UL_bitrate,State,PINGAVG
2019.12.16_13.40.04,-8.3,51.9,0,B,5G,12500,20,D,-
2019.12.16_13.40.05,-8.3,51.9,0,B,5G,0,0,D,-
2019.12.16_13.40.07,-8.3,51.9,0,B,5G,250000,31,D,-
"""
LUMOS = """\
run_num,seq_num,latitude,nrStatus,Throughput
1,1,44.9,NOT_RESTRICTED,310.5
1,2,44.9,"CONNECTED, LTE",12
1,3,44.9,CONNECTED,0
"""
SATELLITE = """\
# throughput by iperf3, RTT and loss by irtt
time;rtt [ms];loss [%];Mbps
2024-05-01T12:00:00+00:00;40.5;0;150

2024-05-01T12:00:15+00:00;nan;100;80
2024-05-01T12:00:15.500+00:00;;50;0
2024-05-01T12:00:16+00:00;61;0.5;80
"""


def read(folder: Path, text: str, columns: str | None = None) -> MeasuredTrace:
    path = folder / "path.txt"
    path.write_text(text)
    return read_measured_trace(path, Columns.parse(columns) if columns else SECONDS_MBPS)


@pytest.mark.parametrize(
    ("text", "columns", "times_s", "rates_mbps", "duration_s"),
    [
        (PENSIEVE, None, (0, 1, 2, 3), (1.5, 2.25, 0, 4.1), 4),
        (HSDPA, "time_ms=2,bytes=5,elapsed_ms=6", (0, 1, 2.1), (2, 2, 0), 3.1),
        (GHENT, "time_ms=1,bytes=5,elapsed_ms=6", (0, 1, 2.001), (20, 8, 0), 3),
        (G_NETTRACK, "time=Timestamp,rate_kbps=DL_bitrate", (0, 1, 3), (12.5, 0, 250), 5),
        (LUMOS, "time_s=seq_num,rate_mbps=Throughput", (0, 1, 2), (310.5, 12, 0), 3),
        (SATELLITE, "time=time,rate_mbps=4", (0, 15, 15.5, 16), (150, 80, 0, 80), 16.5),
        ("0 1e3\n500000 2.5E+5\n", "time_us=1,rate_bps=2", (0, 0.5), (0.001, 0.25), 1),
        ("1.7e9 125000\n1.700000001e9 0\n", "time_s=1,rate_bytes_per_s=2", (0, 1), (1, 0), 2),
        ("3 8e5 0.5\n", "time_s=1,bytes=2,elapsed_s=3", (0,), (12.8,), 0.5),
    ],
)
def test_formats_of_public_data_sets(
    tmp_path: Path,
    text: str,
    columns: str | None,
    times_s: tuple[float, ...],
    rates_mbps: tuple[float, ...],
    duration_s: float,
) -> None:
    trace = read(tmp_path, text, columns)
    assert (trace.name, trace.times_s, trace.duration_s) == ("path", times_s, duration_s)
    assert trace.rates_mbps == rates_mbps


def test_rtt_and_loss_over_time(tmp_path: Path) -> None:
    """While nothing comes through no RTT is measured: the one before holds. Half of it is in each direction."""
    trace = read(tmp_path, SATELLITE, "time=time,rate_mbps=Mbps,rtt_ms=rtt [ms],loss_percent=loss [%]")
    assert trace.rtts_ms == (40.5, 40.5, 40.5, 61)
    assert trace.losses == (0, 1, 0.5, 0.005)
    link, back = trace.links(7)
    assert link.rates == (RateStep(0, 150), RateStep(15, 80), RateStep(15.5, 0), RateStep(16, 80))
    assert (link.delay_ms, link.delays) == (back.delay_ms, back.delays) == (20.25, (DelayStep(16, 30.5),))
    assert (link.loss, link.losses) == (0, (LossStep(15, 1), LossStep(15.5, 0.5), LossStep(16, 0.005)))
    assert (back.rates, back.loss, back.losses) == ((), 0, ())
    assert trace.mean_rtt_ms == pytest.approx((40.5 * 16 + 61 * 0.5) / 16.5)


def test_an_rtt_that_comes_later_holds_from_the_beginning(tmp_path: Path) -> None:
    assert read(tmp_path, "0,0,-\n1,2,30\n2,3,32\n", "time_s=1,rate_mbps=2,rtt_ms=3").rtts_ms == (30, 30, 32)


def test_without_an_rtt_one_is_given(tmp_path: Path) -> None:
    link, back = read(tmp_path, PENSIEVE).links(60)
    assert (link.delay_ms, link.delays, back.delay_ms, back.delays) == (30, (), 30, ())
    assert (link.loss, link.losses) == (0, ())


def test_rows_that_say_the_same_are_one_step(tmp_path: Path) -> None:
    assert read(tmp_path, "0 1\n1 1\n2 3\n3 3\n4 1\n").rates == (RateStep(0, 1), RateStep(2, 3), RateStep(4, 1))


def test_less_than_a_link_can_have_is_an_outage(tmp_path: Path) -> None:
    trace = read(tmp_path, "0 0.0009\n1 0.001\n")
    assert trace.rates_mbps == (0, 0.001)
    assert (trace.outages_s, trace.mean_mbps) == (1, 0.0005)


def test_a_part_begins_at_0(tmp_path: Path) -> None:
    trace = read(
        tmp_path, "10,1,20,0\n11,2,30,0.1\n12.5,0,40,0.2\n14,4,50,0.3\n", "time_s=1,rate_mbps=2,rtt_ms=3,loss=4"
    )
    part = trace.part(1.5, 1.5)
    assert (part.times_s, part.rates_mbps, part.duration_s) == ((0, 1), (2, 0), 1.5)
    assert (part.rtts_ms, part.losses) == ((30, 40), (0.1, 0.2))
    assert trace.part(0, None) == trace
    assert trace.part(2.5, 1.5).times_s == (0,)  # what begins with its end is no longer in it
    for from_s, for_s in ((-1, None), (5.5, None), (2, 4), (2, 0), (2, float("nan"))):
        with pytest.raises(SageccError, match=r"path lasts 5\.5 s"):
            trace.part(from_s, for_s)


@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 10**6)), min_size=2, max_size=20), st.data())
def test_parts_carry_what_the_whole_does(steps: list[tuple[int, int]], data: st.DataObject) -> None:
    """Capacity is added up over the parts, wherever the trace is cut."""
    moment, lines = 0, []
    for length_ms, kbps in steps:
        lines.append(f"{moment},{kbps}\n")
        moment += length_ms
    with TemporaryDirectory() as folder:
        trace = read(Path(folder), "".join(lines), "time_ms=1,rate_kbps=2")
    cut_s = data.draw(st.integers(1, round(trace.duration_s * 1000) - 1)) / 1000
    whole, *parts = (
        each.mean_mbps * each.duration_s for each in (trace, trace.part(0, cut_s), trace.part(cut_s, None))
    )
    assert sum(parts) == pytest.approx(whole)


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("", None, "path.txt: …no row"),
        ("# nothing\n\n", None, "path.txt: …no row"),
        ("0 1\n", None, "path.txt: …two rows"),
        ("0 1\n1 x\n", None, "line 2: rate_mbps: …number…'x'"),
        ("0 1\n\n# c\n1 nan\n", None, "line 4: rate_mbps: …'nan'"),
        ("0 1\n1 1e999\n", None, "line 2: rate_mbps: …number"),
        ("0 1\n1 -1\n", None, "line 2: rate_mbps must be 0 to 10000, not -1"),
        ("0 1\n1 10001\n", None, "line 2: rate_mbps must be"),
        ("0 1 2\n1 1 2\n", None, "line 1: …seconds and Mbps…'0 1 2'…--columns"),
        ("0 1\n1\n", None, "line 2: …seconds and Mbps"),
        ("1\n2\n3\n", None, "line 1: …seconds and Mbps"),
        ("0,1\n1;1\n", None, "line 2: …seconds and Mbps"),
        ("0 1\n0 2\n", None, "line 2: …time must come after"),
        ("2 1\n1 2\n", None, "line 2: …time must come after"),
        ("0 1\n1 ٣\n", None, "line 2: rate_mbps: …number"),
        ('0,"1\n1,1\n', None, "line 1: cannot be split"),
        ("t,r\n0,1\n1,2\n", "time_s=t,rate_mbps=x", "line 1: there is no column 'x' for rate_mbps; there are t, r"),
        ("t,t\n0,1\n1,2\n", "time_s=t,rate_mbps=2", "line 1: there are several columns 't'"),
        ("0,1\n1\n", "time_s=1,rate_mbps=2", "line 2: has 1 columns, and rate_mbps is in column 2"),
        ("0,1\n1,2\n", "time=1,rate_mbps=2", "line 1: time: …date"),
        ("0,1,\n1,2,3\n", "time_s=1,rate_mbps=2,rtt_ms=3", "line 1: rtt_ms: …number…''"),
        ("0,0,\n1,0,-\n", "time_s=1,rate_mbps=2,rtt_ms=3", "path.txt: no row has an RTT…--rtt"),
        ("0,1,0\n1,2,3\n", "time_s=1,rate_mbps=2,rtt_ms=3", "line 1: rtt_ms must be 0.001 to 10000, not 0"),
        ("0,1,0\n1,2,101\n", "time_s=1,rate_mbps=2,loss_percent=3", "line 2: loss_percent must be 0 to 100, not 101"),
        ("0,1,0\n1,2,1\n", "time_s=1,bytes=2,elapsed_ms=3", "line 1: elapsed_ms must be"),
    ],
)
def test_what_is_no_trace_names_file_and_line(tmp_path: Path, text: str, columns: str | None, message: str) -> None:
    with pytest.raises(SageccError) as raised:
        read(tmp_path, text, columns)
    assert str(tmp_path / "path.txt") in str(raised.value)
    assert re.search(facts(message), str(raised.value)), str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("", "'' is no QUANTITY=COLUMN; quantities are time_s, time_ms"),
        ("time_s", "'time_s' is no"),
        ("time_s=", "'time_s=' is no"),
        ("speed=1", "'speed=1' is no"),
        ("time_s=1", "the rate is missing; give one of rate_mbps, rate_kbps"),
        ("rate_bps=1", "the time is missing"),
        ("time_s=1,time_ms=2,rate_bps=3", "time_s and time_ms are the same"),
        ("time_s=1,rate_mbps=2,bytes=3", "rate_mbps and bytes are the same"),
        ("time_s=1,bytes=2", "bytes and elapsed_ms"),
        ("time_s=1,rate_bps=2,elapsed_s=3", "bytes and elapsed_ms"),
    ],
)
def test_what_are_no_columns(columns: str, message: str) -> None:
    with pytest.raises(SageccError, match=f"--columns: .*{message}"):
        Columns.parse(columns)


@given(st.binary(max_size=80) | st.text("0123456789.,; \t\n#-e", max_size=80).map(str.encode))
def test_any_bytes_are_a_trace_or_one_line_of_error(data: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "path.txt"
        path.write_bytes(data)
        try:
            trace = read_measured_trace(path)
        except SageccError as error:
            assert str(path) in str(error)
        else:
            assert trace.times_s[0] == 0 < trace.duration_s
            assert len(trace.times_s) == len(trace.rates_mbps) > 1
