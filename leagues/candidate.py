# SPDX-License-Identifier: Apache-2.0
"""A small league for a policy in training: its winning rates over training time (Fig. 7 of the Sage paper)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sagecc.collector.kernel.identity import kernel_identity
from sagecc.collector.run.collect import collect
from sagecc.collector.run.engines import local
from sagecc.common.locks import in_turn
from sagecc.execution.lab.giving_up import GiveUp
from sagecc.leagues.league import PlayOptions, Rules, lab_runner, play
from sagecc.schemas.environment_set import EnvironmentSet
from sagecc.schemas.schemes import POLICY_PREFIX

MEAN_RATE = "winning_rate"
"""The score that is the mean over the sets."""

OPTIONS = PlayOptions(give_up=GiveUp())
"""How a policy in training plays."""


class CandidateLeague:
    """Plays a policy beside heuristics in a set of networks; called as learner.evaluation.Score."""

    def __init__(
        self, networks: EnvironmentSet, schemes: Sequence[str], kernel: Path, heuristics: Path, out: Path, jobs: int
    ) -> None:
        """Look up the kernel; `prepare` collects, a call plays.

        Args:
            networks: where they play.
            schemes: the heuristics.
            kernel: the lab's kernel.
            heuristics: folder of the heuristics' trajectories.
            out: folder of the trajectories of the last policy that played.
            jobs: processes that run episodes.

        Raises:
            SageccError: there is no kernel.
        """
        self._networks, self._schemes, self._kernel = networks, tuple(schemes), kernel
        self._raw, self._out, self._jobs = heuristics, out, jobs
        self._lab = kernel_identity(kernel, {*schemes, POLICY_PREFIX, *self._competitors()})

    @property
    def identity(self) -> str:
        """What decides winning rates beside the policy: environments, schemes, lab, rules."""
        environments = ",".join(e.id for e in self._networks.environments)
        return f"league {environments} {','.join(self._schemes)} {self._lab} {Rules()} {OPTIONS}"

    def prepare(self) -> None:
        """Collect the heuristics' trajectories that are missing; of several processes one does, the others wait."""
        self._raw.mkdir(parents=True, exist_ok=True)
        with in_turn(self._raw, "another process collects what this league's heuristics play: waiting for it"):
            collect(self._networks.environments, self._schemes, self._raw, self._kernel, local(self._jobs))

    def __call__(self, policy: Path, step: int) -> dict[str, float]:
        """Return a policy's winning rates, 0 to 1: over all sets (their mean) and in each.

        Finished episodes of the same policy are not run again. One in which it floods is given up and counts as lost.

        Args:
            policy: the artefact's folder.
            step: of the training; not used.
        """
        scheme = f"{POLICY_PREFIX}{policy}"
        runner = lab_runner(self._kernel, self._jobs, options=OPTIONS)
        league = play(self._networks, (*self._schemes, scheme), self._raw, self._out, runner, options=OPTIONS)
        rates = {row["scheme"]: row["winning_rate"] for row in league.ranking.to_dicts()}
        by_set = {row["set"]: row["winning_rate"] for row in league.standings.to_dicts() if row["scheme"] == scheme}
        return {MEAN_RATE: rates[scheme], **{f"set_{name}": rate for name, rate in sorted(by_set.items())}}

    def _competitors(self) -> set[str]:
        return {cross.scheme for environment in self._networks.environments for cross in environment.cross}
