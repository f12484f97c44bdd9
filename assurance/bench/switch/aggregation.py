"""Aggregation for many workers in a closed loop: our program in the switch, and a bare loop that does the same."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fanin.assurance.bench.switch import frames
from fanin.assurance.bench.switch.errors import SwitchBenchError
from fanin.assurance.bench.switch.native import Traffic
from fanin.controller.plan import plan_aggregation, plan_forwarding
from fanin.controller.tree import FIRST_UDP_PORT, Job, aggregation_tree
from fanin.p4switch.engine.engine import Engine
from fanin.simulator.tables import install
from fanin.topologies.model import Topology
from fanin.topologies.shapes import leaf_spine

LEASE = 1
SWITCHML = 14  # bytes: SwitchML header, exponents, call
_RCVBUFFORCE = 33  # SOL_SOCKET's SO_RCVBUFFORCE
PLAIN_WINDOW, PLAIN_BURST = 256, 16
SUPER_BURST = 2


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of the traffic: ports, values in an update, and whether updates are sent in superframes."""

    ports: int
    values: int
    superframes: bool

    @property
    def packets(self) -> int:
        """Return the updates in a frame; in a superframe, as many as fit (64 KiB, 128 segments)."""
        return 1 if not self.superframes else 60 if self.values == 256 else 120

    @property
    def size(self) -> int:
        """Return the UDP payload bytes of an update."""
        return SWITCHML + 4 * self.values

    @property
    def frames(self) -> int:
        """Return the number of frames that hold a worker's window."""
        return 8 if self.superframes else PLAIN_WINDOW

    @property
    def window(self) -> int:
        """Return the number of chunks in flight."""
        return self.frames * self.packets

    @property
    def burst(self) -> int:
        """Return the number of frames that one worker sends at a time."""
        return SUPER_BURST if self.superframes else PLAIN_BURST

    def __str__(self) -> str:
        kind = "superframes" if self.superframes else "plain frames"
        return f"aggregation, {kind}, {self.ports} ports, {self.values} values"


def values_of(shape: Shape) -> NDArray[np.int64]:
    """Return what each worker sends for each cell: [ports, window, values]."""
    draw = np.random.Generator(np.random.PCG64(1))
    return draw.integers(-(2**27), 2**27, (shape.ports, shape.window, shape.values))


def traffic(shape: Shape, interfaces: Sequence[str]) -> Traffic:
    """Return the frames of all workers. Their chunks are numbered when they are sent."""
    topology = topology_of(shape.ports)
    payload = shape.packets * shape.size
    hosts = topology.ranked_hosts
    [leaf] = topology.switches
    made = frames.headers(
        {
            "to_mac": _each(shape, [_mac(leaf.mac)] * shape.ports),
            "from_mac": _each(shape, [_mac(host.mac) for host in hosts]),
            "source": _each(shape, [int(host.ip) for host in hosts]),
            "destination": _each(shape, [int(leaf.ip)] * shape.ports),
            "protocol": _each(shape, [17] * shape.ports),
            "source_port": _each(shape, [FIRST_UDP_PORT] * shape.ports),
            "destination_port": _each(shape, [FIRST_UDP_PORT] * shape.ports),
        },
        payload,
    )
    virtio = frames.superframes(made, shape.size) if shape.superframes else frames.plain(len(made))
    updates = np.zeros((shape.ports, shape.window, shape.size), np.uint8)
    updates[:, :, :2] = (3 if shape.values == 256 else 1), LEASE
    updates[:, :, SWITCHML:] = values_of(shape).astype(">i4").view(np.uint8)
    whole = np.concatenate([virtio, made, updates.reshape(len(made), payload)], axis=1)
    return Traffic(
        interfaces[: shape.ports],
        whole.reshape(shape.ports, shape.frames, -1),
        burst=shape.burst,
        window=shape.window,
        packets=shape.packets,
        size=shape.size,
    )


def _each(shape: Shape, values: Sequence[int]) -> NDArray[np.int64]:
    """Repeat a worker's value for each of its frames."""
    return np.repeat(np.array(values, np.int64), shape.frames)


def _mac(text: str) -> int:
    return int(text.replace(":", ""), 16)


def topology_of(ports: int) -> Topology:
    """Return one switch with a worker on each port."""
    return leaf_spine(0, 1, ports)


def switch(program: Engine, shape: Shape) -> Engine:
    """Return a switch with that program, set up to aggregate by the controller's plans."""
    topology = topology_of(shape.ports)
    engine = program.new_instance()
    [leaf] = topology.switches
    install(engine, plan_forwarding(topology)[leaf.name].items)
    # Plain frames carry no UDP checksum; a superframe leaves it to the switch.
    hosts = tuple(host.name for host in topology.ranked_hosts)
    job = Job(LEASE, hosts, checksums=shape.superframes)
    install(engine, plan_aggregation(topology, aggregation_tree(topology, job))[leaf.name].items)
    return engine


def check_sums(shape: Shape, sent: Traffic, interface: str) -> None:
    """Send the window once, and compare every result that leaves through `interface`.

    Raises:
        BenchError: A result is wrong.
    """
    sums = values_of(shape).sum(axis=0)
    found = np.zeros((shape.window, shape.values), np.int64)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as capture:
        capture.setsockopt(socket.SOL_SOCKET, _RCVBUFFORCE, 32 << 20)
        capture.bind((interface, 3))  # ETH_P_ALL
        sent.send(shape.frames // shape.burst)
        seen = 0
        capture.setblocking(False)
        while seen < shape.window:
            try:
                frame = capture.recv(1 << 17)
            except BlockingIOError:
                raise SwitchBenchError(f"{seen} of {shape.window} results left through {interface}") from None
            payload = np.frombuffer(frame, np.uint8)[frames.HEADERS :].reshape(-1, shape.size)
            if not frame[frames.HEADERS] & 0x10:  # an update in flight
                continue
            cells = np.ascontiguousarray(payload[:, 6:8]).view(">u2")[:, 0] & 0x3FF
            found[cells] = np.ascontiguousarray(payload[:, SWITCHML:]).view(">i4")
            seen += len(payload)
    if not np.array_equal(found, sums):
        raise SwitchBenchError(f"{shape}: {np.count_nonzero((found != sums).any(axis=1))} sums are wrong")
