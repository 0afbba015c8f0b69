# SPDX-License-Identifier: Apache-2.0
"""Versions: of what the project's parts come to, and of file formats.

A part's version stands for its code wherever something says what it was made by: a training run, a compiled pool, a
kept league, the stages of every dvc.yaml. `tests/golden` pins what a short run of each part comes to. Where that
changes, raise the part's version and run `make golden`; what changes no byte raises none. The lab's own is
collector.kernel.identity.LAB_VERSION, a rival's own lies in its folder (execution.schemes).
"""

from __future__ import annotations

RAW = 1
"""`sagecc collect`: the profiles' networks, and files of raw trajectories; their rows are the lab's."""

POOL = 1
"""`sagecc pool`: features, rewards, files of a derived pool."""

COMPILED = 2
"""`sagecc compile`: rows, episodes and moments of a compiled pool."""

LABS = 1
"""Labs for whoever learns: observations and rewards, from actions in networks."""

CRR = 1
"""`sagecc train` from a pool by CRR: from its windows to the weights."""

TD3_BC = 1
"""The same by TD3+BC and ReBRAC."""

CQL = 1
"""The same by conservative Q-learning."""

BC = 1
"""`sagecc train` from a pool by behaviour cloning: from its windows to the weights."""

AWR = 1
"""`sagecc train` from a pool by advantage-weighted regression: from its windows to the weights."""

TD3 = 1
"""`sagecc train` in labs by TD3: from what the labs say to the weights."""

DAGGER = 1
"""`sagecc train` in labs by DAgger: from what the labs say to the weights."""

POLICY = 1
"""A policy in charge of a flow: from its weights and the flow's counters to windows."""

USER_SPACE = 1
"""Schemes in user space: what a scheme's class is told, and what its actions become."""

JUDGING = 1
"""`sagecc judge`: what a pool's trajectories say of a policy."""

GROWTH = 1
"""`sagecc grow`: how a round's policy explores, and how its episodes join the pool."""

LEAGUE = 1
"""`sagecc league`: scores, standings, harm."""

DISTANCE = 1
"""`sagecc distance`."""

SIMILARITY = 1
"""`sagecc similarity`."""

TSNE = 1
"""`sagecc tsne`."""

REPORT = 5
"""`sagecc report`: the league's page and pictures."""

STUDY = 4
"""`sagecc study`: what is measured of several flows, and its page."""


def same_major(version: str, supported: str) -> bool:
    """Tell whether a file of format `version` can be read by a program that writes `supported`."""
    return version.partition(".")[0] == supported.partition(".")[0]
