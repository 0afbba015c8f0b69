# SPDX-License-Identifier: Apache-2.0
"""Schemes held against conditions: their runs in the lab, and what the worst network of each condition says."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sagecc.common.errors import SageccError
from sagecc.leagues.study.collect import collect, lab_identity
from sagecc.leagues.study.experiments import StudyRun
from sagecc.leagues.study.networks import Cell
from sagecc.leagues.study.runner import check_policies, lab_runner
from sagecc.leagues.vetting.conditions import TESTED, Condition, VettedNetwork
from sagecc.leagues.vetting.measures import INTERVAL_S
from sagecc.schemas.environment import Environment

REFERENCES: Mapping[str, str] = {"cubic": "cubic", "twice cubic": "cubic", "bbr": "bbr"}
"""By what a condition is against, the scheme that it is."""


@dataclass(frozen=True)
class Verdict:
    """What one condition says of one scheme."""

    condition: Condition
    values: Mapping[str, float]
    """By network; without those that failed."""
    failures: Mapping[str, str]
    """Why a network has no value."""

    @property
    def where(self) -> str:
        """The network that decides."""
        return next(iter(self.failures), "") or self.condition.worst(self.values)

    @property
    def value(self) -> float | None:
        """Its number; None where its run failed."""
        return None if self.failures else self.values[self.where]

    @property
    def met(self) -> bool:
        """Whether the scheme meets the condition."""
        return self.value is not None and self.condition.meets(self.value)

    def as_json(self) -> dict[str, Any]:
        """Return what it says, for JSON; an infinite number is None."""
        value = self.value
        return {
            "value": value if value is not None and math.isfinite(value) else None,
            "where": self.where,
            "met": self.met,
            "failures": dict(self.failures),
        }


@dataclass(frozen=True)
class _Needed:
    """The runs behind one number."""

    run: StudyRun
    reference: StudyRun | None


def vet(
    kernel: Path,
    schemes: Sequence[str],
    conditions: Sequence[Condition],
    folder: Path,
    jobs: int,
    progress: bool = True,
) -> dict[str, list[Verdict]]:
    """Hold schemes against conditions.

    Args:
        kernel: path of the lab's kernel.
        schemes: what is vetted.
        conditions: in their order; a scheme is not held against one that does not concern it.
        folder: where runs are kept, so that a later call runs what is missing.
        jobs: processes at a time.
        progress: whether to show a bar, where somebody watches.

    Returns:
        Each scheme's verdicts.

    Raises:
        SageccError: a policy is missing or cannot drive a flow.
    """
    check_policies(schemes)
    needed = {
        (scheme, condition.name, network.label): _needed(condition, network, scheme)
        for scheme in schemes
        for condition in conditions
        if condition.concerns(scheme)
        for network in condition.networks
    }
    runs = [run for each in needed.values() for run in (each.run, each.reference) if run is not None]
    runner, identity = lab_runner(kernel, jobs), lab_identity(kernel)
    collected = collect(runs, runner, folder, identity, progress=progress, title="vet")
    asked: dict[StudyRun, set[str]] = {}
    for (_, name, _), each in needed.items():
        for run in filter(None, (each.run, each.reference)):
            asked.setdefault(run, set()).add(name)
    of_name = {condition.name: condition for condition in conditions}
    numbers = {
        (name, run): of_name[name].measure(series, run.environment)
        for run, series in collected.series()
        for name in asked[run]
    }
    verdicts: dict[str, list[Verdict]] = {}
    for scheme in schemes:
        for condition in conditions:
            if condition.concerns(scheme):
                own = {network.label: needed[scheme, condition.name, network.label] for network in condition.networks}
                verdicts.setdefault(scheme, []).append(_verdict(condition, own, numbers, collected.failures))
    return verdicts


def _verdict(
    condition: Condition,
    needed: Mapping[str, _Needed],
    numbers: Mapping[tuple[str, StudyRun], float],
    failed: Mapping[StudyRun, str],
) -> Verdict:
    values, failures = {}, {}
    for label, each in needed.items():
        reasons = [failed[run] for run in (each.run, each.reference) if run and run in failed]
        if reasons:
            failures[label] = reasons[0]
            continue
        value = numbers[condition.name, each.run]
        if each.reference is not None:
            reference = numbers[condition.name, each.reference]
            value = value - 2 * reference if condition.against == "twice cubic" else value / max(reference, 1e-9)
        values[label] = value
    return Verdict(condition, values, failures)


def _needed(condition: Condition, network: VettedNetwork, scheme: str) -> _Needed:
    run = _run(network.environment, scheme, network.latency_ms)
    if condition.against == "nothing":
        return _Needed(run, None)
    if condition.against != "undisturbed":
        return _Needed(run, _run(network.environment, REFERENCES[condition.against]))
    if network.undisturbed is None:
        raise SageccError(f"condition {condition.name}, {network.label}: has no undisturbed network")
    return _Needed(run, _run(network.undisturbed, scheme))


def _run(environment: Environment, scheme: str, latency_ms: float = 0.0) -> StudyRun:
    cross = tuple(replace(flow, scheme=scheme if flow.scheme == TESTED else flow.scheme) for flow in environment.cross)
    return StudyRun(
        experiment="vet",
        cell=Cell(),
        scheme=scheme,
        repeat=0,
        seed=0,
        environment=replace(environment, cross=cross),
        interval_s=INTERVAL_S,
        competitor="none",
        latency_us=round(latency_ms * 1000),
    )
