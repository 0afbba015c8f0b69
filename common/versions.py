# SPDX-License-Identifier: Apache-2.0
# Not followed as an import: a file of another version is refused, and changes nothing.
"""Versions of file formats, MAJOR.MINOR: a reader refuses another major version and reads any minor one."""

from __future__ import annotations


def same_major(version: str, supported: str) -> bool:
    """Tell whether a file of format `version` can be read by a program that writes `supported`."""
    return version.partition(".")[0] == supported.partition(".")[0]
