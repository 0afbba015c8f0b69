# SPDX-License-Identifier: Apache-2.0
"""Writes docs/measured/benchmarks.md from benchmarks/results/*.json: no figure there is typed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import studies
from benchmarks.machine import RESULTS
from sagecc.common.files import write_atomically

PAGE = Path("docs/measured/benchmarks.md")
FOLDERS = (RESULTS, studies.RESULTS)
HEAD = """# Benchmarks

Made by `make bench`: every figure comes from a file under `benchmarks/results/` (speed) or `studies/results/`
(behaviour).
Absolute figures hold for the machine named with them.
"""


def collect(result: dict[str, Any]) -> str:
    """Return the collector's section."""
    rows = "\n".join(
        f"| {r['scheme']} | {r['rate_mbps']} | {r['virtual_s_per_cpu_s']:.0f} | {r['us_per_packet']:.2f} |"
        for r in result["episodes"]
    )
    grid = result["grid"]
    return f"""## Collecting (`make bench-collect`)

One pinned core; flat link, 40 ms, 1 BDP, 30 virtual seconds; CPU time of guest and host side together.

| scheme | Mbps | virtual s a CPU-second | microseconds a data packet |
|---|---:|---:|---:|
{rows}

{against_ns3(result["ns3"])}

- Fixed cost of an episode (0.05 virtual seconds): {result["fixed_s"]:.3f} CPU-seconds.
- The whole grid, {grid["episodes"]:,} episodes, estimated from {grid["sampled"]} of its environments:
  {grid["cpu_hours"]:.1f} CPU-hours.
"""


def against_ns3(result: dict[str, Any]) -> str:
    """Return the comparison with ns-3, or why there is none."""
    if "missing" in result:
        return f"ns-3 was not compared: {result['missing']}."
    rows = "\n".join(
        f"| {r['rate_mbps']} | {r['lab_virtual_s_per_cpu_s']:.0f} | {r['ns3_virtual_s_per_cpu_s']:.1f} "
        f"| {r['ratio']:.1f} | {r['lab_goodput_mbps']:.1f} | {r['ns3_goodput_mbps']:.1f} |"
        for r in result["rows"]
    )
    return f"""The same dumbbell in ns-3 {result["version"]} with its own TCP (Cubic, SACK), in turn with the lab on
the same core. Two nodes and one cable in both; ns-3 samples and stores nothing.

| Mbps | lab, virtual s a CPU-second | ns-3 | times as fast | lab, goodput Mbps | ns-3 |
|---:|---:|---:|---:|---:|---:|
{rows}"""


def full(result: dict[str, Any]) -> str:
    """Return the section on the full grid."""
    raw, pool, times = (result[name] for name in ("raw", "pool", "times"))
    collecting, deriving = times["collect"], times["pool"]
    return f"""## The full grid (`make full`)

| | episodes | rows | bytes on disk | CPU | wall |
|---|---:|---:|---:|---:|---:|
| raw trajectories | {raw["episodes"]:,} | {raw["rows"]:,} | {raw["bytes"] / 1e9:.2f} GB \
| {collecting["cpu_s"] / 3600:.2f} h | {collecting["wall_s"] / 60:.0f} min |
| pool | {pool["episodes"]:,} | {pool["rows"]:,} | {pool["bytes"] / 1e9:.2f} GB \
| {deriving["cpu_s"] / 60:.1f} min | {deriving["wall_s"] / 60:.1f} min |

CPU seconds of guests, host side and writing together. Wall times are those of a machine that did other work meanwhile.
"""


def memory(result: dict[str, Any]) -> str:
    """Return the section on a running episode's memory."""
    rows = "\n".join(
        f"| {r['environment']} | {r['scheme']} | {r['guest_mb']:.0f} | {r['collector_mb']:.0f} "
        f"| {r['guest_mb'] + r['collector_mb']:.0f} |"
        for r in result["episodes"]
    )
    return f"""## Memory of a running episode (`make bench-memory`)

Peaks in MB (millions of bytes). Guest: the kernel, what it touched of the file that is its memory, and its traced
process, as /proc/PID/smaps_rollup has them. Collector: the resident memory of the Python process that reads, decodes
and stores what the guest sends, libraries that several of them share included.

| environment | scheme | guest | collector | together |
|---|---|---:|---:|---:|
{rows}
"""


