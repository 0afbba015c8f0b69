# SPDX-License-Identifier: Apache-2.0
"""The command where a test needs no process of its own, which takes up to two CPU-seconds to start."""

from __future__ import annotations

import pytest

import sagecc.cli as entry


def sagecc_here(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Run `sagecc` in this process; return its exit status, output and errors."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        entry.main([str(argument) for argument in arguments])
    assert isinstance(ended.value.code, int)
    said = capsys.readouterr()
    return ended.value.code, said.out, said.err
