# SPDX-License-Identifier: Apache-2.0
"""The scheme of a run in its sender's kernel; a policy drives it from this host."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sagecc.common import shipped
from sagecc.execution.stock.supervisor import driving
from sagecc.schemas.schemes import POLICY_PREFIX

POLICY_FLOWS = 4
"""Most sockets of a policy: one at a time, and those that are closing."""
RUNTIME = "exact"


@contextmanager
def in_kernel(scheme: str) -> Iterator[str]:
    """Yield the name that this host's kernel has for a scheme, while a policy drives it where it is one.

    One policy at a time: all have the same name in the kernel.

    Raises:
        SageccError: policy or machine cannot, or the agent ended during the run.
    """
    if not scheme.startswith(POLICY_PREFIX):
        yield scheme
        return
    policy = shipped.policy(scheme.removeprefix(POLICY_PREFIX))
    with driving(policy, RUNTIME, POLICY_FLOWS) as (supervisor, loaded, _):
        yield loaded.name
        supervisor.check(0)
