# SPDX-License-Identifier: Apache-2.0
"""What a congestion-control engineer would check of each scheme, on episodes of the real kernel.

Bounds follow from the RFC or paper, the kernel's source (net/ipv4/tcp_<scheme>.c) and the link: 48 Mbps send 4000
packets of 1500 bytes a second, so the BDP is 160 packets at 40 ms and 400 at 100 ms. BBRv2 is in test_bbr2.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest

from sagecc.collector.lab.episode import Episode
from sagecc.collector.run.grid import set_two
from sagecc.schemas.environment import Environment, RateStep
from sagecc.schemas.schemes import OTHERS, SCHEMES
from tests.collector.conftest import Play
from tests.helpers.networks import network as dumbbell_of

CWR, RECOVERY = 2, 3
"""icsk_ca_state: CWR is a reduction without a loss."""

PACKET = 1500
PAYLOAD = 1448 / 1500
"""Of a full packet on the link, what the application gets."""

Floats = npt.NDArray[np.float64]
Columns = dict[str, Floats]


def network(
    bandwidth_mbps: float = 48,
    rtt_ms: float = 40,
    queue_bdp: float = 1,
    duration_s: float = 30,
    cross: tuple[str, ...] = (),
    start_s: float = 0,
    changes: tuple[tuple[float, float], ...] = (),
) -> Environment:
    """Return a dumbbell; `changes` are later rates of its bottleneck as (seconds, Mbps)."""
    flat = dumbbell_of(bandwidth_mbps, rtt_ms, queue_bdp, duration_s, cross=cross, start_s=start_s)
    link = flat.bottleneck
    return replace(flat, links=(replace(link, rates=link.rates + tuple(RateStep(*step) for step in changes)),))


def columns(episode: Episode) -> Columns:
    """Return the raw columns, and `round`: how many RTTs have passed."""
    c = {name: episode.rows[name].to_numpy().astype(float) for name in episode.rows.column_names[1:]}
    passed = np.diff(c["t_s"]) / (c["srtt_us"][:-1] * 1e-6)
    return c | {"round": np.concatenate(([0.0], np.cumsum(passed)))}


def after(c: Columns, start_s: float) -> Columns:
    """Return the rows from `start_s` on."""
    return {name: values[c["t_s"] >= start_s] for name, values in c.items()}


@dataclass(frozen=True)
class Climb:
    """A stretch between two reductions, one value a tick: seconds and RTTs from its start, the window (packets).

    before: the window when the reduction before it began. ssthresh: what that set it to. state: CWR, RECOVERY, ...
    """

    start_s: float
    before: float
    ssthresh: float
    state: int
    t_s: Floats
    round: Floats
    cwnd: Floats

    @property
    def ratio(self) -> float:
        return self.ssthresh / self.before

    @property
    def slope(self) -> float:
        """Packets a round."""
        return float((self.cwnd[-1] - self.cwnd[0]) / self.round[-1])

    def growth(self) -> Floats:
        """Packets gained in each whole round."""
        return np.diff(np.interp(np.arange(int(self.round[-1]) + 1), self.round, self.cwnd))


def climbs(episode: Episode, after_s: float = 0) -> list[Climb]:
    """Return the stretches in state Open that follow a reduction and begin after `after_s`."""
    c = columns(episode)
    calm = c["ca_state"] < CWR
    edges = [0, *(np.flatnonzero(np.diff(calm)) + 1), len(calm)]
    found = []
    for (before, start), (_, end) in pairwise(pairwise(edges)):
        if calm[start] and c["t_s"][start] >= after_s:
            t_s, rounds = c["t_s"][start:end], c["round"][start:end]
            found.append(
                Climb(
                    start_s=t_s[0],
                    before=c["cwnd_pkts"][before - 1],
                    ssthresh=c["ssthresh_pkts"][start],
                    state=int(c["ca_state"][before:start].max()),
                    t_s=t_s - t_s[0],
                    round=rounds - rounds[0],
                    cwnd=c["cwnd_pkts"][start:end],
                )
            )
    return found


def wmax(climb: Climb, last: float, beta: float) -> float:
    """Return Cubic's and BIC's W_max after the reduction before `climb`, given the last: it converges fast."""
    return climb.before * (1 + beta) / 2 if climb.before < last else climb.before


# how much a loss takes away


DEEP = network(bandwidth_mbps=12, rtt_ms=20)
"""BDP 20 packets, and as many in the queue."""


@pytest.mark.parametrize(
    ("scheme", "environment", "factor"),
    [
        ("reno", network(), 1 / 2),  # RFC 5681, equation 4
        ("hybla", network(), 1 / 2),  # tcp_reno_ssthresh
        ("lp", network(), 1 / 2),  # tcp_reno_ssthresh
        ("dctcp", network(), 1 / 2),  # RFC 8257, section 3.5; dctcp_react_to_loss
        ("veno", network(), 1 / 2),  # queue of 3 packets and more: tcp_veno_ssthresh
        ("illinois", network(), 1 / 2),  # delay above 0.8 of the highest: BETA_MAX
        ("cubic", network(), 717 / 1024),  # RFC 9438, section 4.6: 0.7
        ("bic", network(), 819 / 1024),  # bictcp_recalc_ssthresh
        ("scalable", network(), 7 / 8),  # TCP_SCALABLE_MD_SCALE
        ("nv", DEEP, 819 / 1024),  # nv_loss_dec_factor
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_loss_takes_the_schemes_share_of_the_window(
    play: Play, scheme: str, environment: Environment, factor: float
) -> None:
    settled = climbs(play(environment, scheme), after_s=2)
    assert settled
    for climb in settled:
        assert climb.state == RECOVERY
        assert climb.ssthresh == pytest.approx(factor * climb.before, abs=max(2, 0.01 * climb.before))
        assert climb.cwnd[0] == pytest.approx(climb.ssthresh, abs=4)  # RFC 6937: PRR ends at ssthresh


# Reno and who grows like it


@pytest.mark.parametrize(
    ("scheme", "slope"),
    [
        ("reno", 1.0),  # RFC 5681, section 3.1; tcp_cong_avoid_ai counts packets, so delayed ACKs do not matter
        ("dctcp", 1.0),
        ("lp", 1.0),
        ("westwood", 1.0),
        ("veno", 0.5),  # one packet every other RTT while 3 or more are queued: tcp_veno_cong_avoid
    ],
)
def test_it_adds_so_many_packets_a_round_trip(play: Play, scheme: str, slope: float) -> None:
    long = [climb for climb in climbs(play(network(), scheme), after_s=0.8) if climb.round[-1] > 50]
    assert long
    for climb in long:
        assert climb.slope == pytest.approx(slope, rel=0.05)
        halves = np.array_split(climb.growth(), 2)
        assert halves[0].mean() == pytest.approx(halves[1].mean(), rel=0.15)  # a line, no curve


def test_reno_overflows_the_queue_by_one_packet_a_sawtooth(play: Play) -> None:
    """Path and queue hold 160 packets each; the window that does not fit loses what it is too large by."""
    episode = play(network(), "reno")
    settled = climbs(episode, after_s=2)
    assert len(settled) >= 2
    for climb in settled:
        assert climb.before == pytest.approx(160 + 160 + 1, abs=1)
    lost = after(columns(episode), 2)["link_drops"]
    assert lost[-1] - lost[0] == pytest.approx(len(settled), abs=1)


def test_dctcp_without_marks_is_reno_to_the_packet(play: Play) -> None:
    """RFC 8257, section 3.3: without marks alpha only sets what a mark would do."""
    reno, dctcp = (play(network(), scheme).rows.drop_columns(["episode_id"]) for scheme in ("reno", "dctcp"))
    assert dctcp.equals(reno)


# Cubic


def cubic_window(climb: Climb, last_wmax: float) -> tuple[Floats, float, float]:
    """Return W(t) = C (t - K)^3 + W_max with C = 0.4 (RFC 9438, section 4.2), W_max and K."""
    peak = wmax(climb, last_wmax, 717 / 1024)
    k = np.cbrt(max(peak - climb.cwnd[0], 0) / 0.4)
    return 0.4 * (climb.t_s - k) ** 3 + peak, peak, float(k)


@pytest.mark.parametrize("bandwidth_mbps", [24, 48, 96])
def test_cubic_follows_the_cubic_function(play: Play, bandwidth_mbps: float) -> None:
    """At 100 ms the Reno-friendly region stays below. A window smaller than the last W_max converges fast."""
    last, long = 0.0, 0
    for climb in climbs(play(network(bandwidth_mbps, 100, duration_s=40), "cubic")):
        window, last, _ = cubic_window(climb, last)
        assert climb.cwnd == pytest.approx(window, rel=0.015)
        long += climb.t_s[-1] > 4
    assert long >= 3


def test_cubic_is_concave_then_flat_at_wmax_then_convex(play: Play) -> None:
    last, crossed = 0.0, 0
    for climb in climbs(play(network(48, 100, duration_s=40), "cubic")):
        _, last, k = cubic_window(climb, last)
        if climb.t_s[-1] < k + 3:
            continue  # it met the queue's end before it could rise again
        crossed += 1
        second = np.interp(np.arange(0, climb.t_s[-1], 0.5), climb.t_s, climb.cwnd)
        growth = np.diff(second)
        flat = np.abs(np.arange(len(growth)) * 0.5 + 0.25 - k) < 1
        assert growth[flat].max() <= 2
        assert second[np.abs(np.arange(len(second)) * 0.5 - k) < 1] == pytest.approx(last, abs=4)
        falling, rising = np.split(growth, [int(k / 0.5)])
        assert falling[0] > 10
        assert np.all(np.diff(falling) <= 2)
        assert rising[-1] > 5
        assert np.all(np.diff(rising) >= -2)
    assert crossed


def test_cubic_is_reno_friendly_on_a_small_bdp(play: Play) -> None:
    """RFC 9438, section 4.3: 3 (1 - beta) / (1 + beta) = 0.53 packets an RTT, far above C t^3 at 20 packets."""
    settled = climbs(play(DEEP, "cubic"), after_s=3)
    assert len(settled) > 10
    assert np.mean([climb.slope for climb in settled[:-1]]) == pytest.approx(0.53, rel=0.1)


def test_bic_searches_the_window_of_the_last_loss(play: Play) -> None:
    """bictcp_update: a quarter of the distance an RTT, 16 packets at most, up to twice that with delayed ACKs.

    Beyond it, it starts slowly and speeds up to the same limit.
    """
    last, searches, probes = 0.0, 0, 0
    for climb in climbs(play(network(rtt_ms=100, duration_s=40), "bic"), after_s=5):
        last = wmax(climb, last, 819 / 1024)
        growth = climb.growth()
        assert growth.max(initial=0) <= 2 * 16 + 2
        distance = last - np.interp(np.arange(len(growth)), climb.round, climb.cwnd)
        search = (distance > 12) & (distance < 64)
        if climb.start_s > 12 and len(growth) > 5:
            assert np.all(growth[distance > 140] > 25)
            assert np.all(growth[search] / distance[search] > 1 - np.exp(-0.25) - 0.03)
            assert np.all(growth[search] / distance[search] < 1 - np.exp(-0.5) + 0.05)
            searches += search.sum()
        if climb.start_s > 12 and len(growth) > 30:
            near = np.abs(distance) < 3
            assert growth[near].max() <= 1.1
            assert growth[-1] > 25
            probes += 1
    assert searches >= 6
    assert probes >= 2


# larger windows, longer paths


@pytest.mark.parametrize(
    ("bandwidth_mbps", "rtt_ms", "window", "decrease"),
    [(12, 10, 21, 0.50), (12, 20, 41, 0.44), (48, 40, 321, 0.38), (48, 100, 805, 0.34)],
)
def test_highspeed_gives_back_less_of_a_larger_window(
    play: Play, bandwidth_mbps: float, rtt_ms: float, window: float, decrease: float
) -> None:
    """RFC 3649, appendix B: b(w) at the entry that the window belongs to."""
    settled = climbs(play(network(bandwidth_mbps, rtt_ms), "highspeed"), after_s=3)
    assert settled
    for climb in settled:
        assert climb.before == pytest.approx(window, rel=0.03)
        assert climb.ratio == pytest.approx(1 - decrease, abs=1 / window + 0.005)


def test_highspeed_grows_faster_than_reno_at_large_windows(play: Play) -> None:
    """RFC 3649: a(w) is 6 from 496 packets on, 7 from 664; the kernel adds it an ACK, and half of them are delayed."""
    settled = climbs(play(network(rtt_ms=100), "highspeed"), after_s=9)
    assert settled
    for climb in settled:
        at = np.interp(np.arange(len(climb.growth())), climb.round, climb.cwnd)
        low, high = climb.growth()[(at > 500) & (at < 650)], climb.growth()[at > 670]
        assert low[3:].mean() == pytest.approx(6 / 2, rel=0.1)
        assert high.mean() == pytest.approx(7 / 2, rel=0.1)


def test_scalable_grows_by_a_hundredth_a_round_trip(play: Play) -> None:
    """tcp_scalable_cong_avoid: one packet for every 100 acknowledged."""
    settled = climbs(play(network(), "scalable"), after_s=3)[:-1]
    assert len(settled) > 10
    for climb in settled:
        assert np.log(climb.cwnd[-1] / climb.cwnd[0]) / climb.round[-1] == pytest.approx(np.log(1.01), rel=0.06)


def test_htcp_grows_with_the_time_since_the_last_loss(play: Play) -> None:
    """Leith and Shorten: 2 (1 - beta) (1 + 10 (t - 1) + (t - 1)^2 / 4) packets an RTT after a second, Reno's 1 before.

    beta is 1/2 here, and the path's 100 ms are the reference RTT.
    """
    settled = climbs(play(network(rtt_ms=100), "htcp"), after_s=3)
    assert len(settled) >= 4
    for climb in settled:
        late = np.maximum(climb.t_s - 1, 0)
        gained = np.diff(climb.round, prepend=0) * (1 + 10 * late + late**2 / 4)
        assert climb.cwnd == pytest.approx(climb.cwnd[0] + np.cumsum(gained), rel=0.05)
        first = climb.t_s < 1
        assert climb.cwnd[first][-1] - climb.cwnd[0] == pytest.approx(climb.round[first][-1], abs=3)


@pytest.mark.parametrize(("queue_bdp", "beta"), [(1, 0.5), (0.5, 1 / 1.5), (0.2, 0.8)])
def test_htcp_gives_back_what_the_queue_held(play: Play, queue_bdp: float, beta: float) -> None:
    """Leith and Shorten: beta = lowest / highest RTT within [0.5, 0.8], once the throughput of two epochs agrees."""
    settled = climbs(play(network(rtt_ms=100, queue_bdp=queue_bdp), "htcp"), after_s=14)
    assert settled
    for climb in settled:
        assert climb.ratio == pytest.approx(beta, abs=0.02)


def test_hybla_grows_by_the_square_of_the_rtt_over_25_ms(play: Play) -> None:
    """Caini and Firrincieli: rho^2 = 16 packets an RTT at 100 ms.

    The kernel adds it an ACK, half of them are delayed, and its fixed point truncates (2048 / 750 to 2): 5.5 to 16.
    At 20 ms rho is 1: Reno, or slower by the same rounding.
    """
    far = climbs(play(network(rtt_ms=100, duration_s=40), "hybla"), after_s=6)
    near = climbs(play(network(rtt_ms=20), "hybla"), after_s=1)
    assert len(far) >= 3
    assert len(near) >= 3
    for climb in far:
        assert 5.5 < climb.slope < 16
    for climb in near:
        assert 0.25 < climb.slope < 1.05


def test_hybla_starts_with_rho_packets_and_multiplies_by_two_to_the_rho(play: Play) -> None:
    """Each acknowledged packet adds 2^rho - 1, rho 4 at 100 ms: 4, 64, and a delayed ACK counts once."""
    c = columns(play(network(rtt_ms=100, duration_s=40), "hybla"))
    assert c["cwnd_pkts"][0] == 4
    steps = np.unique(c["cwnd_pkts"][c["round"] < 1.2])
    assert list(steps) == [4, 64]
    reno = columns(play(network(rtt_ms=100), "reno"))
    filled = [(x["t_s"][np.argmax(x["cwnd_pkts"] > 400)]) for x in (c, reno)]
    assert filled[0] < 0.6 * filled[1]


# who listens to delay as well


def mean_ahead(c: Columns, rate_mbps: float, rtt_ms: float) -> float:
    """Return how many packets a packet finds before it, itself not counted, on average over all of them."""
    delay_ns = (c["link_delay_ns"][-1] - c["link_delay_ns"][0]) / (c["link_packets"][-1] - c["link_packets"][0])
    own_ns = PACKET * 8 / rate_mbps * 1000
    return float((delay_ns - rtt_ms / 2 * 1e6) / own_ns - 1)


@pytest.mark.parametrize(("bandwidth_mbps", "rtt_ms"), [(12, 20), (24, 80), (48, 40), (96, 40)])
def test_vegas_holds_two_to_four_packets_in_the_queue(play: Play, bandwidth_mbps: float, rtt_ms: float) -> None:
    """Brakmo and Peterson: alpha 2, beta 4; tcp_vegas_cong_avoid compares whole packets, so below 5."""
    steady = after(columns(play(network(bandwidth_mbps, rtt_ms, duration_s=35), "vegas")), 25)
    assert 2 <= mean_ahead(steady, bandwidth_mbps, rtt_ms) < 5
    assert steady["link_queue_bytes"].min() > 0  # and never runs dry
    assert np.ptp(steady["cwnd_pkts"]) == 0
    assert steady["link_drops"][0] == steady["link_drops"][-1]


def test_vegas_moves_by_one_packet_a_round_trip(play: Play) -> None:
    """Down while more than beta are queued: from half of what slow start reached, 318, to 160 + 5 in as many RTTs."""
    c = after(columns(play(network(), "vegas")), 0.6)
    moving = c["cwnd_pkts"] > c["cwnd_pkts"][-1]
    assert np.all(np.diff(c["cwnd_pkts"]) <= 0)
    fallen = c["cwnd_pkts"][0] - c["cwnd_pkts"][-1]
    assert fallen > 100
    assert c["round"][moving][-1] - c["round"][0] == pytest.approx(fallen, rel=0.05)


def test_veno_takes_a_fifth_while_the_queue_is_short(play: Play) -> None:
    """Fu and Liew: fewer than 3 packets queued, so the loss is not congestion. The queue holds 2."""
    settled = climbs(play(network(queue_bdp=2 / 160), "veno"), after_s=0.5)
    assert len(settled) > 10
    fifth = [climb.ssthresh in (climb.before * 4 // 5, (climb.before + 1) * 4 // 5) for climb in settled]
    assert sum(fifth) >= 0.9 * len(settled)  # two packets queued and a late ACK are three: then it halves
    # At most both within a tick: 4/5 and then 1/2.
    assert all(climb.ssthresh >= climb.before * 2 // 5 for climb in settled)


def test_illinois_takes_an_eighth_while_the_delay_is_small(play: Play) -> None:
    """Liu, Basar and Srikant: beta is 1/8 below a tenth of the highest delay seen.

    4 Mbps for five seconds show it 480 ms of queue; at 48 Mbps the same queue is 40 ms.
    """
    episode = play(network(changes=((3, 4), (8, 48))), "illinois")
    settled = climbs(episode, after_s=10.4)
    assert len(settled) > 10
    for climb in settled:
        assert climb.ratio == pytest.approx(7 / 8, abs=0.005)


def test_illinois_grows_ever_slower_as_the_delay_rises(play: Play) -> None:
    """alpha = 10 d_m / (d_m + d_a (10 - 0.3) / 0.3): from 10 packets an RTT at no delay to 0.3 at the highest, d_m."""
    episode = play(network(rtt_ms=100, duration_s=40), "illinois")
    c = after(columns(episode), 3)
    highest = 100.0  # ms: the queue of a BDP, which slow start filled
    delay = c["link_queue_bytes"] * 8 / 48e6 * 1e3
    alpha = 10 * highest / (highest + np.clip(delay, 1, highest) * 9.7 / 0.3)
    predicted = np.sum(alpha[:-1] * np.diff(c["round"]))
    assert c["cwnd_pkts"][-1] - c["cwnd_pkts"][0] == pytest.approx(predicted, rel=0.15)
    quarters = [part[-1] - part[0] for part in np.array_split(c["cwnd_pkts"], 4)]
    assert quarters == sorted(quarters, reverse=True)
    assert quarters[0] > 1.5 * quarters[3]


def test_yeah_empties_the_queue_before_it_overflows(play: Play) -> None:
    """tcp_yeah_cong_avoid: beyond 80 packets queued it takes them out; the queue would hold 320."""
    steady = after(columns(play(network(bandwidth_mbps=96), "yeah")), 4)
    assert 60 < steady["link_queue_bytes"].max() / PACKET < 80 + 10
    assert steady["link_drops"][0] == steady["link_drops"][-1]
    assert np.sum(np.diff(steady["cwnd_pkts"]) < -40) >= 3


def test_yeah_takes_an_eighth_at_first_and_half_from_competitors(play: Play) -> None:
    """tcp_yeah_ssthresh: after 16 RTTs of Reno's pace another flow must be there, so it is Reno."""
    found = climbs(play(network(), "yeah"))
    early = [climb for climb in found[1:] if climb.start_s < 2]
    late = [climb for climb in found if climb.start_s > 5]
    assert len(early) >= 3
    assert late
    assert [climb.ratio for climb in early] == pytest.approx([7 / 8] * len(early), abs=0.005)
    assert [climb.ratio for climb in late] == pytest.approx([1 / 2] * len(late), abs=0.005)


