# SPDX-License-Identifier: Apache-2.0
"""Actors in processes of their own, none of which loads TensorFlow, and the memory that the learner shares with them.

Through it pass the policy's weights and, in the replay rings, the records; pipes carry orders. One actor process plays
a round at a time, while the learner learns from the rounds before: the same bytes each time. Several play on and on,
each with the latest weights, and nobody waits for anybody.
"""

from __future__ import annotations

import mmap
import multiprocessing
import pickle
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from sagecc.common.arrays import Floats, Ints
from sagecc.common.errors import SageccError
from sagecc.common.processes import end_with_parent, starting_python
from sagecc.learner.exploration import Exploring
from sagecc.learner.online.actor import Actor, State
from sagecc.learner.online.labs import Labs, MakeLabs
from sagecc.learner.online.replay import Layout, Ring
from sagecc.policy.inference import Architecture
from sagecc.policy.scaling import Scaling

CHUNK = 64
"""Decisions of a free-running actor between two looks at the weights and at its orders."""

IDLE_S = 0.001
"""Time for which an actor without room in its ring sleeps."""

COUNTERS = np.dtype(
    [
        ("written", "i8"),
        ("durable", "i8"),
        ("decisions", "i8"),
        ("episodes", "i8"),
        ("given_up", "i8"),
        ("rewards", "i8"),
        ("reward_sum", "f8"),
        ("labs_s", "f8"),
        ("inference_s", "f8"),
        ("waiting_s", "f8"),
    ]
)
"""What an actor says of itself, and `durable`: how many of its records the last checkpoint knows."""

_VERSION_BYTES = 8
_ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Environment of an actor: a second thread of its BLAS would take the learner's core."""


@dataclass(frozen=True)
class ActorSpec:
    """All that an actor process is made of."""

    make_labs: MakeLabs
    """Makes its labs."""
    network: Architecture
    """The policy's kind of network."""
    scaling: Scaling
    """What is done to observations before it."""
    exploration: Exploring
    """How to explore."""
    layout: Layout
    """What a record holds."""
    folder: Path
    """Where the shared memory's files lie."""
    index: int
    """Number of the process."""
    processes: int
    """Number of all of them."""
    first_lab: int
    """Number of its first lab."""
    labs: int
    """Number of its labs."""
    all_labs: int
    """Number of all processes' labs."""
    replay: int
    """Records that its ring holds."""
    seed: int
    """The run's seed."""

    @property
    def ring_path(self) -> Path:
        """Its replay ring's file."""
        return self.folder / f"ring-{self.index}.f32"

    def ring(self) -> Ring:
        """Open its replay ring."""
        return Ring(self.ring_path, self.layout.size, self.replay)


