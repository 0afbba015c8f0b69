# SPDX-License-Identifier: Apache-2.0
"""Figures of the Sage paper (sections 5.3 and 7.1 to 7.5), made anew with what is here: `python -m evidence.paper`."""

from collections.abc import Mapping
from pathlib import Path

from evidence.machine import RESULTS

ORDER = ("fig-13", "fig-11", "fig-16", "fig-15", "fig-14", "fig-12", "fig-7")
"""The figures, those that need the least computing first."""

FOLDER = Path(".cache/paper")
"""What is played and trained for them and nobody else."""
PICTURES = Path("docs/img")
MAPS = ("fig-16",)
"""Figures of so many points that a PNG of them is smaller than an SVG."""

BASE = "small"
"""The recipe (evidence/training/runs.yaml) that the others are variants of."""
SEEDS = (0, 1, 2)

VARIANTS: Mapping[str, Mapping[str, str]] = {
    "fig-12": {
        "no-min-max": "no Min/Max",
        "no-rtt-var": "no rttVar",
        "no-loss-inflight": "no Loss/Inf",
        "no-gru": "no GRU",
        "no-encoder": "no Encoder",
        "no-gmm": "no GMM",
    },
    "fig-14": {"window-s": "Sage-s", "window-m": "Sage-m", "window-l": "Sage-l"},
    "fig-15": {"top": "Sage-Top", "top4": "Sage-Top4"},
}
"""By figure, the recipes that it compares with BASE, and what the paper calls them."""

OFFLINE = "sagecc-12"
"""The recipe that ships, of a pool alone. Its network is dense, so it has variants of inputs and pools only."""
OFFLINE_VARIANTS: Mapping[str, Mapping[str, str]] = {
    figure: {
        f"offline-{recipe}": title
        for recipe, title in recipes.items()
        if recipe not in ("no-gru", "no-encoder", "no-gmm")
    }
    for figure, recipes in VARIANTS.items()
}
"""The same for OFFLINE, as evidence/training/variants.yaml has them."""

CLONE = "bc"
"""The recipe of Fig. 11's BC."""
WINDOWS = tuple(VARIANTS["fig-14"])
"""Fig. 16 draws their policies, too."""

__all__ = [
    "BASE",
    "CLONE",
    "FOLDER",
    "OFFLINE",
    "OFFLINE_VARIANTS",
    "ORDER",
    "PICTURES",
    "RESULTS",
    "SEEDS",
    "VARIANTS",
    "WINDOWS",
    "picture",
]


def picture(figure: str) -> Path:
    """Return where a figure's picture lies."""
    return PICTURES / f"paper-{figure}.{'png' if figure in MAPS else 'svg'}"
