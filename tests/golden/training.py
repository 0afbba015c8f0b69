# SPDX-License-Identifier: Apache-2.0
"""Golden runs of what derives, compiles and trains: commands as a user types them, on a small made-up pool."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from sagecc.common.files import sha256_file
from sagecc.learner.specification import load
from tests.golden.commands import sagecc
from tests.golden.digests import Made, of_floats, of_table
from tests.helpers.raw_episodes import write_partition
from tests.helpers.specifications import placed

OFFLINE: dict[str, Any] = {
    "steps": 20,
    "batch": 16,
    "window": 8,
    "data": {},
    "network": {"kind": "sage", "width": 16, "gru": 16, "input_transform": "symlog", "input_limit": 5},
    "algorithm": {
        "name": "crr",
        "policy_rate": 1e-3,
        "critic_rate": 1e-3,
        "atoms": 21,
        "target_period": 5,
        "action_scale": 0.01,
    },
}
DENSE: dict[str, Any] = {
    "steps": 20,
    "batch": 16,
    "window": 8,
    "data": {"period_ms": 50, "action_base": 1.5, "states": "network"},
    "network": {"kind": "mlp", "hidden": [32, 16], "input_transform": "symlog", "input_limit": 5},
    "algorithm": {"name": "bc", "policy_rate": 1e-3, "final_rate": 0.1, "average": 0.9},
}
AWR: dict[str, Any] = {**DENSE, "algorithm": {"name": "awr", "policy_rate": 1e-3, "value_rate": 1e-3, "average": 0.9}}
CRITICS: dict[str, Any] = {
    "policy_rate": 1e-3,
    "critic_rate": 1e-3,
    "final_rate": 0.1,
    "average": 0.9,
    "n_step": 3,
    "reward_scale": 0.04,
    "reward_limit": 1,
}
"""Fields of algorithms with critics that learn from a pool with dense or recurrent networks."""
LABS: dict[str, Any] = {"count": 2, "warm_up": 60, "round_decisions": 40, "round_steps": 5, "replay": 1000}
TD3: dict[str, Any] = {
    **{name: value for name, value in load("sagecc-10").record().items() if name != "control"},
    "steps": 20,
    "task": {
        "observation": "pool",
        "control": {"like": "pool", "base": 1.0718, "limits": [-1, 1], "map": "spread", "period_ms": 50},
        "reward": "power",
        "networks": "smoke",
    },
    "labs": {**LABS, "give_up_share": 0},
    "control": {"window_bound": 1.4},
}
RECURRENT = {"kind": "recurrent", "width": 16, "gru": 16, "input_transform": "symlog", "input_limit": 5}
DAGGER: dict[str, Any] = {
    "steps": 20,
    "batch": 8,
    "window": 20,
    "burn_in": 5,
    "task": {"observation": "indigo", "control": "indigo", "reward": "power", "expert": True, "networks": "smoke"},
    "network": {"kind": "choice", "gru": 16, "input_limit": 5},
    "algorithm": {"name": "dagger", "policy_rate": 1e-3, "gradient_clip": 10},
    "labs": {**LABS, "give_up_share": 0},
}


def derived(folder: Path, *options: str) -> Path:
    """Derive the pool of five made-up episodes, unless `folder` has it; return where it lies."""
    pool = folder / "-".join(("pool", *options))
    if not pool.exists():
        raw = folder / "raw"
        if not raw.exists():
            write_partition(raw, "I", "bbr2")
            write_partition(raw, "II", "vegas", rows=(700, 300))
        sagecc(folder, "pool", "--raw", str(raw), "--out", str(pool), *options)
    return pool


def pool(folder: Path, *options: str) -> Made:
    """Return what a pool's tables hold."""
    return Made("".join(of_table(path) for path in sorted(derived(folder, *options).rglob("*.parquet"))))


def compiled(folder: Path) -> Made:
    """Return what a compiled pool holds, and its summary."""
    summary = folder / "compiled.json"
    sagecc(
        folder, "compile", "--pool", str(derived(folder)), "--cache", str(folder / "cache"), "--summary", str(summary)
    )
    files = sorted((folder / "cache").glob("*/rows.f32")) + sorted((folder / "cache").glob("*/sums.npy"))
    return Made("".join(sha256_file(path) for path in (summary, *files)))


def trained(folder: Path, name: str, values: dict[str, Any]) -> Made:
    """Return the weights that a training by these fields ends with."""
    config, out = folder / f"{name}.yaml", folder / "models" / name
    config.write_text(json.dumps(values))
    places = {"out": out, "logs": folder / "logs" / name, "cache": folder / "cache"}
    source = {} if "task" in values else {"pool": derived(folder)}
    options = [text for key, value in {**source, **places}.items() for text in (f"--{key}", str(value))]
    sagecc(folder, "train", "--config", str(config), *options)
    weights = load_file(out / "policy.safetensors")
    return of_floats([np.asarray(weights[key]) for key in sorted(weights)])


def offline(folder: Path, name: str, **changes: Any) -> Made:
    """Return what a training from the pool ends with."""
    return trained(folder, name, placed(OFFLINE, changes))


def dense(folder: Path, name: str, algorithm: dict[str, Any], **changes: Any) -> Made:
    """Return what critics and a deterministic policy learn from the pool; arguments as those of `trained`."""
    return trained(folder, name, placed({**DENSE, "algorithm": {**CRITICS, **algorithm}}, changes))


def judged(folder: Path) -> Made:
    """Return what a pool says of a policy; near on every processor is what does not hang on fitted values."""
    trained(folder, "bc", DENSE)
    out, near = folder / "judged.json", ("action_error", "correlation", "drift_mean", "at_limits", "reward_mean")
    places = {"pool": derived(folder), "cache": folder / "cache", "out": out}
    options = [text for key, value in places.items() for text in (f"--{key}", str(value))]
    sagecc(folder, "judge", "models/bc", "--validation-share", "0.5", *options)
    (found,) = json.loads(out.read_text())
    sets = [found["sets"][name] for name in sorted(found["sets"])]
    numbers = [of[name] for of in sets for name in near if of[name] is not None]
    return Made(json.dumps(sets, sort_keys=True), tuple(map(float, numbers)))
