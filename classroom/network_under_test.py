"""A network whose switches run the student's program and whose hosts run workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fanin.classroom.causes import MOST, Deviation
from fanin.classroom.story import ExpectationError, Problem, Story
from fanin.classroom.student import StudentProgram
from fanin.classroom.switch_under_test import LoadedProgram, SwitchUnderTest
from fanin.native.text import counted
from fanin.simulator.network import Station, VirtualNetwork
from fanin.topologies.model import Topology

MOST_FRAMES = 20_000  # of one worker in one test

Run = Callable[[Callable[[], bool], float], bool]


class HostProgram(Protocol):
    """A program on a host. Its functions return the frames to send."""

    def start(self) -> Sequence[bytes]: ...  # noqa: D102
    def receive(self, frame: bytes) -> Sequence[bytes]: ...  # noqa: D102
    def timeout(self) -> Sequence[bytes]: ...  # noqa: D102
    def done(self) -> bool: ...  # noqa: D102


class StudentWorker:
    """The student's worker, as a program on a host: a class with start(), receive(), timeout() and result."""

    def __init__(self, program: StudentProgram) -> None:
        self._program = program
        self._frames_returned = {"start": 0, "receive": 0, "timeout": 0}
        self._calls = dict(self._frames_returned)
        self.result: Any = None

    def start(self) -> Sequence[bytes]:
        """Return the first frames."""
        return self._frames("start")

    def receive(self, frame: bytes) -> Sequence[bytes]:
        """Hand over a frame, and return the frames that answer it."""
        found = self._frames("receive", frame)
        self.result = self._program.call("result")
        return found

    def timeout(self) -> Sequence[bytes]:
        """Return what to send after nothing has arrived for a while."""
        return self._frames("timeout")

    def done(self) -> bool:
        """Return whether the worker has its result."""
        return self.result is not None

    def history(self) -> str:
        """Return how often each of its functions was called, and how many frames they returned."""
        return "; ".join(
            f"{name}() returned {counted(self._frames_returned[name], 'frame')} in {counted(calls, 'call')}"
            for name, calls in self._calls.items()
        )

    def _frames(self, name: str, *arguments: bytes) -> Sequence[bytes]:
        self._calls[name] += 1
        found = self._program.call(name, *arguments)
        if not isinstance(found, list) or not all(isinstance(each, bytes) for each in found):
            raise ExpectationError(
                Problem(
                    f"{self._program.name}: {name}() must return a list of frames in bytes, not {found!r:.80}"
                    + ("; an empty list sends nothing" if found is None else "")
                )
            )
        if (longest := max((len(each) for each in found), default=0)) > 1514:
            raise ExpectationError(
                Problem(f"{self._program.name}: {name}() returned a frame of {longest} bytes")
            )
        self._frames_returned[name] += len(found)
        return found


class _Station:
    """A host program as the simulator runs it; `lose` decides which of the host's frames are lost on the way."""

    def __init__(self, program: HostProgram, lose: Callable[[int, bytes], bool], timeout: float) -> None:
        self.program = program
        self._timeout = timeout
        self.sent: list[bytes] = []
        self._lose = lose
        self._outgoing: list[bytes] = []
        self._deadline: float | None = None
        self._started = False

    def receive(self, frames: NDArray[np.uint8], lengths: NDArray[np.int64], now: float) -> None:
        for frame, length in zip(frames, lengths, strict=True):
            self._send(self.program.receive(frame[:length].tobytes()))
        self._set_deadline(now)

    def frames_to_send(self, now: float) -> Sequence[NDArray[np.uint8]]:
        if not self._started:
            self._started = True
            self._send(self.program.start())
            self._set_deadline(now)
        elif self._deadline is not None and now >= self._deadline:
            self._send(self.program.timeout())
            self._set_deadline(now)
        outgoing, self._outgoing = self._outgoing, []
        return [np.frombuffer(frame, np.uint8)[np.newaxis] for frame in outgoing]

    def deadline(self) -> float | None:
        return self._deadline

    def _set_deadline(self, now: float) -> None:
        self._deadline = None if self.program.done() else now + self._timeout

    def _send(self, frames: Sequence[bytes]) -> None:
        for frame in frames:
            if not self._lose(len(self.sent), frame):
                self._outgoing.append(frame)
            self.sent.append(frame)
        if len(self.sent) > MOST_FRAMES:
            raise ExpectationError(Problem(f"a worker has sent {MOST_FRAMES} frames and is not done"))


