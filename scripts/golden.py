# SPDX-License-Identifier: Apache-2.0
"""Pins the bytes of the episodes: writes collector/run/golden.json from the kernel in build/, says what changed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from sagecc.collector.kernel.identity import LAB_VERSION
from sagecc.collector.run.golden import ENVIRONMENTS, FILE, digest, pinned

KERNEL = Path(__file__).resolve().parents[1] / "build" / "sagecc-linux"


def main() -> None:
    """Write the file."""
    before: dict[str, Any] = pinned() if FILE.exists() else {"lab_version": 0, "sha256": {}}
    after = {scheme: digest(KERNEL, scheme) for scheme in ENVIRONMENTS}
    changed = [scheme for scheme, sha256 in after.items() if before["sha256"].get(scheme) != sha256]
    FILE.write_text(json.dumps({"lab_version": LAB_VERSION, "sha256": after}, indent=1) + "\n")
    print(f"lab {before['lab_version']} -> {LAB_VERSION}; changed: {', '.join(changed) or 'none'}", file=sys.stderr)


if __name__ == "__main__":
    main()