@pytest.mark.parametrize("queue_bdp", [0.5, 1, 2])
def test_westwood_falls_to_the_bdp_whatever_the_queue(play: Play, queue_bdp: float) -> None:
    """tcp_westwood_event: ssthresh = bandwidth estimate x lowest RTT, so 160 packets of 240, 320 or 480."""
    settled = climbs(play(network(queue_bdp=queue_bdp, duration_s=35), "westwood"), after_s=8)
    assert settled
    for climb in settled:
        assert climb.before == pytest.approx(160 * (1 + queue_bdp), rel=0.01)
        assert climb.ssthresh == pytest.approx(160, rel=0.05)
        assert climb.cwnd[0] == pytest.approx(climb.ssthresh, abs=2)


def test_cdg_backs_off_from_rising_delay_without_a_loss(play: Play) -> None:
    """Hayes and Armitage: by sqrt(1/2) (tcp_cdg_ssthresh), as CWR; so the queue never fills."""
    episode = play(network(), "cdg")
    found = climbs(episode)
    assert len(found) >= 8
    for climb in found:
        assert climb.state == CWR
        assert climb.ssthresh == pytest.approx(np.sqrt(0.5) * climb.before, abs=2)
    steady = after(columns(episode), 1)
    assert steady["link_drops"][-1] == 0
    assert steady["link_queue_bytes"].mean() < 0.2 * 160 * PACKET


