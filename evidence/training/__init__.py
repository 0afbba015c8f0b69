# SPDX-License-Identifier: Apache-2.0
"""Training runs that are compared: each is trained, plays in leagues, and leaves a line in evidence/runs.jsonl."""

from __future__ import annotations

from pathlib import Path

ARTEFACTS = Path(".cache/training")
"""What is not kept: policies, trajectories, logs, by run."""
CARRIED = Path("evidence/training/checkpoints")
"""In Git: trainings that have not ended, by run (evidence.training.carry)."""
LOGS, METER = "logs", "meter.json"
"""In a run's folder: what its training writes on the way; CPU time and the time on the clock that it took."""
