# SPDX-License-Identifier: Apache-2.0
"""What `collect` needs of schemes in user space."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sagecc.collector.lab.spec import Drive
from sagecc.collector.run.task import ControllerFactory
from sagecc.execution.lab.controllers import policy_controller, policy_drives
from sagecc.schemas.schemes import POLICY_PREFIX, is_driven


@dataclass(frozen=True)
class Players:
    """Arguments of collector.run.collect.collect, by their names."""

    controllers: ControllerFactory | None = None
    """Makes the controller of an episode."""
    drives: Mapping[str, Drive] = field(default_factory=dict)
    """By scheme, how its flows are driven."""
    players: Mapping[str, str] = field(default_factory=dict)
    """By scheme, JSON with the digest of its code."""


def players(schemes: Sequence[str]) -> Players:
    """Return what runs the schemes in user space among these; policies are left to leagues.

    Raises:
        SageccError: there is no such file or class.
    """
    names = [name for name in schemes if is_driven(name) and not name.startswith(POLICY_PREFIX)]
    if not names:
        return Players()
    drives = policy_drives(names)
    return Players(policy_controller, drives, {name: json.dumps({"sha256": drives[name].sha256}) for name in names})
