# SPDX-License-Identifier: Apache-2.0
"""The scheme in the running kernel: the shipped objects, what it shows, obeys and does without an agent."""

from __future__ import annotations

import hashlib
import platform
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest

from sagecc.collector.realtime.host import run_on_host
from sagecc.collector.realtime.host import why_not as why_no_host
from sagecc.common.errors import SEE_DOCTOR, SageccError
from sagecc.execution.agent.bound import LEAST_PKTS, MAX_RATE, SPARE_PKTS, bound_of
from sagecc.execution.flow.outage import FRESH_PKTS, TCP_CA_LOSS
from sagecc.execution.stock import kernel_scheme, libbpf, shared, trial
from sagecc.execution.stock.kernel_scheme import FORMS, OBJECTS, Scheme, why_not
from sagecc.execution.stock.shared import MODES, SILENT_NS, STALL_NS, Shared
from sagecc.schemas.raw import COUNTERS
from tests.conftest import ROOT
from tests.helpers.messages import facts
from tests.helpers.networks import network as lab_network
from tests.helpers.stock import (
    ENVIRONMENT,
    NAME,
    Transfer,
    VethNetwork,
    bpf_filesystem,
    connection,
    in_namespaces,
    on_stock_kernel,
    registered_scheme,
    scheme_in_use,
    tcp_info,
    with_libbpf,
)

pytestmark = pytest.mark.kernel

NEW, POLICY, RENO = range(3)
LAYOUTS = {
    "row": shared.ROW,
    "order": shared.ORDER,
    "agent": shared.AGENT,
    "trial": trial.TRIAL,
    "record": trial.RECORD,
}


@pytest.fixture
def scheme() -> Iterator[Scheme]:
    with registered_scheme(4) as loaded:
        yield loaded


@pytest.fixture
def memory(scheme: Scheme) -> Iterator[Shared]:
    with closing(Shared(scheme.descriptors)) as mapped:
        yield mapped


def exchange(sock: socket.socket, other: socket.socket, size: int = 20_000) -> None:
    """Send bytes, and wait until all are acknowledged."""
    sock.sendall(b"x" * size)
    left = size
    while left:
        left -= len(other.recv(left))
    until = time.monotonic() + 5
    while tcp_info(sock)["unacked_pkts"] and time.monotonic() < until:
        time.sleep(0.001)


def order(memory: Shared, cwnd: int, pacing: int = 0, age_ns: int = 0, bounding: int = 0) -> None:
    """Give every flow the same window."""
    slots = memory.observe(int(memory.agent["tick"][0]) + 1)
    flows = memory.rows["flow"][slots]
    count = len(slots)
    rates = np.full(count, bounding)
    memory.order(slots, flows, np.full(count, cwnd), np.full(count, pacing), rates, time.monotonic_ns() - age_ns)


def mode(memory: Shared) -> int:
    slots = memory.observe(int(memory.agent["tick"][0]) + 1)
    return int(memory.rows["mode"][slots][0])


# ---- the objects ----


def test_the_shipped_objects_belong_to_the_sources() -> None:
    lines = (OBJECTS / "SHA256SUMS").read_text().splitlines()
    sums = {name: digest for digest, name in (line.split() for line in lines)}
    here = {path.name for path in OBJECTS.iterdir() if path.suffix in (".c", ".h", ".o")}
    assert sums.keys() == here >= set(FORMS.values())
    changed = [name for name in sums if hashlib.sha256((OBJECTS / name).read_bytes()).hexdigest() != sums[name]]
    assert not changed, "run 'make bpf'"


def test_a_rebuild_gives_the_same_objects(tmp_path: Path) -> None:
    built = subprocess.run([OBJECTS / "compile", tmp_path], capture_output=True, text=True)
    if built.returncode == 2 and "make bpf: needs" in built.stderr:
        pytest.skip(built.stderr.strip())
    assert built.returncode == 0, built.stderr
    version = subprocess.run(["clang", "--version"], capture_output=True, text=True, check=True).stdout
    if not re.search(r"version 14\.0\.6", version):
        pytest.skip(f"the objects are clang 14.0.6's, here is {version.splitlines()[0]}")
    for name in FORMS.values():
        assert (tmp_path / name).read_bytes() == (OBJECTS / name).read_bytes()