def fidelity(result: dict[str, Any]) -> str:
    """Return the section that holds the lab against the host's own kernel."""
    rows: list[str] = []
    within: dict[str, Counter[str]] = {"goodput_mbps": Counter(), "queueing_ms": Counter()}
    for r in result["episodes"]:
        cells = [r["scheme"], f"{r['rate_mbps']:g}", f"{r['rtt_ms']:g}", f"{r['queue_bdp']:g}"]
        for figure, bound in (("goodput_mbps", 0.02), ("queueing_ms", 0.1)):
            real = [run[figure] for run in r["host"]]
            within[figure][r["scheme"]] += abs(r[f"{figure}_apart"]) <= bound
            cells += [f"{r['lab'][figure]:.2f}", f"{median(real):.2f} ({min(real):.2f}-{max(real):.2f})"]
            cells += [f"{r[f'{figure}_apart']:+.1%}", f"{r[f'{figure}_apart_calmest']:+.1%}"]
        rows.append(f"| {' | '.join(cells)} | {r['lab_with_jitter']['queueing_ms']:.2f} |")
    lines, runs = "\n".join(rows), [run for r in result["episodes"] for run in r["host"]]
    p99_us, max_us = ([run[way][key] for run in runs for way in ("there", "back")] for key in ("p99_us", "max_us"))
    loads = [run["load"] for run in runs]
    quarters = "\n".join(
        f"| {kind} | {q['stalled_ms'][0]:.0f}-{q['stalled_ms'][1]:.0f} "
        f"| {q['goodput_mbps_apart']:.2%} | {q['queueing_ms_apart']:.1%} |"
        for kind, calmness in result["calmness"].items()
        for q in calmness
    )
    each = ", ".join(f"{scheme} {count}" for scheme, count in within["queueing_ms"].items())
    notices = "".join(
        f"- A run of {r['scheme']} at {r['rate_mbps']:g} Mbps, {r['rtt_ms']:g} ms, {r['queue_bdp']:g} BDP was "
        f"{run['notice']}.\n"
        for r in result["episodes"]
        for run in r["host"]
        if run.get("notice")
    )
    return f"""## The lab and this machine's own kernel (`make bench-fidelity`)

Flat links for {result["duration_s"]:g} s, in the lab and in real time on the host's kernel (network namespaces, tbf, a
delay line in user space). Host: median (lowest-highest) of {result["repeats"]} runs. Apart: lab over host - 1, for the
median, and for the calmest run, in which tbf stalled least. Queueing: mean, transmission included. Jittered: the lab
with jitter as far as 99 % of the delay line's packets were off.
[Fidelity](../method/fidelity.md) says how it was measured and what explains the differences.

| scheme | Mbps | RTT ms | queue BDP | lab Mbps | host Mbps | apart | calmest \
| lab queueing ms | host ms | apart | calmest | jittered ms |
|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|
{lines}

The same runs in quarters, by how long tbf stalled with packets waiting (pauses above 1 ms, summed):

| schemes | stalled, ms | goodput apart, median | queueing apart, median |
|---|---:|---:|---:|
{quarters}

- Goodput within 2 %: {within["goodput_mbps"].total()} of {len(rows)} networks.
- Mean queueing delay within 10 %: {within["queueing_ms"].total()} of {len(rows)} networks ({each}).
- The delay line's error, 99th percentile: {median(p99_us):.0f} microseconds in the median run, {max(p99_us):.0f} in the
  worst. Its longest stall: {median(max_us) / 1000:.0f} ms in the median run, {max(max_us) / 1000:.0f} in the worst.
- The machine's load average was {min(loads):.1f} to {max(loads):.1f} meanwhile.
{notices}"""


def profile(result: dict[str, Any]) -> str:
    """Return the section on where the guest's CPU time goes."""
    shares: dict[str, dict[str, float]] = result["shares"]
    last = list(shares.values())[-1]
    groups = sorted({name for found in shares.values() for name in found}, key=lambda n: -last.get(n, 0))
    rows = "\n".join(
        f"| {name} | " + " | ".join(f"{found.get(name, 0) * 100:.0f} %" for found in shares.values()) + " |"
        for name in groups
    )
    return f"""## Where a guest's CPU time goes (`make bench-profile`)

perf's samples of the guest, by groups of function names, so good to a percent or two. Cubic, 40 ms, 1 BDP, 60 virtual
seconds; "start and end" is an episode of 0.05 virtual seconds. What the groups mean: [the virtual-time
kernel](../method/virtual-time-kernel.md#what-it-costs).

| | {" | ".join(shares)} |
|---|{"---:|" * len(shares)}
{rows}
"""


