# SPDX-License-Identifier: Apache-2.0
"""What is tortured: raw trajectories, a pool and a league, made once by the commands themselves."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

from sagecc.schemas.environment_file import load_environment
from tests.torture.stages import KERNEL, LEAST, ROOT, SAGECC

ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}


EXAMPLES = ROOT / "schemas" / "environments"


def make(folder: Path) -> None:
    """Make what is not there yet.

    Of all schemes: `raw` and `pool`, of the profile smoke. Of two, in `least`: raw data and, with the policy that is
    shipped (`policy`), a league; in `few`: raw data and a pool of Set I. And what is given by hand: `environments`,
    training configurations (`configs`), a `plan` of runs.
    """
    for name, source in (("policy", ROOT / "models" / "sagecc-1"), ("environments", EXAMPLES)):
        shutil.copytree(source, folder / name, dirs_exist_ok=True)
    shutil.copytree(ROOT / "learner" / "configs", folder / "configs", dirs_exist_ok=True)
    (folder / "plan").mkdir(exist_ok=True)
    shutil.copy2(ROOT / "evidence" / "training" / "runs.yaml", folder / "plan")
    for file in EXAMPLES.glob("*-*.yaml"):
        listed = json.loads(load_environment(file).to_json())
        (folder / "environments" / f"{file.stem}.json").write_text(json.dumps(listed, indent=1))
    kernel, two = ("--kernel", str(KERNEL)), ("--profile", "smoke", "--schemes", ",".join(LEAST))
    for command in (
        ("collect", "--profile", "smoke", "--out", "raw", *kernel),
        ("pool", "--raw", "raw", "--out", "pool"),
        ("collect", *two, "--out", "least/raw", *kernel),
        ("pool", "--raw", "least/raw", "--out", "least/pool"),
        ("league", *two, "--policy", "policy", "--raw", "least/raw", "--out", "least/results", *kernel),
        ("collect", *two, "--set", "I", "--out", "few/raw", *kernel),
        ("pool", "--raw", "few/raw", "--out", "few/pool"),
    ):
        subprocess.run([*SAGECC, *command], cwd=folder, env=ENVIRONMENT, check=True, capture_output=True)
