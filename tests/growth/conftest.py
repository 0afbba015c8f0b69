# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from sagecc.collector.run.collect import collect
from sagecc.collector.run.engines import local
from sagecc.pool.derivation import build_pool
from tests.helpers.networks import network


@pytest.fixture(scope="module")
def pool(kernel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("first")
    collect([network(12, 20, 1, 2)], ["cubic", "vegas"], folder / "raw", kernel, local(1), progress=False)
    build_pool(folder / "raw", folder / "pool", progress=False)
    return folder / "pool"
