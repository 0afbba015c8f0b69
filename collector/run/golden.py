# SPDX-License-Identifier: Apache-2.0
"""Golden episodes: one per scheme, whose digest is pinned in golden.json and is the same on every machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from sagecc.collector.kernel.identity import POLICY
from sagecc.collector.lab.boot import WATCHDOG_S, per_flow
from sagecc.collector.lab.episode import run_episode
from sagecc.collector.run.grid import profile_environments
from sagecc.schemas.environment import Environment
from sagecc.schemas.schemes import OTHERS, POLICY_PREFIX, SCHEMES

FILE = Path(__file__).with_name("golden.json")
_SMOKE = profile_environments("smoke")
DISTURBED = "cubic+kicks+jitter+starts"
ENVIRONMENTS: Mapping[str, Environment] = MappingProxyType(
    {**dict(zip((*SCHEMES, *OTHERS), cycle(_SMOKE), strict=False)), POLICY: _SMOKE[0], DISTURBED: _SMOKE[0]}
)
"""Environment by scheme: those of the profile smoke, in turn; a policy's is the same however many schemes there are."""


def pinned() -> dict[str, Any]:
    """Return the content of golden.json: the lab's version, and each scheme's SHA-256."""
    content: dict[str, Any] = json.loads(FILE.read_text())
    return content


def digest(kernel: Path, scheme: str, watchdog_s: float = WATCHDOG_S) -> str:
    """Run a scheme's golden episode.

    Args:
        kernel: path of the kernel.
        scheme: a key of ENVIRONMENTS.
        watchdog_s: silence after which the guest counts as hung (s).

    Returns:
        SHA-256 of its samples, in hex.

    Raises:
        SageccError: as from `run_episode`.
    """
    if scheme != POLICY:
        return run_episode(kernel, ENVIRONMENTS[scheme], scheme, watchdog_s=watchdog_s).sha256
    name = f"{POLICY_PREFIX}golden"
    return run_episode(kernel, ENVIRONMENTS[scheme], name, 0, per_flow(_golden_policy), watchdog_s=watchdog_s).sha256


def _golden_policy(sample: np.void) -> tuple[int, int]:
    """Return the action of a policy without a model: a window that follows the RTT, paced every other second."""
    second = int(sample["t_ns"]) // 10**9
    return 20 + int(sample["srtt_us"]) // 1000, second % 2 * 1_500_000
