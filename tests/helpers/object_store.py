# SPDX-License-Identifier: Apache-2.0
"""A store of objects on this machine: moto's S3, from an environment of its own (make build/stores-venv/.locked)."""

from __future__ import annotations

import http.client
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from pyarrow import fs

from tests.conftest import ROOT

PYTHON = ROOT / "build/stores-venv/bin/python"
HOST = "127.0.0.1"


class ObjectStore:
    """A running store; `address` is its host and port."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.files = fs.S3FileSystem(
            access_key="key", secret_key="secret", scheme="http", endpoint_override=address, allow_bucket_creation=True
        )

    def upload(self, folder: Path, bucket: str, key: str) -> str:
        """Put a folder's files into a bucket, which is made; return the URL."""
        self.files.create_dir(bucket)
        fs.copy_files(str(folder), f"{bucket}/{key}", destination_filesystem=self.files)
        return f"s3://{bucket}/{key}"

    @contextmanager
    def asking_for_keys(self) -> Iterator[None]:
        """Refuse whoever has no valid key: nobody has."""
        try:
            self._trust("0")
            yield
        finally:
            self._trust("inf")

    def _trust(self, requests: str) -> None:
        url, kind = f"http://{self.address}/moto-api/reset-auth", {"Content-Type": "text/plain"}
        urllib.request.urlopen(urllib.request.Request(url, requests.encode(), kind)).close()


@contextmanager
def running() -> Iterator[ObjectStore]:
    """Run a store."""
    with socket.socket() as free:
        free.bind((HOST, 0))
        port = free.getsockname()[1]
    command = [str(PYTHON), "-m", "moto.server", "-H", HOST, "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while True:
            assert server.poll() is None, "the store ended"
            with suppress(OSError), socket.create_connection((HOST, port)):
                break
            time.sleep(0.05)
        yield ObjectStore(f"{HOST}:{port}")
    finally:
        server.kill()
        server.wait()


@contextmanager
def breaking_off(store: ObjectStore, within: str) -> Iterator[str]:
    """Yield the address of a way to the store on which the objects of a name break off in the middle."""

    class Way(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._pass()

        def do_HEAD(self) -> None:
            self._pass()

        def _pass(self) -> None:
            behind = http.client.HTTPConnection(store.address)
            behind.request(self.command, self.path, headers=dict(self.headers))
            answer = behind.getresponse()
            body = answer.read()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("connection", "date", "server", "transfer-encoding"):
                    self.send_header(name, value)
            self.end_headers()
            self.close_connection = breaks = self.command == "GET" and within in self.path
            self.wfile.write(body[: len(body) // 2] if breaks else body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer((HOST, 0), Way) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"{HOST}:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
