# SPDX-License-Identifier: Apache-2.0
"""What every run came to: evidence/runs.jsonl, a line for each, by name.

Lines of JSON and no Parquet: `git diff` shows which run became another, two trainings merge, and a run keeps the
metrics and points that others have not. `sagecc sql --table runs=evidence/runs.jsonl "FROM runs"` opens it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from evidence.training import ARTEFACTS
from sagecc.common.errors import SageccError
from sagecc.common.files import write_atomically
from sagecc.common.locks import locked

RESULTS = Path("evidence/runs.jsonl")
RESULT_VERSION = 1
WAIT_S = 60.0

Values = dict[str, Any]


def results_of(plan: Path) -> Path:
    """Return where the results of a plan's runs are kept: NAME.yaml has them in evidence/NAME.jsonl."""
    return RESULTS.with_name(f"{plan.stem}.jsonl")


def read_results(path: Path) -> dict[str, Values]:
    """Return the runs' results by name, none where there is no file; raises SageccError for a line that is none."""
    results: dict[str, Values] = {}
    for number, line in enumerate(path.read_text().splitlines() if path.exists() else (), 1):
        try:
            result = json.loads(line)
        except ValueError as error:
            raise SageccError(f"{path}:{number}: not JSON ({error}); take the line of an earlier commit") from None
        if not isinstance(result, dict) or result.get("version") != RESULT_VERSION or "name" not in result:
            raise SageccError(f"{path}:{number}: no result of version {RESULT_VERSION}; remove the line")
        results[result["name"]] = result
    return results


def kept_or_played(
    names: Iterable[str], results: Mapping[str, Values], earlier: Mapping[str, Values], play: Callable[[str], Values]
) -> list[Values]:
    """Return how the policies of some runs played.

    Args:
        names: the runs.
        results: of these, with the identity of each policy.
        earlier: by this identity, what is known.
        play: by a run's name, for what is not.
    """
    return [earlier.get(results.get(name, {}).get("policy_sha256", "")) or play(name) for name in names]


def keep_result(path: Path, result: Mapping[str, Any]) -> None:
    """Keep a run's result, in place of an earlier one of its name; other processes may keep theirs meanwhile."""
    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(ARTEFACTS / ".lock-results", wait_s=WAIT_S):
        results = read_results(path) | {result["name"]: result}
        with write_atomically(path) as temporary:
            temporary.write_text("".join(f"{json.dumps(results[name], sort_keys=True)}\n" for name in sorted(results)))
