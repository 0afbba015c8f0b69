# SPDX-License-Identifier: Apache-2.0
"""A policy's folder: its files are read when they are asked for, or beforehand by who may not open files later."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from sagecc.common import shipped
from sagecc.common.errors import SageccError
from sagecc.common.inputs import DOCUMENT_BYTES, read_regular
from sagecc.common.suggestions import did_you_mean
from sagecc.policy.bounds import NETWORK_BYTES

CARD = "card.json"
WEIGHTS, LITERT, ONNX, INT8 = "policy.safetensors", "policy.tflite", "policy.onnx", "policy.int8.tflite"
"""Files beside the card; policy.export writes all but the first."""


@dataclass(frozen=True)
class PolicyFolder:
    """Where a policy's files are read."""

    path: Path
    held: Mapping[str, bytes | OSError] | None = None
    """What was read beforehand: contents by name, or why there is none. None: files are read when asked for."""

    @classmethod
    def find(cls, path: Path | str) -> Self:
        """Return the folder of a policy.

        Args:
            path: the folder, or the name of a policy that comes with sagecc.

        Raises:
            SageccError: there is none.
        """
        folder = shipped.policy(path)
        if not folder.is_dir():
            hint = did_you_mean(str(path), shipped.policies())
            raise SageccError(
                f"no policy at {folder}: expected a folder with {CARD}; train one with 'sagecc train', or name"
                f" {shipped.BEST_POLICY}, which comes with sagecc{hint}"
            )
        return cls(folder)

    def hold(self, names: Iterable[str]) -> PolicyFolder:
        """Read some of the files now, without a look into them; no other is readable then."""
        return PolicyFolder(self.path, {name: self._content(name) for name in names})

    def read(self, name: str) -> bytes:
        """Return a file's content; raises OSError or SageccError where it cannot be read."""
        if self.held is None:
            return read_regular(self.path / name, DOCUMENT_BYTES if name == CARD else NETWORK_BYTES)
        content = self.held[name]
        if isinstance(content, OSError):
            raise content
        return content

    def _content(self, name: str) -> bytes | OSError:
        try:
            return self.read(name)
        except OSError as error:
            return error