def test_make_bpf_says_what_is_missing(tmp_path: Path) -> None:
    for tool in ("bash", "dirname"):
        (tmp_path / tool).symlink_to(str(shutil.which(tool)))
    bash = str(shutil.which("bash"))
    done = subprocess.run([bash, OBJECTS / "compile"], env={"PATH": str(tmp_path)}, capture_output=True, text=True)
    assert done.returncode == 2
    assert re.match(r"make bpf: needs: apt-get install --no-install-recommends clang llvm", done.stderr)


@with_libbpf
@pytest.mark.parametrize("file", FORMS.values())
def test_both_sides_lay_out_the_shared_memory_alike(file: str) -> None:
    with libbpf.object_btf(OBJECTS / file) as btf:
        for name, kind in LAYOUTS.items():
            assert kind.fields is not None
            ours = {field: 8 * offset for field, (_, offset, *_) in kind.fields.items()}
            assert ours == {field: bits for field, (_, bits) in btf.members(name).items()}
            assert kind.itemsize == btf.size(name)
        assert btf.size("counts") == shared.COUNTS.itemsize
    header = (OBJECTS / "shared.h").read_text()
    assert f"#define STALL_NS {STALL_NS}ULL" in header
    assert f"#define SILENT_NS {SILENT_NS}ULL" in header
    for name, value in (("SPARE_PKTS", SPARE_PKTS), ("LEAST_PKTS", LEAST_PKTS), ("FRESH_PKTS", FRESH_PKTS)):
        assert re.search(rf"^#define {name} {value}$", header, re.MULTILINE)
    enums = {"MODE": MODES, "COUNT": shared.COUNTS.names or (), "TRIAL": trial.STATES, "GROUP": trial.GROUPS}
    for enum, names in enums.items():
        found = re.findall(rf"^\t{enum}_(\w+),", header, re.MULTILINE)
        assert [name.lower() for name in found] == list(names)


def test_rows_have_the_names_of_raw_columns() -> None:
    known = {name for name, *_ in COUNTERS} | {"t_ns"}
    assert set(shared.ROW.names or ()) - known == {"flow", "tick", "mode", "pad"}


# ---- loaded ----


@on_stock_kernel
def test_it_is_offered_while_it_is_registered_and_leaves_nothing() -> None:
    before = list(libbpf.map_ids())
    with closing(Scheme(4, NAME)) as loaded:
        assert not scheme_in_use(NAME)
        loaded.register()
        assert scheme_in_use(NAME)
        loaded.unregister()
        assert not scheme_in_use(NAME)
    until = time.monotonic() + 10
    while set(libbpf.map_ids()) - set(before) and time.monotonic() < until:
        time.sleep(0.05)  # the kernel frees them in its own time
    assert not set(libbpf.map_ids()) - set(before)


@on_stock_kernel
def test_a_name_is_given_once(scheme: Scheme) -> None:
    with closing(Scheme(4, NAME)) as second, pytest.raises(SageccError, match=f"'{NAME}' is registered already"):
        second.register()
    assert scheme_in_use(NAME)


@on_stock_kernel
def test_rows_are_tcp_info(memory: Shared) -> None:
    with connection() as (sock, other):
        exchange(sock, other)
        order(memory, 30, 10**6)
        exchange(sock, other)
        [slot] = memory.observe(100)
        info, row = tcp_info(sock), memory.rows[slot]
        names = [name for name in info.dtype.names or () if name in (shared.ROW.names or ())]
        assert len(names) == 18
        assert {name: int(row[name]) for name in names} == {name: int(info[name]) for name in names}
        assert row["bytes_sent"] == 40_000 and row["srtt_us"] > 0
        assert abs(int(row["t_ns"]) - time.monotonic_ns()) < 10**9


@on_stock_kernel
def test_orders_are_obeyed_from_the_next_ack_on_and_seen_at_once(memory: Shared) -> None:
    with connection() as (sock, other):
        exchange(sock, other)
        order(memory, 57, 5_000_000)
        [slot] = memory.observe(50)
        assert memory.rows["cwnd_pkts"][slot] == 57 != tcp_info(sock)["cwnd_pkts"]
        exchange(sock, other)
        assert tcp_info(sock)["cwnd_pkts"] == 57
        assert tcp_info(sock)["pacing_rate_bytes_s"] == 5_000_000
        assert mode(memory) == POLICY


