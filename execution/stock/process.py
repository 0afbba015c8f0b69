# SPDX-License-Identifier: Apache-2.0
"""The agent's process: `python -m sagecc.execution.stock.process SOCKET POLICY RUNTIME SLOTS`."""

from __future__ import annotations

import sys

from sagecc.execution.stock import confinement


def main() -> int:
    """Run an agent; return the exit status."""
    confinement.shed()
    # Imported here because libraries start threads.
    from sagecc.execution.stock import driver

    end, policy, runtime, slots = sys.argv[1:]
    return driver.run(int(end), policy, runtime, int(slots))


if __name__ == "__main__":
    sys.exit(main())