@pytest.mark.parametrize("bandwidth_mbps", [24, 48, 96])
def test_nv_stops_before_the_queue_fills(play: Play, bandwidth_mbps: float) -> None:
    """tcpnv_acked: at most 10 packets (nv_pad) more than rate x lowest RTT, which itself holds some queue in time."""
    c = columns(play(network(bandwidth_mbps, duration_s=20), "nv"))
    assert c["link_drops"][-1] == 0
    steady = after(c, 5)
    assert 10 < steady["link_queue_bytes"].max() / PACKET <= 4 * 10


def test_lp_backs_off_early_once_and_then_is_reno(play: Play) -> None:
    """tcp_lp_pkts_acked halves the window when one-way delay rises above 15 % of its range, in slow start already.

    It then sets the range's top to twice the delay itself (owd_max = sowd >> 2), and that holds the random offset of
    the peer's timestamps (RFC 7323; Linux since 4.10), so it never gets there again.
    """
    lp, reno = (columns(play(network(), scheme)) for scheme in ("lp", "reno"))
    assert after(reno, 0.13)["cwnd_pkts"][0] >= 40
    assert after(lp, 0.13)["cwnd_pkts"][0] == pytest.approx(20 / 2 + 1, abs=1)
    assert lp["link_drops"][after(lp, 0)["t_s"] < 0.3][-1] == 0
    both = climbs(play(network(), "lp"), after_s=2), climbs(play(network(), "reno"), after_s=2)
    assert [climb.before for climb in both[0]] == [climb.before for climb in both[1]]


