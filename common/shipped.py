# SPDX-License-Identifier: Apache-2.0
# Not followed as an import: where a kernel or a policy lies is no part of what it does.
"""Files that are shipped with sagecc: the lab's kernel, a policy, example environments, sets of them.

An installation has them in the package's folder `shipped`, where `make wheel` puts them; a checkout has them at their
places in the repository. Files in the working directory take precedence.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
"""The package's folder; in a checkout, whose packages are links, that of the repository."""

FOLDER = _PACKAGE / "shipped"
INSTALLED = FOLDER.is_dir()

KERNEL = FOLDER / "sagecc-linux" if INSTALLED else _PACKAGE / "build" / "sagecc-linux"
POLICIES = FOLDER / "policies" if INSTALLED else _PACKAGE / "models"
BEST_POLICY, POOL_POLICY = "sagecc-10", "sagecc-1"
"""Names of the two that come along: the one that won most, and the one that learned from the pool alone."""
A_POLICY = f"a policy's folder, or {BEST_POLICY} or {POOL_POLICY}, which come with sagecc"
"""What names a policy, for the help of what takes one."""
SOURCE = FOLDER / "source" / "linux-source-6.12.tar.xz"
"""Upstream source of the kernel, without what collector/kernel adds; only an installation has it."""
ENVIRONMENTS = FOLDER / "environments" if INSTALLED else _PACKAGE / "docs" / "examples" / "environments"
SETS = FOLDER / "sets" if INSTALLED else _PACKAGE / "docs" / "examples" / "sets"

BUILT = Path("build") / "sagecc-linux"
"""Where `sagecc kernel` puts the kernel that it builds, relative to the working directory."""


def kernel() -> Path:
    """Return the path of the kernel to run: the one built in the working directory, else the shipped one."""
    return KERNEL if KERNEL.is_file() and not BUILT.is_file() else BUILT


def policy(path: Path | str) -> Path:
    """Return the folder of a policy.

    Args:
        path: the folder, or the mere name of a shipped policy.
    """
    return _resolved(Path(path), POLICIES)


def environment(path: Path) -> Path:
    """Return the path of an environment file.

    Args:
        path: the file, or the mere name of a shipped one.
    """
    return _resolved(path, ENVIRONMENTS)


def environment_set(path: Path) -> Path:
    """Return the path of a set file.

    Args:
        path: the file, or the mere name of a shipped one, with or without `.yaml`.
    """
    return _resolved(path, SETS) if path.suffix or path.exists() else _resolved(path.with_suffix(".yaml"), SETS)


def environment_sets() -> tuple[str, ...]:
    """Return the names of the sets that are shipped."""
    return tuple(sorted(path.stem for path in SETS.glob("*.yaml")))


def _resolved(path: Path, folder: Path) -> Path:
    """Return `path`, or, where it is a mere name and does not exist, the file of that name in `folder`, if any."""
    shipped = folder / path.name
    return shipped if path == Path(path.name) and not path.exists() and shipped.exists() else path
