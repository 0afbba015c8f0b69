# SPDX-License-Identifier: Apache-2.0
"""Imports Sage: from the TensorFlow 2 checkpoint that its authors published to a policy artefact.

The network is that of sage_rl/offline/offline_agent.py (make_networks) at commit eedd281 of its public code: layers of
Acme and Sonnet in a DeepRNN. It is the kind `sage` (policy.residual); a Linear's weights are [inputs, outputs] and a
GRU's gates in the same order in both, so that only the names differ.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Floats
from sagecc.common.errors import SageccError
from sagecc.execution.schemes.sage import control, observation
from sagecc.execution.schemes.sage.observation import OBSERVATIONS, SOURCE
from sagecc.policy import artefact
from sagecc.policy.importing import Imported, Origin, Variables, provenance, refuse_other, write_whole
from sagecc.policy.residual import NetworkSizes
from sagecc.policy.scaling import unscaled
from sagecc.policy.tensorflow_checkpoint import prefix_of, read

ORIGIN = Origin(
    name="sage",
    network="Sage's policy",
    licence={
        "code": "https://github.com/Soheil-ab/sage",
        "paper": "Computers Can Learn from the Heuristic Designs and Master Internet Congestion Control, SIGCOMM 2023",
        "licence": "MIT",
        "copyright": "Copyright (c) 2023 Soheil Abbasloo and Chen-Yu Yen",
    },
)

SIZES = NetworkSizes(
    inputs=len(OBSERVATIONS),
    width=256,  # rl_module/config-rl-eval.yaml: p_enc_size, p_mlp_size
    gru=1024,  # policy_lstm_size
    residual_blocks=2,  # p_mlp_depth
    mixture=5,  # make_networks: num_components
    min_scale=1e-4,  # Acme's MultivariateGaussianMixture: _MIN_SCALE
)

POLICY, END = "policy/_layers/", "/.ATTRIBUTES/VARIABLE_VALUE"
SIGNATURE = f"signature{END}"
"""Of the published model it is 20230806 (rl_module/test_loading_sage_model.py:89)."""


def _linear(ours: str, theirs: str) -> dict[str, str]:
    return {f"{ours}.{part}": f"{theirs}/{part}" for part in ("w", "b")}


def _norm(ours: str, theirs: str) -> dict[str, str]:
    return {f"{ours}.norm.{part}": f"{theirs}/{part}" for part in ("scale", "offset")}


NAMES: Mapping[str, str] = MappingProxyType(
    {
        **_linear("encoder", "0/_proprio_encoder/_network/_layers/0"),
        **_norm("encoder", "0/_proprio_encoder/_network/_layers/1"),
        "gru.w_i": "1/_w_i",
        "gru.w_h": "1/_w_h",
        "gru.b": "1/b",
        **_linear("encoder2", "2/_proprio_encoder/_network/_layers/0"),
        **_norm("encoder2", "2/_proprio_encoder/_network/_layers/1"),
        **_linear("fc", "3/_module/_layers/0/_layers/0"),
        **_linear("residual0.linear0", "3/_module/_layers/1/_layer/_layers/0"),
        **_linear("residual0.linear1", "3/_module/_layers/1/_layer/_layers/1"),
        **_norm("residual0", "3/_module/_layers/1/_layer_norm"),
        **_linear("residual1.linear0", "3/_module/_layers/2/_layer/_layers/0"),
        **_linear("residual1.linear1", "3/_module/_layers/2/_layer/_layers/1"),
        **_norm("residual1", "3/_module/_layers/2/_layer_norm"),
        **_linear("head.logits", "4/_logit_layer"),
        **_linear("head.loc", "4/_loc_layer"),
        **_linear("head.scale", "4/_scale_layer"),
    }
)
"""By our name of a weight theirs, between POLICY and END."""


def rules() -> dict[str, str]:
    """Return the rules of the public code that an import may be without, by name."""
    return {**observation.RULES, **control.RULES}


def import_checkpoint(checkpoint: Path, out: Path, without: Collection[str] = ()) -> Imported:
    """Turn the policy in a checkpoint into a policy artefact.

    Args:
        checkpoint: the folder that holds its files, one of them, or their common prefix (models/ckpt-1).
        out: the artefact's folder.
        without: which of `rules` are not to hold.

    Raises:
        SageccError: The checkpoint is not one of Sage's policy or is damaged, there is no such rule, or `out` exists
            and is not an earlier import; nothing has been written then.
    """
    if unknown := sorted(set(without) - rules().keys()):
        raise SageccError(f"--without {unknown[0]}: no such rule; there are {', '.join(rules())}")
    refuse_other(out, ORIGIN)
    prefix = prefix_of(checkpoint)
    values = read(prefix, lambda name: name.startswith("policy/") or name == SIGNATURE)
    weights = network(values, prefix)
    signature = {"signature": int(values[SIGNATURE])} if SIGNATURE in values else {}
    card = provenance(ORIGIN, prefix, **signature)
    seen = [rule for rule in observation.RULES if rule in without]

    def write(folder: Path) -> None:
        artefact.write(
            folder,
            weights,
            SIZES,
            unscaled(SIZES.inputs),
            OBSERVATIONS,
            card,
            control=control.control(without),
            source=SOURCE,
            without=seen,
        )

    write_whole(out, write)
    return Imported(out, SIZES.parameters)


def network(values: Mapping[str, npt.NDArray[Any]], checkpoint: object) -> dict[str, Floats]:
    """Return the policy's weights.

    Args:
        values: the checkpoint's variables by name.
        checkpoint: path of the checkpoint, for errors.

    Raises:
        SageccError: A variable is missing, is one too many, has another shape, or holds values that are not finite.
    """
    variables = Variables(values, checkpoint, ORIGIN.network)
    theirs = {ours: f"{POLICY}{name}{END}" for ours, name in NAMES.items()}
    weights = {ours: variables.value(theirs[ours], *shape) for ours, shape in SIZES.shapes().items()}
    if strangers := sorted(name for name in values.keys() - theirs.values() if name.startswith("policy/")):
        raise SageccError(f"{checkpoint} has a variable '{strangers[0]}', which {ORIGIN.network} has not")
    return {name: weight.astype(np.float32) for name, weight in weights.items()}