@on_stock_kernel
def test_without_an_agent_a_flow_starts_slowly(memory: Shared) -> None:
    """RFC 5681: as many packets more as were acknowledged."""
    with connection() as (sock, other):
        for _ in range(5):
            exchange(sock, other, 30_000)
        grown = int(tcp_info(sock)["cwnd_pkts"])
        assert mode(memory) == RENO
        assert 20 <= grown <= 10 + 5 * 30
        assert memory.count("fell_back") == 0


@on_stock_kernel
@pytest.mark.parametrize("silence", ["stale", "withdrawn", "zero", "future", "another flow's"])
def test_without_a_good_order_a_flow_goes_on_from_its_window_by_reno(memory: Shared, silence: str) -> None:
    with connection() as (sock, other):
        exchange(sock, other)
        order(memory, 50)
        exchange(sock, other)
        assert (int(tcp_info(sock)["cwnd_pkts"]), mode(memory)) == (50, POLICY)
        if silence == "stale":
            order(memory, 80, age_ns=STALL_NS)
        elif silence == "withdrawn":
            memory.withdraw()
        elif silence == "zero":
            order(memory, 0)
        elif silence == "future":
            order(memory, 80, age_ns=-10 * STALL_NS)
        else:
            order(memory, 80)
            memory.orders["flow"] += 1
        for _ in range(5):
            exchange(sock, other, 30_000)
        assert mode(memory) == RENO
        assert memory.count("fell_back") == 1
        assert 50 <= tcp_info(sock)["cwnd_pkts"] <= 54  # no slow start: at most a packet a round trip
        order(memory, 90)
        exchange(sock, other)
        assert (int(tcp_info(sock)["cwnd_pkts"]), mode(memory), memory.count("resumed")) == (90, POLICY, 2)


@on_stock_kernel
def test_while_the_agent_is_silent_the_kernel_bounds_as_it_does(memory: Shared) -> None:
    """An order of now is obeyed as it is; one of 50 ms ago, and the window that Reno begins with, are bounded."""
    rate = 10**9  # a packet per microsecond of sRTT
    with connection() as (sock, other):
        exchange(sock, other)
        order(memory, 40_000, bounding=rate)
        exchange(sock, other)
        assert tcp_info(sock)["cwnd_pkts"] == 40_000

        def silent() -> tuple[int, int]:
            order(memory, 40_000, age_ns=50_000_000, bounding=rate)
            exchange(sock, other, 1000)  # one packet, one ACK: the sRTT that it leaves is the one that bounds
            info = tcp_info(sock)
            [slot] = memory.observe(int(memory.agent["tick"][0]) + 1)
            assert memory.rows["cwnd_pkts"][slot] == info["cwnd_pkts"]
            return int(info["cwnd_pkts"]), bound_of(rate, int(info["srtt_us"]))

        window, bound = silent()
        assert window == bound < 40_000 and mode(memory) == POLICY
        order(memory, 40_000, age_ns=50_000_000, bounding=1)
        exchange(sock, other, 1000)
        assert tcp_info(sock)["cwnd_pkts"] == LEAST_PKTS
        order(memory, 40_000, age_ns=50_000_000, bounding=MAX_RATE)
        exchange(sock, other, 1000)
        assert tcp_info(sock)["cwnd_pkts"] == min(bound_of(MAX_RATE, int(tcp_info(sock)["srtt_us"])), 40_000)
        order(memory, 40_000, bounding=rate)
        exchange(sock, other, 1000)
        assert tcp_info(sock)["cwnd_pkts"] == 40_000
        memory.withdraw()
        exchange(sock, other, 1000)
        assert tcp_info(sock)["cwnd_pkts"] == bound_of(rate, int(tcp_info(sock)["srtt_us"])) and mode(memory) == RENO


