# SPDX-License-Identifier: Apache-2.0
"""`sagecc run`: one episode."""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import pyarrow.parquet as pq

from sagecc.collector.lab.episode import Episode, run_episode
from sagecc.collector.lab.spec import driven_flows
from sagecc.collector.realtime.mahimahi import run_mahimahi
from sagecc.command import Command
from sagecc.common.errors import SageccError
from sagecc.common.files import write_atomically
from sagecc.common.shipped import BEST_POLICY
from sagecc.network import environment_from, network_options
from sagecc.options import PICTURE, allow_python_option, kernel_option, named_scheme, policy_options
from sagecc.paths import PATH
from sagecc.schemas.flows import FLOWS_VERSION
from sagecc.schemas.raw import RAW_VERSION
from sagecc.schemas.schemes import TrustedCode
from sagecc.waiting import telling_time


@click.command(cls=Command)
@click.option(
    "--scheme",
    required=True,
    help=f"One of 'sagecc schemes', {BEST_POLICY}, policy:PATH, or python:PATH.py:CLASS.",
)
@network_options
@allow_python_option
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=0, show_default=True)
@click.option(
    "--backend",
    type=click.Choice(["lab", "mahimahi"]),
    default="lab",
    show_default=True,
    help="mahimahi: real mm-delay and mm-link, this machine's own kernel, in real time (docs/method/fidelity.md).",
)
@policy_options
@click.option("-o", "--out", type=PATH, help="Write the raw trajectory as Parquet.")
@click.option("--flows", type=PATH, help="Write the raw trajectories of every flow as Parquet.")
@click.option("--plot", type=PICTURE, help="Draw rate, delay and cwnd over time, as .png, .svg or .pdf.")
@click.option("--plot-flows", type=PICTURE, help="Draw every flow's rate, RTT, window, as .png, .svg or .pdf.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@kernel_option()
def command(
    scheme: str,
    allow_python: bool,
    seed: int,
    backend: str,
    decision_latency: float,
    sample: bool,
    out: Path | None,
    flows: Path | None,
    plot: Path | None,
    plot_flows: Path | None,
    as_json: bool,
    kernel: Path,
    **network: Any,
) -> None:
    """Run one scheme over one network and print what came out.

    \b
    sagecc run --scheme cubic --bandwidth 48mbps --rtt 40ms --plot cubic.svg
    sagecc run --scheme sagecc-10 --cross cubic:2 --json
    sagecc run --scheme bbr2 --trace cellular.down --out bbr2.parquet

    The scheme sends as fast as its window lets it through one bottleneck, or through the network that --environment
    describes. Delays are one-way over the links, of the data packets, propagation included. In the lab, the same
    command gives the same trajectory, byte for byte.
    """
    scheme = named_scheme(scheme)
    environment = environment_from(TrustedCode.named_by([scheme], allow_python), **network)
    for path in (out, flows):
        if path is not None and not path.parent.is_dir():
            raise SageccError(f"{path}: the folder {path.parent} does not exist")
    in_charge = driven_flows(environment, scheme)
    if in_charge and backend != "lab":
        name = next(iter(in_charge.values()))
        raise SageccError(f"--backend {backend} runs schemes of this machine's kernel, not {name}: use the lab")
    if not in_charge and (decision_latency or sample):
        raise SageccError(f"--decision-latency and --sample are for what the host drives, not {scheme}")
    every_flow = flows is not None or plot_flows is not None
    if every_flow and backend != "lab":
        raise SageccError(f"--flows and --plot-flows are for the lab: --backend {backend} keeps the tested flow alone")
    began_s = time.perf_counter()
    with telling_time(f"{environment.duration_s:g} s of the network"):
        if backend != "lab":
            episode = run_mahimahi(environment, scheme, seed)
        elif in_charge:
            from sagecc.execution.lab.controllers import play_episode  # what runs policies takes as long as a run

            latency_us = round(decision_latency * 1000)
            episode = play_episode(
                kernel, environment, scheme, seed, latency_us=latency_us, sample=sample, every_flow=every_flow
            )
        else:
            episode = run_episode(kernel, environment, scheme, seed, every_flow=every_flow)
    wall_s = time.perf_counter() - began_s
    tables = ((out, episode.rows, "raw", RAW_VERSION), (flows, episode.every_flow, "flows", FLOWS_VERSION))
    for path, table, kind, version in tables:
        if path is not None and table is not None:
            with write_atomically(path) as temporary:
                metadata = {f"sagecc.{kind}_version": version}
                pq.write_table(table.replace_schema_metadata(metadata), temporary, compression="zstd")
    _draw(episode, plot, plot_flows)
    result = _result(episode, wall_s)
    click.echo(json.dumps(result) if as_json else _text(result))


def _draw(episode: Episode, plot: Path | None, plot_flows: Path | None) -> None:
    """Save the pictures that are wanted."""
    if plot is None and plot_flows is None:
        return
    from sagecc.leagues.flow_metrics import flow_series
    from sagecc.leagues.plots import bin_width, plot_episode, save_figure  # matplotlib takes as long as a run
    from sagecc.leagues.study.figures import flows_figure

    if plot_flows is not None:
        interval_s = bin_width(episode.environment.duration_s)
        series = flow_series(episode.every_flow, interval_s)
        save_figure(flows_figure(series, episode.environment.id, interval_s=interval_s), plot_flows)
    if plot is not None:
        plot_episode(episode.rows, plot, episode.scheme)


def _result(episode: Episode, wall_s: float) -> dict[str, Any]:
    """Return what --json prints; what no packet was there for is None."""
    environment = episode.environment
    srtt_us = episode.rows["srtt_us"].to_numpy()
    measured_us = srtt_us[srtt_us > 0]  # 0 before the first sample
    flows = [
        {
            "scheme": flow.scheme,
            "goodput_mbps": flow.goodput_mbps,
            "delay_mean_ms": _known(flow.delay_mean_ms),
            "delay_p95_ms": _known(flow.delay_p95_ms),
            "loss_rate": _known(flow.loss_rate),
            "cwnd_mean": _known(flow.cwnd_mean),
            "marked_packets": flow.marked_packets,
            "size_bytes": plan.size_bytes,
            "completion_s": flow.completion_s,
            "limits": asdict(flow.limits) if flow.limits else None,
            "notice": flow.notice,
            "start_s": plan.start_s,
            "stop_s": environment.stop_of(plan),
            "extra_rtt_ms": plan.extra_rtt_ms,
            "links": list(environment.path(plan)),
        }
        for flow, plan in zip(episode.flows, environment.all_flows, strict=True)
    ]
    of_first_flow = ("goodput_mbps", "delay_mean_ms", "delay_p95_ms", "loss_rate", "cwnd_mean", "limits", "notice")
    return {
        "episode_id": episode.id,
        **{name: flows[0][name] for name in of_first_flow},
        "rtt_mean_ms": float(measured_us.mean()) / 1000 if len(measured_us) else None,
        "wall_s": wall_s,
        "virtual_s": environment.duration_s,
        "sha256": episode.sha256,
        "jain_index": episode.jain_index,
        "flows": flows,
    }


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _shown(value: float | None, form: str) -> str:
    return "none" if value is None else form.format(value)


def _text(result: dict[str, Any]) -> str:
    mean, high = (_shown(result[name], "{:.2f} ms") for name in ("delay_mean_ms", "delay_p95_ms"))
    lines = [
        f"episode    {result['episode_id']}",
        f"goodput    {result['goodput_mbps']:.2f} Mbps",
        f"delay      mean {mean}, 95th percentile {high} (one way)",
        f"loss       {_shown(result['loss_rate'], '{:.4%}')}",
        f"cwnd       mean {_shown(result['cwnd_mean'], '{:.1f} packets')}",
        f"wall time  {result['wall_s']:.2f} s for {result['virtual_s']:g} virtual s",
        f"sha256     {result['sha256']}",
    ]
    lines += [_transfer(flow) for flow in result["flows"] if flow["size_bytes"] is not None]
    if marked := [flow for flow in result["flows"] if flow["marked_packets"]]:
        counts = ", ".join(f"{flow['scheme']} {flow['marked_packets']:,}" for flow in marked)
        lines.append(f"marked     {counts} packets")
    for flow in result["flows"][1:]:
        rate, delay = f"{flow['goodput_mbps']:.2f} Mbps", f"delay {_shown(flow['delay_mean_ms'], '{:.2f} ms')}"
        lines.append(f"beside it  {flow['scheme']}: {rate}, {delay}, loss {_shown(flow['loss_rate'], '{:.4%}')}")
    if result["jain_index"] is not None:
        lines.append(f"fairness   Jain's index {result['jain_index']:.3f}, of the flows on this path while all run")
    lines += [f"notice     {flow['scheme']} was {flow['notice']}" for flow in result["flows"] if flow["notice"]]
    return "\n".join(lines)


def _transfer(flow: dict[str, Any]) -> str:
    took = "did not end" if flow["completion_s"] is None else f"took {flow['completion_s'] * 1000:.2f} ms"
    return f"transfer   {flow['scheme']}: {flow['size_bytes']:,} bytes from {flow['start_s']:g} s on {took}"
