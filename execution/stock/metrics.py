# SPDX-License-Identifier: Apache-2.0
"""Metrics for Prometheus: its text exposition format over HTTP, which is short enough to need no library."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from sagecc.common.errors import SageccError

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LOOPBACK = "127.0.0.1"
CLIENT_S = 5.0
"""How long a client may take for its request."""


@dataclass(frozen=True)
class Metric:
    """A metric and its values."""

    name: str
    """With its unit; a counter's ends with `_total`."""
    kind: str
    """counter or gauge."""
    help: str
    values: Sequence[tuple[Mapping[str, str], float]]
    """Values by their labels, whose values hold no quote, backslash or newline."""

    def text(self) -> str:
        """Return the metric in the exposition format."""
        rows = [f"{self.name}{_labels(labels)} {value:.17g}" for labels, value in self.values]
        return "\n".join([f"# HELP {self.name} {self.help}", f"# TYPE {self.name} {self.kind}", *rows, ""])


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}" if labels else ""


class MetricsPage:
    """What is served: the metrics of the last `show`."""

    def __init__(self) -> None:
        self.content = b""

    def show(self, metrics: Sequence[Metric]) -> None:
        """Serve these from now on."""
        self.content = "".join(metric.text() for metric in metrics).encode()


@contextmanager
def serving(host: str, port: int) -> Iterator[MetricsPage]:
    """Serve /metrics for as long as the `with` block.

    Raises:
        SageccError: the address cannot be listened at.
    """
    page = MetricsPage()

    class Handler(BaseHTTPRequestHandler):
        timeout = CLIENT_S

        def do_GET(self) -> None:
            content, found = page.content, self.path.partition("?")[0] == "/metrics"
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(content) if found else 0))
            self.end_headers()
            self.wfile.write(content if found else b"")

        def log_message(self, form: str, *arguments: object) -> None:
            """Keep requests out of the log."""

    try:
        server = ThreadingHTTPServer((host, port), Handler)
    except (OSError, OverflowError) as error:
        raise SageccError(f"no metrics can be served at {host}:{port}: {error}") from None
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield page
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of PORT (on loopback) or HOST:PORT; raises ValueError where it is neither."""
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise ValueError(text)
    return host or LOOPBACK, int(port)
