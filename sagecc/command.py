# SPDX-License-Identifier: Apache-2.0
"""A command with many options: its help has them in groups, and an option's older name works for one version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from types import MappingProxyType
from typing import Any

import click

GROUPS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "Network": (
            *("--profile", "--environments", "--environment", "--network", "--draw", "--set", "--repeats"),
            *("--bandwidth", "--rtt", "--queue-bdp", "--queue-packets", "--duration", "--step", "--trace", "--aqm"),
            *("--loss", "--jitter-ms", "--jitter-reorders", "--grain-ms", "--cross", "--start"),
        ),
        "Disturbance": ("--kicks", "--jitter", "--starts"),
        "Policy": ("--decision-latency", "--sample", "--mean", "--give-up", "--noise"),
        "Scoring": ("--alpha", "--margin", "--friendly-margin", "--allow-missing"),
        "Evaluation": (
            *("--evaluate-every", "--evaluate-profile", "--evaluate-environments", "--evaluate-schemes", "--keep"),
        ),
        "Files": (
            *("--raw", "--pool", "--league", "--out", "--logs", "--cache", "--flows", "--plot", "--plot-flows"),
            *("--report", "--json", "--measured", "--analysis", "--pictures", "--grown"),
        ),
        "Checkpoints": ("--checkpoint-every", "--checkpoint-steps"),
        "Machine": (
            *("--jobs", "--batch", "--engine", "--ray-address", "--backend", "--kernel", "--strategy", "--device"),
            *("--precision", "--xla", "--actors", "--replay"),
        ),
    }
)
"""Options by what they are about, in the order of a help's groups; others come before them."""


class Command(click.Command):
    """A click command whose help groups its options (GROUPS).

    Args:
        groups: this command's own groups, before GROUPS.
        renamed: new names of options by the old ones.
        *arguments: of click.Command.
        **settings: of click.Command.
    """

    def __init__(
        self,
        *arguments: Any,
        groups: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
        renamed: Mapping[str, str] = MappingProxyType({}),
        **settings: Any,
    ) -> None:
        super().__init__(*arguments, **settings)
        self.groups = {**groups, **GROUPS}
        self._renamed = renamed

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse a command line; say of each option's old name what it is called now."""
        own = list(takewhile(lambda argument: argument != "--", args))
        return super().parse_args(ctx, [*map(self._current, own), *args[len(own) :]])

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in groups."""
        for group, options in self._grouped(ctx):
            with formatter.section(group):
                formatter.write_dl([record for option in options if (record := option.get_help_record(ctx))])

    def _grouped(self, ctx: click.Context) -> Iterator[tuple[str, Sequence[click.Option]]]:
        left = [each for each in self.get_params(ctx) if isinstance(each, click.Option) and each.get_help_record(ctx)]
        found: dict[str, list[click.Option]] = {}
        for group, names in self.groups.items():
            found[group] = [option for option in left if not {*names}.isdisjoint(option.opts)]
            left = [option for option in left if option not in found[group]]
        yield "Options", left
        yield from ((group, options) for group, options in found.items() if options)

    def _current(self, argument: str) -> str:
        name, equals, value = argument.partition("=")
        if name not in self._renamed:
            return argument
        click.echo(
            f"sagecc: {name} is called {self._renamed[name]} now; the old name goes with the next version", err=True
        )
        return f"{self._renamed[name]}{equals}{value}"
