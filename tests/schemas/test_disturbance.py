# SPDX-License-Identifier: Apache-2.0
"""Disturbed schemes: their names, the schedule of their kicks, and the environment that a guest gets."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagecc.collector.run.grid import profile_environments
from sagecc.common.errors import SageccError
from sagecc.schemas.disturbance import FIRST_KICK_S, LEAST_GAP_S, UNDISTURBED, Disturbance, Jitter, Kicks, Starts
from sagecc.schemas.raw import TICK_S
from sagecc.schemas.schemes import undisturbed

SET_I, *_ = profile_environments("smoke")


@pytest.mark.parametrize(
    ("scheme", "base", "disturbance"),
    [
        ("cubic", "cubic", UNDISTURBED),
        ("cubic+kicks", "cubic", Disturbance(Kicks())),
        ("vegas+kicks:3.5:0.25:2", "vegas", Disturbance(Kicks(3.5, (0.25, 2.0)))),
        ("bbr3+jitter+starts:10", "bbr3", Disturbance(None, Jitter(), Starts(10.0))),
        ("policy:a+kicks", "policy:a+kicks", UNDISTURBED),
        ("vivace+kicks", "vivace+kicks", UNDISTURBED),
    ],
)
def test_a_disturbance_is_read_from_the_schemes_name(scheme: str, base: str, disturbance: Disturbance) -> None:
    assert undisturbed(scheme) == (base, disturbance)


@pytest.mark.parametrize(
    ("scheme", "text"),
    [
        ("cubic+kick", "no scheme is disturbed by 'kick'"),
        ("cubic+kicks:often", "by numbers"),
        ("cubic+kicks:nan", "kicks:nan"),
        ("cubic+kicks:7:0", "kicks:7:0"),
        ("cubic+kicks:7:100", "kicks:7:100"),
        ("cubic+jitter:1:2", "jitter:1:2"),
        ("cubic+kicks:7", "write it as 'cubic\\+kicks'"),
        ("cubic+jitter+kicks", "write it as 'cubic\\+kicks\\+jitter'"),
        ("cubic+kicks+kicks", "write it as 'cubic\\+kicks'"),
        ("cubic+", "no scheme is disturbed by ''"),
    ],
)
def test_a_name_that_says_nothing_or_could_be_shorter_is_refused(scheme: str, text: str) -> None:
    with pytest.raises(SageccError, match=text):
        undisturbed(scheme)


@given(
    st.builds(
        Disturbance,
        st.builds(Kicks, st.sampled_from([0.5, 3.5, 7.0]), st.lists(st.sampled_from([0.125, 0.5, 2.0]), min_size=1).map(
            lambda factors: tuple(factors[:16])
        )) | st.none(),
        st.builds(Jitter, st.sampled_from([0.5, 1.0])) | st.none(),
        st.builds(Starts, st.sampled_from([1.0, 5.0])) | st.none(),
    )
)  # fmt: skip
def test_every_disturbance_has_one_name(disturbance: Disturbance) -> None:
    assert undisturbed(f"cubic{disturbance.suffix}") == ("cubic", disturbance)


def test_kicks_keep_their_distance_and_fall_on_ticks() -> None:
    kicks = Disturbance(Kicks(every=1.0)).schedule(SET_I, "an episode")
    times_s = [kick.t_s for kick in kicks]
    assert times_s[0] == SET_I.flow.start_s + FIRST_KICK_S
    assert all(later - t_s > LEAST_GAP_S - TICK_S for t_s, later in pairwise(times_s))
    assert all(abs(t_s / TICK_S - round(t_s / TICK_S)) < 1e-6 for t_s in times_s)
    assert times_s[-1] < SET_I.duration_s


def test_the_schedule_is_the_episodes_own_and_the_same_everywhere() -> None:
    kicked = Disturbance(Kicks())
    assert kicked.schedule(SET_I, "one") != kicked.schedule(SET_I, "another")
    assert [(kick.t_s, kick.factor) for kick in kicked.schedule(SET_I, "x")] == [
        (2.0, 0.25),
        (13.27, 0.125),
        (27.22, 0.25),
    ]


def test_jitter_and_starts_change_the_guests_network_alone() -> None:
    disturbance = Disturbance(None, Jitter(2.0), Starts(5.0))
    played = disturbance.environment(SET_I, "x")
    assert {link.jitter_ms for link in played.links} == {2.0}
    assert 0 <= played.flow.start_s - SET_I.flow.start_s <= 5
    assert UNDISTURBED.environment(SET_I, "x") is SET_I
