# SPDX-License-Identifier: Apache-2.0
"""TensorFlow at its first use: a specification is read, and a finished run told of, without the seconds it loads in."""

from __future__ import annotations

from typing import Any


class _Lazy:
    """Stands for TensorFlow, as common.tensorflow_runtime loads it."""

    def __getattr__(self, name: str) -> Any:
        from sagecc.common import tensorflow_runtime

        return getattr(tensorflow_runtime.tf, name)


tf: Any = _Lazy()
