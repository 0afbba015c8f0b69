# SPDX-License-Identifier: Apache-2.0
"""Files that are shipped with sagecc: the lab's kernel, a policy, configurations, example environments, sets of them.

An installation has kernel and policies in the package's folder `shipped`, where `make wheel` puts them; a checkout has
them at their places in the repository. What lies in the working directory stands for none of them: a mere name means
what comes with sagecc, and where the same name lies here too, it is an error that says how to write either.
"""

from __future__ import annotations

from pathlib import Path

from sagecc.common.errors import SageccError

_PACKAGE = Path(__file__).resolve().parents[1]
"""The package's folder; in a checkout, whose packages are links, that of the repository."""

FOLDER = _PACKAGE / "shipped"
INSTALLED = FOLDER.is_dir()

KERNEL = FOLDER / "sagecc-linux" if INSTALLED else _PACKAGE / "build" / "sagecc-linux"
"""The lab's kernel, unless another is named: in a checkout, where `sagecc kernel` puts the one that it builds."""
POLICIES = FOLDER / "policies" if INSTALLED else _PACKAGE / "models"
SAFEST_POLICY, BEST_POLICY, POOL_POLICY = SHIPPED = ("sagecc-12", "sagecc-10", "sagecc-1")
"""Names of those that come along: what meets most conditions of `sagecc vet`, of the pool alone; what learned in labs;
and the first that learned from the pool.
"""
A_POLICY = f"a policy's folder, or {SAFEST_POLICY}, {BEST_POLICY} or {POOL_POLICY}, which come with sagecc"
"""What names a policy, for the help of what takes one."""
SOURCE = FOLDER / "source" / "linux-source-6.12.tar.xz"
"""Upstream source of the kernel, without what collector/kernel adds; only an installation has it."""
ENVIRONMENTS, SETS = _PACKAGE / "schemas" / "environments", _PACKAGE / "schemas" / "sets"


def configurations() -> dict[str, Path]:
    """Return the training configurations that come along, by name: the learner's, and those in the rivals' folders."""
    folders = (_PACKAGE / "learner" / "configs", *sorted((_PACKAGE / "execution" / "schemes").iterdir()))
    return {path.stem: path for folder in folders for path in sorted(folder.glob("*.yaml"))}


def policies() -> tuple[str, ...]:
    """Return the names of the policies that come along."""
    return tuple(sorted(path.parent.name for path in POLICIES.glob("*/card.json")))


def policy(name: Path | str) -> Path:
    """Return the folder of a policy.

    Args:
        name: the folder, or as a text the mere name of a shipped policy.

    Raises:
        SageccError: a shipped policy and something here have that name.
    """
    return _found(name, POLICIES)


def environment(name: Path | str, folder: Path = Path()) -> Path:
    """Return the path of an environment file.

    Args:
        name: the file, or as a text the mere name of a shipped one.
        folder: what a path is relative to.

    Raises:
        SageccError: a shipped file and one in the folder have that name.
    """
    return _found(name, ENVIRONMENTS, folder)


def environments() -> tuple[str, ...]:
    """Return the names of the shipped environment files and traces."""
    return tuple(sorted(path.name for path in ENVIRONMENTS.iterdir() if path.name != "schema.json"))


def environment_set(name: str) -> Path:
    """Return the path of a set file.

    Args:
        name: the file, or the mere name of a shipped one; with or without `.yaml`.

    Raises:
        SageccError: a shipped set and a file here have that name.
    """
    if Path(name).suffix:
        return _found(name, SETS)
    path = _found(f"{name}.yaml", SETS)
    if not Path(name).is_file():
        return path
    if path.parent == SETS:
        raise _ambiguous(name, path)
    return Path(name)


def environment_sets() -> tuple[str, ...]:
    """Return the names of the sets that are shipped."""
    return tuple(sorted(path.stem for path in SETS.glob("*.yaml")))


def _found(name: Path | str, place: Path, folder: Path = Path()) -> Path:
    """Return the path that a name means: where it is the mere name of what is shipped in `place`, that one's."""
    own, shipped = folder / name, place / name
    mere = isinstance(name, str) and Path(name).name == name.rstrip("/") and name not in ("", "..")
    if not mere or not shipped.exists():
        return own
    if own.exists() and not own.samefile(shipped):
        raise _ambiguous(shipped.name, shipped)
    return shipped


def _ambiguous(name: str, shipped: Path) -> SageccError:
    return SageccError(f"{name} comes with sagecc and lies here too: write ./{name} for the one here, or {shipped}")