def execution(result: dict[str, Any]) -> str:
    """Return the section on a policy's steps."""
    batches = sorted({row["batch"] for row in result["rows"]})
    cells: dict[tuple[str, str], list[str]] = {}
    for r in result["rows"]:
        cells.setdefault((r["configuration"], r["runtime"]), []).append(f"{r['p50_ms']:.3g} ({r['p99_ms']:.3g})")
    rows = "\n".join(
        f"| {name} | {result['parameters'][name]:,} | `{runtime}` | {' | '.join(found)} |"
        for (name, runtime), found in cells.items()
    )
    largest = {
        kind: max(value for errors in result["errors"].values() for value in errors[kind].values())
        for kind in next(iter(result["errors"].values()))
    }
    far = ", ".join(f"`{kind}` {value:g}" for kind, value in largest.items())
    return f"""## A policy's step (`make bench-execution`)

One core; scaling and network of one decision for a batch of flows; milliseconds, median (99th percentile).
[The learner](../method/learner.md#runtimes) says what the runtimes are.

| network | parameters | runtime | {" | ".join(f"{batch:,} flow{'s' if batch > 1 else ''}" for batch in batches)} |
|---|---:|---|{"---:|" * len(batches)}
{rows}

- Largest difference of an output to numpy's, random weights and 100 ticks: {far}.
- The machine's load average was {result["load_average"]} at the end.
"""


def attach(result: dict[str, Any]) -> str:
    """Return the section on agents in charge of this machine's own sockets."""
    rows = "\n".join(
        f"| {r['flows']:,} | {r['agents']} | {r['priority']} | {r['met'] / r['ticks']:.2%} | {r['p50_ms']:.2f} "
        f"| {r['p99_ms']:.2f} | {r['longest_ms']:.1f} | {r['cores']:.3f} | {1000 * r['cores'] / r['flows']:.2f} "
        f"| {r['fell_back']} | {r['load']:.1f} |"
        for r in result["rows"]
    )
    looks = ", ".join(f"{name} {us:,.0f}" for name, us in result["looks_us"].items())
    return f"""## Agents in charge of real sockets (`make bench-attach`)

`{result["policy"]}` in LiteRT drives flows on this machine's own kernel, sending through a tbf of
{result["rate_mbps"]} Mbps between namespaces; {result["measured_s"]:g} s each. A deadline is met when every order of a
tick of 10 ms is out before the next tick is due. Times are from a tick's due time until its orders are out, so that
they hold the wait for a processor. Cores: the agents' processor time, the walk over all sockets in the kernel included,
the kernel's work on ACKs not. Fell back: how often a flow followed Reno's rules for a while. Several agents: each has
one flow, a process and a scheme of its own.

| flows | agents | scheduling | deadlines met | p50 ms | p99 ms | longest ms | cores | a 1,000 flows \
| fell back | load |
|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|
{rows}

Reading the counters of 1,000 sockets, in microseconds of processor time: {looks}. Socket diagnostics see both ends on
loopback; the figure is for 1,000 of them.
"""


def policy_fidelity(result: dict[str, Any]) -> str:
    """Return the section that holds a policy in the lab against itself on the host's own kernel."""
    rows, runs = [], [run for r in result["networks"] for run in r["host"]]
    for r in result["networks"]:
        cells = [f"{r[name]:g}" for name in ("rate_mbps", "rtt_ms", "queue_bdp")]
        for figure, form in (("goodput_mbps", ".2f"), ("cwnd_mean", ".0f")):
            real = [run[figure] for run in r["host"]]
            cells += [f"{r['lab'][figure]:{form}}", f"{median(real):{form}} ({min(real):{form}}-{max(real):{form}})"]
            cells += [f"{r['goodput_apart' if figure == 'goodput_mbps' else 'cwnd_apart']:+.1%}"]
        rows.append(f"| {' | '.join(cells)} |")
    lines = "\n".join(rows)
    within = sum(abs(r["goodput_apart"]) <= 0.05 for r in result["networks"])
    met, loads = [run["met"] for run in runs], [run["load"] for run in runs]
    return f"""## A policy in the lab and on this machine's own kernel (`make bench-policy-fidelity`)

`{result["policy"]}` on flat links for {result["duration_s"]:g} s, in the lab and under `sagecc_pure` in real time.
Host: median (lowest-highest) of {result["repeats"]} runs. Apart: lab over the host's median - 1.
[Fidelity](../method/fidelity.md#a-policy-in-the-lab-and-on-a-stock-kernel) shows the windows and says what explains the
differences.

| Mbps | RTT ms | queue BDP | lab Mbps | host Mbps | apart | lab window | host window | apart |
|---:|---:|---:|---:|---:|---:|---:|---:|---:|
{lines}

- Goodput within 5 %: {within} of {len(rows)} networks.
- The agent met {median(met):.1%} of its deadlines in the median run, {min(met):.1%} in the worst; flows fell back
  {sum(run["fell_back"] for run in runs)} times.
- The machine's load average was {min(loads):.1f} to {max(loads):.1f} meanwhile.
"""


