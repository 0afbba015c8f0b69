# SPDX-License-Identifier: Apache-2.0
"""`sagecc grow` by a round in two short networks, and one that is killed at a chosen place."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import yaml

from tests.conftest import ROOT
from tests.helpers import files

GRID = {"bandwidth_mbps": [12, 24], "rtt_ms": [20], "queue_bdp": [1], "duration_s": 2, "windows_s": [[1, 2]]}

CONFIG = {
    "base": "tiny",
    "batch": 16,
    "window": 8,
    "steps": 20,
    "network": {"width": 16, "gru": 16},
    "algorithm": {"average": 0.9},
}

KILLING = """
import importlib, os, signal, sys
import sagecc.cli

module, _, name = sys.argv.pop(1).rpartition(":")
count = int(sys.argv.pop(1))
owner, _, member = name.rpartition(".")
place = importlib.import_module(module)
place = getattr(place, owner) if owner else place
called = getattr(place, member)

def call_and_die(*arguments, **options):
    global count
    count -= 1
    if count < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return called(*arguments, **options)

setattr(place, member, call_and_die)
sagecc.cli.main(sys.argv[1:])
"""
"""`sagecc` that is killed when a function is called once more than so many times."""


def arguments(folder: Path, pool: Path) -> list[str]:
    (folder / "short.yaml").write_text(yaml.safe_dump({"name": "short", "grids": [GRID]}))
    (folder / "own.yaml").write_text(yaml.safe_dump(CONFIG))
    options = {
        "--rounds": 1,
        "--environments": folder / "short.yaml",
        "--pool": pool,
        "--out": folder / "mine",
        "--cache": folder / "cache",
        "--config": folder / "own.yaml",
        "--round-steps": 15,
        "--noise": 0.05,
        "--jobs": 1,
        "--checkpoint-every": 0,
    }
    return ["grow", *(str(text) for pair in options.items() for text in pair)]


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=600)


def grown(folder: Path) -> dict[str, str]:
    """Return the hashes of all that must be the same in every run."""
    hashes = files.hashes(folder / "mine")
    return {name: sha256 for name, sha256 in hashes.items() if "/logs/" not in name and "/." not in f"/{name}"}
