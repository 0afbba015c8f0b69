# SPDX-License-Identifier: Apache-2.0
"""The type of options and arguments that name a file or folder of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sagecc.common.remote import Remote, place


class LocalPath(click.Path):
    """A path of this machine, as a Path; an object store's URL is refused, which would else become a folder's name.

    Args:
        exists: whether it must exist.
        file_okay: whether it may be a file.
        dir_okay: whether it may be a folder.
    """

    def __init__(self, *, exists: bool = False, file_okay: bool = True, dir_okay: bool = True) -> None:
        super().__init__(exists=exists, file_okay=file_okay, dir_okay=dir_okay, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path; end with a usage error where it is a URL, or not as it must be."""
        if isinstance(value, str) and isinstance(place(value), Remote):
            self.fail(f"'{value}' lies in an object store; name a path of this machine, such as a copy", param, ctx)
        return Path(str(super().convert(value, param, ctx)))


PATH = LocalPath()