# BBR v1


RATE = 48 * PAYLOAD


@pytest.fixture
def bbr(play: Play) -> Columns:
    """48 Mbps, 100 ms, a queue of 2 BDP that nothing overflows."""
    return columns(play(network(rtt_ms=100, queue_bdp=2, duration_s=34), "bbr"))


def gains(c: Columns, until_s: float) -> list[tuple[float, float, float]]:
    """Return (start, end, gain to two digits) of each stretch of one pacing rate, over the link's; 1 % is margin."""
    gain = np.round(c["pacing_rate_bytes_s"] * 8e-6 / RATE / 0.99, 2)
    edges = [0, *(np.flatnonzero(np.diff(gain)) + 1), len(gain)]
    found = [(c["t_s"][a], c["t_s"][b - 1] + 0.01, float(gain[a])) for a, b in pairwise(edges)]
    return [stretch for stretch in found if stretch[1] < until_s]


def test_bbr_starts_with_two_over_ln_two_and_drains_with_its_inverse(bbr: Columns) -> None:
    """tcp_bbr.c: 2885/1000 until three rounds bring less than 25 % more bandwidth, then 1000/2885."""
    stretches = gains(bbr, 3)
    top = next(i for i, (start, end, _) in enumerate(stretches) if end - start > 0.3)
    assert stretches[top][2] == pytest.approx(2.885, abs=0.02)
    assert stretches[top + 1][2] == pytest.approx(1 / 2.885, abs=0.01)
    queue = bbr["link_queue_bytes"][np.searchsorted(bbr["t_s"], stretches[top + 1][1])] / PACKET
    assert queue < 0.1 * 400