def learner(result: dict[str, Any]) -> str:
    """Return the section on training steps."""
    rows = "\n".join(
        f"| {r['gru']} | {r['ours']['steps_per_cpu_s']:.1f} ({r['ours']['steps_per_wall_s']:.1f}) "
        f"| {r['acme']['steps_per_cpu_s']:.1f} ({r['acme']['steps_per_wall_s']:.1f}) "
        f"| {r['times_as_fast']:.1f} | {r['floor_steps_per_s']:.1f} | {r['share_of_floor']:.0%} "
        f"| {r['ours']['first_step_cpu_s']:.0f} ({r['ours']['first_step_s']:.0f}) "
        f"| {r['acme']['first_step_cpu_s']:.0f} ({r['acme']['first_step_s']:.0f}) "
        f"| {r['ours']['peak_mb']:.0f} | {r['acme']['peak_mb']:.0f} | {r['waiting_share']:.2%} |"
        for r in result["sizes"]
    )
    rate = median(r["matrix_gflop_per_s"] for r in result["sizes"])
    return f"""## Training steps (`make bench-learner`)

Our learner and Acme's own RCRRLearner: the paper's network (width 256) with three sizes of its GRU, {result["batch"]}
windows of {result["window"]} rows a step, float32, both pinned to one core, working in turn; steps a CPU-second
(a second of the clock), medians of {result["rounds"]} rounds. Floor: the step's matrix products at the rate at which
this core multiplies large matrices in the same run ({rate:.0f} GFLOP/s). First step: CPU-seconds (seconds) from the
start of the process, imports and tracing included. Waiting: share of the time in which our step waited for data. The
machine's load average was {result["load_average"]} at the end, of which this is 1.

| GRU | ours, steps/s | Acme's | times as fast | floor | of the floor \
| first step, s | Acme's | peak MB | Acme's | waiting |
|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|
{rows}
"""


def feeding(result: dict[str, Any]) -> str:
    """Return the section on how fast windows come from a pool larger than memory."""
    rows = "\n".join(
        f"| {r['cache']} | {r['threads']} | {r['transform']} | {r['windows_per_s']:,.0f} "
        f"| {r['windows_per_cpu_s']:,.0f} | {r['load']:.1f} |"
        for r in result["rows"]
    )
    left = max(r["left_gb"] for r in result["rows"] if r["left_gb"] is not None)
    return f"""## Feeding the learner (`make bench-feeding`)

Random windows of {result["window"]} steps in batches of {result["batch"]} from a compiled pool of
{result["file_gb"]:.1f} GB, as a training run takes them. Cold: {result["cold_windows"]:,} windows after the file was
dropped from the page cache (of which at most {left:.1f} GB stayed); warm: windows that were drawn once before. `symlog`
scales the 69 inputs as `small` does, `none` leaves them as `paper` does. The load average says how many others wanted
the cores.

| page cache | threads | inputs | windows/s | windows a CPU-second | load |
|---|---:|---|---:|---:|---:|
{rows}

A plain memory map, indexed by numpy, cold: {result["mmap"]["windows_per_s"]:,.0f} windows/s.
"""


def gymnasium(result: dict[str, Any]) -> str:
    """Return the section on the lab as an environment for reinforcement learning."""
    rows = "\n".join(
        f"| {r['rate_mbps']} | {r['environments']} | {1e6 / r['wall_us']:,.0f} | {r['host_us']:.0f} "
        f"| {r['kernel_us']:.0f} | {r['packets']:.1f} | {1e6 / r['kernel_us']:,.0f} |"
        for r in result["rows"]
    )
    return f"""## The lab as a Gymnasium environment (`make bench-gymnasium`)

`sagecc/Congestion-v0` on a flat link of 40 ms, 1 BDP, that a policy without a network keeps full; kernels and host
together on one core. {result["steps"]:,} steps, boots included (an episode has {result["episode_s"] * 100:,.0f}
ticks), medians of {result["rounds"]} rounds. Steps of a vector count once for each of its environments. The floor is
the rate if the host took no time: packets (data packets a step are given), timers and the switch to the host and back
are the kernel's. The machine's load average was {result["load_average"]} at the end, of which this is 1.

| Mbps | environments | steps/s | host, us a step | kernel, us a step | packets a step | floor, steps/s |
|---:|---:|---:|---:|---:|---:|---:|
{rows}
"""


