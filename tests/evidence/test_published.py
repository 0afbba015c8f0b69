# SPDX-License-Identifier: Apache-2.0
"""Published models play where a variable names their files."""

from __future__ import annotations

from pathlib import Path

import pytest

from evidence.published import SAGE, published
from sagecc.common.errors import SageccError
from tests.helpers.sage_model import save_model

pytestmark = pytest.mark.heavy


def test_a_model_plays_where_its_variable_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SAGECC_SAGE", raising=False)
    assert published(SAGE, tmp_path / "sage") is None
    save_model(tmp_path / "files")
    monkeypatch.setenv("SAGECC_SAGE", str(tmp_path / "files"))
    assert published(SAGE, tmp_path / "sage") == f"policy:{tmp_path}/sage"
    assert (tmp_path / "sage" / "card.json").exists()
    monkeypatch.setenv("SAGECC_SAGE", str(tmp_path))
    with pytest.raises(SageccError, match="holds no checkpoint"):
        published(SAGE, tmp_path / "sage")
