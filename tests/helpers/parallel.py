# SPDX-License-Identifier: Apache-2.0
"""Which tests stay in one process, one after the other, when a run has several (pytest-xdist)."""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling

GROUPS = {
    "the memory of training processes": (
        "learner/test_train.py",
        "learner/test_strategy.py",
        "learner/test_evaluation.py",
        "learner/online/test_online_train.py",
        "execution/test_online.py",
        "growth/test_grow.py",
    ),
    "the memory of a process that has loaded TensorFlow": (
        "learner/test_crr.py",
        "learner/test_td3.py",
        "learner/test_dagger.py",
        "learner/test_iql.py",
        "learner/test_td3_bc.py",
        "learner/test_cql.py",
        "learner/test_configs.py",
        "learner/test_mixture.py",
        "learner/test_acme_compat.py",
        "learner/test_histograms.py",
        "policy/test_artefact.py",
        "execution/schemes/test_orca_checkpoint.py",
        "pool/test_exports.py",
    ),
    "this machine's own kernel": (
        "collector/test_realtime.py",
        "execution/test_attach.py",
        "execution/test_exec.py",
        "execution/test_kernel_scheme.py",
        "sagecc/test_doctor.py",
    ),
    "DVC": ("scripts/test_repro.py", "scripts/test_stages.py"),
    "Ray": ("collector/test_ray.py",),
    "notebooks": ("scripts/test_notebooks.py",),
}
"""What only one test at a time may have, and the files whose tests do; the longest first, so that none is left over."""

OF_FILE = {f"tests/{file}": group for group, files in GROUPS.items() for file in files}


def group(nodeid: str) -> str:
    """Return a test's group; a file in none is one of its own, for what its fixtures make is made once a process."""
    file = nodeid.split("::")[0]
    return OF_FILE.get(file, file)


def rank(nodeid: str) -> int:
    """Return when a test's turn comes."""
    found = group(nodeid)
    return list(GROUPS).index(found) if found in GROUPS else len(GROUPS)


class GroupScheduling(LoadFileScheduling):
    """Gives whole groups to processes."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)
