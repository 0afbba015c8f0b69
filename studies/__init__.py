# SPDX-License-Identifier: Apache-2.0
"""Studies compare behaviour: each writes studies/results/NAME.json, or its part of a page of docs/."""

from pathlib import Path

RESULTS = Path(__file__).parent / "results"
