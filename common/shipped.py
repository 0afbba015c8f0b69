# SPDX-License-Identifier: Apache-2.0
# Not followed as an import: where a kernel or a policy lies is no part of what it does.
"""What comes with sagecc beside its code: the lab's kernel, a policy, environments to begin with.

An installation has it in the package's folder `shipped`, where `make wheel` puts it; in a checkout it lies where the
repository has it. What lies in the working directory comes first.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
"""The package's folder; in a checkout, where the package's parts are links, that of the repository."""

FOLDER = _PACKAGE / "shipped"
INSTALLED = FOLDER.is_dir()

KERNEL = FOLDER / "sagecc-linux" if INSTALLED else _PACKAGE / "build" / "sagecc-linux"
POLICIES = FOLDER / "policies" if INSTALLED else _PACKAGE / "models"
SOURCE = FOLDER / "source" / "linux-source-6.12.tar.xz"
"""What the kernel was built from, less our part, which is in collector/kernel; only an installation has it."""
ENVIRONMENTS = FOLDER / "environments" if INSTALLED else _PACKAGE / "docs" / "examples" / "environments"

BUILT = Path("build") / "sagecc-linux"
"""Where `sagecc kernel` puts a kernel that it builds, seen from the working directory."""


def kernel() -> Path:
    """Return the kernel to run: the one that was built in the working directory, else ours."""
    return KERNEL if KERNEL.is_file() and not BUILT.is_file() else BUILT


def policy(path: Path | str) -> Path:
    """Return the folder of a policy: `path`, or where there is none and it is a mere name, ours of that name."""
    return _found(Path(path), POLICIES)


def environment(path: Path) -> Path:
    """Return an environment file: `path`, or where there is none and it is a mere name, ours of that name."""
    return _found(path, ENVIRONMENTS)


def _found(path: Path, folder: Path) -> Path:
    ours = folder / path.name
    return ours if path == Path(path.name) and not path.exists() and ours.exists() else path
