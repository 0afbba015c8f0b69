# SPDX-License-Identifier: Apache-2.0
"""What the machine ran out of, whatever library says it."""

from __future__ import annotations

import errno
import subprocess
import sys

import pyarrow as pa
import pytest

from sagecc.cli import errors_in_one_line
from sagecc.common.exhaustion import exhausted


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (MemoryError(), "out of memory"),
        (OSError(errno.ENOMEM, "in any language"), "out of memory"),
        (pa.ArrowMemoryError("malloc of size 64 failed"), "out of memory"),
        (ImportError("liblzma.so: failed to map segment from shared object"), "out of memory"),
        (RuntimeError("can't start new thread"), "out of memory"),
        (RuntimeError("std::bad_alloc"), "out of memory"),
        (ImportError("lib.so: cannot open shared object file: Too many open files"), "too many open files"),
        (ValueError("a room with a boom"), None),
        (KeyError("memory"), None),
    ],
)
def test_it_is_told_by_the_exception(error: Exception, what: str | None) -> None:
    assert exhausted(error) == what


def test_it_is_told_by_what_the_exception_came_from() -> None:
    error = OSError("could not find the library")
    error.__context__ = ImportError("failed to map segment from shared object")
    assert exhausted(error) == "out of memory"


def test_memory_that_ends_while_a_folder_is_read_is_no_error_of_the_folder(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit), errors_in_one_line():
        raise OSError(errno.ENOMEM, "Cannot allocate memory", "/lib/python3.11/multiprocessing")
    assert capsys.readouterr().err.startswith("sagecc: out of memory")


@pytest.mark.parametrize("limit_mb", [400, 700])
def test_a_command_without_memory_ends_in_one_line_of_ours(limit_mb: int) -> None:
    """Where it cannot even load: the limit is in the line, and no traceback."""
    command = [sys.executable, "-P", "-m", "sagecc", "league", "--profile", "smoke"]
    done = subprocess.run(["prlimit", f"--as={limit_mb << 20}", *command], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith(f"sagecc: out of memory ('ulimit -v' allows {limit_mb << 20:,})")


class PanicException(BaseException):
    """As pyo3_runtime's, which no `except Exception` sees."""


def test_a_panic_for_want_of_threads_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped, errors_in_one_line():
        raise PanicException("could not spawn threads: ThreadPoolBuildError { kind: IOError(Os { code: 11 }) }")
    assert stopped.value.code == 2
    assert capsys.readouterr().err.startswith("sagecc: out of memory")


def test_another_panic_is_a_bug_and_stays_one() -> None:
    with pytest.raises(PanicException), errors_in_one_line():
        raise PanicException("index out of bounds")
