# SPDX-License-Identifier: Apache-2.0
"""Fig. 11, 13 and 16: what `sagecc distance`, `similarity` and `tsne` say of policies, on the networks of `small`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import click

from evidence.machine import save
from evidence.paper import CLONE, FOLDER, SEEDS, WINDOWS, picture
from evidence.paper.pictures import distance_figure, likeness_figure
from evidence.training.run import policies_of
from evidence.training.runs import Plan, seed_name
from sagecc.collector.run.grid import profile_environments
from sagecc.commands import distance, similarity, tsne
from sagecc.common.files import write_atomically
from sagecc.common.shipped import BEST_POLICY, POOL_POLICY
from sagecc.leagues.plots import save_figure
from sagecc.leagues.scores import find_episodes, read_rows
from sagecc.leagues.trajectories import choose, step_up
from sagecc.schemas.schemes import POLICY_PREFIX

PROFILE = "small"
SHIPPED = (POOL_POLICY, BEST_POLICY)
"""Learned from the pool, and in labs."""
REFERENCE = "vegas"
EVERY = 4
"""Of the ticks of Fig. 11's trajectories, each looked for in the whole pool, one in so many."""
NETWORKS_13, NETWORKS_16 = 4, 7
"""Of each set, eight in all, and of Set II: as many as the paper has."""
SEED = 0


def distances(plan: Plan, kernel: Path, jobs: int) -> None:
    """Make Fig. 11: how far the shipped policies, BC and Vegas are from the pool, where the rate goes from 24 to 96."""
    folder = FOLDER / "fig-11"
    policies = {name: f"models/{name}" for name in SHIPPED} | named(policies_of(plan, (CLONE,), kernel))
    options = [word for path in policies.values() for word in ("--policy", path)]
    _run(distance.command, folder, plan, kernel, jobs, *options, "--schemes", REFERENCE, "--search", "pool",
         "--every", str(EVERY), "--pool", str(plan.runs[CLONE].pool))  # fmt: skip
    summary = json.loads((folder / "distance.json").read_text())
    environment = step_up(profile_environments(PROFILE))[0]
    schemes = {f"{POLICY_PREFIX}{path}": name for name, path in policies.items()} | {REFERENCE: REFERENCE}
    episodes = find_episodes([plan.leagues[PROFILE], folder / "raw"], [environment], list(schemes))
    rows = [
        {
            "name": schemes[row["scheme"]],
            "transitions": row["transitions"],
            "quantiles": row["quantiles"],
            **means(read_rows(episodes[environment.id, row["scheme"]])),
        }
        for row in summary["trajectories"]
    ]
    about = {name: summary[name] for name in ("pool_transitions", "search", "scaling", "every")}
    network = {"title": summary["environments"][environment.id], "duration_s": environment.duration_s}
    save("fig-11", {**about, **network, "rows": rows})
    save_figure(distance_figure(rows), picture("fig-11"))


def means(rows: Any) -> dict[str, float]:
    """Return a trajectory's mean goodput (Mbps) and mean one-way delay (ms), from its first row to its last."""
    growth = {
        name: float(rows[name][-1].as_py() - rows[name][0].as_py())
        for name in ("t_s", "received_bytes", "link_delay_ns", "link_packets")
    }
    return {
        "goodput_mbps": growth["received_bytes"] * 8e-6 / growth["t_s"],
        "delay_ms": growth["link_delay_ns"] * 1e-6 / growth["link_packets"],
    }


def likenesses(plan: Plan, kernel: Path, jobs: int) -> None:
    """Make Fig. 13: how much the shipped policies resemble the pool's schemes in eight networks, four of each set."""
    of, environments = {}, profile_environments(PROFILE)
    networks = [e.id for name in ("I", "II") for e in choose(environments, (), NETWORKS_13, SEED, name)]
    options = [word for network in networks for word in ("--environment", network)]
    for name in SHIPPED:
        folder = FOLDER / "fig-13" / name
        _run(similarity.command, folder, plan, kernel, jobs, "--scheme", f"{POLICY_PREFIX}models/{name}",
             *options, "--pool", str(plan.runs[CLONE].pool))  # fmt: skip
        summary = json.loads((folder / "similarity.json").read_text())
        of[name] = [
            {"network": row["environment_id"], **{key: row[key] for key in ("other", "index", "nearest")}}
            for row in summary["similarities"]
        ]
    save("fig-13", {"networks": summary["environments"], "policies": of})
    save_figure(likeness_figure(of, summary["environments"]), picture("fig-13"))


def maps(plan: Plan, kernel: Path, jobs: int) -> None:
    """Make Fig. 16: what the last hidden layers of policies tell apart in seven networks of Set II; seed 0 is drawn."""
    rows = []
    for seed in SEEDS:
        folder, runs = FOLDER / "fig-16" / f"seed-{seed}", {seed_name(recipe, seed): recipe for recipe in WINDOWS}
        policies = named(policies_of(plan, tuple(runs), kernel))
        options = [word for path in policies.values() for word in ("--policy", path)]
        _run(tsne.command, folder, plan, kernel, jobs, *options, "--draw", str(NETWORKS_16))
        summary = json.loads((folder / "tsne.json").read_text())
        by_path = {f"{POLICY_PREFIX}{path}": runs[name] for name, path in policies.items()}
        for row in summary["maps"]:
            shares = {key: row[key] for key in ("points", "apart", "by_chance")}
            rows.append({"recipe": by_path[row["policy"]], "seed": seed, **shares})
    rows.sort(key=lambda row: (WINDOWS.index(row["recipe"]), row["seed"]))
    save("fig-16", {"networks": summary["environments"], "rows": rows})
    _keep(FOLDER / "fig-16" / f"seed-{SEEDS[0]}" / "tsne.png", "fig-16")


def named(policies: dict[str, Path]) -> dict[str, str]:
    """Return links to policies that end in their runs' names, by which pictures call them."""
    names = {}
    for name, path in policies.items():
        link = FOLDER / "policies" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(path.resolve(), target_is_directory=True)
        names[name] = str(link)
    return names


def _run(command: click.Command, out: Path, plan: Plan, kernel: Path, jobs: int, *words: str) -> None:
    """Run one of sagecc's commands on the networks of PROFILE; policies play in `out`."""
    common = {
        "--profile": PROFILE,
        "--raw": plan.leagues[PROFILE],
        "--league": FOLDER / "no-league",
        "--out": out,
        "--seed": SEED,
        "--jobs": jobs,
        "--kernel": kernel,
    }
    given = [str(word) for option in common.items() for word in option]
    command.main([*words, *given], standalone_mode=False)


def _keep(source: Path, figure: str) -> None:
    with write_atomically(picture(figure)) as temporary:
        shutil.copyfile(source, temporary)
