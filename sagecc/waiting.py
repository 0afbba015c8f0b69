# SPDX-License-Identifier: Apache-2.0
"""A line on a terminal that says how long something has taken so far."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tqdm import tqdm

EVERY_S = 0.5


@contextmanager
def telling_time(what: str) -> Iterator[None]:
    """Show `what` and the time since, on standard error where that is a terminal, until the context ends."""
    ended = threading.Event()
    with tqdm(desc=what, bar_format="{desc}: {elapsed}", leave=False, disable=None) as line:

        def tell() -> None:
            while not ended.wait(EVERY_S):
                line.update(0)
                line.refresh()

        teller = threading.Thread(target=tell, daemon=True)
        if not line.disable:
            teller.start()
        try:
            yield
        finally:
            ended.set()
            if teller.is_alive():
                teller.join()