@on_stock_kernel
@pytest.mark.skipif(why_no_host() is not None, reason=str(why_no_host()))
def test_without_an_agent_it_is_the_kernels_reno(scheme: Scheme) -> None:
    """Side by side on a link of 12 Mbps, 40 ms, 1 BDP: slow start, halving and sawtooth are those of tcp_reno."""
    environment = lab_network(12, 40, 1, duration_s=8)
    with ThreadPoolExecutor() as both:
        ours, kernels = both.map(lambda name: run_on_host(environment, name).episode, (scheme.name, "reno"))
    assert ours.flows[0].goodput_mbps == pytest.approx(kernels.flows[0].goodput_mbps, rel=0.05)
    assert ours.flows[0].cwnd_mean == pytest.approx(kernels.flows[0].cwnd_mean, rel=0.15)
    for run in (ours, kernels):
        cwnd = run.rows["cwnd_pkts"].to_numpy().astype(int)
        assert 130 <= max(cwnd) <= 190  # slow start doubles once more before it hears that 80 packets are too many
        later = cwnd[run.rows["t_s"].to_numpy() > 2]
        assert 25 <= min(later) <= 50 and 70 <= max(later) <= 90  # 81 is one too many; half of that


@in_namespaces
def test_after_an_outage_a_flow_without_an_agent_goes_on_at_once(scheme: Scheme) -> None:
    """The link holds all packets back for 6 s; the sRTT of seconds that they leave does not set the pace."""
    with ExitStack() as stack:
        network = VethNetwork(stack, 12, 60_000)
        transfer = stack.enter_context(Transfer(network, scheme.name))
        time.sleep(2)
        network.do(1, "tc qdisc change dev far root tbf rate 8bit burst 3028 limit 60000")
        time.sleep(6)
        over = time.monotonic()
        network.do(1, "tc qdisc change dev far root tbf rate 12mbit burst 3028 limit 60000")
        time.sleep(1)
        before, began = _sent_bytes(network), time.monotonic()
        time.sleep(2)
        rate = 8 * (_sent_bytes(network) - before) / (time.monotonic() - began)
        windows = transfer.finish()["windows"]
    assert TCP_CA_LOSS in {state for t_s, _, state in windows if t_s < over}
    assert rate > 0.25 * 12e6  # as the kernel's Reno: three quarters and more; by that sRTT a sixteenth


def _sent_bytes(network: VethNetwork) -> int:
    """Return what the router has sent to the receiver."""
    lines = subprocess.run(network.inside(1, ["cat", "/proc/net/dev"]), capture_output=True, text=True, check=True)
    return int(next(line.split()[9] for line in lines.stdout.splitlines() if line.split()[0] == "far:"))


@on_stock_kernel
def test_a_new_flow_waits_for_a_living_agent(memory: Shared) -> None:
    memory.agent["beat_ns"] = time.monotonic_ns()
    with connection() as (sock, other):
        exchange(sock, other)
        assert (int(tcp_info(sock)["cwnd_pkts"]), mode(memory)) == (10, NEW)


@on_stock_kernel
def test_slots_are_used_again_and_who_finds_none_follows_reno(memory: Shared) -> None:
    for _ in range(3):
        ends = [connection() for _ in range(4)]
        opened = [each.__enter__() for each in ends]
        assert sorted(memory.observe(int(memory.agent["tick"][0]) + 1)) == [0, 1, 2, 3]
        with connection() as (sock, other):
            order(memory, 77)
            exchange(sock, other)
            assert tcp_info(sock)["cwnd_pkts"] not in (10, 77)
            exchange(*opened[0])
            assert tcp_info(opened[0][0])["cwnd_pkts"] == 77
        for each in ends:
            each.__exit__(None, None, None)
        until = time.monotonic() + 5
        while memory.count("ended") < memory.count("flows") and time.monotonic() < until:
            time.sleep(0.01)
    assert (memory.count("flows"), memory.count("ended"), memory.count("without_slot")) == (15, 15, 3)


@on_stock_kernel
def test_a_flow_that_changes_its_scheme_is_forgotten(memory: Shared) -> None:
    with connection() as (sock, _):
        assert len(memory.observe(1)) == 1
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
        assert len(memory.observe(2)) == 0
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, NAME.encode())
        assert len(memory.observe(3)) == 1


