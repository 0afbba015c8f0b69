# SPDX-License-Identifier: Apache-2.0
"""What imports of others' trained policies share: checked variables, where a policy comes from, a folder made whole."""

from __future__ import annotations

import glob
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sagecc.common.errors import SageccError
from sagecc.common.files import sha256_file
from sagecc.common.inputs import read_regular
from sagecc.policy.artefact import PolicyArtefact

NOTICES = ("COPYRIGHT", "copyright", "LICENSE", "LICENCE")
"""Files next to a checkpoint, or in the folder above, that may hold its terms; the first one's text is kept."""


@dataclass(frozen=True)
class Origin:
    """Whose policies these are."""

    name: str
    """Of the scheme."""
    network: str
    """What the checkpoint is of, for errors."""
    licence: Mapping[str, str]
    """Code, paper, licence and copyright, for the card."""


@dataclass(frozen=True)
class Imported:
    """The artefact made from a checkpoint."""

    folder: Path
    """The artefact's folder."""
    parameters: int
    """Number of the network's parameters."""
    step: int | None = None
    """Optimiser step of the checkpoint, where it has one."""


@dataclass(frozen=True)
class Variables:
    """The variables of a checkpoint."""

    values: Mapping[str, npt.NDArray[Any]]
    """By name."""
    checkpoint: object
    """Its path, for errors."""
    network: str
    """What it is to be of, for errors."""

    def value(self, name: str, *shape: int) -> npt.NDArray[np.float64]:
        """Return a variable in double precision.

        Args:
            name: its name.
            shape: its shape; -1 stands for any size.

        Raises:
            SageccError: It is missing, has another shape, or holds values that are not finite.
        """
        if name not in self.values:
            raise SageccError(f"{self.checkpoint} has no variable '{name}': it is no checkpoint of {self.network}")
        array = np.asarray(self.values[name])
        if array.ndim != len(shape) or any(size not in (-1, n) for size, n in zip(shape, array.shape, strict=True)):
            shape_text = " x ".join("any" if size < 0 else str(size) for size in shape)
            raise SageccError(
                f"{self.checkpoint}: variable '{name}' has the shape {array.shape}, {self.network} {shape_text}"
            )
        if not np.isfinite(array).all():
            raise SageccError(f"{self.checkpoint}: variable '{name}' holds values that are not finite")
        return array.astype(np.float64)


def provenance(origin: Origin, prefix: Path, **counters: int) -> dict[str, Any]:
    """Return a card's fields on where an imported policy comes from.

    Args:
        origin: whose it is.
        prefix: the common prefix of its checkpoint's files.
        counters: what else the checkpoint says of itself, such as its `step`.
    """
    files = sorted(file for file in prefix.parent.glob(f"{glob.escape(prefix.name)}.*") if file.suffix != ".meta")
    places = [folder / name for folder in (prefix.parent, prefix.absolute().parent.parent) for name in NOTICES]
    notices = [place for place in places if place.is_file()]
    return {
        "imported": {
            "from": origin.name,
            "checkpoint": prefix.name,
            "sha256": {file.name: sha256_file(file) for file in files},
            **counters,
            **origin.licence,
            "notice": read_regular(notices[0]).decode(errors="replace") if notices else "",
        }
    }


def refuse_other(out: Path, origin: Origin) -> None:
    """Raise SageccError unless `out` is missing, empty or an earlier import."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    try:
        is_import = PolicyArtefact.load(out).card.get("imported", {}).get("from") == origin.name
    except SageccError:
        is_import = False
    if not is_import:
        raise SageccError(
            f"{out} exists and is no policy imported from {origin.name}: choose another --out, or remove it"
        )


def write_whole(out: Path, write: Callable[[Path], None]) -> None:
    """Have an artefact written into a folder, which is made only once it is whole.

    Args:
        out: the folder.
        write: writes into a folder that it is given.
    """
    if out.is_dir() and any(out.iterdir()):
        write(out)
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".tmp-{out.name}-", dir=out.parent) as temporary:
        folder = Path(temporary) / out.name
        write(folder)
        folder.replace(out)
