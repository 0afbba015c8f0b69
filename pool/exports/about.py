# SPDX-License-Identifier: Apache-2.0
"""How every exported form of the pool describes itself: name, licence, citation, conventions."""

from __future__ import annotations

from typing import Any

from sagecc.pool.exports.episodes import ACTIONS, PoolSource
from sagecc.schemas.pool import ACTION_LOG2_LIMIT, FEATURE_NAMES, MAX_REWARD
from sagecc.schemas.raw import TICK_S

NAME = "sagecc-pool"
TITLE = "sagecc policy pool"
LICENCE = "apache-2.0"
AUTHOR = "The sagecc authors"
TAGS = ("reinforcement-learning", "offline-rl", "congestion-control", "tcp", "networking")

SUMMARY = (
    "Trajectories of TCP congestion-control schemes of the Linux kernel over emulated networks, run in virtual time."
    " A row each 10 ms has what a scheme saw (69 features), what it did to its congestion window, and the"
    " reward that followed. For learning congestion control from data alone."
)

PAPER = (
    "Chen-Yu Yen, Soheil Abbasloo, H. Jonathan Chao: Computers Can Learn from the Heuristic Designs and Master Internet"
    " Congestion Control. ACM SIGCOMM 2023. https://doi.org/10.1145/3603269.3604838"
)
CITATION = """@inproceedings{yen2023sage,
  title     = {Computers Can Learn from the Heuristic Designs and Master Internet Congestion Control},
  author    = {Yen, Chen-Yu and Abbasloo, Soheil and Chao, H. Jonathan},
  booktitle = {Proceedings of the ACM SIGCOMM 2023 Conference},
  year      = {2023},
  doi       = {10.1145/3603269.3604838}
}"""


def conventions(source: PoolSource) -> dict[str, Any]:
    """Return what the exported numbers mean, as JSON values by name."""
    return {
        "observation": "69 features of the socket at a tick, float32; names and order in observation_names",
        "observation_names": list(FEATURE_NAMES),
        "action": f"{ACTIONS[source.action]}, float32, not clipped; sagecc's learner clips log2 to"
        f" +-{ACTION_LOG2_LIMIT:g}",
        "reward": f"as in the pool: R1 (reward_kind power) or R2 (friendliness), at most {MAX_REWARD:g}",
        "tick_s": TICK_S,
        "end": "every episode ends by its clock: truncated, never terminated",
        **source.about,
    }
