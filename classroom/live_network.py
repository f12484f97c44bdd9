"""A live network for the tests of labs: the student's program in switches of Mininet, and a raw socket on each host."""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from finsy.proto import p4r

from fanin.controller.connection import Connection
from fanin.controller.entry_files import Entries
from fanin.controller.schema import schema_of
from fanin.experiments.scenario.tools import SwitchKind
from fanin.p4compiler import Compiled
from fanin.simulator.network import LONGEST_FRAME, Station
from fanin.testbed.mininet_net import MininetNetwork
from fanin.topologies.errors import NetworkError
from fanin.topologies.model import Topology

_WAIT_SECONDS = 5.0  # for a frame that a correct switch sends
RUN_SECONDS = 30.0  # for workers to be done


@dataclass(frozen=True, slots=True)
class Timing:
    """Times for a kind of switch, generous ones.

    Attributes:
        quiet: Seconds without a frame after which the switch sends nothing more.
        timeout: Seconds without an arrival, after which a worker that is not done is asked for retransmissions.
    """

    quiet: float
    timeout: float


# BMv2 takes milliseconds for a packet, which its threads hand on to each other.
TIMING: dict[SwitchKind, Timing] = {"embedded": Timing(0.02, 0.25), "bmv2": Timing(0.06, 0.5)}


class LoadedSwitch(Protocol):
    """A switch as it has to be: its program, and what was installed."""

    @property
    def compiled(self) -> Compiled:
        """Return the program."""

    @property
    def installed(self) -> list[Entries]:
        """Return what was installed, in order."""


