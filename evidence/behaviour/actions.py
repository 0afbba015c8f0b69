# SPDX-License-Identifier: Apache-2.0
"""What is in the pool's actions: how many leave the window as it is, and how fast schemes grow where no queue stands.

It asks datasets/pool, the pool of `make repro`; the figures hang on the pool's bytes, not on the machine.
"""

from __future__ import annotations

from pathlib import Path

from evidence.machine import save
from sagecc.cli import errors_in_one_line
from sagecc.common.errors import SageccError
from sagecc.pool.views import open_pool

POOL = Path("datasets/pool")
EMPTY_ABOVE = 0.98
AFTER_S = 5
QUERY = """
WITH marked AS (
    SELECT scheme, action,
        rtt_rate > $empty AND ca_state = 0 AND loss_db = 0 AND t_s > $after AS no_queue
    FROM transitions
)
SELECT
    coalesce(scheme, 'all') AS scheme,
    avg((action = 1)::INT) AS same,
    avg((action BETWEEN 0.99 AND 1.01)::INT) AS within_percent,
    avg(log2(action)) FILTER (no_queue) AS growth,
    count(*) AS rows
FROM marked GROUP BY ROLLUP (scheme)
"""


def main() -> None:
    """Measure and save."""
    if not POOL.exists():
        raise SageccError(f"no pool at {POOL}: run 'make repro' first")
    with open_pool(POOL) as connection:
        found = connection.sql(QUERY, params={"empty": EMPTY_ABOVE, "after": AFTER_S}).to_arrow_table().to_pylist()
    rows = sorted(found, key=lambda row: (row["scheme"] != "all", row["scheme"]))
    save(
        "actions",
        {"rows_in_pool": rows[0].pop("rows"), "empty_above": EMPTY_ABOVE, "after_s": AFTER_S, "rows": rows},
    )


if __name__ == "__main__":
    with errors_in_one_line("evidence.behaviour.actions"):
        main()
