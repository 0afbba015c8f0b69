# SPDX-License-Identifier: Apache-2.0
"""Studies compare behaviour: each writes studies/results/NAME.json, which NAME.md.j2 beside it turns into text."""

from pathlib import Path

RESULTS = Path(__file__).parent / "results"
