# SPDX-License-Identifier: Apache-2.0
"""The scheme `sagecc_pure` in the running kernel: loading, registering, pinning and removing it.

A registered scheme stays until it is removed, even when the process that registered it has ended, and sockets that use
it keep it until they close. So everything is prepared first, and registered last.
"""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from sagecc.common.errors import SEE_DOCTOR, SageccError
from sagecc.common.locks import lock
from sagecc.execution.stock import libbpf
from sagecc.execution.stock.confinement import held_capabilities
from sagecc.execution.stock.shared import AGENT, COUNTS, ORDER, ROW, Descriptors
from sagecc.execution.stock.trial import RECORD, TRIAL, TrialDescriptors

OBJECTS = Path(__file__).with_name("bpf")
FORMS = {2: "sagecc_pure.rs.o", 4: "sagecc_pure.ack.o"}
"""The object for each number of arguments that a kernel's cong_control takes: 2 until 6.9, 4 since."""

SCHEME, PRIVATE_PREFIX = "sagecc_pure", "sagecc_x"
"""The scheme that all may use, and the prefix of one that a process loads for itself; its process id follows."""

_PINS = frozenset({*Descriptors._fields, *TrialDescriptors._fields, "scheme"})
"""Names of the scheme's pins."""

PINS = Path("/sys/fs/bpf/sagecc")
OLDEST = (6, 1)
STRUCT_OPS_MAP = 26
"""BPF_MAP_TYPE_STRUCT_OPS."""

CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_PERFMON": 38, "CAP_BPF": 39}
CAP_SYS_ADMIN = 21
CGROUP_CAPABILITIES = ("CAP_NET_ADMIN",)
"""Needed beside CAP_BPF and CAP_PERFMON to choose the scheme for a cgroup's connections."""

_SHARED = {"rows": ROW, "orders": ORDER, "agent": AGENT, "counts": COUNTS}
_SHARED_BY_TRIAL = {"trial": TRIAL, "ended": RECORD}
_CGROUP_PROGRAM = "choose"
_TRIAL_PROGRAMS = ("survey", "end")


def why_not(*capabilities: str) -> str | None:
    """Return why the scheme cannot be loaded here, or None if it can.

    Args:
        *capabilities: those needed beside CAP_BPF and CAP_PERFMON.
    """
    try:
        fitting_object()
    except SageccError as error:
        return str(error)
    missing = missing_capabilities(*capabilities)
    return f"loading the scheme needs {' and '.join(missing)}: run it as root" if missing else None


def missing_capabilities(*capabilities: str) -> list[str]:
    """Return what this process lacks of CAP_BPF, CAP_PERFMON and `capabilities`; CAP_SYS_ADMIN stands for those two."""
    held = held_capabilities()
    loading = () if held >> CAP_SYS_ADMIN & 1 else ("CAP_BPF", "CAP_PERFMON")
    return [name for name in (*loading, *capabilities) if not held >> CAPABILITIES[name] & 1]


def fitting_object() -> Path:
    """Return the object file that fits the running kernel; raises SageccError where there is none, or no libbpf."""
    release = platform.release()
    version = re.match(r"(\d+)\.(\d+)", release)
    if version is None or (int(version[1]), int(version[2])) < OLDEST:
        raise SageccError(f"Linux {release} is too old: the scheme needs 6.1 or newer")
    with libbpf.kernel_btf() as btf:
        members = btf.members("tcp_congestion_ops")
        arguments = btf.arguments(members["cong_control"][0]) if "cong_control" in members else 0
        struct_ops = btf.members("bpf_struct_ops_tcp_congestion_ops")
    if not struct_ops:
        raise SageccError(
            f"Linux {release} takes no congestion control from BPF: it was built without CONFIG_BPF_JIT or"
            " CONFIG_BPF_SYSCALL"
        )
    if arguments not in FORMS:
        raise SageccError(
            f"cong_control of Linux {release} takes {arguments} arguments; there are objects for"
            f" {' and '.join(map(str, FORMS))} only"
        )
    return OBJECTS / FORMS[arguments]