def pool(result: dict[str, Any]) -> str:
    """Return the section on deriving, checking and asking the full grid's pool."""
    derived = "\n".join(
        f"| derive {r['partitions']} partitions | {r['rows'] / 1e6:.1f} M | {r['wall_s']:.1f} | {r['cpu_s']:.1f} "
        f"| {r['rows'] / r['wall_s'] / 1e6:.2f} M | {r['rows'] / r['cpu_s'] / 1e6:.2f} M | {r['peak_mb']:,.0f} |"
        for r in result["derive"]
    )
    c = result["check"]
    checked = (
        f"| check all of it | {c['rows'] / 1e6:.1f} M | {c['wall_s']:.1f} | {c['cpu_s']:.1f} "
        f"| {c['rows'] / c['wall_s'] / 1e6:.2f} M | {c['rows'] / c['cpu_s'] / 1e6:.2f} M | {c['peak_mb']:,.0f} |"
    )
    scan, look_up = result["scan"], result["look_up"]
    asked = "\n".join(
        [
            *(f"| scan, {k} | {t['s']:.2f} s | {t['worst_s']:.2f} s |" for k, t in scan["times"].items()),
            *(
                f"| episode, {k} | {t['s'] * 1e3:.0f} ms | {t['worst_s'] * 1e3:.0f} ms |"
                for k, t in look_up["times"].items()
            ),
        ]
    )
    times = "\n".join(f"| {title} | {s:.2f} |" for title, s in result["queries"]["times"].items())
    return f"""## The pool (`make bench-pool`)

The full grid's pool on two cores: derived from its raw trajectories (reading, features, rewards, writing, hashes), by
two partitions at a time, and `sagecc pool check`. Peak: of the process, in MB. The load average was
{result["load"]:.1f} at the end, of which this is up to 2.

| | rows | wall s | CPU s | rows/s | rows a CPU-second | peak MB |
|---|---:|---:|---:|---:|---:|---:|
{derived}
{checked}

Asked in DuckDB on the two cores: a scan of three columns of all rows, and {look_up["episodes"]} episodes at random
by `episode('...')`. Cold: the pool's files out of the page cache before each question (at most
{scan["left_gb"]:.1f} GB stayed). New connection: opening it included, as with `sagecc sql QUERY`, whose program itself
starts in {result["command_s"]:.1f} s. Open connection: as in the shell.

| | median | worst |
|---|---:|---:|
{asked}

The questions of [query](../guide/query.md#questions) on the full pool, in turn, warm:

| | s |
|---|---:|
{times}
"""


def lockstep(result: dict[str, Any]) -> str:
    """Return the section on policies played many labs in step."""
    tables = "\n\n".join(_ways(policy) for policy in result["policies"])
    return f"""## Policies, many labs in step (`make bench-lockstep`)

A league's {result["environments"]} environments of `small`, played one by one and many in step; the same bytes every
time. Seconds; CPU time counts guests and host, storing included. Times as fast: by wall time, against one by one in one
process. The guests' own CPU time is the floor;
[the learner](../method/learner.md#many-labs-in-step) says how to read it. The machine's load
average was {result["load_average"]} at the end.

{tables}
"""


def _ways(policy: dict[str, Any]) -> str:
    """Return the table of one policy."""
    first = policy["rows"][0]
    rows = "\n".join(
        f"| {r['jobs']} | {r['batch'] or 'one by one'} | {r['wall_s']:.0f} | {first['wall_s'] / r['wall_s']:.1f} "
        f"| {r['cpu_s']:.0f} | {'' if r['guests_s'] is None else format(r['guests_s'], '.0f')} "
        f"| {'' if r['guests_s'] is None else format((r['cpu_s'] - r['guests_s']) / r['ticks'] * 1e6, '.0f')} |"
        for r in policy["rows"]
    )
    return f"""{policy["name"]}: {policy["parameters"]:,} parameters, a decision each {policy["period_ms"]:g} ms,
{first["ticks"]:,} ticks in all.

| processes | guests in step in each | wall | times as fast | CPU | of it guests | host, us a tick |
|---:|---:|---:|---:|---:|---:|---:|
{rows}"""


