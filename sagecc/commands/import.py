# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: N999 (found by its name and imported through importlib)
"""`sagecc import`: others' policies as artefacts, their trajectories as pools, measured paths as networks."""

from __future__ import annotations

from pathlib import Path

import click

from sagecc.common.errors import SageccError
from sagecc.common.locks import sole_writer
from sagecc.options import ENVIRONMENT_FILE, MILLISECONDS, NUMBER, SECONDS, Decorator
from sagecc.paths import PATH, LocalPath


def _from_checkpoint(name: str) -> Decorator:
    """Add the arguments of a command that makes a policy of a checkpoint."""
    out = click.option(
        "-o",
        "--out",
        type=PATH,
        default=Path("models") / name,
        show_default=True,
        help="Folder of the policy.",
    )
    checkpoint = click.argument("checkpoint", type=PATH)
    return lambda command: checkpoint(out(command))


@click.group(no_args_is_help=False)
def command() -> None:
    """Import trained policies, trajectories and measured paths.

    \b
    sagecc import trace drive.csv --out drive.yaml
    sagecc import trace *.csv --out drives --columns time_s=1,rate_kbps=3
    sagecc import orca checkpoint --out models/orca

    They become policies, pools and networks.
    """


@command.command()
@_from_checkpoint("orca")
def orca(checkpoint: Path, out: Path) -> None:
    """Turn Orca's trained actor into a policy that runs here.

    \b
    sagecc import orca checkpoint
    sagecc import orca checkpoint/model.ckpt-1000 --out models/orca
    sagecc run --scheme policy:models/orca

    It is the actor that Orca's public code (SIGCOMM 2020) trains. CHECKPOINT is a TensorFlow checkpoint: its folder,
    one of its files, or their common beginning. Its licence stays its authors'; the card of the policy says so.
    docs/guide/your-own-scheme.md has the rest.
    """
    # The numeric libraries take a second to load: not for --help.
    from sagecc.execution.schemes.orca.checkpoint import import_checkpoint

    with sole_writer(out):
        policy = import_checkpoint(checkpoint, out)
    click.echo(f"policy   {policy.folder} ({policy.parameters:,} parameters, step {policy.step:,})")


@command.command()
@_from_checkpoint("sage")
@click.option(
    "--without",
    metavar="RULE",
    multiple=True,
    help="Leave out a rule of the public code (repeatable). Rules: acknowledged, held-lost, report-rates,"
    " mean-unacked, requested, decimals, thousandths, ceiling, pacing.",
)
def sage(checkpoint: Path, out: Path, without: tuple[str, ...]) -> None:
    """Turn Sage's published model into a policy that runs here.

    \b
    sagecc import sage checkpoint
    sagecc import sage checkpoint --out models/sage-2 --without pacing
    sagecc run --scheme policy:models/sage

    It is the model that Sage's authors published with their code (SIGCOMM 2023). CHECKPOINT is a TensorFlow checkpoint:
    its folder, one of its files, or their common beginning. It observes and acts as the public code does. Its licence
    stays its authors'; the card of the policy says so. docs/guide/your-own-scheme.md has the rest, and each rule.
    """
    # The numeric libraries take a second to load: not for --help.
    from sagecc.execution.schemes.sage.checkpoint import import_checkpoint

    with sole_writer(out):
        policy = import_checkpoint(checkpoint, out, without)
    click.echo(f"policy   {policy.folder} ({policy.parameters:,} parameters)")