@on_stock_kernel
def test_sockets_outlive_the_scheme() -> None:
    with closing(Scheme(4, NAME)) as loaded:
        loaded.register()
        with connection() as (sock, other):
            loaded.unregister()
            loaded.close = lambda: None  # type: ignore[method-assign]
            exchange(sock, other, 100_000)
            assert not scheme_in_use(NAME)
            Scheme.close(loaded)


@on_stock_kernel
def test_another_user_may_choose_it_but_not_load_it(scheme: Scheme) -> None:
    code = (
        "import os, socket; from sagecc.execution.stock.kernel_scheme import why_not;"
        "os.setgid(65534); os.setuid(65534); s = socket.socket();"
        f"s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, {NAME.encode()!r});"
        "print(why_not())"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True)
    assert re.search(facts("CAP_BPF and CAP_PERFMON…root"), done.stdout), done.stderr


# ---- what cannot be ----


def test_an_old_kernel_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "release", lambda: "5.15.0-91-generic")
    assert re.search(facts("Linux 5.15.0-91-generic…6.1"), str(why_not()))


def refusal(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(kernel_scheme, "held_capabilities", lambda: (1 << 41) - 1)
    monkeypatch.setattr(platform, "release", lambda: "6.6.0")
    reason = why_not()
    assert reason is not None and "\n" not in reason
    with pytest.raises(SageccError) as raised:
        Scheme(4, NAME)
    assert str(raised.value) == f"{reason}; {SEE_DOCTOR}"
    return reason


@on_stock_kernel
def test_a_kernel_without_type_information_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = libbpf.call

    def call(name: str, *arguments: object) -> object:
        if name == "btf__load_vmlinux_btf":
            raise FileNotFoundError(2, "No such file or directory")
        return real(name, *arguments)

    monkeypatch.setattr(libbpf, "call", call)
    assert "has no BTF type information" in refusal(monkeypatch)


@on_stock_kernel
def test_a_kernel_of_another_form_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libbpf.Btf, "arguments", lambda self, pointer: 5)
    assert refusal(monkeypatch).endswith("takes 5 arguments; there are objects for 2 and 4 only")


def test_a_machine_without_libbpf_is_told_which_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libbpf, "LIBRARY", "libbpf.so.none")
    libbpf.library.cache_clear()
    try:
        assert refusal(monkeypatch) == "libbpf.so.none is missing: apt-get install libbpf1"
    finally:
        libbpf.library.cache_clear()


@on_stock_kernel
def test_the_object_for_the_other_form_is_refused_and_nothing_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    with libbpf.kernel_btf() as btf:
        fits = btf.arguments(btf.members("tcp_congestion_ops")["cong_control"][0])
    [other] = FORMS.keys() - {fits}
    monkeypatch.setattr(kernel_scheme, "fitting_object", lambda: OBJECTS / FORMS[other])
    with pytest.raises(SageccError, match=rf"{FORMS[other]} is refused by Linux"):
        Scheme(4, NAME)
    assert not scheme_in_use(NAME)


@on_stock_kernel
def test_pins_need_a_bpf_file_system_and_are_made_whole_or_not_at_all(tmp_path: Path) -> None:
    with closing(Scheme(4, NAME)) as loaded:
        with pytest.raises(SageccError, match=r"is no BPF file system: mount one with 'mount -t bpf bpf"):
            loaded.pin(tmp_path / "sagecc")
        with bpf_filesystem() as folder:
            loaded.pin(folder / "sagecc", (65534, 65534))
            assert kernel_scheme.is_pinned(folder / "sagecc")
            assert {path.name: path.stat().st_uid for path in (folder / "sagecc").iterdir()} == {
                **dict.fromkeys(("rows", "orders", "agent", "counts", "iterator"), 65534),
                "scheme": 0,
            }
            with pytest.raises(SageccError, match="cannot be made: File exists"):
                loaded.pin(folder / "sagecc")
            kernel_scheme.pinned(folder / "sagecc").close()
            kernel_scheme.unpin(folder / "sagecc")
            with pytest.raises(SageccError, match="'sagecc detach' removes it"):
                kernel_scheme.pinned(folder / "sagecc")