def distance(result: dict[str, Any]) -> str:
    """Return the section on searching the pool for the nearest transition."""
    rows, schemes = [], result["schemes"]
    for r in result["rows"]:
        missed = r.get("beyond")
        cells = [f"{missed[s]['mean']:.2g} ({missed[s]['p95']:.2g})" if missed else "0" for s in schemes]
        rows.append(
            f"| {r['search']} | {r['searched']:,} | {r['cpu_s']:.1f} | {r['wall_s']:.1f} | {' | '.join(cells)} |"
        )
    body, index = "\n".join(rows), result["index"]
    medians = ", ".join(f"{scheme} {median:.2g}" for scheme, median in result["medians"].items())
    return f"""## Distance to the pool (`make bench-distance`)

{result["queries"]:,} transitions, one in {result["thin"]} of a trajectory each of {", ".join(schemes)} in the
environment of the paper's section 7.1, and the {result["transitions"]:,} of the pool. Beyond: how much larger the
distances found are than those of the search through the whole pool, mean (95th percentile). Median true distances:
{medians}.

| search | transitions searched | CPU s | wall s | {" | ".join(f"beyond, {scheme}" for scheme in schemes)} |
|---|---:|---:|---:|{"---:|" * len(schemes)}
{body}

The index takes {index["bytes"] / 1e9:.2f} GB, {index["bytes"] / result["transitions"]:.0f} bytes a transition; building
it, once a pool, took {index["cpu_s"] / 60:.1f} CPU minutes ({index["wall_s"] / 60:.1f} on the clock).
"""


def policies(result: dict[str, Any]) -> str:
    """Return the section on the shipped policy behind jitter and slow hosts, and on windows far too large."""
    by_jitter: dict[float, list[dict[str, float]]] = {}
    for r in result["jitter"]:
        by_jitter.setdefault(r["jitter_ms"], []).append(r)
    jitter = "\n".join(
        f"| {jitter_ms:g} | {len(runs)} | {_span(runs, 'goodput_mbps', '.1f')} | {_span(runs, 'queueing_ms', '.1f')} "
        f"| {_span(runs, 'cwnd_mean_pkts', '.0f')} | {_span(runs, 'loss', '.1%')} "
        f"| {sum(r['loss'] > LOCKED_IN for r in runs)} |"
        for jitter_ms, runs in by_jitter.items()
    )
    floods = "\n".join(
        f"| {r['window_pkts']:,} | {'yes' if r['paced'] else 'no'} | {r['dropped_pkts']:,} | {r['guest_cpu_s']:.1f} "
        f"| {r['host_cpu_s']:.1f} |"
        for r in result["floods"]
    )
    return f"""## Policies in the lab (`make bench-policies`)

`{result["policy"]}` alone for {result["duration_s"]} s, a queue of 1 BDP; virtual time, so these figures are the same
on any machine. Queueing: mean, transmission included. Window: mean from {result["settled_s"]} s on.

24 Mbps, 20 ms, with jitter on the way back, in order; median (lowest-highest) over seeds:

| jitter ms | seeds | goodput Mbps | queueing ms | window, packets | lost | runs that lose over {LOCKED_IN:.0%} |
|---:|---:|---:|---:|---:|---:|---:|
{jitter}

48 Mbps, 40 ms, with decisions that come late (`--decision-latency`):

{_late(result["latency"])}

A fixed window on 48 Mbps, 40 ms, a queue of 1 BDP, for {result["flood_s"]} s
([why](../method/learner.md#policies-that-flood)):

| window, packets | paced | packets dropped | guest, CPU s | host, CPU s |
|---:|---|---:|---:|---:|
{floods}
"""


def _late(runs: list[dict[str, float]]) -> str:
    """Return the table of a policy's runs with decisions that come late."""
    rows = "\n".join(
        f"| {r['latency_ms']} | {r['goodput_mbps']:.1f} | {r['queueing_ms']:.1f} | {r['cwnd_mean_pkts']:.0f} "
        f"| {r['loss']:.1%} |"
        for r in runs
    )
    return f"""| latency ms | goodput Mbps | queueing ms | window, packets | lost |
|---:|---:|---:|---:|---:|
{rows}"""


LOCKED_IN = 0.2
"""A share of packets lost that a policy which answers losses would not stay at."""


def _span(runs: list[dict[str, float]], name: str, form: str) -> str:
    """Return the median (lowest-highest) of a figure."""
    values = [run[name] for run in runs]
    middle = f"{median(values):{form}}"
    return middle if len(values) == 1 else f"{middle} ({min(values):{form}}-{max(values):{form}})"


