# SPDX-License-Identifier: Apache-2.0
"""What a policy's last hidden layer makes of networks, as a map (section 7.4 and Fig. 16 of the Sage paper)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from sagecc.common.arrays import Floats
from sagecc.common.errors import SageccError
from sagecc.common.optional import brought_by
from sagecc.execution.agent.policy_agent import PolicyAgent
from sagecc.policy.artefact import PolicyArtefact
from sagecc.policy.exact import ExactOps, scaled
from sagecc.policy.sage import NetworkSizes
from sagecc.pool.features import RAW_NEEDED

with brought_by("analysis"):
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
"""One row a decision: where t-SNE puts it. Only nearness has a meaning, neither axes nor places."""

PERPLEXITY = 30.0
NEIGHBOURS = 10
"""Of a point, to tell how well a layer keeps environments apart."""

HEAD = "head.logits.w"
"""The weight that the last hidden layer's output meets first."""


@dataclass(frozen=True)
class Layer:
    """A policy's last hidden layer along one trajectory: when it decided [n], and what it saw there [n, width]."""

    set: str
    environment_id: str
    t_s: npt.NDArray[np.float64]
    values: Floats


class _Tap(ExactOps):
    """The policy's arithmetic, which keeps what goes into its head."""

    def __init__(self, head: Floats) -> None:
        super().__init__()
        self._head = head
        self.seen: list[Floats] = []

    def linear(self, x: Any, w: Floats, b: Floats) -> Any:
        """X w + b."""
        if w is self._head:
            self.seen.append(np.array(x[0]))
        return super().linear(x, w, b)


def last_hidden(policy: Path, raw: pa.Table) -> tuple[npt.NDArray[np.float64], Floats, npt.NDArray[np.int64]]:
    """Let a policy decide anew along a trajectory of its own.

    raw: the rows that it drove (schemas.raw.RAW_SCHEMA). Returns when it decided [n], its last hidden layer there
    [n, width], and the window that it asks for at each raw row.
    Raises SageccError for a policy whose network is of another kind than Sage's.
    """
    artefact = PolicyArtefact.load(policy)
    if not isinstance(artefact.sizes, NetworkSizes):
        raise SageccError(
            f"policy {policy} has a network of kind '{artefact.sizes.kind}': only Sage's has such a layer"
        )
    tap = _Tap(artefact.weights[HEAD])

    def step(observation: Floats, hidden: Floats) -> Any:
        return artefact.sizes.forward(artefact.weights, tap, scaled(artefact.scaling, observation), hidden)

    agent = PolicyAgent(artefact, step=step)
    times, windows = [], np.zeros(raw.num_rows, np.int64)
    for row, sample in enumerate(_samples(raw)):
        before = len(tap.seen)
        windows[row], _ = agent(sample)
        if len(tap.seen) > before:
            times.append(float(sample["t_s"]))
    return np.array(times), np.array(tap.seen, np.float32), windows


def _samples(raw: pa.Table) -> npt.NDArray[np.void]:
    names = ("t_s", *RAW_NEEDED)
    columns = {name: raw[name].to_numpy() for name in names}
    samples = np.empty(raw.num_rows, [(name, columns[name].dtype) for name in names])
    for name, values in columns.items():
        samples[name] = values
    return samples


def draw_map(policy: str, layers: list[Layer], points: int, seed: int) -> tuple[pl.DataFrame, Mapping[str, object]]:
    """Lay out a policy's layers by t-SNE: MAP_SCHEMA, and what is to be known of the map.

    points: of each trajectory, spread evenly over it. `apart` is the share of a point's NEIGHBOURS nearest in the layer
    itself (not on the map) that are of its environment; `by_chance` is what an arbitrary layer would have.
    Raises SageccError for fewer than two points in all.
    """
    thin = [np.unique(np.linspace(0, len(layer.t_s) - 1, min(points, len(layer.t_s))).astype(int)) for layer in layers]
    values = np.concatenate([layer.values[at] for layer, at in zip(layers, thin, strict=True)])
    of = np.repeat(np.arange(len(layers)), [len(at) for at in thin])
    if len(values) < 2:
        raise SageccError(f"{policy}: {len(values)} decisions make no map")
    perplexity = min(PERPLEXITY, (len(values) - 1) / 3)
    tsne = TSNE(perplexity=perplexity, init="pca" if len(values) > 2 else "random", random_state=seed)
    with threadpool_limits(1):  # threads would add up in any order, and thousands of short steps make them wait
        places = tsne.fit_transform(values).astype(np.float64)
    count = min(NEIGHBOURS, len(values) - 1)
    _, near = NearestNeighbors(n_neighbors=count + 1).fit(values).kneighbors(values)
    others = np.array([row[row != i][:count] for i, row in enumerate(near)])
    sizes = np.bincount(of, minlength=len(layers))
    table = pl.DataFrame(
        {
            "policy": [policy] * len(of),
            "set": [layers[i].set for i in of],
            "environment_id": [layers[i].environment_id for i in of],
            "t_s": np.concatenate([layer.t_s[at] for layer, at in zip(layers, thin, strict=True)]),
            "x": places[:, 0],
            "y": places[:, 1],
        },
        schema=MAP_SCHEMA,
    )
    return table, {
        "policy": policy,
        "points": len(of),
        "width": values.shape[1],
        "perplexity": perplexity,
        "divergence": float(tsne.kl_divergence_),
        "apart": float((of[others] == of[:, None]).mean()),
        "by_chance": float((sizes * (sizes - 1)).sum() / (len(of) * (len(of) - 1))),
    }
