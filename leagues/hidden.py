# SPDX-License-Identifier: Apache-2.0
"""A policy's last hidden layer in different networks, as a map (section 7.4 and Fig. 16 of the Sage paper)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from sagecc.common.arrays import Floats
from sagecc.common.errors import SageccError
from sagecc.common.optional import requires_extra
from sagecc.execution.agent.policy_agent import PolicyAgent
from sagecc.policy.artefact import PolicyArtefact
from sagecc.policy.exact import ExactOps, scaled

with requires_extra("analysis"):
    from sklearn.manifold import TSNE
    from sklearn.neighbors import NearestNeighbors
    from threadpoolctl import threadpool_limits

MAP_SCHEMA = {
    "policy": pl.String,
    "set": pl.String,
    "environment_id": pl.String,
    "t_s": pl.Float64,
    "x": pl.Float64,
    "y": pl.Float64,
}
"""One row per decision: its coordinates by t-SNE. Only nearness has a meaning, neither axes nor positions."""

PERPLEXITY = 30.0
NEIGHBOURS = 10
"""Neighbours of a point that tell how well a layer keeps environments apart."""

HEADS = MappingProxyType({"sage": "head.logits.w", "mlp": "answer.w", "recurrent": "answer.w", "choice": "scores.w"})
"""By kind of network, the first weight that the last hidden layer's output is multiplied with."""


@dataclass(frozen=True)
class HiddenLayer:
    """A policy's last hidden layer along one trajectory."""

    set: str
    environment_id: str
    t_s: npt.NDArray[np.float64]
    """When the policy decided [n]."""
    values: Floats
    """The layer's output at each decision [n, width]."""


class _RecordingOps(ExactOps):
    """The policy's arithmetic, which records the input of its head."""

    def __init__(self, head: Floats) -> None:
        super().__init__()
        self._head = head
        self.recorded: list[Floats] = []

    def linear(self, x: Any, w: Floats, b: Floats) -> Any:
        """Return x w + b."""
        if w is self._head:
            self.recorded.append(np.array(x[0]))
        return super().linear(x, w, b)


def last_hidden(policy: Path, raw: pa.Table) -> tuple[npt.NDArray[np.float64], Floats, npt.NDArray[np.int64]]:
    """Replay a policy's decisions along a trajectory that it drove.

    Args:
        policy: the artefact's folder.
        raw: the trajectory's rows (schemas.raw.RAW_SCHEMA).

    Returns:
        When it decided [n], its last hidden layer at each decision [n, width], and the window (packets) that it asks
        for at each raw row.
    """
    artefact = PolicyArtefact.load(policy)
    sizes = artefact.sizes
    ops = _RecordingOps(artefact.weights[HEADS[sizes.kind]])

    def step(observation: Floats, hidden: Floats) -> Any:
        return sizes.forward(artefact.weights, ops, scaled(artefact.scaling, observation), hidden)

    agent = PolicyAgent(artefact, step=step)
    times, windows = [], np.zeros(raw.num_rows, np.int64)
    for row, sample in enumerate(_samples(raw)):
        decisions = len(ops.recorded)
        windows[row], _ = agent(sample)
        if len(ops.recorded) > decisions:
            times.append(float(sample["t_s"]))
    return np.array(times), np.array(ops.recorded, np.float32), windows


def _samples(raw: pa.Table) -> npt.NDArray[np.void]:
    columns = {field.name: raw[field.name].to_numpy() for field in raw.schema if pa.types.is_primitive(field.type)}
    samples = np.empty(raw.num_rows, [(name, values.dtype) for name, values in columns.items()])
    for name, values in columns.items():
        samples[name] = values
    return samples


def draw_map(
    policy: str, layers: list[HiddenLayer], points: int, seed: int
) -> tuple[pl.DataFrame, Mapping[str, object]]:
    """Lay out a policy's layers by t-SNE.

    Args:
        policy: its name in the table and the summary.
        layers: one per trajectory.
        points: of each trajectory, spread evenly over it.
        seed: of t-SNE.

    Returns:
        A table of MAP_SCHEMA and the map's summary. There, `apart` is the share of a point's NEIGHBOURS nearest in the
        layer itself (not on the map) that are of its environment; `by_chance` is that of an arbitrary layer.

    Raises:
        SageccError: there are fewer than two points in all.
    """
    indices = [
        np.unique(np.linspace(0, len(layer.t_s) - 1, min(points, len(layer.t_s))).astype(int)) for layer in layers
    ]
    values = np.concatenate([layer.values[rows] for layer, rows in zip(layers, indices, strict=True)])
    layer_of = np.repeat(np.arange(len(layers)), [len(rows) for rows in indices])
    if len(values) < 2:
        raise SageccError(f"{policy}: {len(values)} decisions make no map")
    perplexity = min(PERPLEXITY, (len(values) - 1) / 3)
    tsne = TSNE(perplexity=perplexity, init="pca" if len(values) > 2 else "random", random_state=seed)
    with threadpool_limits(1):  # threads would add up in any order, and thousands of short steps make them wait
        positions = tsne.fit_transform(values).astype(np.float64)
    count = min(NEIGHBOURS, len(values) - 1)
    _, near = NearestNeighbors(n_neighbors=count + 1).fit(values).kneighbors(values)
    neighbours = np.array([row[row != i][:count] for i, row in enumerate(near)])
    sizes = np.bincount(layer_of, minlength=len(layers))
    table = pl.DataFrame(
        {
            "policy": [policy] * len(layer_of),
            "set": [layers[i].set for i in layer_of],
            "environment_id": [layers[i].environment_id for i in layer_of],
            "t_s": np.concatenate([layer.t_s[rows] for layer, rows in zip(layers, indices, strict=True)]),
            "x": positions[:, 0],
            "y": positions[:, 1],
        },
        schema=MAP_SCHEMA,
    )
    return table, {
        "policy": policy,
        "points": len(layer_of),
        "width": values.shape[1],
        "perplexity": perplexity,
        "divergence": float(tsne.kl_divergence_),
        "apart": float((layer_of[neighbours] == layer_of[:, None]).mean()),
        "by_chance": float((sizes * (sizes - 1)).sum() / (len(layer_of) * (len(layer_of) - 1))),
    }
