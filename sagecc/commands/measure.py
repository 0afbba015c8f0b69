# SPDX-License-Identifier: Apache-2.0
"""`sagecc measure`: schemes over real paths."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import click
from tqdm import tqdm

from sagecc.command import Command
from sagecc.common.errors import SageccError
from sagecc.common.locks import sole_writer
from sagecc.common.shipped import A_POLICY
from sagecc.measured import show_measured
from sagecc.options import MBPS, PICTURE, SECONDS, log_to_stderr, parse_schemes, quiet_option
from sagecc.paths import PATH, LocalPath
from sagecc.schemas.measured import DOWN, UP
from sagecc.schemas.schemes import POLICY_PREFIX

PORT = 5260
HOST = "HOST"
DIRECTIONS = {"both": (UP, DOWN), UP: (UP,), DOWN: (DOWN,)}


class _Hosts(click.Group):
    """A group one of whose commands goes by the name of any host, which that command is called by."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [HOST, "serve"]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, cmd_name if cmd_name in self.commands else HOST)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        return args[0], self.get_command(ctx, args[0]), args[1:]


def _key_file() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "sagecc" / "measure.key"


def _options(command: click.Command) -> click.Command:
    """Add the options that both sides have."""
    command.params += [
        click.Option(
            ["--port"],
            type=click.IntRange(1, 65534),
            default=PORT,
            show_default=True,
            help="Of control, TCP; data take the next one.",
        ),
        click.Option(
            ["--key"],
            type=LocalPath(dir_okay=False),
            default=_key_file,
            show_default="~/.config/sagecc/measure.key",
            help="File of the key that both hosts share; 'sagecc measure serve' makes it.",
        ),
        click.Option(
            ["--stall"],
            type=SECONDS,
            default=10.0,
            show_default=True,
            help="Give a run up when nothing gets through for so long.",
        ),
    ]
    return command


@click.group(cls=_Hosts, no_args_is_help=False)
def command() -> None:
    """Measure schemes over the real path to another host.

    \b
    sagecc measure serve                       # there; makes a key, which you copy here
    sagecc measure example.org --schemes cubic,bbr,policy:sagecc-10 --runs 5 --duration 10
    sagecc compare --measured measured         # all measured paths

    docs/guide/measure.md has the rest.
    """


@command.command(HOST, cls=Command)
@click.option(
    "--schemes",
    required=True,
    help="Comma-separated: schemes of the sending kernel, and policies, which the sending host drives (as root).",
)
@click.option("--runs", type=click.IntRange(1, 10_000), default=5, show_default=True, help="Of each in each direction.")
@click.option("--duration", type=SECONDS, default=10.0, show_default=True, help="Of a run.")
@click.option("--direction", type=click.Choice([*DIRECTIONS]), default="both", show_default=True)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the order of runs.")
@click.option("-o", "--out", type=PATH, show_default="measured/HOST", help="Folder of the path.")
@click.option("--plot", type=PICTURE, help="Draw throughput against delay, as .png, .svg or .pdf.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@quiet_option
def measure_host(
    schemes: str,
    runs: int,
    duration: float,
    direction: str,
    seed: int,
    out: Path | None,
    plot: Path | None,
    as_json: bool,
    quiet: bool,
    port: int,
    key: Path,
    stall: float,
) -> None:
    """Measure schemes on the path to HOST, where serve runs.

    \b
    sagecc measure HOST --schemes cubic,bbr --runs 5 --duration 10
    sudo sagecc measure HOST --schemes cubic,policy:sagecc-10 --direction up --plot plane.svg
    sagecc measure 2001:db8::7 --schemes reno,cubic --out measured/lab

    Schemes take turns in random order, up (from here) and down. Killed, the same command measures what is missing.
    """
    from sagecc.execution.measure.campaign import Campaign, measure
    from sagecc.execution.measure.key import read_key
    from sagecc.execution.measure.runs import PlannedRun

    if not duration > 0 or not stall > 0:
        raise SageccError("--duration and --stall must be above 0")
    names, host = parse_schemes(schemes), str(click.get_current_context().info_name)
    folder = out or Path("measured") / re.sub(r"[^\w.-]", "_", host)
    campaign = Campaign(host, port, names, DIRECTIONS[direction], runs, duration, seed, stall)
    with sole_writer(folder), tqdm(unit="run", leave=False, disable=quiet or None) as bar:

        def show(run: PlannedRun, number: int, count: int) -> None:
            bar.total, bar.n = count, number
            bar.set_description(f"{run.direction} {run.scheme}")

        measure(campaign, read_key(key), folder, lambda line: tqdm.write(line, file=sys.stderr), show)
    show_measured([folder], (), plot, as_json)


@command.command("serve")
@click.option("--address", default="", show_default="all", help="Listen on this address of the host alone.")
@click.option("--max-duration", type=SECONDS, default=60.0, show_default=True, help="Longest run.")
@click.option(
    "--max-rate", type=MBPS, default=1000.0, show_default=True, help="The most that a run may send or receive."
)
@click.option(
    "--sessions", type=click.IntRange(1, 64), default=1, show_default=True, help="Hosts that measure at once."
)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="POLICY",
    help=f"Send by this policy too, as root: {A_POLICY} (repeatable).",
)
def serve(
    address: str,
    max_duration: float,
    max_rate: float,
    sessions: int,
    policies: tuple[str, ...],
    port: int,
    key: Path,
    stall: float,
) -> None:
    """Let who has this host's key measure the path to it.

    \b
    sagecc measure serve
    sagecc measure serve --port 6000 --max-rate 100mbps --max-duration 30s
    sagecc measure serve --address 192.0.2.7 --key measure.key
    sudo sagecc measure serve --policy sagecc-10

    It needs no root but for --policy, opens two ports, for control (TLS) and data, and sends by the kernel's schemes
    that it may use.
    """
    from sagecc.execution.measure.driven import in_kernel
    from sagecc.execution.measure.key import make_key, read_key
    from sagecc.execution.measure.server import LOG, Allowed, MeasureServer

    if not min(max_duration, max_rate, stall) > 0:
        raise SageccError("--max-duration, --max-rate and --stall must be above 0")
    log_to_stderr()
    if make_key(key):
        LOG.info("made a key: copy %s to the host that measures", key)
    schemes = tuple(f"{POLICY_PREFIX}{policy.removeprefix(POLICY_PREFIX)}" for policy in policies)
    for scheme in schemes:  # what cannot be driven is said now
        with in_kernel(scheme):
            LOG.info("%s can drive", scheme)
    allowed = Allowed(max_duration, max_rate, sessions, stall, schemes)
    server = MeasureServer(address, (port, port + 1), read_key(key), allowed)
    LOG.info("serving at ports %d and %d", *server.ports)
    server.run()


for _side in (measure_host, serve):
    _options(_side)
