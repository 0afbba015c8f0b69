# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import re
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagecc.common.errors import SageccError
from sagecc.schemas.trace_file import read_trace
from tests.conftest import ROOT
from tests.helpers.messages import facts

TRACES = ROOT.parent / "shared" / "traces"
REAL = {
    "ATT-LTE-driving-2016.down": (45_604, 120_002),
    "TMobile-UMTS-driving.down": (156_262, 928_424),
    "trace-2767958-taxi1": (243_157, 170_818),
}
"""Lines (wc -l) and last line (tail -1) of three real traces."""


@pytest.mark.parametrize("name", REAL)
def test_real_traces(name: str) -> None:
    if not (TRACES / name).is_file():
        pytest.skip("the traces are not here")
    trace = read_trace(TRACES / name)
    lines, last = REAL[name]
    assert (len(trace.opportunities_ms), trace.opportunities_ms[-1]) == (lines, last)
    assert trace.mean_mbps == pytest.approx(lines * 12_000 / last / 1000)


def test_every_real_trace_is_read() -> None:
    if not TRACES.is_dir():
        pytest.skip("the traces are not here")
    assert all(0.1 < read_trace(path).mean_mbps < 100 for path in TRACES.iterdir())


@given(st.lists(st.integers(0, 10**6), min_size=1), st.booleans())
def test_what_mahimahi_reads(moments: list[int], newline: bool) -> None:
    moments = [*sorted(moments), max(moments) + 1000]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "up.trace"
        path.write_text("\n".join(map(str, moments)) + ("\n" if newline else ""))
        trace = read_trace(path)
    assert trace.name == "up"
    assert trace.opportunities_ms == tuple(moments)


def test_fractions_of_a_millisecond(tmp_path: Path) -> None:
    path = tmp_path / "fine"
    path.write_text("0.25\n0.5\n10.000001\n")
    assert read_trace(path).opportunities_ms == (0.25, 0.5, 10.000001)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "t: …empty"),
        ("0\n", "t: …0 ms"),
        ("0\n0\n", "t: …0 ms"),
        ("\n", "line 1: …ms…empty"),
        ("1\n\n2\n", "line 2: …ms…empty"),
        ("1\n2\n\n", "line 3: …ms…empty"),
        ("# made by hand\n1\n", "line 1: …ms…'# made by hand'"),
        ("1 # first\n", "line 1: …time"),
        (" 1\n", "line 1: …time"),
        ("1\n-2\n", "line 2: …ms…'-2'"),
        ("1e3\n", "line 1: …time"),
        ("nan\n", "line 1: …time"),
        ("1.\n", "line 1: …time"),
        ("5\n4\n", "line 2: …4…5"),
        ("1 2\n", "line 1: …time"),
        ("9" * 30 + "\n", "line 1: …time"),
        ("1." + "9" * 99 + "\n", "line 1: …time"),
        ("\x1b[2J\n", "line 1: …time"),
        ("90000000\n", "t: …0 ms…day"),
        ("٣\n", "t: not a trace"),
        ("\0\n", "line 1: …time"),
    ],
)
def test_bad_traces_name_file_and_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "t"
    path.write_text(text)
    with pytest.raises(SageccError) as raised:
        read_trace(path)
    assert str(path) in str(raised.value)
    assert re.search(facts(message), str(raised.value))
    assert "\n" not in str(raised.value)


def test_what_editors_of_other_systems_write(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b"\xef\xbb\xbf1\r\n2\r\n")
    assert read_trace(tmp_path / "t").opportunities_ms == (1, 2)


def test_what_is_no_regular_file(tmp_path: Path) -> None:
    (tmp_path / "t").touch()
    os.truncate(tmp_path / "t", 2**40)
    for path, words in ((tmp_path / "t", "at most 67,108,864 are read"), (Path("/dev/zero"), "is a device")):
        with pytest.raises(SageccError, match=words):
            read_trace(path)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_trace_or_one_line_of_error(data: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "t"
        path.write_bytes(data)
        try:
            trace = read_trace(path)
        except SageccError as error:
            assert str(path) in str(error)
        else:
            assert trace.opportunities_ms[-1] > 0