def orca(result: dict[str, Any]) -> str:
    """Return the section on Orca's published actor."""
    alone, shared = result["alone"], result["shared"]
    places = {(row["set"], row["scheme"]): row for row in result["standings"]}
    shown = ("orca", "models/sagecc-1", "bbr2", "vegas", "cubic")
    rows = "\n".join(
        f"| {scheme} | "
        + " | ".join(
            f"{p['rank']} | {p['winning_rate']:.1%} [{100 * p['low']:.1f}, {100 * p['high']:.1f}]"
            for p in (places[name, scheme] for name in ("I", "II"))
        )
        + f" | {shared[scheme]:.0%} |"
        for scheme in shown
    )
    beside = "\n".join(
        f"| {scheme} | {r['share']:.1%} | {r['queueing_ms']:.0f} | {r['median_queueing_ms']:.0f} |"
        for scheme, r in alone["schemes"].items()
    )
    return f"""## Orca's published actor (`SAGECC_ORCA=FOLDER make bench-orca`)

Imported from its authors' checkpoint ([your own scheme](../guide/your-own-scheme.md#orca)), in a league of
`{result["profile"]}` with the
13 heuristics and `models/sagecc-1`; virtual time, so these figures are the same on any machine. Share: mean of goodput
over the fair share in Set II, beside a Cubic flow.

| scheme | rank in Set I | winning rate | rank in Set II | winning rate | share |
|---|---:|---:|---:|---:|---:|
{rows}

Set I, the same {alone["windows"]} scoring windows:

| | share of the capacity, mean | queueing delay ms, mean | median |
|---|---:|---:|---:|
{beside}

Orca has at least nine tenths of Cubic's rate in {alone["as_fast"]:.0%} of the windows, and less delay in
{alone["less_delay"]:.0%}.

48 Mbps, 40 ms, 1 BDP, with decisions that come late (`--decision-latency`):

{_late(result["latency"])}
"""


def examples(result: dict[str, Any]) -> str:
    """Return the section on the example networks."""
    rows = "\n".join(
        f"| {r['example']}{'' if r['as_is'] else ', without its jitter'} | {r['flows']} | {r['goodput_mbps']:.1f} "
        f"| {r['delay_mean_ms']:.1f} | {r['delay_p95_ms']:.1f} | {r['loss']:.2%} "
        f"| {'' if r['jain_index'] is None else format(r['jain_index'], '.2f')} |"
        for r in result["rows"]
    )
    return f"""## The example networks (`make bench-examples`)

`sagecc run --scheme {result["scheme"]} --environment docs/examples/environments/NAME.yaml`; virtual time, so these
figures are the same on any machine. Goodput, one-way delay and loss are those of the flow under test; Jain's index is
over the flows on its path.

| example | flows | goodput Mbps | delay ms | 95th percentile | lost | Jain |
|---|---:|---:|---:|---:|---:|---:|
{rows}
"""


def report(result: dict[str, Any]) -> str:
    """Return the section on the report's page."""
    rows = "\n".join(
        f"| {r['profile']} | {r['schemes']} | {r['environments']:,} | {r['episodes']:,} | {r['trajectories']} "
        f"| {r['bytes'] / 1e6:.1f} | {r['cpu_s']:.0f} |"
        for r in result["rows"]
    )
    return f"""## The report (`make bench-report`)

`sagecc report`, of the league of `make repro` with all analyses, and of that of `make grid-league`.

| profile | schemes | networks | trajectories | in the page | page, MB | CPU s |
|---|---:|---:|---:|---|---:|---:|
{rows}
"""


def actions(result: dict[str, Any]) -> str:
    """Return the section on what is in the pool's actions."""
    rows = "\n".join(
        f"| {r['scheme']} | {r['same']:.0%} | {r['within_percent']:.0%} | {r['growth']:.2g} |" for r in result["rows"]
    )
    return f"""## What the pool's schemes do with their window (`make bench-actions`)

All {result["rows_in_pool"]:,} transitions of the pool of `make repro`. As it is: share of ticks with action 1; within
1 %: with one between 0.99 and 1.01. Growth: mean log2 of the action in the ticks without a queue or a loss (min RTT /
sRTT above {result["empty_above"]}, kernel state open, nothing lost for a second, after the first
{result["after_s"]} s).

| scheme | as it is | within 1 % | growth without a queue, log2 a tick |
|---|---:|---:|---:|
{rows}
"""