def test_bbr_cycles_through_eight_phases(bbr: Columns) -> None:
    """tcp_bbr.c: gains 5/4, 3/4 and six of 1, each about a round of 100 ms."""
    cycle = [stretch for stretch in gains(bbr, 10) if stretch[0] > 2.5]
    first = next(i for i, (_, _, gain) in enumerate(cycle) if gain == 1.25)
    whole = cycle[first : first + 24]
    assert len(whole) == 24
    assert [gain for _, _, gain in whole] == [1.25, 0.75, 1.0] * 8
    for start, end, gain in whole:
        rounds = (end - start) / 0.1
        assert 5.5 < rounds < 6.5 if gain == 1 else 0.8 < rounds < 1.4
    starts = [start for start, _, gain in whole if gain == 1.25]
    assert np.diff(starts) == pytest.approx(0.82, abs=0.03)
    for start, end, gain in whole:
        queue = bbr["link_queue_bytes"][(bbr["t_s"] > start + 0.03) & (bbr["t_s"] < end)] / PACKET
        assert queue.max() < (0.3 * 400 if gain != 1 else 0.05 * 400)


def test_bbr_probes_the_rtt_with_four_packets_every_ten_seconds(bbr: Columns) -> None:
    """tcp_bbr.c: bbr_min_rtt_win_sec 10, bbr_cwnd_min_target 4, for 200 ms and a round once so little is in flight."""
    small = after(bbr, 1)["cwnd_pkts"] <= 4
    t_s = after(bbr, 1)["t_s"]
    edges = t_s[np.flatnonzero(np.diff(small)) + 1]
    starts, ends = edges[::2], edges[1::2]
    assert len(starts) == len(ends) == 3
    assert starts[0] == pytest.approx(10, abs=0.2)
    assert starts[1:] - ends[:-1] == pytest.approx(10.1, abs=0.1)
    inflight = bbr["unacked_pkts"] - bbr["sacked_pkts"] - bbr["lost_pkts"] + bbr["retrans_pkts"]
    for start, end in zip(starts, ends, strict=True):
        probe = (bbr["t_s"] >= start) & (bbr["t_s"] < end)
        least = bbr["t_s"][probe & (inflight <= 4)]
        assert 0.185 <= least[-1] - least[0] <= 0.2 + 0.1 + 0.01
        assert bbr["cwnd_pkts"][np.searchsorted(bbr["t_s"], end)] == pytest.approx(2 * 400, rel=0.05)  # as before
        assert np.all(bbr["link_queue_bytes"][probe][-15:] <= 4 * PACKET)


