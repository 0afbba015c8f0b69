# SPDX-License-Identifier: Apache-2.0
"""Every experiment by its name, and the runs of those that are asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from sagecc.common.errors import SageccError
from sagecc.leagues.study.experiments import STUDY, Experiment, StudyRun
from sagecc.leagues.study.papers import PAPERS, with_traces
from sagecc.schemas.schemes import check_scheme

EXPERIMENTS: Mapping[str, Experiment] = MappingProxyType({**STUDY, **PAPERS})
"""By name: those of the study, then figures of papers."""

GROUPS: Mapping[str, tuple[str, ...]] = MappingProxyType({"all": tuple(STUDY), "papers": tuple(PAPERS)})
"""Names that stand for several."""


def experiment(name: str) -> Experiment:
    """Return an experiment by its name; raises SageccError where there is none."""
    if name not in EXPERIMENTS:
        raise SageccError(f"study: no experiment '{name}'; there are {', '.join((*EXPERIMENTS, *GROUPS))}")
    return EXPERIMENTS[name]


def chosen(names: Iterable[str], traces: Path | None = None) -> list[Experiment]:
    """Return the experiments that names and names of groups stand for, each once, over the user's traces if given.

    Raises:
        SageccError: There is no such experiment, or no such folder of traces.
    """
    unique = dict.fromkeys(each for name in names for each in GROUPS.get(name, (name,)))
    experiments = [experiment(name) for name in unique]
    return [with_traces(each, traces) if each.traced and traces else each for each in experiments]


def plan(
    wanted: Iterable[Experiment], schemes: Sequence[str], repeats: int | None = None, quick: bool = False
) -> list[StudyRun]:
    """Return the runs of these experiments; `distinct` leaves one of each network.

    Raises:
        SageccError: There is no such scheme.
    """
    for scheme in schemes:
        check_scheme(scheme)
    return [run for each in wanted for run in each.runs(schemes, repeats, quick)]
