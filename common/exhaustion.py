# SPDX-License-Identifier: Apache-2.0
"""What the machine ran out of, told by an exception: libraries say it in as many ways as there are libraries."""

from __future__ import annotations

import errno
import re
import resource
from collections.abc import Iterator
from pathlib import Path

_NEARLY_ALL = 0.85

_SIGNS = {
    "out of memory": re.compile(
        r"cannot allocate memory|failed to map segment|bad_alloc|out of memory|unable to allocate|malloc of size"
        r"|can't start new thread|could not spawn threads|resource_exhausted|\boom\b",
        re.IGNORECASE,
    ),
    "too many open files": re.compile(r"too many open files", re.IGNORECASE),
}


def exhausted(error: BaseException) -> str | None:
    """Return what the machine ran out of, in words, if an exception or one behind it is about that."""
    for each in _chain(error):
        if isinstance(each, MemoryError) or (isinstance(each, OSError) and each.errno == errno.ENOMEM):
            return "out of memory"
        for shortage, signs in _SIGNS.items():
            if signs.search(str(each)):
                return shortage
    return "out of memory" if nearly_all_address_space() else None


def nearly_all_address_space() -> bool:
    """Tell whether this process has used most of the address space that it may: then libraries fail in any way."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    peak = re.search(r"VmPeak:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return limit != resource.RLIM_INFINITY and peak is not None and int(peak[1]) * 1024 > _NEARLY_ALL * limit


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and those that it came from."""
    visits: set[int] = set()
    while error is not None and id(error) not in visits:
        visits.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
