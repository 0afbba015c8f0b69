# SPDX-License-Identifier: Apache-2.0
"""The control channel: JSON messages over TLS 1.3 between two hosts that share a key.

The server makes a certificate for itself at each start, which no authority signs. Instead, each side proves that it has
the key and sees this very certificate: HMAC-SHA-256 by the key of its role, both nonces and the certificate's SHA-256,
the channel binding `tls-server-end-point` (RFC 5929, section 4.1). Whoever sits in between has another certificate, so
that a proof passed on is of another channel, and refused (RFC 5056, section 3). Nonces make each proof new, the role
keeps it from being sent back. The client proves first: a stranger learns from a server its version, and nothing else.
A key is 256 random bits, so that a proof gives nothing to guess by.

A message is its length (4 bytes, big-endian) and its bytes; a message in JSON may announce arrays that follow it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import socket
import ssl
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sagecc.common.errors import SageccError
from sagecc.common.optional import requires_extra

PROGRAM, PROTOCOL = "sagecc measure", 1
KEY_BYTES = 32
STRANGER_BYTES, STRANGER_S = 4096, 10.0
"""Longest message of who has not proved to have the key, and the time that it may take (s)."""
MESSAGE_BYTES = 1 << 16
"""Longest message in JSON."""
ARRAY_BYTES = 1 << 28
"""Longest array."""
CLIENT, SERVER = b"client", b"server"
CERTIFICATE_DAYS = 3650

Message = dict[str, Any]


class LostError(SageccError):
    """The other host is gone, or silent for too long."""


class ControlChannel:
    """One end of a control channel."""

    def __init__(self, sock: socket.socket, peer: str, certificate_sha256: bytes) -> None:
        """Take over a connection on which TLS is up.

        Args:
            sock: the connection.
            peer: the other host, for messages.
            certificate_sha256: of the server's certificate (DER).
        """
        self._sock, self._peer, self._binding = sock, peer, certificate_sha256
        self._limit = STRANGER_BYTES
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        """Close the connection."""
        self._sock.close()

    def set_timeout(self, timeout_s: float) -> None:
        """Set for how long the other host may be silent (s)."""
        self._sock.settimeout(timeout_s)

    def send(self, message: Mapping[str, Any], **arrays: bytes) -> None:
        """Send a message, and arrays after it.

        Raises:
            LostError: the other host is gone.
        """
        if arrays:
            message = {**message, "arrays": list(arrays)}
        with self._losing():
            for part in (json.dumps(message).encode(), *arrays.values()):
                self._sock.sendall(len(part).to_bytes(4, "big"))
                self._sock.sendall(part)

    def receive(self) -> Message:
        """Return the next message.

        Raises:
            LostError: the other host is gone, or silent for too long.
            SageccError: what it sends is no message; or it is an error, whose text this is.
        """
        try:
            message = json.loads(self._part(self._limit))
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            raise SageccError(f"{self._peer} is no '{PROGRAM}': what it sends is no message of it")
        if "error" in message:
            raise SageccError(f"{self._peer} says: {message['error']}")
        return message

    def receive_arrays(self) -> tuple[Message, dict[str, bytes]]:
        """Return the next message and the arrays that it announces; errors are those of `receive`."""
        message = self.receive()
        names = message.get("arrays", [])
        if not isinstance(names, list) or len(names) > 8 or not all(isinstance(name, str) for name in names):
            raise SageccError(f"{self._peer} announces what are no arrays")
        return message, {name: self._part(ARRAY_BYTES) for name in names}

    def welcome(self, key: bytes) -> None:
        """As the server, make sure that the client has the key, and prove to have it.

        Raises:
            LostError: the client is gone, or silent for too long.
            SageccError: it is no client, or has another key.
        """
        own = secrets.token_bytes(KEY_BYTES)
        self.send(_hello(own))
        answer = self.receive()
        theirs = self._nonce(answer)
        if not hmac.compare_digest(self._proof(key, CLIENT, own, theirs), str(answer.get("proof"))):
            self.send({"error": "the keys differ: copy the server's key file to this host"})
            raise SageccError(f"{self._peer} has another key")
        self.send({"proof": self._proof(key, SERVER, own, theirs)})
        self._limit = MESSAGE_BYTES

    def introduce(self, key: bytes) -> None:
        """As the client, prove to have the key, and make sure that the server has it.

        Raises:
            LostError: the server is gone, or silent for too long.
            SageccError: it is no server, has another version, or another key.
        """
        try:
            theirs = self._nonce(self.receive())
        except LostError as error:
            raise LostError(f"{self._peer} is no '{PROGRAM} serve': it says nothing ({error})") from None
        own = secrets.token_bytes(KEY_BYTES)
        self.send({**_hello(own), "proof": self._proof(key, CLIENT, theirs, own)})
        proof = str(self.receive().get("proof"))
        if not hmac.compare_digest(self._proof(key, SERVER, theirs, own), proof):
            raise SageccError(f"{self._peer} does not have this host's key: copy the server's key file to this host")
        self._limit = MESSAGE_BYTES

    def _nonce(self, hello: Message) -> bytes:
        """Return the nonce of the other side's first message, after checking who says it."""
        if hello.get("program") != PROGRAM:
            raise SageccError(f"{self._peer} is no '{PROGRAM}'")
        if hello.get("protocol") != PROTOCOL:
            raise SageccError(
                f"{self._peer} speaks version {str(hello.get('protocol'))[:20]} of '{PROGRAM}', this host {PROTOCOL}:"
                " install the same sagecc on both"
            )
        try:
            nonce = bytes.fromhex(hello["nonce"])
        except (KeyError, TypeError, ValueError):
            nonce = b""
        if len(nonce) != KEY_BYTES:
            raise SageccError(f"{self._peer} is no '{PROGRAM}': its nonce is none")
        return nonce

    def _proof(self, key: bytes, role: bytes, server_nonce: bytes, client_nonce: bytes) -> str:
        text = b"".join((PROGRAM.encode(), b"\0", role, server_nonce, client_nonce, self._binding))
        return hmac.new(key, text, hashlib.sha256).hexdigest()

    def _part(self, limit: int) -> bytes:
        length = int.from_bytes(self._exactly(4), "big")
        if length > limit:
            raise SageccError(f"{self._peer} is no '{PROGRAM}': it announces {length:,} bytes, {limit:,} are the most")
        return self._exactly(length)

    def _exactly(self, count: int) -> bytes:
        part, until_s = bytearray(), time.monotonic() + STRANGER_S
        with self._losing():
            while len(part) < count:
                if self._limit == STRANGER_BYTES and time.monotonic() > until_s:
                    raise LostError(f"{self._peer} takes more than {STRANGER_S:g} s for a message")
                received = self._sock.recv(min(count - len(part), 1 << 20))
                if not received:
                    raise LostError(f"{self._peer} has closed the connection")
                part += received
        return bytes(part)

    @contextmanager
    def _losing(self) -> Iterator[None]:
        """Turn errors of the connection into LostError."""
        try:
            yield
        except TimeoutError:
            raise LostError(f"{self._peer} is silent for {self._sock.gettimeout():g} s") from None
        except OSError as error:
            raise LostError(f"the connection to {self._peer} broke: {error.strerror or error}") from None