# against others


@pytest.mark.parametrize("scheme", ["vegas", "cdg"])
def test_it_yields_to_cubic_in_set_two(play: Play, scheme: str) -> None:
    """Delay alone moves it, and Cubic's queue is delay: less than half of the fair share."""
    own, cubic = play(set_two(24, 40, 1), scheme).flows
    assert own.goodput_mbps < 0.5 * 12
    assert own.goodput_mbps + cubic.goodput_mbps > 0.9 * 24 * PAYLOAD


def test_bbr_takes_more_than_its_share_of_cubic_at_one_bdp(play: Play) -> None:
    """Losses do not move it: 2 BDP in flight fill such a queue (Ware et al., IMC 2019)."""
    own, cubic = play(set_two(24, 40, 1), "bbr").flows
    assert own.goodput_mbps > 1.25 * 12
    assert own.loss_rate > 2 * cubic.loss_rate


@pytest.mark.parametrize("start_s", [0, 10])
@pytest.mark.parametrize("scheme", ["cubic", "reno"])
def test_two_flows_of_a_scheme_share_within_ten_percent(play: Play, scheme: str, start_s: float) -> None:
    """Over 270 s, so some hundred sawteeth, wherever they began; the link is busy, so the other has the rest."""
    episode = play(network(12, 20, duration_s=300, cross=(scheme,), start_s=start_s), scheme)
    c = after(columns(episode), start_s + 30)
    own, whole = (c[name][-1] - c[name][0] for name in ("link_bytes", "link_capacity_bytes"))
    share = own / whole
    assert sum(flow.goodput_mbps for flow in episode.flows) > 0.95 * 12 * PAYLOAD
    assert share == pytest.approx(0.5, rel=0.1)
    assert 1 / (share**2 + (1 - share) ** 2) / 2 > 0.99  # Jain's index
    assert episode.flows[0].loss_rate == pytest.approx(episode.flows[1].loss_rate, rel=0.5)


