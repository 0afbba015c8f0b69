# SPDX-License-Identifier: Apache-2.0
"""The file of the shared key: 256 random bits in hex, for its owner alone."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from sagecc.common.errors import SageccError
from sagecc.common.inputs import read_regular
from sagecc.execution.measure.channel import KEY_BYTES


def make_key(path: Path) -> bool:
    """Make a key where there is none; return whether one was made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return False
    with os.fdopen(handle, "w") as file:
        file.write(secrets.token_hex(KEY_BYTES) + "\n")
    return True


def read_key(path: Path) -> bytes:
    """Return the key.

    Raises:
        SageccError: there is none, others may read it, or it is no key.
    """
    try:
        text = read_regular(path, 4096).decode(errors="replace").strip()
        others = path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    except FileNotFoundError:
        raise SageccError(f"{path}: no key; 'sagecc measure serve' makes one on the other host, copy it here") from None
    if others:
        raise SageccError(f"{path}: others may read the key: chmod 600 {path}")
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise SageccError(f"{path} is no key: it has {KEY_BYTES * 2} hexadecimal digits; copy the server's")
    return key
