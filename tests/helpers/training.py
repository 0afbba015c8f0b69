# SPDX-License-Identifier: Apache-2.0
"""`sagecc train` of a small network, and the curve that it leaves."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

from sagecc.learner.algorithms.crr import METRICS
from tests.helpers.specifications import placed

CONFIG: dict[str, Any] = {
    "steps": 60,
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
        "average": 0.9,
    },
}


def command(folder: Path, pool: Path, name: str = "a", checkpoint_every: float = 60, **changes: Any) -> list[str]:
    config = folder / f"{name}.yaml"
    config.write_text(yaml.safe_dump(placed(CONFIG, changes)))
    places = {"pool": pool, "out": folder / "models" / name, "logs": folder / "logs" / name, "cache": folder / "cache"}
    options = [text for key, value in places.items() for text in (f"--{key}", str(value))]
    start = [sys.executable, "-m", "sagecc", "train", "--config", str(config)]
    return [*start, *options, "--checkpoint-every", str(checkpoint_every)]


def curve(folder: Path, name: str = "a") -> list[list[float]]:
    lines = (folder / "logs" / name / "metrics.jsonl").read_text().splitlines()
    return [[json.loads(line)[key] for key in ("step", *METRICS)] for line in lines]
