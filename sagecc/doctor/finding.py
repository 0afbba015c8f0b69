# SPDX-License-Identifier: Apache-2.0
"""Checks and their findings. No check can end the doctor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from sagecc.common.errors import SEE_DOCTOR, SageccError

GOLDEN = "golden episode"
"""The check that decides whether the lab runs here."""

REPORT = "report this line, with the rest of this page"


class State(StrEnum):
    """The state of what a check tried; `unneeded` also where it could not be tried."""

    WORKS = "works"
    FAILS = "fails"
    UNNEEDED = "unneeded"


@dataclass(frozen=True)
class Finding:
    """The result of a check."""

    state: State
    text: str
    """What was seen."""
    what_to_do: str = ""
    """Where something is to be done."""

    @property
    def fails(self) -> bool:
        """Whether it should work and does not."""
        return self.state is State.FAILS


@dataclass(frozen=True)
class Check:
    """A named check."""

    name: str
    run: Callable[[], Finding]

    def __call__(self) -> Finding:
        """Run it. A check that breaks is a finding too: only what ends the program is raised."""
        try:
            return self.run()
        except SageccError as error:
            return fails(error)
        except Exception as error:
            return fails(f"this check broke: {type(error).__name__}: {error}", REPORT)


@dataclass(frozen=True)
class Group:
    """Checks of one kind."""

    title: str
    checks: tuple[Check, ...]


def works(text: str, what_to_do: str = "") -> Finding:
    """Return a finding of something that works."""
    return Finding(State.WORKS, text, what_to_do)


def unneeded(text: str, what_to_do: str = "") -> Finding:
    """Return a finding of something that is not there, and is needed for nothing but what the text says."""
    return Finding(State.UNNEEDED, text, what_to_do)


def fails(reason: str | SageccError, what_to_do: str = "") -> Finding:
    """Return a finding of something that does not work; of an error, its advice to run the doctor is left out."""
    return Finding(State.FAILS, plain(reason), what_to_do)


def refuses(error: str | SageccError) -> Finding:
    """Return a finding from an error `what is wrong: what to do`."""
    problem, _, to_do = plain(error).partition(": ")
    return Finding(State.FAILS, problem, to_do)


def plain(error: str | SageccError) -> str:
    """Return an error's text without its advice to run the doctor, which is running."""
    return str(error).removesuffix(SEE_DOCTOR).rstrip(" ;:")
