# SPDX-License-Identifier: Apache-2.0
"""The formats of pictures."""

from __future__ import annotations

from pathlib import Path

from sagecc.common.errors import SageccError

FORMATS = ("png", "svg", "pdf")


def picture_format(path: Path) -> str:
    """Return the one of FORMATS that a path's suffix says; a pipe or a device without a suffix gets PNG.

    Raises:
        SageccError: the suffix says none of them.
    """
    suffix = path.suffix.lower().removeprefix(".")
    if not suffix and (path.is_fifo() or path.is_char_device()):
        return FORMATS[0]
    if suffix not in FORMATS:
        raise SageccError(f"{path}: a picture's name ends in .png, .svg or .pdf")
    return suffix
