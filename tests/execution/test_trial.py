# SPDX-License-Identifier: Apache-2.0
"""A trial in the kernel: who is driven, what both groups' records say, and what becomes of the driven at its end."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing

import numpy as np
import pytest

from sagecc.common.errors import SageccError
from sagecc.execution.stock import kernel_scheme
from sagecc.execution.stock.kernel_scheme import Scheme
from sagecc.execution.stock.shared import Shared
from sagecc.execution.stock.trial import GROUPS, TrialMemory
from tests.helpers.stock import NAME, connection, on_stock_kernel, registered_scheme

pytestmark = [pytest.mark.kernel, on_stock_kernel]

OTHER = "reno"
BYTES = 30_000
Ends = tuple[socket.socket, socket.socket]


@pytest.fixture
def scheme() -> Iterator[Scheme]:
    with registered_scheme(256, trials=True) as loaded:
        yield loaded


@pytest.fixture
def memory(scheme: Scheme) -> Iterator[Shared]:
    with closing(Shared(scheme.descriptors)) as mapped:
        yield mapped


@pytest.fixture
def trial(scheme: Scheme) -> Iterator[TrialMemory]:
    assert scheme.trial is not None
    with closing(TrialMemory(scheme.trial)) as mapped:
        yield mapped


def send(ends: Ends) -> None:
    sock, other = ends
    sock.sendall(b"x" * BYTES)
    left = BYTES
    while left:
        left -= len(other.recv(left))


def used(ends: Ends) -> str:
    return str(ends[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).split(b"\0")[0].decode())


def drawn(stack: ExitStack, memory: Shared, trial: TrialMemory, count: int) -> list[Ends]:
    """Open connections until so many more take part in the trial: on a busy machine an agent's beat is soon old."""
    made: list[Ends] = []
    before = len(trial.records())
    while len(made) < count:
        memory.agent["beat_ns"] = time.monotonic_ns()
        ends = stack.enter_context(connection())
        if len(trial.records()) > before + len(made):
            made.append(ends)
    return made


def test_connections_are_drawn_by_lot_and_the_others_get_their_scheme_at_once(
    memory: Shared, trial: TrialMemory
) -> None:
    trial.begin(0.5, OTHER)
    with ExitStack() as stack:
        ends = drawn(stack, memory, trial, 100)
        schemes = [used(each) for each in ends]
        assert set(schemes) == {NAME, OTHER}
        assert 20 < schemes.count(NAME) < 80  # but in one of 10^8 runs
        assert memory.count("flows") == schemes.count(NAME)
        records = np.sort(trial.records(), order="id")
        assert [GROUPS[group] for group in records["group"]] == [
            "canary" if name == NAME else "control" for name in schemes
        ]


def test_a_share_of_all_drives_all(memory: Shared, trial: TrialMemory) -> None:
    trial.begin(1.0, "")
    with ExitStack() as stack:
        assert {used(each) for each in drawn(stack, memory, trial, 10)} == {NAME}
        assert len(trial.records()) == 10


def test_without_an_agent_nobody_is_driven_and_nobody_counts(memory: Shared, trial: TrialMemory) -> None:
    trial.begin(1.0, OTHER)
    memory.agent["beat_ns"] = 0
    with connection() as ends:
        assert used(ends) == OTHER
        assert len(trial.records()) == 0


def test_a_record_is_of_tcp_info_and_the_last_one_has_all_bytes(memory: Shared, trial: TrialMemory) -> None:
    trial.begin(0.5, OTHER)
    with ExitStack() as stack:
        for ends in drawn(stack, memory, trial, 30):
            send(ends)
        records = trial.records()
        assert len(records) == 30 and not records["ended"].any()
        assert set(records["bytes_acked"]) == {BYTES + 1} and (records["data_segs_out"] >= BYTES // 1000).all()
        assert (records["since_ns"] < records["t_ns"]).all()
    until, ended = time.monotonic() + 5, np.zeros(0, records.dtype)
    while len(ended) < 30 and time.monotonic() < until:
        ended = np.concatenate([ended, trial.records()])
    assert sorted(ended["id"]) == sorted(records["id"]) and ended["ended"].all()
    assert len(trial.records()) == 0 and trial.unseen == 0


def test_at_its_end_the_driven_get_the_others_scheme_at_their_next_ack(memory: Shared, trial: TrialMemory) -> None:
    trial.begin(0.5, OTHER)
    with ExitStack() as stack:
        ends = drawn(stack, memory, trial, 30)
        for each in ends:
            send(each)
        assert NAME in {used(each) for each in ends}
        trial.stop()
        for each in ends:
            send(each)
        until = time.monotonic() + 5
        while NAME in {used(each) for each in ends} and time.monotonic() < until:
            time.sleep(0.01)
        assert {used(each) for each in ends} == {OTHER}
        assert memory.count("ended") == memory.count("flows") and memory.count("not_chosen") == 0
        assert used(stack.enter_context(connection())) == OTHER
        trial.clear()
        assert used(stack.enter_context(connection())) == NAME


def test_a_second_trial_knows_nothing_of_the_first(memory: Shared, trial: TrialMemory) -> None:
    trial.begin(1.0, OTHER)
    with ExitStack() as stack:
        first = drawn(stack, memory, trial, 3)
        trial.begin(1.0, OTHER)
        drawn(stack, memory, trial, 2)
        assert len(trial.records()) == 2
        for each in first:
            send(each)
    until, ids = time.monotonic() + 5, set[int]()
    while len(ids) < 2 and time.monotonic() < until:
        ids |= set(trial.records()["id"].tolist())
    assert len(ids) == 2


def test_the_agent_has_no_access_to_what_is_recorded(scheme: Scheme) -> None:
    assert scheme.trial is not None
    assert not set(scheme.descriptors._fields) & set(scheme.trial._fields)


def test_a_scheme_that_the_kernel_does_not_offer_is_named() -> None:
    kernel_scheme.check_scheme("reno")
    for name in ("nonsense", "sagecc_pure"):
        with pytest.raises(SageccError, match=f"does not offer '{name}' to the other connections: it has .*reno"):
            kernel_scheme.check_scheme(name)
