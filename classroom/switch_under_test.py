"""The student's P4 program in a switch, as tests use it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from scapy.packet import Packet

from fanin.classroom.causes import Deviation, causes
from fanin.classroom.story import ExpectationError, Problem, Story, differing
from fanin.controller.entry_files import Entries, NamedEntry
from fanin.experiments.tracing import fill
from fanin.native.text import counted
from fanin.native.toolchain import ToolchainError
from fanin.p4compiler import Compiled, CompileError, compile_once
from fanin.p4switch.bmv2json.program import ProgramError
from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.entries import TableError
from fanin.p4switch.trace.events import PacketTrace
from fanin.p4switch.trace.text import as_text
from fanin.p4switch.trace.tracer import traced

_State = TypeVar("_State")
Sent = tuple[int, Packet]
BETWEEN_PACKETS = 1000  # microseconds on the switch's clock


@dataclass(frozen=True, slots=True)
class Arrival:
    """A packet that arrived: its port, its bytes, and the time in microseconds."""

    port: int
    data: bytes
    time: int


@dataclass(frozen=True, slots=True)
class LoadedProgram:
    """A student's program: as the compiler returns it, and in a switch."""

    compiled: Compiled
    engine: Engine


def load_program(file: Path) -> LoadedProgram:
    """Compile a student's program and load it into a switch.

    Raises:
        ExpectationError: The file is missing, or the compiler refuses it.
    """
    try:
        compiled = compile_once(file)
        return LoadedProgram(compiled, Engine.load(compiled.device_config()))
    except OSError as error:
        raise ExpectationError(
            Problem(f"{file.name}: cannot be read: {error.strerror}", broken=True)
        ) from None
    except (CompileError, ProgramError, ToolchainError) as error:
        raise ExpectationError(Problem(f"{file.name} does not compile:\n{error}", broken=True)) from None


