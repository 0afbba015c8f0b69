# SPDX-License-Identifier: Apache-2.0
"""`sagecc export`: a policy's network as LiteRT and ONNX."""

from __future__ import annotations

from pathlib import Path

import click

from sagecc.common.locks import sole_writer
from sagecc.options import POLICY_FOLDER


@click.command()
@click.argument("policy", type=POLICY_FOLDER)
@click.option("--int8", is_flag=True, help="With 8-bit weights too.")
def command(policy: Path, int8: bool) -> None:
    """Write a policy's network as LiteRT and ONNX files.

    \b
    sagecc export models/mine
    sagecc export models/mine --int8
    sagecc run --scheme policy:models/mine

    They lie next to the weights of POLICY, a folder such as models/mine. 'sagecc train' does this at its end; here it
    is for later, or for 8-bit weights. Each file is run and compared with the weights; the largest differences are
    printed and kept in the policy's card.
    """
    # TensorFlow takes seconds to load: not for --help.
    from sagecc.policy.artefact import PolicyArtefact, add_exports
    from sagecc.policy.export import export

    with sole_writer(PolicyArtefact.load(policy).path):
        artefact = PolicyArtefact.load(policy)  # as it is while nobody else writes it
        files = export(artefact.sizes, artefact.weights, int8)
        add_exports(artefact, files)
    for name, data in files.files.items():
        errors = ", ".join(f"{output} {value:g}" for output, value in files.errors[name].items())
        click.echo(f"{policy / name}  {len(data):,} bytes; largest differences: {errors}")
