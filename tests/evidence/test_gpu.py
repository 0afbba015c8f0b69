# SPDX-License-Identifier: Apache-2.0
"""What is worked out of a GPU's figures; the figures themselves need one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from evidence.speed import gpu
from evidence.speed.learner import flop
from tests.conftest import ROOT


def test_the_fewest_bytes_are_worked_out_by_hand() -> None:
    """Of `paper`: encoder 69*256, GRU 256*3072 and 1024*3072, second encoder 1024*256, five layers of 256*256."""
    weights = 69 * 256 + 256 * 3072 + 1024 * 3072 + 1024 * 256 + 5 * 256 * 256
    rows = 256 * 50
    assert gpu.least_bytes(gpu.paper()) == 4 * (9 * 2 * weights + rows * 69 + 2 * 2 * 4 * 1024 * rows)


def test_the_paper_s_update_is_more_than_a_teraflop() -> None:
    assert flop(gpu.paper()) / 1e12 == pytest.approx(1.2075, abs=1e-4)


def test_distances_are_of_all_weights_together(tmp_path: Path) -> None:
    for name, values in (("one", [3.0, 4.0]), ("other", [3.0, 4.5])):
        (tmp_path / name).mkdir()
        save_file(
            {name: np.array([x], np.float32) for name, x in zip("ab", values, strict=True)},
            tmp_path / name / "policy.safetensors",
        )
    assert gpu.distance(tmp_path / "one", tmp_path / "other") == pytest.approx(0.1)
    assert gpu.distance(tmp_path / "one", tmp_path / "one") == 0


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [((), "nvidia-smi finds no GPU"), (("losses", "speed"), "there is no part 'speed'")],
)
def test_what_cannot_be_measured_is_one_line(tmp_path: Path, arguments: tuple[str, ...], reason: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "evidence.speed.gpu", *arguments, "--out", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("evidence.speed.gpu: ") and reason in done.stderr and done.stderr.count("\n") == 1
    assert not any(tmp_path.iterdir())