class LiveNetwork:
    """A network of Mininet that is up. Its switches get programs, and its hosts send and receive raw frames.

    Args:
        topology: The network.
        network: The same, not started yet.
        timing: How long its switches take.

    Attributes:
        spoiled: Whether a switch has refused something, so that it is unknown what it holds.
    """

    def __init__(self, topology: Topology, network: MininetNetwork, timing: Timing) -> None:
        self.topology = topology
        self.spoiled = False
        self._network = network
        self._timing = timing
        self._stack = contextlib.ExitStack()
        with self._stack:
            self._stack.enter_context(network)
            self._runner = self._stack.enter_context(asyncio.Runner())
            self._sockets = {
                host.name: self._stack.enter_context(network.host_socket(host.name))
                for host in topology.hosts
            }
            self._silence()
            self._stack = self._stack.pop_all()
        self._connections: dict[str, Connection] = {}
        self._loaded: dict[str, LoadedSwitch] = {}

    def close(self) -> None:
        """Take the network down."""
        try:
            for connection in self._connections.values():
                self._runner.run(connection.close())
        finally:
            self._stack.close()

    def _silence(self) -> None:
        """Take the addresses of all hosts away, so that their kernels answer nothing by themselves."""
        flushing = [
            self._network.host_popen(
                host.name,
                ["ip", "address", "flush", "dev", self._interface(host.name)],
                stdout=subprocess.DEVNULL,
            )
            for host in self.topology.hosts
        ]
        if any(each.wait() for each in flushing):
            raise NetworkError("the hosts' addresses cannot be removed")

    def _interface(self, host: str) -> str:
        (link,) = self.topology.links_of(host)
        return link.end(host).interface

    # -- switches ------------------------------------------------------------------------------------------------

    def loaded(self, name: str) -> LoadedSwitch | None:
        """Return what runs in a switch."""
        return self._loaded.get(name)

    def load(self, name: str, switch: LoadedSwitch) -> None:
        """Let a switch begin with a program and what was installed.

        Raises:
            ControllerError: The switch refuses it.
        """
        compiled = switch.compiled
        schema = schema_of(compiled.p4info, compiled.device_config())
        if name in self._connections:
            self._empty(name)
        connection = Connection(self.topology.switch(name), schema, self._network.patience)
        self._connections[name] = connection

        self._loaded[name] = switch

        async def begin() -> None:
            await connection.open()
            await connection.push_pipeline()

        with self._spoiled_by_refusals():
            self._runner.run(begin())
        for entries in switch.installed:
            self.install(name, entries)

    @contextlib.contextmanager
    def _spoiled_by_refusals(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.spoiled = True
            raise

    def _empty(self, name: str) -> None:
        """Delete groups and sessions, which BMv2 keeps when it gets another program, and end the session."""
        connection, switch = self._connections.pop(name), self._loaded.pop(name)
        kept = Entries(
            groups={number: () for entries in switch.installed for number in entries.groups},
            sessions={number: () for entries in switch.installed for number in entries.sessions},
        )
        entities = kept.encode(switch.compiled.p4info)
        self._runner.run(connection.write(p4r.Update.DELETE, entities, entities))
        self._runner.run(connection.close())

    def install(self, name: str, entries: Entries) -> None:
        """Write entries, groups and sessions into a switch that has its program.

        Raises:
            ControllerError: The switch refuses it.
            ValueError: The program has no place for it.
        """
        entities = entries.encode(self._loaded[name].compiled.p4info)
        names = [
            *(f"group {each}" for each in entries.groups),
            *(f"session {each}" for each in entries.sessions),
        ]
        with self._spoiled_by_refusals():
            self._runner.run(
                self._connections[name].write(p4r.Update.INSERT, entities, [*names, *entries.entries])
            )

    def register(self, name: str, register: str) -> list[int]:
        """Return the cells of a register.

        Raises:
            ControllerError: The switch cannot tell.
        """
        return self._runner.run(self._connections[name].read_register(register))

    def counter(self, name: str, counter: str, index: int) -> tuple[int, int]:
        """Return the packets and the bytes that a counter has counted.

        Raises:
            ControllerError: There is no such cell.
        """
        found = self._runner.run(self._connections[name].read_counters([(counter, index)]))[counter, index]
        return found.packets, found.bytes

    # -- frames --------------------------------------------------------------------------------------------------

    def exchange(self, port: int, frame: bytes, expected: int) -> list[tuple[int, bytes]]:
        """Send a frame from the host at a port of the only switch, and return what arrives at the hosts.

        Args:
            port: The port of the switch.
            frame: The frame.
            expected: The number of frames that the switch sends in virtual time. They are awaited for longer.
        """
        (switch,) = self.topology.switches
        ports = {self.topology.port_towards(switch.name, host): made for host, made in self._sockets.items()}
        names = {made.fileno(): number for number, made in ports.items()}
        waiting = select.poll()
        for made in ports.values():
            waiting.register(made, select.POLLIN)
        ports[port].send(frame)
        found: list[tuple[int, bytes]] = []
        patience = self._network.patience
        while True:
            seconds = _WAIT_SECONDS if len(found) < expected else self._timing.quiet
            if not (ready := waiting.poll(seconds * patience * 1000)):
                self._network.check()
                return found
            found += [(names[each], ports[names[each]].recv(1 << 16)) for each, _ in ready]

    def run(self, stations: Mapping[str, Station], done: Callable[[], bool]) -> bool:
        """Run the programs of hosts until they are done; return whether they are.

        Timers that end at nearly the same time end at the same time, as in virtual time: otherwise the first worker
        that retransmits could save the others from doing so.
        """
        waiting = select.poll()
        hosts = {self._sockets[name].fileno(): name for name in stations}
        for number in hosts:
            waiting.register(number, select.POLLIN)
        for name, station in stations.items():
            self._send(name, station, 0.0)
        patience = self._network.patience
        slack, end = self._timing.timeout / 4, time.monotonic() + RUN_SECONDS * patience
        begin = time.monotonic()
        while not done():
            now = time.monotonic()
            if now > end:
                return False
            deadlines = [each for station in stations.values() if (each := station.deadline()) is not None]
            next_one = min(deadlines, default=end - begin)
            ready = waiting.poll(max(0.0, min(begin + next_one, end) - now) * 1000)
            now = time.monotonic() - begin
            for number, _ in ready:
                name = hosts[number]
                stations[name].receive(*_received(self._sockets[name]), now)
                self._send(name, stations[name], now)
            if not ready:
                self._network.check()
                for name, station in stations.items():
                    deadline = station.deadline()
                    if deadline is not None and deadline <= now + slack:
                        self._send(name, station, max(now, deadline))
        return True

    def _send(self, name: str, station: Station, now: float) -> None:
        for batch in station.frames_to_send(now):
            for frame in batch:
                self._sockets[name].send(frame.tobytes())


def _received(connection: socket.socket) -> tuple[Any, Any]:
    """Return the frames that have arrived, as a Station takes them."""
    frames = []
    with contextlib.suppress(BlockingIOError):
        while True:
            frames.append(connection.recv(1 << 16, socket.MSG_DONTWAIT))
    room = np.zeros((len(frames), max(LONGEST_FRAME, *map(len, frames))), np.uint8)
    for row, frame in zip(room, frames, strict=True):
        row[: len(frame)] = np.frombuffer(frame, np.uint8)
    return room, np.array([len(frame) for frame in frames], np.int64)
