# SPDX-License-Identifier: Apache-2.0
"""Where the rounds of a growing pool lie."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Places:
    """Where a growing pool's files lie."""

    root: Path
    """Folder of all of them."""

    def policy(self, number: int) -> Path:
        """Return the folder of a round's policy."""
        return self._round(number) / "policy"

    def state(self, number: int) -> Path:
        """Return the file with the learner's state at a round's end."""
        return self._round(number) / "state.safetensors"

    def logs(self, number: int) -> Path:
        """Return the folder of a round's checkpoint and metrics."""
        return self._round(number) / "logs"

    def raw(self, number: int) -> Path:
        """Return the folder of a round's raw trajectories."""
        return self._round(number) / "raw"

    def derived(self, number: int) -> Path:
        """Return the folder of the pool of a round's episodes alone."""
        return self._round(number) / "derived"

    def pool(self, number: int) -> Path:
        """Return the folder of the pool with all episodes up to a round's."""
        return self._round(number) / "pool"

    def pool_before(self, number: int, first: Path) -> Path:
        """Return the folder of the pool that a round trains on; `first` is the first round's."""
        return self.pool(number - 1) if number else first

    def _round(self, number: int) -> Path:
        return self.root / f"round-{number}"