@command.command()
@click.argument("files", nargs=-1, required=True, type=LocalPath(exists=True))
@click.option("-o", "--out", type=PATH, required=True, help="Folder of the pool.")
@click.option(
    "--columns",
    metavar="QUANTITY=COLUMN,...",
    help="FILES are logs with these columns, such as t_s=time,srtt_ms=rtt,cwnd_pkts=cwnd,mss_bytes=1448. CSV or"
    " Parquet, a row each 10 ms (docs/reference/formats.md).",
)
@click.option("--scheme", help="The scheme that set the windows in these logs.")
@click.option("--environment", "network", type=ENVIRONMENT_FILE, help="The network of these logs, a file.")
@click.option("--raw", type=PATH, help="Folder of the raw trajectories that the logs become.")
def pool(
    files: tuple[Path, ...], out: Path, columns: str | None, scheme: str | None, network: Path | None, raw: Path | None
) -> None:
    """Turn others' trajectories, FILES, into a pool.

    \b
    sagecc import pool texts --out datasets/sage
    sagecc import pool *.csv --out mine/pool --raw mine/raw --scheme mine --environment net.yaml --columns t_s=time,...
    sagecc train --pool datasets/sage --out models/mine

    The pool trains and is checked as sagecc's own.
    Without --columns they are texts of Sage's policy collector, 77 columns each, or folders of them
    (*_cwnd.txt, whose names say scheme and network). With --columns they are your own logs: TCP_INFO of a flow over
    time. These are added to the raw trajectories in --raw, from which the pool is derived.
    """
    from sagecc.collector.run.own_logs import LogColumns, import_logs
    from sagecc.pool.derivation import build_pool
    from sagecc.pool.sage_text import import_texts
    from sagecc.schemas.environment_file import load_environment

    about_logs = {"--scheme": scheme, "--environment": network, "--raw": raw}
    if columns is None:
        if given := [name for name, value in about_logs.items() if value]:
            raise SageccError(f"{given[0]} is for logs: give --columns too")
        result = import_texts(files, out)
    else:
        if not (scheme and network and raw):
            missing = next(name for name, value in about_logs.items() if not value)
            raise SageccError(f"--columns: logs need {missing} too")
        import_logs(files, LogColumns.parse(columns), scheme, load_environment(network), raw)
        result = build_pool(raw, out)
    click.echo(f"{result.episodes} episodes, {result.rows:,} rows in {out}; 'sagecc pool check --pool {out}' checks it")


@command.command()
@click.argument("traces", nargs=-1, required=True, type=LocalPath(exists=True, dir_okay=False))
@click.option(
    "-o",
    "--out",
    type=PATH,
    required=True,
    help="The environment file (.yaml or .json); without a suffix a new folder, with a file for each trace and a set.",
)
@click.option(
    "--columns",
    metavar="QUANTITY=COLUMN,...",
    help="Columns by name or number, such as time_s=1,rate_kbps=3,rtt_ms=4,loss=5. Names stand in the first line,"
    " numbers begin at 1; by default time_s=1,rate_mbps=2 (docs/reference/formats.md).",
)
@click.option("--from", "from_s", type=SECONDS, default=0.0, show_default=True, help="Where the part begins.")
@click.option("--for", "for_s", type=SECONDS, help="How long the part is; by default all that follows.")
@click.option("--rtt", type=MILLISECONDS, help="Minimum RTT where none was measured.  [default: 40]")
@click.option("--queue-bdp", type=NUMBER, help="Queue limit in BDPs of the mean rate and RTT.")
@click.option("--queue-packets", type=click.IntRange(min=1), help="Queue limit in packets.  [default: 150]")
@click.option("--mahimahi", is_flag=True, help="Write packet-delivery traces of the rate instead, for Mahimahi.")
def trace(
    traces: tuple[Path, ...],
    out: Path,
    columns: str | None,
    from_s: float,
    for_s: float | None,
    rtt: float | None,
    queue_bdp: float | None,
    queue_packets: int | None,
    mahimahi: bool,
) -> None:
    """Turn TRACES, paths measured over time, into networks.

    \b
    sagecc import trace drive.csv --out drive.yaml
    sagecc import trace *.csv --out drives --columns time_s=1,rate_kbps=3,rtt_ms=4
    sagecc run --scheme cubic --environment drive.yaml

    A trace has lines of seconds and Mbps, or what --columns says: a rate, and an RTT and a loss where they were
    measured. A rate of 0 is an outage. The last row lasts as long as the one before it.
    """
    from sagecc.schemas.measured_trace import SECONDS_MBPS, Columns, read_measured_trace
    from sagecc.traces import Unmeasured, import_traces

    read = SECONDS_MBPS if columns is None else Columns.parse(columns)
    parts = [read_measured_trace(path, read).part(from_s, for_s) for path in traces]
    defaults = Unmeasured(rtt, queue_bdp, queue_packets)
    if mahimahi and defaults != Unmeasured():
        raise SageccError("--mahimahi: Mahimahi's traces have neither an RTT nor a queue; leave these options out")
    files = import_traces(parts, out, None if mahimahi else defaults)
    for part in parts:
        outages = f", outages {part.outages_s:g} s" if part.outages_s else ""
        click.echo(f"{part.name}: {part.duration_s:g} s, mean {part.mean_mbps:.4g} Mbps{outages}")
    click.echo(files)
