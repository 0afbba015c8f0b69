# SPDX-License-Identifier: Apache-2.0
"""`sagecc run`: one episode."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click
import pyarrow.parquet as pq

from collector.episode import Episode, run_episode
from collector.grid import bottleneck
from collector.schemes import POLICY_PREFIX, check_scheme
from execution.agent import policy_controller
from leagues.plots import plot_episode
from sagecc.options import kernel_option
from schemas.environment import CrossFlow, dumbbell
from schemas.errors import SageccError
from schemas.files import write_atomically
from schemas.raw import RAW_VERSION


@click.command()
@click.option("--scheme", required=True, help="A kernel scheme ('sagecc schemes') or policy:PATH.")
@click.option("--bandwidth", type=float, default=48.0, show_default=True, help="Bottleneck rate (Mbps).")
@click.option("--rtt", type=float, default=40.0, show_default=True, help="Minimum RTT (ms), half in each direction.")
@click.option("--queue-bdp", type=float, default=1.0, show_default=True, help="Queue limit in BDPs of the base rate.")
@click.option("--duration", type=float, default=30.0, show_default=True, help="Virtual seconds.")
@click.option(
    "--step", type=float, default=1.0, show_default=True, help="From 17 s on, alternate every 7 s with STEP x."
)
@click.option("--cross", multiple=True, help="A competing flow's scheme, from 0 s on (repeatable).")
@click.option("--start", type=float, default=0.0, show_default=True, help="When the scheme under test starts (s).")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), help="Write the raw trajectory as Parquet.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw rate, delay and cwnd over time as PNG.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@kernel_option()
def command(
    scheme: str,
    bandwidth: float,
    rtt: float,
    queue_bdp: float,
    duration: float,
    step: float,
    cross: tuple[str, ...],
    start: float,
    seed: int,
    out: Path | None,
    plot: Path | None,
    as_json: bool,
    kernel: Path,
) -> None:
    """Run one scheme over one network and print what came out.

    The scheme sends as fast as its window lets it through one bottleneck. Delays are one-way, of the
    data packets, propagation included. The same command gives the same trajectory, byte for byte.
    """
    for name in (scheme, *cross):
        check_scheme(name)
    if any(name.startswith(POLICY_PREFIX) for name in cross):
        raise SageccError("--cross takes kernel schemes only")
    if not step > 0:
        raise SageccError(f"--step must be above 0, not {step:g}")
    for path in (out, plot):
        if path is not None and not path.parent.is_dir():
            raise SageccError(f"{path}: the folder {path.parent} does not exist")
    environment = dumbbell(
        "custom",
        bottleneck(bandwidth, step, rtt, queue_bdp, duration),
        return_delay_ms=rtt / 2,
        duration_s=duration,
        windows_s=((start, duration),),
        reward="friendliness" if cross else "power",
        cross=tuple(CrossFlow(name) for name in cross),
        start_s=start,
    )
    controller = policy_controller(scheme) if scheme.startswith(POLICY_PREFIX) else None
    began = time.perf_counter()
    episode = run_episode(kernel, environment, scheme, seed, controller)
    wall_s = time.perf_counter() - began
    if out is not None:
        meta = {b"sagecc.raw_version": RAW_VERSION.encode()}
        with write_atomically(out) as beside:
            pq.write_table(episode.rows.replace_schema_metadata(meta), beside, compression="zstd")
    if plot is not None:
        plot_episode(episode.rows, plot)
    result = _result(episode, wall_s)
    click.echo(json.dumps(result) if as_json else _text(result))


def _result(episode: Episode, wall_s: float) -> dict[str, object]:
    own = episode.flows[0]
    return {
        "episode_id": episode.id,
        "goodput_mbps": own.goodput_mbps,
        "delay_mean_ms": own.delay_mean_ms,
        "delay_p95_ms": own.delay_p95_ms,
        "loss_rate": own.loss_rate,
        "cwnd_mean": own.cwnd_mean,
        "rtt_mean_ms": float(episode.rows["srtt_us"].to_numpy().mean()) / 1000,
        "wall_s": wall_s,
        "virtual_s": episode.environment.duration_s,
        "sha256": episode.sha256,
        "jain_index": episode.jain_index,
        "flows": [
            {
                "scheme": flow.scheme,
                "goodput_mbps": flow.goodput_mbps,
                "delay_mean_ms": flow.delay_mean_ms,
                "delay_p95_ms": flow.delay_p95_ms,
                "loss_rate": flow.loss_rate,
                "cwnd_mean": flow.cwnd_mean,
            }
            for flow in episode.flows
        ],
    }


def _text(result: dict[str, object]) -> str:
    lines = [
        f"episode    {result['episode_id']}",
        f"goodput    {result['goodput_mbps']:.2f} Mbps",
        f"delay      mean {result['delay_mean_ms']:.2f} ms, 95th percentile {result['delay_p95_ms']:.2f} ms (one way)",
        f"loss       {result['loss_rate']:.4%}",
        f"cwnd       mean {result['cwnd_mean']:.1f} packets",
        f"wall time  {result['wall_s']:.2f} s for {result['virtual_s']:g} virtual s",
        f"sha256     {result['sha256']}",
    ]
    flows = result["flows"]
    assert isinstance(flows, list)
    lines += [f"beside it  {flow['scheme']}: {flow['goodput_mbps']:.2f} Mbps" for flow in flows[1:]]
    if len(flows) > 1:
        lines.append(f"fairness   Jain's index {result['jain_index']:.3f}")
    return "\n".join(lines)