class SharedWeights:
    """A policy's weights in a file in memory; one process writes, others read, nobody waits.

    The version is odd while the weights are written, and a reader that sees it change reads again.
    """

    def __init__(self, path: Path, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._shapes = dict(shapes)
        sizes = [int(np.prod(shape)) for shape in self._shapes.values()]
        memory = _mapped(path, _VERSION_BYTES + 4 * sum(sizes))
        self._version = np.frombuffer(memory, np.int64, 1)
        self._flat = np.frombuffer(memory, np.float32, offset=_VERSION_BYTES)
        self._bounds = np.cumsum(sizes)[:-1]
        self._read = -1

    def write(self, weights: Mapping[str, Floats]) -> None:
        """Publish weights."""
        flat = np.concatenate([weights[name].ravel() for name in self._shapes])
        self._version[0] = self._version[0] // 2 * 2 + 1
        self._flat[:] = flat
        self._version[0] += 1

    def latest(self) -> dict[str, Floats] | None:
        """Return the weights, None if they are those returned last."""
        while (version := int(self._version[0])) != self._read:
            flat = self._flat.copy()
            if version % 2 == 0 and version == int(self._version[0]):
                self._read = version
                parts = zip(self._shapes.items(), np.split(flat, self._bounds), strict=True)
                return {name: part.reshape(shape) for (name, shape), part in parts}
        return None


class Actors:
    """All actor processes of a run, as the learner sees them; a context manager.

    Raises:
        SageccError: From every method: an actor failed, or was killed.
    """

    def __init__(self, specs: Sequence[ActorSpec]) -> None:
        """Start the processes.

        Args:
            specs: what each is made of.
        """
        first = specs[0]
        first.folder.mkdir(parents=True, exist_ok=True)
        self.rings = [spec.ring() for spec in specs]
        self.weights = SharedWeights(first.folder / "weights.f32", first.network.shapes())
        self.counters = shared_counters(first.folder, len(specs))
        self.counters[:] = 0
        self._connections: list[Connection] = []
        self._processes: list[Any] = []
        context = multiprocessing.get_context("spawn")
        try:
            with starting_python(_ONE_THREAD):
                for spec in specs:
                    ours, theirs = context.Pipe()
                    process = context.Process(target=_serve, args=(pickle.dumps(spec), theirs), daemon=True)
                    process.start()
                    theirs.close()
                    self._connections.append(ours)
                    self._processes.append(process)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Actors:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def written(self) -> Ints:
        """Records that each has written."""
        return np.asarray(self.counters["written"], np.int64).copy()

    def durable(self, written: Ints) -> None:
        """Say that a checkpoint knows so many records of each: their spare places can be written again."""
        self.counters["durable"] = written

    def crowded(self) -> bool:
        """Tell whether an actor has filled half of its spare places since the last checkpoint."""
        used = self.counters["written"] - self.counters["durable"]
        return bool((used > np.array([ring.spare // 2 for ring in self.rings])).any())

    def begin(self, counters: bytes = b"") -> None:
        """Begin an episode in every lab: the first of the run, or one that none had before.

        Args:
            counters: what the actors said of themselves at the checkpoint from which the run goes on.
        """
        if counters:
            self.counters[:] = np.frombuffer(counters, COUNTERS)
        self._ask("begin")

    def restore(self, state: Mapping[str, Any]) -> None:
        """Let the only actor go on from a state."""
        self._ask("restore", dict(state))

    def state(self) -> State:
        """Return the only actor's state, between two rounds."""
        state: State = self._ask("state")[0]
        return state

    def start(self, decisions: int) -> None:
        """Let all play so many decisions each, meanwhile or, with 0, until the end."""
        for connection in self._connections:
            self._send(connection, ("play", decisions))

    def finished(self) -> None:
        """Wait until all have played the decisions asked for."""
        for connection in self._connections:
            self._receive(connection)

    def check(self) -> None:
        """Raise what an actor that plays on and on has met."""
        for connection in self._connections:
            while connection.poll():
                self._receive(connection)

    def close(self) -> None:
        """End the processes, and their labs with them."""
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.join(5)
            process.kill()
            process.join()

    def _ask(self, *order: Any) -> list[Any]:
        for connection in self._connections:
            self._send(connection, order)
        return [self._receive(connection) for connection in self._connections]

    def _send(self, connection: Connection, order: tuple[Any, ...]) -> None:
        with suppress(OSError):  # it was killed: the next recv() reports it
            connection.send(order)

    def _receive(self, connection: Connection) -> Any:
        try:
            answer = connection.recv()
        except (EOFError, OSError):
            raise SageccError("an actor was killed; the same command goes on from the last checkpoint") from None
        if isinstance(answer, BaseException):
            raise answer
        return answer


def shared_counters(folder: Path, processes: int) -> Any:
    """Return the counters of all actors, a structured array [processes] that they and the learner share."""
    return np.frombuffer(_mapped(folder / "counters", processes * COUNTERS.itemsize), COUNTERS)


def _mapped(path: Path, size: int) -> mmap.mmap:
    path.touch()
    with path.open("r+b") as file:
        file.truncate(size)
        return mmap.mmap(file.fileno(), size)


def _serve(pickled: bytes, connection: Connection) -> None:
    """Be an actor process: obey orders until the learner ends or closes the pipe."""
    end_with_parent(signal.SIGTERM)
    for number in (signal.SIGINT, signal.SIGHUP):  # Ctrl-C and a closed terminal are the learner's to act on
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # labs end with this process, in order
    try:
        spec: ActorSpec = pickle.loads(pickled)
        labs = spec.make_labs(labs=spec.labs)
        try:
            _Server(spec, labs, connection).serve()
        finally:
            labs.close()
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass
    except Exception as error:
        with suppress(OSError):
            connection.send(error)


class _Server:
    """An actor process's answers to orders."""

    def __init__(self, spec: ActorSpec, labs: Labs, connection: Connection) -> None:
        self._connection, self._ring = connection, spec.ring()
        self._weights = SharedWeights(spec.folder / "weights.f32", spec.network.shapes())
        self._counters = shared_counters(spec.folder, spec.processes)[spec.index : spec.index + 1]
        self._waiting_s, self._labs = 0.0, spec.labs
        self._actor = Actor(
            labs,
            spec.labs,
            spec.network,
            spec.scaling,
            spec.exploration,
            spec.layout,
            self._ring,
            seed=spec.seed,
            first_lab=spec.first_lab,
            share=spec.labs / spec.all_labs,
        )

    def serve(self) -> None:
        while True:
            match self._connection.recv():
                case ("begin",):
                    self._refresh()
                    self._begin()
                    self._connection.send(None)
                case "restore", state:
                    self._actor.restore(state)
                    self._report()
                    self._connection.send(None)
                case ("state",):
                    self._connection.send(self._actor.state())
                case "play", 0:
                    while not self._connection.poll():
                        self._wait_for_room()
                        self._play(CHUNK)
                case "play", decisions:
                    self._play(decisions)
                    self._connection.send(None)

    def _begin(self) -> None:
        """Begin where the counters are: the episodes that were under way have ended."""
        actor, found = self._actor, self._counters[0]
        actor.decisions, actor.written = int(found["decisions"]), int(found["written"])
        actor.reward_sum, actor.rewards = float(found["reward_sum"]), int(found["rewards"])
        actor.given_up = int(found["given_up"])
        actor.episodes = int(found["episodes"]) + (self._labs if actor.decisions else 0)
        actor.begin(actor.episodes + 1 if actor.decisions else 0)  # no lab's episode had this number

    def _play(self, decisions: int) -> None:
        self._refresh()
        self._actor.play(decisions)
        self._report()

    def _refresh(self) -> None:
        """Take the latest weights."""
        latest = self._weights.latest()
        if latest is not None:
            self._actor.weights = latest

    def _wait_for_room(self) -> None:
        """Wait while more would overwrite what the last checkpoint knows."""
        begun = time.perf_counter()
        margin = 2 * CHUNK
        while self._actor.written - int(self._counters["durable"][0]) + margin > self._ring.spare:
            if self._connection.poll():
                return
            time.sleep(IDLE_S)
        self._waiting_s += time.perf_counter() - begun

    def _report(self) -> None:
        actor = self._actor
        self._counters["decisions"], self._counters["episodes"] = actor.decisions, actor.episodes
        self._counters["given_up"] = actor.given_up
        self._counters["reward_sum"], self._counters["rewards"] = actor.reward_sum, actor.rewards
        self._counters["labs_s"], self._counters["inference_s"] = actor.labs_s, actor.inference_s
        self._counters["waiting_s"] = self._waiting_s
        self._counters["written"] = actor.written  # last: the records are there