def _renamed(content: bytes, name: str) -> bytes:
    """Return an object file's content with the scheme's name changed in the two places where it is data."""
    old, new = (text.encode().ljust(16, b"\0") for text in (SCHEME, name))
    if len(new) > 16 or content.count(old) != 2:
        raise SageccError(f"a scheme cannot be named '{name}' (at most 15 bytes), or the object file is damaged")
    return content.replace(old, new)


class Scheme:
    """The loaded scheme; `register` lets sockets choose it.

    Close it in every case; what is registered or pinned stays.
    """

    def __init__(self, slots: int, name: str = SCHEME, cgroups: bool = False, trials: bool = False) -> None:
        """Load the programs.

        Args:
            slots: the most sockets at once.
            name: the scheme's, at most 15 bytes.
            cgroups: also load the program that chooses the scheme for a cgroup's connections (see `chosen_in`).
            trials: also load the programs that watch a trial (see execution.stock.trial).

        Raises:
            SageccError: the kernel refuses, or this process lacks a capability.
        """
        reason = why_not(*CGROUP_CAPABILITIES if cgroups else ())
        if reason:
            raise SageccError(f"{reason}; {SEE_DOCTOR}")
        self.name = name
        path = fitting_object()
        with _refused(f"{path} is refused by Linux {platform.release()}"):
            self._object = libbpf.Object(_renamed(path.read_bytes(), name))
            try:
                for sized in ("rows", "orders", "free_slots"):
                    self._object.resize(sized, slots)
                if not cgroups:
                    self._object.leave_out(_CGROUP_PROGRAM)
                for program in _TRIAL_PROGRAMS if not trials else ():
                    self._object.leave_out(program)
                self._object.load()
                for slot in range(slots):
                    libbpf.push(self._object.map_fd("free_slots"), slot)
                iterator = libbpf.link_map_iterator(self._object.program_fd("observe"), self._object.map_fd("flows"))
                self.trial = self._link_trial() if trials else None
                """Of what the agent has no access to; None without `trials`."""
            except BaseException:
                self._object.close()
                raise
        shared = [os.dup(self._object.map_fd(name)) for name in _SHARED]
        self.descriptors = Descriptors._make([*shared, iterator])
        """Of what is shared with the agent."""

    def _link_trial(self) -> TrialDescriptors:
        survey = libbpf.link_map_iterator(self._object.program_fd("survey"), self._object.map_fd("members"))
        end = libbpf.link_tracepoint(self._object.program_fd("end"))
        return TrialDescriptors._make([*(os.dup(self._object.map_fd(name)) for name in _SHARED_BY_TRIAL), survey, end])

    def register(self) -> None:
        """Offer the scheme to sockets; raises SageccError where one of that name is registered."""
        try:
            self._object.register(SCHEME)
        except OSError as error:
            if error.errno == errno.EEXIST:
                raise SageccError(f"a scheme '{self.name}' is registered already: 'sagecc detach' removes it") from None
            raise SageccError(f"the kernel does not register '{self.name}': {error.strerror}") from None

    def unregister(self) -> None:
        """Offer it no longer; sockets that use it keep it until they close."""
        libbpf.unregister(self._object.map_fd(SCHEME))

    @contextmanager
    def chosen_in(self, cgroup: Path) -> Iterator[None]:
        """Have every new connection of a cgroup's processes use the scheme for as long as the `with` block."""
        folder = os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with _refused(f"the scheme cannot be attached to {cgroup}"):
                link = libbpf.link_cgroup(self._object.program_fd(_CGROUP_PROGRAM), folder)
        finally:
            os.close(folder)
        try:
            yield
        finally:
            os.close(link)

    def pin(self, folder: Path, owner: tuple[int, int] | None = None) -> None:
        """Pin maps, iterator and scheme, so that other processes find them.

        Args:
            folder: to be made, in a BPF file system.
            owner: user and group whose agent may drive the flows; they cannot remove the scheme.

        Raises:
            SageccError: nothing can be pinned there; nothing stays then.
        """
        _make_folder(folder)
        try:
            names = self.descriptors._asdict() | (self.trial._asdict() if self.trial else {})
            for name, fd in names.items():
                libbpf.pin(fd, folder / name)
                (folder / name).chmod(0o600)
                if owner:
                    os.chown(folder / name, *owner)
            libbpf.pin(self._object.map_fd(SCHEME), folder / "scheme")
            folder.chmod(0o755)
        except BaseException as error:
            unpin(folder)
            if isinstance(error, OSError):
                raise SageccError(f"{folder}: nothing can be pinned there: {error.strerror}") from None
            raise

    def close(self) -> None:
        """Close programs and maps."""
        self.descriptors.close()
        if self.trial:
            self.trial.close()
        self._object.close()