class Surroundings(Protocol):
    """The place where switches and networks of tests run: virtual time, or live networks.

    Attributes:
        timeout: Seconds without an arrival, after which a worker that is not done is asked for retransmissions.
        timed: Whether times are those of the network, and not of how busy this machine is.
    """

    timeout: float
    timed: bool

    def switch(self, loaded: LoadedProgram, story: Story) -> SwitchUnderTest:
        """Return a new switch with a program."""
        ...

    def after(self, seconds: float) -> str:
        """Return when a network that was given so many seconds of virtual time was ended, such as "after 20 ms"."""
        ...

    def network(
        self,
        topology: Topology,
        switches: Mapping[str, SwitchUnderTest],
        stations: Mapping[str, Station],
        seed: int,
    ) -> Run:
        """Return what runs a network, until a function returns True or its time is up. It returns whether it did."""
        ...


class VirtualTime:
    """Switches and networks in virtual time."""

    timeout = 1e-3
    timed = True

    def switch(self, loaded: LoadedProgram, story: Story) -> SwitchUnderTest:
        """Return a new switch with a program."""
        return SwitchUnderTest(loaded.engine.new_instance(), story)

    def after(self, seconds: float) -> str:
        """Return when a network was ended."""
        return f"after {seconds * 1e3:g} ms of virtual time"

    def network(
        self,
        topology: Topology,
        switches: Mapping[str, SwitchUnderTest],
        stations: Mapping[str, Station],
        seed: int,
    ) -> Run:
        """Return what runs a network; see Surroundings."""
        network = VirtualNetwork(topology, switches, stations, seed=seed)
        for name in stations:
            network.wake(name, 0.0)
        return lambda done, seconds: network.run(done, limit=seconds)


def never_lost(_number: int, _frame: bytes) -> bool:
    """Lose no frame."""
    return False


class NetworkUnderTest:
    """Switches and hosts, joined by the links of a topology.

    Args:
        topology: The network. Its links may lose, duplicate and reorder frames.
        switches: The switches, by name.
        hosts: The programs of the hosts, by name.
        seed: The seed of the links' faults.
        lose: For a host, a function that is given the number and the bytes of each of its frames, and returns which are
            lost.
        surroundings: Where it runs.
    """

    def __init__(
        self,
        topology: Topology,
        switches: Mapping[str, SwitchUnderTest],
        hosts: Mapping[str, HostProgram],
        *,
        seed: int = 0,
        lose: Mapping[str, Callable[[int, bytes], bool]] | None = None,
        surroundings: Surroundings,
    ) -> None:
        self._switches = switches
        self.stations = {
            name: _Station(program, (lose or {}).get(name, never_lost), surroundings.timeout)
            for name, program in hosts.items()
        }
        self._surroundings = surroundings
        self.timed = surroundings.timed
        self._run = surroundings.network(topology, switches, self.stations, seed)

    def run(self, seconds: float = 0.2) -> None:
        """Run until all hosts are done.

        Args:
            seconds: The virtual time in which they have to be. A live network has its own limit.

        Raises:
            ExpectationError: They are not done within that time.
        """
        programs = {name: station.program for name, station in self.stations.items()}
        if self._run(lambda: all(each.done() for each in programs.values()), seconds):
            return
        waiting = [name for name, program in programs.items() if not program.done()]
        wait = "waits" if len(waiting) == 1 else "wait"
        sent = ", ".join(f"{name}: {len(station.sent)}" for name, station in self.stations.items())
        raise self.failed(
            f"{self._surroundings.after(seconds)} {', '.join(waiting)} still {wait} for a result; "
            f"frames sent by {sent}"
        )

    def failed(self, text: str) -> ExpectationError:
        """Return a failure with this text and the trace of the last packet that reached a switch."""
        traces = (f"{name}: {trace}" for name, switch in self._switches.items() if (trace := switch.trace()))
        return ExpectationError(Problem(text, trace=next(traces, ""), causes=self.causes()))

    def causes(self) -> tuple[str, ...]:
        """Return what the student's programs did that may have led to a failure (causes.py)."""
        found = [cause for switch in self._switches.values() for cause in switch.causes(Deviation())]
        workers = {
            name: station.program
            for name, station in self.stations.items()
            if isinstance(station.program, StudentWorker)
        }
        waiting = {name: worker for name, worker in workers.items() if not worker.done()}
        found += [
            f"the worker of {name}: {worker.history()}" for name, worker in (waiting or workers).items()
        ]
        return tuple(dict.fromkeys(found))[:MOST]

    def check(self, holds: bool, text: str) -> None:
        """Fail with a text, and the trace of the last packet that reached a switch, unless something holds.

        Raises:
            ExpectationError: It does not hold.
        """
        if not holds:
            raise self.failed(text)
