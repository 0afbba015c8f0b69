# SPDX-License-Identifier: Apache-2.0
"""The congestion-control schemes by name: the kernel's, by the names the kernel gives them, and those in user space."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from sagecc.common import shipped
from sagecc.common.errors import SageccError
from sagecc.common.suggestions import did_you_mean
from sagecc.schemas.disturbance import Disturbance, split_scheme

POLICY_PREFIX = "policy:"

PYTHON_PREFIX = "python:"
"""Of a scheme of one's own in user space, `python:PATH.py:CLASS` (execution.schemes)."""

SCHEMES: Mapping[str, str] = MappingProxyType(
    {
        "westwood": "TCP Westwood+: sets the window from a bandwidth estimate after a loss",
        "cubic": "TCP Cubic (RFC 9438): the default of most systems",
        "vegas": "TCP Vegas: holds a few packets in the queue, by delay",
        "yeah": "YeAH: Scalable TCP while the queue is short, Reno-like precaution else",
        "bbr2": "BBRv2: paces at the measured bottleneck rate, bounds what is in flight by losses",
        "reno": "NewReno (RFC 5681, RFC 6582): additive increase, multiplicative decrease",
        "illinois": "TCP Illinois: AIMD whose constants follow the delay",
        "veno": "TCP Veno: Reno that tells random from congestion losses by delay",
        "highspeed": "HighSpeed TCP (RFC 3649): AIMD that grows faster at large windows",
        "cdg": "CAIA delay-gradient: backs off on rising delay",
        "htcp": "H-TCP: increase grows with the time since the last loss",
        "bic": "BIC: binary search for the window of the last loss",
        "hybla": "TCP Hybla: Reno made independent of the RTT",
    }
)
"""The 13 schemes of the paper's pool (section 5), in its order."""

OTHERS: Mapping[str, str] = MappingProxyType(
    {
        "bbr": "BBR v1: paces at the measured bottleneck rate, whatever is lost",
        "dctcp": "DCTCP (RFC 8257): for data centres with ECN marks",
        "scalable": "Scalable TCP: multiplicative increase",
        "nv": "TCP-NV: Vegas's heir for data centres",
        "lp": "TCP-LP: low priority by one-way delay; with Linux's timestamp offsets hardly more than Reno",
        "copa": "Copa: paces towards 1/(delta x queueing delay); AIMD on 1/delta beside flows that fill the queue",
        "c2tcp": "C2TCP on Cubic: a window of 1 where the RTT stays above a multiple of the lowest",
        "ledbat": "LEDBAT (RFC 6817): for the background; holds 100 ms of queue by one-way delay, yields to others",
        "ledbatpp": "LEDBAT++: LEDBAT by RTT and 60 ms, with multiplicative decrease and regular slowdowns",
        "bbr3": "BBRv3: BBRv2's heir; probes until bandwidth stops growing, with caution after a lossy probe",
    }
)
"""Further schemes of the guest kernel, outside the paper's pool; a new one comes last: `golden` goes by their order."""

USER_SPACE: Mapping[str, str] = MappingProxyType(
    {
        "vivace": "PCC Vivace: tries rates a little above and below, and climbs a utility of rate, delay and loss",
        "sprout": "Sprout: forecasts what a cellular link will surely deliver, so that packets wait 100 ms at most",
        "sprout-ewma": "Sprout-EWMA: Sprout with a moving average in place of its forecast",
        "wander": "for pools: windows hold, drift and move fast at random, whatever the network says",
    }
)
"""Schemes in user space (execution.schemes): the host sets their windows and pacing rates, as it does policies'."""

EXPLORERS = ("wander",)
"""Schemes whose actions are random: values learn from them, and no policy should imitate them."""


def grown_scheme(name: str, number: int) -> str:
    """Return the scheme of the episodes that a policy in training played in a round (growth)."""
    return f"{POLICY_PREFIX}{name}@{number}"


def is_grown(scheme: str) -> bool:
    """Tell whether a scheme is a round of a policy in training: its trajectories are in a pool, it plays no more."""
    return scheme.startswith(POLICY_PREFIX) and scheme.rpartition("@")[2].isdecimal()


def is_driven(scheme: str) -> bool:
    """Tell whether the host sets the windows of a scheme's flows: a policy's, or those of a scheme in user space."""
    return scheme in USER_SPACE or scheme.startswith((POLICY_PREFIX, PYTHON_PREFIX))


def python_class(scheme: str) -> tuple[str, str]:
    """Return the path and the class that a scheme `python:PATH.py:CLASS` names.

    Raises:
        SageccError: it names none.
    """
    match = re.fullmatch(rf"{PYTHON_PREFIX}(.+\.py):([^\W\d]\w*)", scheme)
    if match is None:
        raise SageccError(f"'{scheme}': name a file and a class in it, such as {PYTHON_PREFIX}mine.py:Mine")
    return match[1], match[2]


def undisturbed(scheme: str) -> tuple[str, Disturbance]:
    """Return a scheme's base, and what disturbs it; only the kernel's schemes are disturbed.

    Raises:
        SageccError: as from `split_scheme`.
    """
    return split_scheme(scheme, (*SCHEMES, *OTHERS))


def is_disturbed(scheme: str) -> bool:
    """Tell whether something disturbs a scheme (schemas.disturbance); errors are those of `undisturbed`."""
    return bool(undisturbed(scheme)[1])


def check_scheme(name: str) -> str:
    """Return `name` if it names a scheme of the kernel, disturbed or not, or in user space, or a policy.

    Raises:
        SageccError: it does not.
    """
    if not name.isprintable():
        raise SageccError(f"{name!r}: a scheme's name, and so its path, must be of printable characters in UTF-8")
    if name.startswith(PYTHON_PREFIX):
        python_class(name)
    base, _ = undisturbed(name)
    if base in SCHEMES or base in OTHERS or is_driven(base):
        return name
    names = (*SCHEMES, *OTHERS, *USER_SPACE)
    if hint := did_you_mean(name, (*names, *(f"{POLICY_PREFIX}{policy}" for policy in shipped.policies()))):
        raise SageccError(f"unknown scheme '{name}'{hint} 'sagecc schemes' lists all")
    raise SageccError(
        f"unknown scheme '{name}': use one of {', '.join(names)}, policy:PATH, or {PYTHON_PREFIX}PATH.py:CLASS"
    )


@dataclass(frozen=True)
class TrustedCode:
    """Which Python files may run where a file names them as schemes; by default none.

    A scheme `python:PATH.py:CLASS` is code. Whoever runs sagecc may name any; a file that describes networks may come
    from a stranger, so its readers ask here before the code is looked at.
    """

    files: frozenset[str] = frozenset()
    """Those that whoever runs sagecc has named too; resolved paths."""
    everything: bool = False
    """Whether any file may run."""

    @classmethod
    def named_by(cls, schemes: Iterable[str], everything: bool = False) -> TrustedCode:
        """Trust the files of those schemes that are Python classes."""
        classes = (python_class(scheme) for scheme in schemes if scheme.startswith(PYTHON_PREFIX))
        return cls(frozenset(os.path.realpath(path) for path, _ in classes), everything)

    def check(self, scheme: str) -> None:
        """Raise SageccError where a scheme that a file names would run code that is not trusted."""
        if self.everything or not scheme.startswith(PYTHON_PREFIX):
            return
        path, _ = python_class(scheme)
        if os.path.realpath(path) not in self.files:
            raise SageccError(
                f"{scheme} would run {path}, which the command line does not name; if you trust it, give --allow-python"
            )


NO_CODE, ANY_CODE = TrustedCode(), TrustedCode(everything=True)
