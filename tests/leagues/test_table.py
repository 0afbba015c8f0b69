# SPDX-License-Identifier: Apache-2.0
"""The table of a league, which `sagecc league` and `make repro` show."""

from sagecc.leagues import table
from tests.helpers.league_summary import LEAGUE


def test_for_a_terminal() -> None:
    assert table.text(LEAGUE).splitlines() == [
        "rank  scheme  Set I                  Set II",
        "1     vegas   100.0 % [50.0, 100.0]  50.0 % [25.0, 75.0]",
        "2     cubic   0.0 % [0.0, 12.5]      50.0 % [50.0, 50.0]",
        "",
        "scheme  loss, mean  worst network  floods (> 5 % lost)  below half of cubic",
        "vegas   20.00 %     51.0 %         1 of 3               -",
        "cubic   1.00 %      2.0 %          0 of 2               0 of 2",
        "",
        "      by alpha, margin  2, 10 %  2, 5 %",
        "      vegas             1        2",
        "      cubic             2        1",
        "lost unplayed: cubic in 2 environments, such as e1: there is no episode",
        "lost with nothing delivered: vegas in 3 windows",
    ]