@contextmanager
def _refused(problem: str) -> Iterator[None]:
    """Raise a SageccError of the problem and the kernel's reason where the block raises OSError."""
    try:
        yield
    except OSError as error:
        raise SageccError(f"{problem}: {error.strerror}; {SEE_DOCTOR}") from None


def _make_folder(folder: Path) -> None:
    if not is_bpf(folder.parent):
        raise SageccError(
            f"{folder.parent} is no BPF file system: mount one with 'mount -t bpf bpf {folder.parent}', or name another"
            f" with --pins; {SEE_DOCTOR}"
        )
    try:
        folder.mkdir(0o700)
    except OSError as error:
        raise SageccError(f"{folder} cannot be made: {error.strerror}") from None


def system_scheme() -> str:
    """Return the scheme of this namespace's new connections; raises SageccError where that is SCHEME."""
    name = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    if name == SCHEME:
        raise SageccError(f"{SCHEME} is this namespace's default: name the scheme of the others with --control")
    return name


def check_scheme(name: str) -> None:
    """Raise SageccError where the kernel does not offer a scheme of that name that others can be given."""
    offered = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
    fitting = sorted(known for known in offered if not known.startswith("sagecc_"))
    if name not in fitting:
        raise SageccError(f"the kernel does not offer '{name}' to the other connections: it has {', '.join(fitting)}")


def is_bpf(folder: Path) -> bool:
    """Tell whether a folder lies in a BPF file system."""
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    kinds = {Path(mount[1]): mount[2] for mount in mounts}  # the last mount at a path hides the others
    return next((kinds[path] for path in (folder, *folder.parents) if path in kinds), "") == "bpf"


def is_pinned(folder: Path) -> bool:
    """Tell whether a scheme is pinned under `folder`."""
    return (folder / "scheme").exists()


def pinned(folder: Path) -> Descriptors:
    """Open what is pinned under `folder` for an agent.

    Raises:
        SageccError: it is incomplete, another user's, or of another version.
    """
    return Descriptors._make(_pinned(folder, Descriptors._fields, _SHARED))


def pinned_trial(folder: Path) -> TrialDescriptors:
    """Open what is pinned under `folder` for who watches a trial; raises as `pinned`."""
    return TrialDescriptors._make(_pinned(folder, TrialDescriptors._fields, _SHARED_BY_TRIAL))


def _pinned(folder: Path, names: Iterable[str], kinds: Mapping[str, np.dtype[Any]]) -> list[int]:
    """Open pins, the first of them maps whose values are of these kinds."""
    opened: list[int] = []
    try:
        opened.extend(libbpf.pinned(folder / name) for name in names)
        for fd, kind in zip(opened, kinds.values(), strict=False):
            if libbpf.map_info(fd).value_size != kind.itemsize:
                raise SageccError(f"{folder} is of another version of sagecc: 'sagecc detach' removes it")
    except BaseException as error:
        for fd in opened:
            os.close(fd)
        if isinstance(error, PermissionError):
            raise SageccError(
                f"{folder} belongs to another user: load it with 'sagecc attach --load-only --owner USER'"
            ) from None
        if isinstance(error, OSError):
            raise SageccError(f"{folder} is incomplete ({error.strerror}): 'sagecc detach' removes it") from None
        raise
    return opened


