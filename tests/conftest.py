# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer

from tests.helpers.parallel import GroupScheduling, rank

# A busy machine is no error.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

ROOT = Path(__file__).parent.parent
PACKAGES = ("common", "schemas", "collector", "pool", "policy", "learner", "execution", "growth", "leagues", "sagecc")
"""What an installation has, in the order in which data pass: none imports one after it."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the files that import TensorFlow unread where their tests are not wanted: the import takes ten seconds."""
    if collection_path.suffix != ".py" or "not tensorflow" not in config.option.markexpr:
        return None
    return "\npytestmark = pytest.mark.tensorflow\n" in collection_path.read_text() or None


def pytest_itemcollected(item: pytest.Item) -> None:
    if "kernel" in getattr(item, "fixturenames", ()):
        item.add_marker("kernel")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: rank(item.nodeid))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> GroupScheduling:
    config.option.loadscopereorder = False  # `rank` has put them in order
    return GroupScheduling(config, log)


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


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP do to pytest what they did before a test in whose process a command took them over."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in handlers.items():
        if handler is not None:  # None: of no Python code
            signal.signal(number, handler)


@pytest.fixture(scope="session")
def kernel() -> Path:
    """The built kernel; `make test` builds it first."""
    path = ROOT / "build" / "sagecc-linux"
    assert path.is_file(), "no kernel: run 'make test', or 'sagecc kernel' before pytest"
    return path