class SwitchUnderTest:
    """A switch with the student's program.

    Everything that happens to it is remembered, so that a packet that went wrong can be traced in a second switch.
    """

    def __init__(self, engine: Engine, story: Story) -> None:
        self._engine = engine
        self._story = story
        self._history: list[Entries | Arrival] = []
        self._blamed: int | None = None  # the place in the history of the packet to trace
        self._traces: list[PacketTrace] | None = None  # of that packet; None until they are needed
        self._now = 0
        self._sent: list[tuple[int, bytes]] = []
        self._read = ""  # the register or counter that was read last

    # -- state ---------------------------------------------------------------------------------------------------

    def install(self, entries: Any, where: str = "") -> None:
        """Write what a controller returned: entries, groups and sessions (docs/reference/entries.md).

        Args:
            entries: What it returned.
            where: The student's file and function, if they returned it. Then it is a step of the story.

        Raises:
            ExpectationError: They do not fit the program.
        """
        said = where or "the controller"
        try:
            found = TypeAdapter(Entries).validate_python(entries)
            fill(self._engine, found)
        except ValidationError as error:
            raise self._failed(f"{said}{_misfit(entries, error)}", broken=bool(where)) from None
        except (ValueError, TableError) as error:
            raise self._failed(f"{said}: {error}", broken=bool(where)) from None
        self._history.append(found)
        if where:
            entries, groups, sessions = found.entries, found.groups, found.sessions
            counts = [counted(len(entries), "entry", "entries")] if entries else []
            counts += [counted(len(groups), "group")] if groups else []
            counts += [counted(len(sessions), "session")] if sessions else []
            self._story.step(f"the switch gets what {where} returned: {', '.join(counts) or 'nothing'}")

    def register(self, name: str) -> list[int]:
        """Return the cells of a register.

        Raises:
            ExpectationError: The program has no such register.
        """
        return self._state("register", name, self._read_register)

    def counter(self, name: str, index: int) -> tuple[int, int]:
        """Return the packets and the bytes that a counter has counted.

        Raises:
            ExpectationError: The program has no such counter.
        """
        return self._state("counter", name, lambda found: self._read_counter(found, index))

    def _read_register(self, name: str) -> list[int]:
        return self._engine.register(name).read()

    def _read_counter(self, name: str, index: int) -> tuple[int, int]:
        value = self._engine.counter(name).read(index)
        return value.packets, value.bytes

    def _state(self, kind: str, name: str, read: Callable[[str], _State]) -> _State:
        known = getattr(self._engine.program, f"{kind}s")
        found = [each for each in known if each == name or each.endswith(f".{name}")]
        if len(found) != 1:
            raise self._failed(f"the program has no {kind} {name}; it has {', '.join(known) or 'none'}")
        self._read = found[0]
        try:
            return read(found[0])
        except TableError as error:
            raise self._failed(f"{kind} {name}: {error.message}") from None

    # -- packets -------------------------------------------------------------------------------------------------

    def send(self, port: int, packet: Packet, text: str) -> list[tuple[int, bytes]]:
        """Send a packet to a port, as a step of the story.

        Args:
            port: The port at which it arrives.
            packet: The packet.
            text: The sender and what it sends, such as "h1 sends a UDP packet to h2".

        Returns:
            The packets that leave, each with its port.
        """
        data = bytes(packet)
        self._story.step(f"{text}: {type(packet)(data).summary()} arrives at port {port}")
        self._now += BETWEEN_PACKETS
        self._arrived(Arrival(port, data, self._now))
        self._sent = self._forward(port, data)
        return self._sent

    def _forward(self, port: int, data: bytes) -> list[tuple[int, bytes]]:
        return self._engine.process(port, data, self._now)

    def expect(self, *expected: Sent) -> None:
        """Expect that exactly these packets left after the last one was sent, in any order.

        Raises:
            ExpectationError: Others left.
        """
        left = list(self._sent)
        missing = []
        for port, packet in expected:
            if (port, bytes(packet)) in left:
                left.remove((port, bytes(packet)))
            else:
                missing.append((port, packet))
        if not missing and not left:
            return
        if not expected:
            raise self._failed(
                f"expected that the switch drops it; the switch sent {_ports(left)}",
                Deviation("not dropped", port=left[0][0]),
            )
        if not missing:
            raise self._failed(
                f"expected nothing else; the switch also sent {_ports(left)}:\n{left[0][1].hex(' ')}",
                Deviation("not dropped", port=left[0][0]),
            )
        port, packet = missing[0]
        there = [data for out, data in left if out == port]
        if there:
            raise self._failed(
                f"the packet that left by port {port} is not the one expected",
                Deviation("fields", port=port, rows=differing(packet, there[0], self._engine.program)),
            )
        instead = f"the switch sent {_ports(left)}" if left else "but nothing left the switch"
        raise self._failed(
            f"expected a packet at port {port}: {type(packet)(bytes(packet)).summary()}; {instead}",
            Deviation(
                "lost",
                port=port,
                rows=differing(packet, left[0][1], self._engine.program) if left else (),
            ),
        )

    def check(self, holds: bool, text: str) -> None:
        """Fail with a text, and the trace of the last packet, unless something holds.

        Raises:
            ExpectationError: It does not hold.
        """
        if not holds:
            raise self._failed(text, Deviation("state", state=self._read) if self._read else Deviation())

    def process(self, port: int, packet: bytes, now: int) -> list[tuple[int, bytes]]:
        """Process a packet of a network in virtual time (simulator/network.py)."""
        self._arrived(Arrival(port, packet, now))
        return self._engine.process(port, packet, now)

    # -- what went wrong -----------------------------------------------------------------------------------------

    def trace(self) -> str:
        """Return the path of the packet that is blamed for a failure, or an empty text if there was none."""
        return "\n".join(as_text(found, verbose=True) for found in self._traces_of_blamed())

    def causes(self, deviation: Deviation) -> tuple[str, ...]:
        """Return likely causes of a failure, from the path of the packet that is blamed for it."""
        return causes(self._traces_of_blamed(), self._engine.program, deviation)

    def _traces_of_blamed(self) -> list[PacketTrace]:
        if self._traces is None:
            self._traces = [] if self._blamed is None else self._replayed(self._blamed)
        return self._traces

    def _replayed(self, number: int) -> list[PacketTrace]:
        """Return the traces of the packet at this place in the history."""
        again = self._engine.new_instance()
        with traced(again) as tracer:
            for happened in self._history[: number + 1]:
                tracer.packets()  # only those of the last count
                if isinstance(happened, Arrival):
                    again.process(happened.port, happened.data, happened.time)
                else:
                    fill(again, happened)
            return [*tracer.packets()]

    def _arrived(self, arrival: Arrival) -> None:
        self._blamed, self._traces = len(self._history), None
        self._history.append(arrival)

    def _failed(
        self, text: str, deviation: Deviation | None = None, *, broken: bool = False
    ) -> ExpectationError:
        found = deviation or Deviation()
        problem = Problem(text, tuple(found.rows), self.trace(), broken, self.causes(found))
        return ExpectationError(problem)


def _misfit(entries: Any, error: ValidationError) -> str:
    """Return what is wrong with what a controller returned."""
    form = "{'entries': [{'table': …, 'match': {…}, 'action': …, 'params': {…}}]}"
    if not isinstance(entries, dict):
        found = "None: has it a return?" if entries is None else f"a {type(entries).__name__}"
        return f" must return a dictionary like {form}, not {found}"
    one = error.errors()[0]
    place = ".".join(map(str, one["loc"][:3]))
    if one["type"] == "unexpected_keyword_argument":
        known = Entries if len(one["loc"]) == 1 else NamedEntry
        return f": there is no {place}; the names are {', '.join(each.name for each in fields(known) if each.init)}"
    if one["loc"][0] in ("groups", "sessions"):
        form = f"{{'{one['loc'][0]}': {{1: [[PORT, 0], [PORT, 0]]}}}}, a list of members, each with its replication id"
    return f": {place}: {one['msg']}; the form is {form}"


def _ports(sent: Sequence[tuple[int, bytes]]) -> str:
    return ", ".join(f"{len(data)} bytes to port {port}" for port, data in sent)