# conservation, whatever the scheme


LAWS = {
    "shallow": network(24, 40, 0.5, duration_s=8),
    "deep": network(12, 20, 16, duration_s=8),
    "long": network(24, 160, 1, duration_s=8),
    "stepped": network(48, 40, 1, duration_s=8, changes=((3, 12), (5.5, 96))),
    "shared": network(24, 40, 1, duration_s=8, cross=("cubic", "reno"), start_s=1),
}


COUNTERS = (
    *("delivered_pkts", "lost_total_pkts", "retrans_total_pkts", "data_segs_out", "rto_total"),
    *("bytes_acked", "bytes_sent", "received_bytes"),
    *("link_packets", "link_bytes", "link_drops", "link_delay_ns", "link_capacity_bytes"),
)


@pytest.mark.parametrize("place", LAWS)
@pytest.mark.parametrize("scheme", [*SCHEMES, *OTHERS])
def test_nothing_is_made_or_lost_on_the_way(play: Play, scheme: str, place: str) -> None:
    environment = LAWS[place]
    episode = play(environment, scheme)
    c = columns(episode)
    assert np.diff(c["t_s"]) == pytest.approx(0.01)
    for name in COUNTERS:
        assert np.all(np.diff(c[name]) >= 0), name

    # each stage passes on what it got, at most
    assert np.all(c["bytes_acked"] <= c["received_bytes"] + 1)
    assert np.all(c["received_bytes"] <= c["link_bytes"] * PAYLOAD)
    assert np.all(c["link_bytes"] <= c["link_capacity_bytes"])
    assert np.all(c["delivered_pkts"] <= c["link_packets"])
    full = c["link_packets"][c["link_packets"] > 2] - 2
    assert np.all(c["link_bytes"][c["link_packets"] > 2] == full * PACKET + 60 + 52)  # SYN and the handshake's ACK
    assert np.all(c["bytes_sent"] == c["data_segs_out"] * c["mss_bytes"])

    # sent = left + dropped + in the queue
    waiting = c["data_segs_out"] + 2 - c["link_packets"] - c["link_drops"]
    queue = c["link_queue_bytes"] / PACKET
    assert np.all(waiting >= 0)
    assert np.all(waiting <= queue + 2)
    if not environment.cross:
        assert np.all(waiting >= queue - 2)

    # a path that keeps the order: only what was dropped is held lost, only what is held lost is sent again
    assert np.all(c["lost_total_pkts"] <= c["link_drops"])
    assert np.all(c["retrans_total_pkts"] <= c["lost_total_pkts"])
    seen = c["t_s"] < environment.duration_s - 1.5
    assert c["link_drops"][seen][-1] - c["lost_total_pkts"][-1] <= 1

    # delay, queue and rate stay within what the link allows
    link = environment.bottleneck
    rates = [step.rate_mbps for step in link.rates]
    assert link.queue_bytes is not None
    longest_ms = link.queue_bytes * 8 / min(rates) / 1000
    new = np.diff(c["link_packets"]) > 0
    delay_ms = np.diff(c["link_delay_ns"])[new] / np.diff(c["link_packets"])[new] / 1e6
    assert delay_ms.min() > link.delay_ms
    assert delay_ms.max() <= link.delay_ms + longest_ms
    assert c["link_queue_bytes"].max() <= link.queue_bytes
    assert c["min_rtt_us"].min() >= environment.min_rtt_ms * 1000
    assert np.all(c["srtt_us"] >= c["min_rtt_us"] - 1)
    assert np.all(c["srtt_us"] <= (environment.min_rtt_ms + longest_ms) * 1000 + 1)
    assert np.all(c["delivery_rate_bytes_s"] <= max(rates) * 125_000 * PAYLOAD * 1.001)

    # the sender's accounts
    assert c["cwnd_pkts"].min() >= 1
    assert c["ssthresh_pkts"].min() >= 2
    assert np.all(c["mss_bytes"] == PAYLOAD * PACKET)
    assert np.all(c["sacked_pkts"] + c["lost_pkts"] <= c["unacked_pkts"])
    first = c["data_segs_out"] - c["retrans_total_pkts"]
    assert np.all(first == c["delivered_pkts"] - 1 + c["unacked_pkts"] - c["sacked_pkts"])  # delivered counts the SYN
    inflight = c["unacked_pkts"] - c["sacked_pkts"] - c["lost_pkts"] + c["retrans_pkts"]
    assert np.all(inflight >= 0)
    assert np.all(inflight <= np.maximum.accumulate(c["cwnd_pkts"]))
    assert np.all((c["ca_state"] < RECOVERY) <= (c["lost_pkts"] == 0))  # lost packets are a recovery's

    # the flow does use the link, and what all flows got fits into it
    capacity = c["link_capacity_bytes"][-1] * 8e-6
    life = [environment.duration_s - environment.start_s] + [environment.duration_s] * len(environment.cross)
    got = sum(flow.goodput_mbps * seconds for flow, seconds in zip(episode.flows, life, strict=True))
    least = 0.05 if scheme == "ledbat" else 0.1  # LEDBAT has no slow start
    assert least * capacity < got <= capacity * PAYLOAD
