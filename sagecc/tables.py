# SPDX-License-Identifier: Apache-2.0
"""Tables of schemes: a line for each, a column for each measure, with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sagecc.leagues.intervals import Interval

Column = tuple[str, str, str, float, int]
"""Of a table: measure, title, unit, its factor, decimals."""


def table(names: Sequence[str], measures: Sequence[Mapping[str, Interval]], columns: Sequence[Column]) -> list[str]:
    """Return a table of two lines of titles and a line for each scheme.

    Args:
        names: of the schemes.
        measures: of each scheme by name.
        columns: those to show; one without any value is left out.
    """
    shown = [["", "scheme", *names]]
    for measure, title, unit, factor, decimals in columns:
        values = [each[measure] for each in measures]
        if any(value.count for value in values):
            shown.append([title, unit, *(_cell(value, factor, decimals) for value in values)])
    widths = [max(map(len, column)) for column in shown]
    shown[0] = [cell.ljust(widths[0]) for cell in shown[0]]
    rows = zip(*shown, strict=True)
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def _cell(value: Interval, factor: float, decimals: int) -> str:
    if value.mean is None:
        return "none"
    mean = f"{value.mean * factor:.{decimals}f}"
    return mean if value.high is None else f"{mean} ± {(value.high - value.mean) * factor:.{decimals}f}"
