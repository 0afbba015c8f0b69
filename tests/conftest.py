# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import settings

# A busy machine is no error.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

ROOT = Path(__file__).parent.parent
PACKAGES = ("common", "schemas", "collector", "pool", "policy", "learner", "execution", "leagues", "sagecc")
"""What an installation has, in the order in which data pass: none imports one after it."""

LONGEST = ("tensorflow", "machine", "dvc", "ray")
"""Groups of tests (xdist_group) that run one after the other: they need much memory, this machine's own kernel, DVC or
Ray for themselves. In the order in which they begin, so that none is left when all else is done."""


@pytest.hookimpl(tryfirst=True)  # before xdist, which reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep each file's other tests together, for what its fixtures make is made once a process."""
    place: dict[pytest.Item, int] = {}
    for item in items:
        mark = item.get_closest_marker("xdist_group")
        if mark is None:
            item.add_marker(pytest.mark.xdist_group(item.path.relative_to(ROOT).as_posix()))
        place[item] = LONGEST.index(mark.args[0]) if mark else len(LONGEST)
    items.sort(key=place.__getitem__)


def copy_project(folder: Path) -> None:
    """Make `folder` a Git repository of this project's files as they are, uncommitted changes included."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file() or (ROOT / name).is_symlink():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    git = ["git", "-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "init.defaultBranch=main"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "as it is"]):
        subprocess.run([*git, *command], cwd=folder, check=True)


@pytest.fixture(scope="session")
def kernel() -> Path:
    """The built kernel; `make test` builds it first."""
    path = ROOT / "build" / "sagecc-linux"
    assert path.is_file(), "no kernel: run 'make test', or 'sagecc kernel' before pytest"
    return path
