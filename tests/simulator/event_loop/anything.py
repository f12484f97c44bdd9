"""Networks where programs and hosts send anything: frames of any length to any port, often, changed on the way.

Among the hosts is a worker, to whom some of it looks like results.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fanin.p4compiler import compile_once
from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.entries import Replica
from fanin.simulator import History, HostModel, VirtualNetwork
from fanin.simulator.deadlock import DeadlockError
from fanin.simulator.hosts.stations import Flow, SwitchPort, SwitchWorker, WorkerStation
from fanin.simulator.links import ACTIONS, PRECEDENCE, PRIORITIES
from fanin.topologies.model import Topology
from fanin.topologies.shapes import leaf_spine
from fanin.workers import wire
from fanin.workers.lease import Lease
from fanin.workers.protocol import Worker
from fanin.workers.recovery import Recovery

LONGEST = 1100  # bytes of a frame; the program may make it longer
HOSTS = ("h1", "h2", "h3")
WORKER = "h4"
PAUSE = {"xoff_bytes": 3000, "xon_bytes": 1000}
WATCHDOG = {"detection_time": 1e-6, "restoration_time": 2e-6}
_UDP_PORT, _LEASE = 7000, Lease(1, 0, 2, window=8, values=64)


class Anybody:
    """Sends frames of any length and content, and notes all that it gets."""

    def __init__(self, draw: random.Random, most: int, header: NDArray[np.uint8]) -> None:
        self.heard: list[tuple[float, bytes]] = []
        self._draw, self._most, self._header = draw, most, header
        self._next = 0.0

    def receive(self, frames: NDArray[np.uint8], lengths: NDArray[np.int64], now: float) -> None:
        for frame, length in zip(frames, lengths.tolist(), strict=True):
            self.heard.append((now, frame[:length].tobytes()))

    def frames_to_send(self, now: float) -> list[NDArray[np.uint8]]:
        if now < self._next:
            return []
        self._next = now + self._draw.choice([1e-9, 3e-7, 2e-6])
        draw, batches = self._draw, []
        for _ in range(draw.randrange(3)):
            shape = draw.randrange(5), draw.choice([0, 1, 2, 3, 14, 33, 42, 43, 100, 308, self._most])
            content = np.frombuffer(draw.randbytes(shape[0] * shape[1]), np.uint8).reshape(shape).copy()
            chunk = draw.randrange(1, 8)
            result = bytes([wire.kind(wire.RESULT, 64), _LEASE.id, 0, 0, 0, chunk, 0, chunk, 127, 0])
            known = np.concatenate([self._header[12:], np.frombuffer(result, np.uint8)])
            content[:, 12 : 12 + len(known)] = known[: max(0, shape[1] - 12)]
            content[:, 15:16] |= draw.randrange(PRIORITIES) << PRECEDENCE
            batches.append(content)
        return batches

    def deadline(self) -> float:
        return self._next


def load() -> Engine:
    """The program that does anything."""
    return Engine.load(compile_once(Path(__file__).with_suffix(".p4")).device_config())


class _Called:
    """A switch that C calls for each packet, as it calls one in Python."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def process(self, port: int, packet: bytes, now: int) -> list[tuple[int, bytes]]:
        return self._engine.process(port, packet, now)


class _PortInPython(SwitchPort[SwitchWorker]):
    """A worker's port that leaves nothing to C."""

    @property
    def compiled(self) -> None:
        return None


def run(program: Engine, seed: int, *, in_python: bool = False) -> list[object]:
    """Run it, and return what happened; a packet may have become too long for the network.

    in_python: Python is called for each packet of switches, and for all that the worker gets.
    """
    draw = random.Random(seed)
    engines = {name: program.new_instance(seed) for name in ("leaf1", "leaf2", "spine1")}
    for engine in engines.values():
        for number in range(1, 5):
            count = draw.choice([0, 1, 2, 3, 40])
            replicas = tuple(Replica(draw.randrange(1, 7), copy) for copy in range(count))
            engine.multicast.insert(number, replicas)
            engine.sessions.insert(number - 1, replicas[:3])
    properties: dict[str, object] = {
        "loss": draw.choice([0, 0.05]),
        "corruption": draw.choice([0, 0.05]),
        "duplication": draw.choice([0, 0.05]),
        "reordering": draw.choice([0, 0.05]),
        "displacement": 2e-6,
        "jitter": draw.choice([0, 1e-6]),
        "queue_bytes": 10_000,
        "ecn_bytes": 2000,
        "pause": draw.choice(
            [None, PAUSE, *(PAUSE | {"watchdog": WATCHDOG | {"action": action}} for action in ACTIONS)]
        ),
    }
    topology = leaf_spine(1, 2, 2, rate=10**10, properties=properties, uplink_properties=properties)
    most = LONGEST if draw.random() < 0.3 else 40
    worker, header = _worker(topology, _PortInPython if in_python else SwitchPort)
    hosts = {name: Anybody(draw, most, header) for name in HOSTS[: draw.randint(1, len(HOSTS))]}
    history = History()
    network = VirtualNetwork(
        topology,
        {name: _Called(engine) for name, engine in engines.items()} if in_python else engines,
        {**hosts, WORKER: worker},
        host=HostModel(draw.choice([0.0, 1e-6])),
        seed=seed,
        longest_frame=LONGEST,
        observer=history,
        priorities=draw.choice([False, True]),
    )
    for name in (*hosts, WORKER):
        network.wake(name, 0.0)
    if draw.random() < 0.5:  # most often while something is paused
        begin = draw.uniform(3e-6, 2e-5)
        network.cut(
            *draw.choice([("leaf1", "spine1"), ("spine1", "leaf2")]), begin, begin + draw.uniform(0, 8e-6)
        )
    refused = deadlock = ""
    try:
        network.run(limit=3e-5)
    except ValueError as error:
        refused = str(error)
    except DeadlockError as error:
        deadlock = str(error)
    if refused:
        return [history.digest, "left" in refused]
    heard = [host.heard for host in hosts.values()]
    of_lanes = network.overtaken.tolist(), network.wire_bytes.tolist()
    counts = network.wakes, network.hops, network.in_flight, worker.not_ours, of_lanes
    return [history.digest, heard, +network.faults, counts, worker.worker.statistics, deadlock]


def _worker(
    topology: Topology, kind: type[SwitchPort[SwitchWorker]]
) -> tuple[WorkerStation[SwitchWorker], NDArray[np.uint8]]:
    """One whose all-reduce never ends, and what stands before a datagram from its switch."""
    host = topology.hosts[-1]
    recovery = Recovery(initial_rto=5e-6, min_rto=5e-6, granularity=1e-6)
    port = kind(Worker(_LEASE, recovery), host, host.mac, _UDP_PORT)
    switch = host.model_copy(update={"ip": host.gateway})
    flow = Flow(switch, host.mac, host.ip, _UDP_PORT, _UDP_PORT, ecn=2)
    return WorkerStation(port, [np.ones(2000, np.float32)]), flow.header(300)
