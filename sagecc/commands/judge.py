# SPDX-License-Identifier: Apache-2.0
"""`sagecc judge`: what a pool says of a policy, without playing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sagecc.answers import Row, print_table
from sagecc.command import Command
from sagecc.common.files import write_atomically
from sagecc.common.remote import Place
from sagecc.options import POLICY_FOLDER, POOL, pool_cache_option
from sagecc.paths import LocalPath
from sagecc.places import PLACE, pool_copy

if TYPE_CHECKING:
    from sagecc.learner.judging.judge import PoolJudgement

SHARE = 0.2
"""Of the environments, where no policy names one."""


@click.command(cls=Command)
@click.argument("policies", metavar="POLICY...", type=POLICY_FOLDER, nargs=-1, required=True)
@click.option("--pool", type=PLACE, default=POOL, show_default=True)
@click.option(
    "--validation-share",
    "share",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    metavar="SHARE",
    help="Share of the pool's environments to judge on.  [default: the least that the policies left out in training, "
    f"or {SHARE:g}]",
)
@click.option("--reward", default="graded", show_default=True, help="The reward, a name of pool/reward.py.")
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True)
@pool_cache_option("Where the pool is compiled to; safe to delete.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array, an object for each policy.")
@click.option("-o", "--out", type=LocalPath(dir_okay=False), help="Write that array there too.")
def command(
    policies: tuple[Path, ...],
    pool: Place,
    share: float | None,
    reward: str,
    seed: int,
    cache: Path,
    as_json: bool,
    out: Path | None,
) -> None:
    """Judge policies by a pool's trajectories, without playing.

    \b
    sagecc judge models/mine
    sagecc judge models/mine models/other --pool datasets/kicked/pool
    sagecc judge models/mine --json

    For each set: how near a policy's actions are to the recorded ones, how far they drift apart, and its reward by
    fitted-Q evaluation. It is judged on environments that it did not learn from, if its
    training left any out (data.validation_share).
    """
    from sagecc.common.tensorflow_runtime import configure  # what judges takes time to load: not for --help
    from sagecc.learner.judging.judge import PoolJudge, learned_share
    from sagecc.policy.artefact import PolicyArtefact

    artefacts = [PolicyArtefact.load(folder) for folder in policies]
    learned = [learned_share(artefact) for artefact in artefacts]
    share = share or min((of for of in learned if of), default=SHARE)
    judge = PoolJudge(pool_copy(pool, cache), cache, share, reward, seed)
    configure(seed)
    judgements = []
    for artefact, own in zip(artefacts, learned, strict=True):
        judgements.append(judge.judge(artefact))
        if own is not None and own < share:
            click.echo(f"{artefact.path}: learned from environments that it is judged on", err=True)
    found = [
        {"policy": str(artefact.path), "learned_from_them": own is not None and own < share, **judgement.record()}
        for artefact, own, judgement in zip(artefacts, learned, judgements, strict=True)
    ]
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        with write_atomically(out) as temporary:
            temporary.write_text(json.dumps(found, indent=1) + "\n")
    if as_json:
        click.echo(json.dumps(found))
    else:
        print_table(["set", "measure", *(str(artefact.path) for artefact in artefacts)], _rows(judgements))


def _rows(judgements: Sequence[PoolJudgement]) -> Iterator[list[Row]]:
    """Yield the rows of each set: a measure, and a number for each policy, nothing where it has none of that set."""
    from sagecc.learner.judging.judge import Measures

    for name in sorted({name for judgement in judgements for name in judgement.sets}):
        of_set = [judgement.sets.get(name) for judgement in judgements]
        yield [(name, each.name, *(of and getattr(of, each.name) for of in of_set)) for each in fields(Measures)]
