# SPDX-License-Identifier: Apache-2.0
"""evidence/speed/chain.py: what it reads is what `make repro` prints."""

import sys
from pathlib import Path

import pytest

from evidence.speed.chain import kinds, timed
from sagecc.common.errors import SageccError
from scripts.dvc_repro import times


def test_it_reads_where_the_time_of_a_chain_went() -> None:
    said = times({"kernel": 120.0, "collect@cubic": 30.0, "collect@vegas": 33.0, "pool": 6.0}, 195.0)
    assert kinds(f"make repro: stage 1/4\n{said}\n") == [
        {"kind": "kernel", "minutes": 2.0, "what": "1 stage"},
        {"kind": "collect", "minutes": 1.1, "what": "2 stages"},
        {"kind": "pools", "minutes": 0.1, "what": "1 stage"},
        {"kind": "DVC", "minutes": 0.1, "what": "hashes, lock files"},
    ]


def test_a_command_that_fails_is_no_measurement(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    figures, said = timed([sys.executable, "-c", "import sys; sys.exit(print('went', file=sys.stderr))"], tmp_path, {})
    assert said == "went\n" and figures["minutes"] > 0
    with pytest.raises(SageccError, match="failed: what it said is above"):
        timed([sys.executable, "-c", "raise SystemExit('no')"], tmp_path, {})
    assert "no" in capfd.readouterr().err