@contextmanager
def only_agent(folder: Path) -> Iterator[None]:
    """Be the only agent of what is pinned under `folder`; raises SageccError where there is another."""
    try:
        handle = lock(folder)
    except BlockingIOError:
        raise SageccError(f"another agent drives the flows of {folder}: end it first") from None
    try:
        yield
    finally:
        os.close(handle)


def private_name() -> str:
    """Return the name of a scheme for this process alone; it tells `remove` whose the scheme is."""
    return f"{PRIVATE_PREFIX}{os.getpid()}"


def remove(folder: Path) -> list[str]:
    """Remove SCHEME, its pins, and the private schemes of processes that were killed.

    Args:
        folder: of the pins; that it does not exist is no error.

    Returns:
        What was removed, in words.

    Raises:
        SageccError: this user may not.
    """
    removed: list[str] = []
    if folder.exists():
        if not is_bpf(folder):
            raise SageccError(f"{folder} is in no BPF file system: it is not sagecc's to remove")
        with _refused(f"{folder} cannot be removed"):
            _check_pins(folder)
            if is_pinned(folder) and _unregister(libbpf.pinned(folder / "scheme")):
                removed.append(f"scheme {SCHEME}")
            unpin(folder)
        removed.append(str(folder))
    try:
        for number in list(libbpf.map_ids()):
            with contextlib.suppress(FileNotFoundError):  # gone meanwhile
                removed += _unregister_leftover(libbpf.map_by_id(number))
    except PermissionError:
        if not removed:
            raise SageccError("looking for schemes that were left needs CAP_SYS_ADMIN: run it as root") from None
    return removed


def _unregister(fd: int) -> bool:
    try:
        return libbpf.unregister(fd)
    finally:
        os.close(fd)


def _unregister_leftover(fd: int) -> list[str]:
    """Unregister the scheme of a map, if it is a leftover; return what was removed, in words."""
    try:
        info = libbpf.map_info(fd)
        if info.type == STRUCT_OPS_MAP and info.name == SCHEME.encode():
            name = _scheme_name(libbpf.operations(fd))
            if _is_leftover(name) and libbpf.unregister(fd):
                return [f"scheme {name}"]
        return []
    finally:
        os.close(fd)


def _scheme_name(operations: bytes) -> str:
    match = re.search(rb"(sagecc_\w+)\0", operations)
    return match[1].decode() if match else ""


def _is_leftover(name: str) -> bool:
    """Tell whether a scheme may be removed: SCHEME, or one whose process has ended."""
    owner = name.removeprefix(PRIVATE_PREFIX)
    return name == SCHEME or (name != owner and not Path("/proc", owner).exists())


def _check_pins(folder: Path) -> None:
    """Raise SageccError where a folder has pins of other programs."""
    for path in sorted(folder.iterdir()):
        if path.name not in _PINS or not _is_scheme(path):
            raise SageccError(f"{path} was not pinned by sagecc: name the folder of its pins with --pins")


def _is_scheme(path: Path) -> bool:
    """Tell whether a pin may be of the scheme: that of the scheme itself says so by its map's name."""
    if path.name != "scheme":
        return True
    fd = libbpf.pinned(path)
    try:
        return bool(libbpf.map_info(fd).name == SCHEME.encode())
    finally:
        os.close(fd)


def unpin(folder: Path) -> None:
    """Remove the pins under `folder`; what is registered stays."""
    for path in sorted(folder.iterdir()):
        path.unlink()
    folder.rmdir()