def _hello(nonce: bytes) -> Message:
    return {"program": PROGRAM, "protocol": PROTOCOL, "nonce": nonce.hex()}


class ServerIdentity:
    """The certificate of a server, made at its start."""

    def __init__(self) -> None:
        """Make the certificate; raises SageccError where the library for it is missing."""
        with requires_extra("measure"):
            from cryptography import x509
            from cryptography.hazmat.primitives import hashes, serialization
            from cryptography.hazmat.primitives.asymmetric import ec
        private = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, PROGRAM)])
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(private.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=CERTIFICATE_DAYS))
            .sign(private, hashes.SHA256())
        )
        pem = serialization.Encoding.PEM
        secret = private.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        self._sha256 = hashlib.sha256(certificate.public_bytes(serialization.Encoding.DER)).digest()
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_3
        with tempfile.NamedTemporaryFile() as file:  # OpenSSL reads files alone
            Path(file.name).write_bytes(secret + certificate.public_bytes(pem))
            self._context.load_cert_chain(file.name)

    def accept(self, sock: socket.socket, peer: str) -> ControlChannel:
        """Return the channel to a client that has connected.

        Raises:
            SageccError: it speaks no TLS.
        """
        return ControlChannel(_secured(self._context, sock, peer, is_server=True), peer, self._sha256)


def connect(sock: socket.socket, peer: str) -> ControlChannel:
    """Return the channel to a server, to be authenticated by `introduce`.

    Args:
        sock: a connection to it.
        peer: its name, for messages.

    Raises:
        SageccError: it speaks no TLS 1.3.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # the key says who it is, see above
    secured = _secured(context, sock, peer, is_server=False)
    certificate = secured.getpeercert(binary_form=True) or b""
    return ControlChannel(secured, peer, hashlib.sha256(certificate).digest())


def _secured(context: ssl.SSLContext, sock: socket.socket, peer: str, is_server: bool) -> ssl.SSLSocket:
    try:
        return context.wrap_socket(sock, server_side=is_server)
    except (OSError, ValueError) as error:  # ValueError: gone meanwhile
        sock.close()
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise SageccError(f"{peer} is no '{PROGRAM}': it speaks no TLS 1.3 ({reason})") from None
