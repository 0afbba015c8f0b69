# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime, imported so that it keeps to itself what it runs: from 1.29 on it reports every model to its makers."""

from __future__ import annotations

import os

from sagecc.common.optional import requires_extra

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
with requires_extra("onnx"):
    import onnxruntime

__all__ = ["onnxruntime"]