def torture(result: dict[str, Any]) -> str:
    """Return the section on kills and damaged inputs."""
    stages = "\n".join(
        f"| {name} | {r['kills']} | {_counted(r['victims'])} | {r['one_line']} | {r['went_on']} | {r['finished']} "
        f"| {_counted(r['findings'])} | {r['minutes']:.0f} |"
        for name, r in result["stages"].items()
    )
    agent, inputs = result["agent"], result["inputs"]
    kinds = "\n".join(
        f"| {r['kind']} | {r['inputs']:,} | {r['one line']:,} | {r['equal']:,} | {r['different']:,} "
        f"| {_counted(r['findings'])} |"
        for r in inputs
    )
    temporary = sum(r["temporary"] for r in result["stages"].values())
    return f"""## Torture (`make bench-torture`)

Kills: each stage's command as a small job of the profile `smoke`, killed with SIGKILL at a random moment between its
start and its end, gone on with, killed again, until it was done; over and over. Whole, the benchmark is 100 kills of
each of collect, pool, train and league, and 10,000 inputs: what is less or absent here was not reached when these
figures were saved. Killed is the command itself, its
process group, or one process below it (which the command must survive or say in one line). What must hold after each
kill: within ten seconds no process of it is left, nor a file in /dev/shm; nothing that was finished is lost. After each
job: its files are the same bytes as those of one that was never disturbed, and no other file lies beside them.

| stage | kills | of which | ended in one line | survived | jobs finished | findings | minutes |
|---|---:|---|---:|---:|---:|---|---:|
{stages}

In TMPDIR, killed commands left {temporary} temporary files of TensorFlow's and no other.

The agent of `sagecc attach` and `sagecc exec`, in mid-transfer on this machine's own kernel (12 Mbps, a queue of 40
packets): {agent["kills"]} kills ({_counted(agent["ways"])}); findings: {_counted(agent["findings"])}. After each, the
flow's window must move within a second, rise packet by packet and halve at a loss, as Reno's; the transfer must end
with every byte; after `sagecc detach` no scheme, map, control group or process may be left.
{agent["minutes"]:.0f} minutes.

Damaged inputs, {sum(r["inputs"] for r in inputs):,} of them: one file each, by flipped bits, cuts, splices, noise; or
text, documents and tables changed where it matters (values, types, names, columns, rows, metadata) and written whole.
Each took the way that a command takes, in a process with limits of time and memory; {result["as_processes"]} of them
through the command line as a process. Right is one line that names the file, or the sound file's result, or, where the
file is still a valid one, another: but not where a checksum says that it was damaged.

| input | tried | one line | the sound result | another valid one | findings |
|---|---:|---:|---:|---:|---|
{kinds}

{result["input_minutes"]:.0f} minutes. All of it is drawn from the seed {result["seed"]}.

What it found before, each now a test: a guest killed in its first milliseconds left a stopped process behind
(`tests/collector/test_orphans.py`); workers killed all at once left semaphores in /dev/shm (`test_collect.py`); what a
killed process was writing stayed beside models and leagues (`tests/common/test_files.py`); damaged files were read as
if they were sound, or ended in a traceback (`tests/test_damaged_files.py`); a pool's partition whose maker was killed
just after it had its name was derived again (`test_pool.py`). Not mended: `sagecc sql` reads the pool's
files as they lie, without their checksums; `sagecc pool check` holds them against those.
"""


def _counted(counts: dict[str, int]) -> str:
    """Return counts by name, the most frequent first."""
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items(), key=lambda item: -item[1])) or "none"


SECTIONS: dict[str, Callable[[dict[str, Any]], str]] = {
    "collect": collect,
    "full": full,
    "pool": pool,
    "memory": memory,
    "profile": profile,
    "feeding": feeding,
    "learner": learner,
    "distance": distance,
    "fidelity": fidelity,
    "execution": execution,
    "lockstep": lockstep,
    "attach": attach,
    "policy_fidelity": policy_fidelity,
    "policies": policies,
    "orca": orca,
    "gymnasium": gymnasium,
    "examples": examples,
    "actions": actions,
    "report": report,
    "torture": torture,
}


def page() -> str:
    """Return docs/measured/benchmarks.md as the results say it."""
    parts = [HEAD]
    for name, section in SECTIONS.items():
        path = next((path for folder in FOLDERS if (path := folder / f"{name}.json").exists()), None)
        if path:
            saved = json.loads(path.read_text())
            m = saved["machine"]
            where = f"{m['cpu']}, {m['cores']} cores, {m['memory_gib']} GiB, Linux {m['kernel']}, {m['date']}"
            parts.append(section(saved["result"]) + f"\nMeasured on {where}.\n")
    return "\n".join(parts)


if __name__ == "__main__":
    with write_atomically(PAGE) as beside:
        beside.write_text(page())
