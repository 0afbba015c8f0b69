# SPDX-License-Identifier: Apache-2.0
"""`sagecc doctor`: what works on this machine."""

from __future__ import annotations

import importlib
import json
import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

import click

from sagecc.doctor.finding import GOLDEN, Check, Finding, Group, fails
from sagecc.doctor.page import LEGEND, Page, write
from sagecc.options import RAW, kernel_option

LAB = "The lab (run, collect, league)"
EXIT_CANNOT_RUN = 2

Findings = dict[str, Finding]
"""A group's findings by the checks' names."""


@click.command()
@click.option("--all", "thorough", is_flag=True, help="Play every golden episode, import packages, ask for GPUs.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@kernel_option(default=lambda: None)
def command(thorough: bool, as_json: bool, kernel: Path | None) -> int:
    """Say what works on this machine, and how to mend the rest.

    \b
    sagecc doctor
    sagecc doctor --all         # every golden episode, packages, GPUs
    sagecc doctor --json | jq .

    Each line is something that was tried, or looked for where it says so. The status is 0 where the lab's golden
    episode has the bytes that it has everywhere, else 2. It changes nothing and needs no root.
    """
    page = None if as_json else Page.here()
    if page:
        write(_about())
    groups = {group.title: _run_checks(group, page) for group in _groups(kernel, thorough)}
    failures = {name: finding for findings in groups.values() for name, finding in findings.items() if finding.fails}
    obstacle = _lab_obstacle(groups[LAB])
    if page:
        write(page.ending(_ending(obstacle, failures), not obstacle))
        write(LEGEND)
    else:
        write(json.dumps(_object(obstacle, groups), indent=1))
    return EXIT_CANNOT_RUN if obstacle else 0


def _groups(kernel: Path | None, thorough: bool) -> Iterator[Group]:
    yield _group(LAB, "lab", kernel, thorough)
    yield _group("Pool and learner (pool, sql, train)", "learning", RAW.parent, thorough)
    yield _group("A policy on this machine's own kernel (exec, attach)", "own_kernel")
    yield _group("Optional", "around", kernel, thorough)


def _group(title: str, module: str, *arguments: object) -> Group:
    """Return a module's checks; where it cannot be imported, a check that says so."""
    try:
        return Group(title, importlib.import_module(f"sagecc.doctor.{module}").checks(*arguments))
    except Exception as error:
        finding = fails(f"{type(error).__name__}: {error}", "install sagecc again")
        return Group(title, (Check("all of it", lambda: finding),))


def _run_checks(group: Group, page: Page | None) -> Findings:
    """Run a group's checks, showing each as it is done where there is a page."""
    if page:
        write(page.title(group.title))
    findings = {}
    for check in group.checks:
        if page and page.running(check.name):
            write(page.running(check.name), newline=False)
        findings[check.name] = check()
        if page:
            write(page.finding(check.name, findings[check.name]))
    return findings


def _about() -> str:
    return f"sagecc {_version()}, Python {platform.python_version()}, Linux {platform.release()} {platform.machine()}"


def _version() -> str:
    try:
        return metadata.version("sagecc")
    except metadata.PackageNotFoundError:
        return "(not installed)"


def _lab_obstacle(findings: Findings) -> str:
    """Return what to do first so that the lab runs here; "" where it does, as the golden episode shows."""
    if GOLDEN in findings and not findings[GOLDEN].fails:
        return ""
    return next(f"{name}: {finding.what_to_do or finding.text}" for name, finding in findings.items() if finding.fails)


def _ending(obstacle: str, failed: Findings) -> str:
    if obstacle:
        return f"The lab cannot run here. First, {obstacle}"
    return "The lab works here." + (f" What does not: {', '.join(failed)}." if failed else "")


def _object(obstacle: str, groups: Mapping[str, Findings]) -> dict[str, object]:
    """Return what --json prints."""
    return {
        "about": _about(),
        "lab_works": not obstacle,
        "first": obstacle,
        "groups": [
            {"title": title, "checks": [{"name": name, **asdict(finding)} for name, finding in findings.items()]}
            for title, findings in groups.items()
        ],
    }
