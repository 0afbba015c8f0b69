# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagecc.execution.stock.messages import MESSAGE_BYTES, Message, Timing

TIMING = Timing(ticks=100, met=99, flows=3, p50_ms=0.5, p99_ms=2.0, longest_ms=12.0, cpu_s=0.1, wall_s=1.0)
JUNK = "the agent has sent what is no message"


@pytest.mark.parametrize(
    "message",
    [Message(ready=True), Message(driving=True), Message(timing=TIMING), Message(error="why"), Message(failure="a\nb")],
)
def test_a_message_arrives_as_it_was_sent(message: Message) -> None:
    assert Message.decoded(message.encoded()) == message


def test_the_end_of_a_long_traceback_fits_a_message() -> None:
    sent = Message(failure="\N{SNOWMAN}" * MESSAGE_BYTES + "the end").encoded()
    assert len(sent) <= MESSAGE_BYTES and Message.decoded(sent).failure.endswith("the end")


@given(st.binary() | st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists).map(json.dumps))
def test_whatever_arrives_is_a_message(data: bytes | str) -> None:
    message = Message.decoded(data if isinstance(data, bytes) else data.encode())
    assert message.error == JUNK


@given(st.text(), st.text())
def test_no_text_of_an_agent_steers_a_terminal(error: str, failure: str) -> None:
    message = Message.decoded(json.dumps({"error": error, "failure": failure}).encode())
    assert message.error.isprintable() and message.failure.replace("\n", "").isprintable()


@pytest.mark.parametrize(
    "changed",
    [{"ticks": 10**400}, {"met": -1}, {"p99_ms": float("nan")}, {"wall_s": 0}, {"flows": "x"}, {"more": 1}],
    ids=str,
)
def test_a_timing_that_no_agent_has_is_no_message(changed: dict[str, object]) -> None:
    timing = {**TIMING.__dict__, **changed}
    assert Message.decoded(json.dumps({"timing": timing}).encode()).error == JUNK


def test_deep_nesting_is_no_message() -> None:
    assert Message.decoded(b"[" * MESSAGE_BYTES).error == JUNK
