# SPDX-License-Identifier: Apache-2.0
"""Prometheus's text format, and who can read it."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request

import pytest

from sagecc.common.errors import SageccError
from sagecc.execution.stock.metrics import CONTENT_TYPE, Metric, parse_address, serving

BYTES = Metric(
    "sagecc_acked_bytes_total", "counter", "Bytes.", [({"group": "canary"}, 2**53), ({"group": "control"}, 0)]
)
SILENT = Metric("sagecc_agent_silent_seconds", "gauge", "Time.", [({}, 0.25)])
NONE = Metric("sagecc_srtt_seconds", "gauge", "sRTT.", [])


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def test_metrics_are_served_in_prometheus_format() -> None:
    port = free_port()
    with serving("127.0.0.1", port) as page:
        page.show([BYTES, SILENT, NONE])
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            assert answer.headers["Content-Type"] == CONTENT_TYPE
            assert answer.read().decode() == (
                "# HELP sagecc_acked_bytes_total Bytes.\n"
                "# TYPE sagecc_acked_bytes_total counter\n"
                'sagecc_acked_bytes_total{group="canary"} 9007199254740992\n'
                'sagecc_acked_bytes_total{group="control"} 0\n'
                "# HELP sagecc_agent_silent_seconds Time.\n"
                "# TYPE sagecc_agent_silent_seconds gauge\n"
                "sagecc_agent_silent_seconds 0.25\n"
                "# HELP sagecc_srtt_seconds sRTT.\n"
                "# TYPE sagecc_srtt_seconds gauge\n"
            )
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5)
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5)


def test_an_address_that_is_taken_is_named() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(SageccError, match=r"no metrics can be served at 127\.0\.0\.1:\d+: .*in use"),
        serving("127.0.0.1", taken.getsockname()[1]),
    ):
        pass


def test_a_port_alone_is_on_loopback() -> None:
    assert parse_address("9300") == parse_address(":9300") == ("127.0.0.1", 9300)
    assert parse_address("0.0.0.0:80") == ("0.0.0.0", 80)
    for wrong in ("", "host", "host:", "0", "65536", "-1", "1:²"):
        with pytest.raises(ValueError, match=wrong):
            parse_address(wrong)
