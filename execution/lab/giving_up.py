# SPDX-License-Identifier: Apache-2.0
"""Giving up episodes of a policy that floods its link: they cost the most CPU time, and their outcome is known."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sagecc.common.errors import SageccError


class GivenUpError(SageccError):
    """An episode was given up; the message names it and says why."""


@dataclass(frozen=True)
class GiveUp:
    """When an episode is given up."""

    share: float = 0.2
    """Largest share of the packets of the flow under test that its links may drop, above 0 and below 1."""
    time_s: float = 5.0
    """The time over which that share is taken (s), from the flow's first tick on."""

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise SageccError(f"an episode is given up at a share of lost packets between 0 and 1, not {self.share:g}")
        if not 0 < self.time_s < float("inf"):
            raise SageccError(f"an episode is given up after a time above 0 s, not {self.time_s:g} s")

    def __str__(self) -> str:
        return f"more than {100 * self.share:g} % lost in {self.time_s:g} s"


class LossWindow:
    """What was lost of the packets of a flow, or of several together, over the last `time_s`."""

    def __init__(self, give_up: GiveUp) -> None:
        """Start with nothing seen.

        Args:
            give_up: how long the window is, and how much is too much.
        """
        self._give_up = give_up
        self._seen: deque[tuple[int, int, int]] = deque()  # time (ns), packets sent and lost by then

    def flooded(self, t_ns: int, passed: int, lost: int) -> float | None:
        """Take a tick's counters; return the share that was lost where that is too much, else None.

        Args:
            t_ns: time of the tick.
            passed: packets that the links have passed so far.
            lost: packets that they have dropped so far.
        """
        begin_ns = t_ns - round(self._give_up.time_s * 1e9)
        self._seen.append((t_ns, passed + lost, lost))
        while len(self._seen) > 1 and self._seen[1][0] <= begin_ns:
            self._seen.popleft()
        then_ns, sent_before, lost_before = self._seen[0]
        sent = passed + lost - sent_before
        if then_ns <= begin_ns and lost - lost_before > self._give_up.share * sent:
            return (lost - lost_before) / sent
        return None


class LossWatch:
    """Watches an episode's flow under test, where a policy drives it; the flow is number 0."""

    def __init__(self, episode: str, give_up: GiveUp) -> None:
        """Start with nothing seen.

        Args:
            episode: its id, for the message.
            give_up: when it is given up.
        """
        self._episode, self._give_up, self._window = episode, give_up, LossWindow(give_up)

    def check(self, samples: npt.NDArray[np.void]) -> None:
        """Take the driven flows' samples of a tick.

        Raises:
            GivenUpError: the flow under test has lost too much.
        """
        rows = samples[samples["flow"] == 0]
        if not len(rows):
            return
        t_ns, passed, lost = (int(rows[0][name]) for name in ("t_ns", "link_packets", "link_drops"))
        share = self._window.flooded(t_ns, passed, lost)
        if share is not None:
            raise GivenUpError(
                f"episode {self._episode}: given up after {t_ns / 1e9:.1f} s: {100 * share:.0f} % of its packets were "
                f"lost in {self._give_up.time_s:g} s, more than {100 * self._give_up.share:g} %"
            )
