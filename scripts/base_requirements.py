# SPDX-License-Identifier: Apache-2.0
"""Prints the part of requirements/requirements.txt that the wheel needs, hashes with it.

Before there is an environment: with Python's own library alone.
"""

from __future__ import annotations

import configparser
import re
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements" / "requirements.txt"


def blocks(lock: str) -> dict[str, str]:
    """Return each package's lines of a lock by its name."""
    parts = re.split(r"^(?=[A-Za-z0-9])", lock, flags=re.MULTILINE)
    return {part.partition("==")[0]: part for part in parts if "==" in part}


def parents(block: str) -> set[str]:
    """Return the packages that the lock says a package is there for."""
    return set(re.findall(r"^ +# (?:via |  +)([\w.-]+)$", block, re.MULTILINE))


def needed(packages: Mapping[str, str], wanted: set[str]) -> set[str]:
    """Return the wanted packages, and all that are there for them."""
    found = set(wanted)
    while more := {name for name, block in packages.items() if name not in found and parents(block) & found}:
        found |= more
    return found


def setup_cfg(root: Path) -> configparser.ConfigParser:
    """Return what a checkout's setup.cfg says."""
    project = configparser.ConfigParser()
    project.read(root / "setup.cfg")
    return project


def base() -> set[str]:
    """Return the packages that setup.cfg has a wheel require."""
    return {line.split()[0] for line in setup_cfg(ROOT)["options"]["install_requires"].split("\n") if line}


def main() -> None:
    """Print them."""
    packages = blocks(LOCK.read_text())
    found = needed(packages, base())
    print("".join(block for name, block in packages.items() if name in found), end="")


if __name__ == "__main__":
    main()
