# SPDX-License-Identifier: Apache-2.0
"""A second process compiles what an agent calls, but for the features, with the agent's own types."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sagecc.common.shipped import BEST_POLICY
from sagecc.execution.agent.compilation import ended, started

AGENT = f"""
import numpy as np
from numba.core import event
from sagecc.execution.agent.policy_agent import PolicyAgent
from sagecc.schemas.wire import SAMPLE

compiled = []
class Listener(event.Listener):
    def on_start(self, event):
        compiled.append(event.data["dispatcher"].py_func)
    def on_end(self, event):
        pass

agent = PolicyAgent.load("{BEST_POLICY}")
with event.install_listener("numba:compile", Listener()):
    for tick in range(100):
        sample = np.zeros(1, SAMPLE)
        sample["t_ns"], sample["srtt_us"], sample["min_rtt_us"] = tick * 10_000_000, 40_000, 40_000
        sample["cwnd_pkts"], sample["mss_bytes"], sample["delivered_pkts"] = 10, 1448, 5 * tick
        agent.step(sample)
print({{function.__module__ for function in compiled if function.__module__.startswith("sagecc")}} or "nothing")
"""


def test_an_agent_finds_all_but_the_features_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    process = started(BEST_POLICY)
    assert process.wait(300) == 0
    ended(process)
    done = subprocess.run([sys.executable, "-c", AGENT], capture_output=True, text=True)
    assert done.stdout == "{'sagecc.pool.features'}\n", done.stderr
