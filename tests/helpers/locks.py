# SPDX-License-Identifier: Apache-2.0
"""Another process that holds locks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HOLD = """
import subprocess, sys, time
from pathlib import Path
from sagecc.common.locks import sole_writer

with sole_writer(*map(Path, sys.argv[1:])):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"], stdout=subprocess.DEVNULL)
    print(child.pid, flush=True)
    sys.stdin.read()
child.kill()
"""


@contextmanager
def another_writer(*folders: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Yield a process that writes the folders, and the id of one that it has started."""
    command = [sys.executable, "-c", HOLD, *map(str, folders)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())
