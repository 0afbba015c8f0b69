# SPDX-License-Identifier: Apache-2.0
"""A check, what it found, and that no check can end the doctor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from sagecc.common.errors import SEE_DOCTOR, SageccError

GOLDEN = "golden episode"
"""The check on which it hangs whether the lab runs here."""

REPORT = "report this line, with the rest of this page"


class State(StrEnum):
    """What a check says of the thing it looked at; `unneeded` also of what could not be tried."""

    WORKS = "works"
    FAILS = "fails"
    UNNEEDED = "unneeded"


@dataclass(frozen=True)
class Finding:
    """What a check found: in what state a thing is, what was seen, and what to do where something is to be done."""

    state: State
    text: str
    what_to_do: str = ""

    @property
    def fails(self) -> bool:
        """Whether the thing should work and does not."""
        return self.state is State.FAILS


@dataclass(frozen=True)
class Check:
    """A named look at one thing."""

    name: str
    look: Callable[[], Finding]

    def __call__(self) -> Finding:
        """Look. A check that breaks is a finding too: nothing is raised but what ends the program."""
        try:
            return self.look()
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
    """Return a finding of something that is not there, which nothing but what the text says would need."""
    return Finding(State.UNNEEDED, text, what_to_do)


def fails(reason: str | SageccError, what_to_do: str = "") -> Finding:
    """Return a finding of something that does not work; the reason may be an error, which names the doctor or not."""
    return Finding(State.FAILS, plain(reason), what_to_do)


def refuses(error: str | SageccError) -> Finding:
    """Return a finding from an error `what is wrong: what to do`."""
    what, _, to_do = plain(error).partition(": ")
    return Finding(State.FAILS, what, to_do)


def plain(error: str | SageccError) -> str:
    """Return an error's text without its advice to ask the doctor, who is asked already."""
    return str(error).removesuffix(SEE_DOCTOR).rstrip(" ;:")
