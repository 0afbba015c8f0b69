# SPDX-License-Identifier: Apache-2.0
"""What league.json says of a small league."""

from typing import Any

LEAGUE: dict[str, Any] = {
    "profile": "smoke",
    "rules": {"confidence": 0.95},
    "environments": {"I": 2, "II": 1},
    "windows": {"I": 8, "II": 4},
    "ranking": [{"rank": 1, "scheme": "vegas", "mean": 0.75}, {"rank": 2, "scheme": "cubic", "mean": 0.25}],
    "standings": [
        {"set": "I", "scheme": "vegas", "winning_rate": 1.0, "low": 0.5, "high": 1.0},
        {"set": "II", "scheme": "vegas", "winning_rate": 0.5, "low": 0.25, "high": 0.75},
        {"set": "I", "scheme": "cubic", "winning_rate": 0.0, "low": 0.0, "high": 0.125},
        {"set": "II", "scheme": "cubic", "winning_rate": 0.5, "low": 0.5, "high": 0.5},
    ],
    "robustness": [
        {"alpha": alpha, "margin": margin, "set": name, "scheme": scheme, "rank": 1, "overall": overall}
        for alpha, margin in ((2.0, 0.05), (2.0, 0.1))
        for name in ("I", "II")
        for overall, scheme in enumerate(("vegas", "cubic") if margin == 0.1 else ("cubic", "vegas"), 1)
    ],
    "harm": [
        {"scheme": "cubic", "networks": 2, "loss_mean": 0.01, "loss_worst": 0.02, "flooded": 0, "starved": 0},
        {"scheme": "vegas", "networks": 3, "loss_mean": 0.2, "loss_worst": 0.51, "flooded": 1, "starved": None},
    ],
    "lost": [
        {"set": "I", "environment_id": "e2", "scheme": "cubic", "status": "missing", "windows": 4, "reason": "nan"},
        {"set": "I", "environment_id": "e1", "scheme": "cubic", "status": "missing", "windows": 4, "reason": ""},
        {"set": "II", "environment_id": "e3", "scheme": "vegas", "status": "silent", "windows": 2, "reason": ""},
        {"set": "I", "environment_id": "e1", "scheme": "vegas", "status": "silent", "windows": 1, "reason": ""},
    ],
}
