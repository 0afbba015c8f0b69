# SPDX-License-Identifier: Apache-2.0
"""`sagecc bound`: a policy again, under another bound on its windows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from sagecc.common.errors import SageccError
from sagecc.common.locks import sole_writer
from sagecc.options import MBPS, POLICY_FOLDER
from sagecc.paths import PATH


@click.command()
@click.argument("policy", type=POLICY_FOLDER)
@click.option("-o", "--out", type=PATH, required=True, help="The other policy's folder.")
@click.option("--window-bound", type=float, metavar="K", help="No bound where this is not given.")
@click.option(
    "--loss", type=float, metavar="SHARE", help="Tighten it where more than this share is lost, such as 0.01."
)
@click.option("--drains", is_flag=True, help="Where it tightened, let the queue drain on short paths too.")
@click.option(
    "--slow",
    "slow_mbps",
    type=MBPS,
    metavar="RATE",
    help="Below this rate count with the lowest RTT, so that no long queue builds up: 0.3mbps.",
)
@click.option(
    "--recovery-floor",
    type=float,
    metavar="SHARE",
    help="While losses are repaired, keep this share of what an RTT delivered, such as 0.5.",
)
def command(
    policy: Path,
    out: Path,
    window_bound: float | None,
    loss: float | None,
    drains: bool,
    slow_mbps: float | None,
    recovery_floor: float | None,
) -> None:
    """Bound a policy's windows by what its path delivers.

    \b
    sagecc bound models/mine --out models/mine-bounded --window-bound 2
    sagecc bound models/mine --out models/careful --window-bound 2 --loss 0.03 --slow 0.3mbps --recovery-floor 0.5
    sagecc league --policy models/mine --policy models/mine-bounded

    Writes POLICY to another folder, its windows bounded by K times what the path delivers in an RTT. The network stays,
    so that a league of both tells what the bound is worth. Without --window-bound the other policy has no bound.
    """
    from sagecc.policy.artefact import PolicyArtefact, write_with_control

    artefact = PolicyArtefact.load(policy)
    if out.exists():
        raise SageccError(f"{out} exists already: name another folder with --out")
    try:
        control = replace(
            artefact.control,
            window_bound=window_bound,
            window_bound_loss=loss,
            window_bound_drains=drains,
            window_bound_slow_mbps=slow_mbps,
            recovery_floor=recovery_floor,
        )
    except ValueError as error:
        raise SageccError(f"the bound: {error}") from None
    with sole_writer(out):
        write_with_control(artefact, out, control)
    click.echo(f"{out}  the network of {artefact.path}")
