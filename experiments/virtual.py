"""All-reduces in virtual time: the compiled program, the controller's plans and the workers of a live network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from controller.plan import MulticastGroup, Plan, TableEntry, Value, plan_aggregation, plan_forwarding
from controller.telemetry import Event, Reason
from controller.tree import FIRST_UDP_PORT, Job, aggregation_tree
from p4compiler import compile_file
from p4switch.engine import Engine
from p4switch.entries import ActionCall, Entry, EntryKey, Exact, Lpm, Match, Replica
from p4switch.program import Program
from topologies.model import Host, Link, Topology
from topologies.virtual import SECOND, HostModel, LinkModel, VirtualNetwork
from topologies.virtual.links import DEFAULT_LINK
from topologies.virtual.network import DEFAULT_HOST, Observer
from topologies.virtual.segments import segments
from workers import quantization
from workers.protocol import Lease, Worker
from workers.recovery import Recovery

PROGRAM = Path(__file__).parents[1] / "p4src" / "fanin.p4"

Vector = NDArray[np.float32]
DEFAULT_RECOVERY = Recovery()

MakeWorker = Callable[[Lease, Recovery], Worker]

HEADERS = 42  # Ethernet, IPv4, UDP
_LONGEST_FRAME = HEADERS + 1034


def load_switch(program: Path = PROGRAM) -> Engine:
    """The compiled program in a switch; `another()` makes more of them at next to no cost."""
    return Engine.load(compile_file(program).json_text().encode())


def install(engine: Engine, items: Iterable[MulticastGroup | TableEntry]) -> None:
    """Put a switch's part of a plan into its tables, as the controller does over P4Runtime."""
    for item in items:
        if isinstance(item, MulticastGroup):
            replicas = tuple(Replica(port, instance) for port, instance in item.replicas)
            engine.multicast_insert(item.group, replicas)
        else:
            engine.table_insert(item.table, _entry(engine.program, item))


def remove(engine: Engine, items: Sequence[MulticastGroup | TableEntry]) -> None:
    """Take it out again, in the opposite order."""
    for item in reversed(items):
        if isinstance(item, MulticastGroup):
            engine.multicast_delete(item.group)
        else:
            engine.table_delete(item.table, _entry(engine.program, item).key)


def _entry(program: Program, item: TableEntry) -> Entry:
    table = program.tables[item.table]
    action = table.action(item.action)
    if action is None:
        raise KeyError(f"{item.table} has no action {item.action}")
    key = EntryKey(tuple(_match(item.match[key.name]) for key in table.keys))
    return Entry(
        key, ActionCall(item.action, tuple(_integer(item.params[p.name]) for p in action.parameters))
    )


def _match(value: Value) -> Match:
    if isinstance(value, IPv4Network):
        return Lpm(int(value.network_address), value.prefixlen)
    return Exact(_integer(value))


def _integer(value: Value) -> int:
    return int(value.replace(":", ""), 16) if isinstance(value, str) else int(value)  # type: ignore[arg-type]


class WorkerStation:
    """A worker on a host: its datagrams as Ethernet frames, and all-reduces of `inputs` one after the other.

    start: when it begins, in seconds. outputs: the sums so far. began, ended: when it began and finished each.
    """

    def __init__(
        self,
        worker: Worker,
        host: Host,
        gateway_mac: str,
        udp_port: int,
        inputs: Sequence[Vector],
        start: float = 0.0,
        outputs: Sequence[Vector] = (),
        *,
        in_place: bool = False,
    ) -> None:
        self.worker = worker
        self.outputs = list(outputs)
        self.began: list[float] = []
        self.ended: list[float] = []
        self.not_ours = 0
        self._inputs = inputs
        self._start = start
        self._in_place = in_place
        self._running = False
        self._headers = _FrameHeaders(host, gateway_mac, udp_port)

    @property
    def finished(self) -> bool:
        """Whether all sums are there."""
        return len(self.outputs) == len(self._inputs)

    def receive(self, frames: NDArray[np.uint8], lengths: NDArray[np.int64], now: float) -> None:
        """See Station."""
        for part in segments(lengths):
            batch = frames[part, : int(lengths[part.start])]
            ours = self._headers.match(batch)
            if not ours.all():
                self.not_ours += int(np.count_nonzero(~ours))
                batch = batch[ours]
            if len(batch):
                self.worker.receive(batch[:, HEADERS:], now)
        if self._running and self.worker.finished:
            self._end(now)

    def frames_to_send(self, now: float) -> list[NDArray[np.uint8]]:
        """See Station."""
        while not self._running and not self.finished and now >= self._start:
            x = self._inputs[len(self.outputs)]
            self.began.append(now)
            self.worker.start(x, now, x if self._in_place else None)
            self._running = True
            if self.worker.finished:  # an empty one
                self._end(now)
        return [self._headers.frames(batch) for batch in self.worker.datagrams_to_send(now)]

    def deadline(self) -> float | None:
        """See Station."""
        return self.worker.deadline() if self._running or self.finished else self._start

    def _end(self, now: float) -> None:
        self.outputs.append(self.worker.finish())
        self.ended.append(now)
        self._running = False


class _FrameHeaders:
    """Ethernet, IPv4 and UDP between a host and its leaf, on one UDP port. The UDP checksum is 0 (RFC 768)."""

    def __init__(self, host: Host, gateway_mac: str, udp_port: int) -> None:
        self._host = host
        self._gateway_mac = gateway_mac
        self._port = udp_port.to_bytes(2, "big")
        self._made: dict[int, NDArray[np.uint8]] = {}
        # What tells that a frame is for this host and port: destination address, IPv4 UDP, destination port.
        self._places = np.array([12, 13, 23, 30, 31, 32, 33, 36, 37])
        self._expected = np.frombuffer(b"\x08\x00\x11" + host.ip.packed + self._port, np.uint8)

    def match(self, frames: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Which of the frames are for this host and port, with a right IPv4 header."""
        if frames.shape[1] < HEADERS:
            return np.zeros(len(frames), np.bool_)
        words = np.ascontiguousarray(frames[:, 14:34]).view(">u2").sum(axis=1, dtype=np.int64)
        right = (words & 0xFFFF) + (words >> 16) == 0xFFFF
        return np.asarray((frames[:, self._places] == self._expected).all(axis=1) & right)

    def frames(self, datagrams: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The datagrams [m, size] in frames to the leaf."""
        count, size = datagrams.shape
        if size not in self._made:
            self._made[size] = self._make(size)
        frames = np.empty((count, HEADERS + size), np.uint8)
        frames[:, :HEADERS] = self._made[size]
        frames[:, HEADERS:] = datagrams
        return frames

    def _make(self, size: int) -> NDArray[np.uint8]:
        def mac(text: str) -> bytes:
            return bytes.fromhex(text.replace(":", ""))

        ip = bytearray(b"\x45\x00" + (28 + size).to_bytes(2, "big") + b"\x00\x00\x40\x00\x40\x11\x00\x00")
        ip += self._host.ip.packed + self._host.gateway.packed
        words = sum(int.from_bytes(ip[i : i + 2], "big") for i in range(0, 20, 2))
        words = (words & 0xFFFF) + (words >> 16)
        ip[10:12] = (0xFFFF - words).to_bytes(2, "big")
        udp = self._port * 2 + (8 + size).to_bytes(2, "big") + b"\x00\x00"
        ethernet = mac(self._gateway_mac) + mac(self._host.mac) + b"\x08\x00"
        return np.frombuffer(ethernet + bytes(ip) + udp, np.uint8)


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """What the cluster of one job is made of; times in seconds.

    hosts: names, by rank; None: all of the topology. window: slots. counted: how many workers each believes there are
    (None: as many as there are; fewer makes sums saturate).
    """

    topology: Topology
    window: int = 64
    values: int = 256
    hosts: tuple[str, ...] | None = None
    links: LinkModel | Callable[[Link], LinkModel] = DEFAULT_LINK
    host: HostModel = DEFAULT_HOST
    recovery: Recovery = DEFAULT_RECOVERY
    counted: int | None = None
    seed: int = 0


@dataclass(slots=True)
class Cluster:
    """One job on a network in virtual time.

    inputs: for each all-reduce a vector of each worker, [all-reduces][workers]. starts: when each worker begins.
    """

    spec: ClusterSpec
    switch: Engine
    inputs: Sequence[Sequence[Vector]]
    starts: Sequence[float] | None = None
    make_worker: MakeWorker = Worker
    observer: Observer | None = None
    in_place: bool = False
    network: VirtualNetwork = field(init=False)
    engines: dict[str, Engine] = field(init=False)
    stations: list[WorkerStation] = field(init=False)
    _lease: int = field(init=False, default=1)
    _retired: list[Engine] = field(init=False, default_factory=list)
    _plan: Plan = field(init=False)

    def __post_init__(self) -> None:
        topology = self.spec.topology
        self.engines = {}
        for switch in topology.switches:
            self.engines[switch.name] = self.switch.another(self.spec.seed)
        self._install(plan_forwarding(topology))
        self._plan = self._aggregation()
        self._install(self._plan)
        starts = self.starts or [0.0] * len(self.members)
        self.stations = self._make_stations(starts, [()] * len(starts))
        self.network = VirtualNetwork(
            topology,
            self.engines,
            dict(zip(self.members, self.stations, strict=True)),
            links=self.spec.links,
            host=self.spec.host,
            seed=self.spec.seed,
            longest_frame=_LONGEST_FRAME,
            observer=self.observer,
        )
        for name, start in zip(self.members, starts, strict=True):
            self.network.wake(name, start)

    @property
    def members(self) -> tuple[str, ...]:
        """The hosts, by rank."""
        return self.spec.hosts or tuple(host.name for host in self.spec.topology.ranked_hosts)

    @property
    def finished(self) -> bool:
        """Whether every worker has all its sums."""
        return all(station.finished for station in self.stations)

    def run(self, limit: float) -> bool:
        """Until every worker has all its sums: True. False: not by `limit` (seconds)."""
        waiting = list(self.stations)

        def done() -> bool:
            while waiting and waiting[-1].finished:
                waiting.pop()
            return not waiting

        return self.network.run(done, limit)

    def host_bytes(self) -> int:
        """What all hosts have sent, and what has been sent to them, in frames."""
        hosts = {host.name for host in self.spec.topology.hosts}
        counts = self.network.links.counts.bytes.tolist()
        joined = zip(self.network.link_ends, counts, strict=True)
        return sum(count for ends, count in joined if hosts & set(ends))

    def drops(self) -> Mapping[Reason, int]:
        """Packets that switches dropped, by reason, over all switches."""
        return {reason: self._count("ingress.drops", reason) for reason in Reason}

    def events(self) -> Mapping[Event, int]:
        """What aggregation did, over all switches."""
        return {event: self._count("ingress.aggregation.events", event) for event in Event}

    def restart_switch(self, name: str, notice: float) -> None:
        """A switch loses all its state. The controller notices after `notice` seconds, programs it and grants the job
        a new lease, in which all workers begin again with the first all-reduce that some of them has not finished.
        """
        self._retired.append(self.engines[name])
        self.engines[name] = self.switch.another(self.spec.seed)
        self.network.replace_switch(name, self.engines[name])
        self.network.run(limit=self.network.now / SECOND + notice)
        for other, part in self._plan.items():
            if other != name:
                remove(self.engines[other], part.items)
        self._lease += 1
        self._plan = self._aggregation()
        self._install({name: plan_forwarding(self.spec.topology)[name]})
        self._install(self._plan)
        done = min(len(station.outputs) for station in self.stations)
        now = self.network.now / SECOND
        outputs = [station.outputs[:done] for station in self.stations]
        self.stations = self._make_stations([now] * len(outputs), outputs)
        for member, station in zip(self.members, self.stations, strict=True):
            self.network.replace_station(member, station, now)

    def _count(self, counter: str, index: int) -> int:
        engines = [*self.engines.values(), *self._retired]
        return sum(engine.counter_read(counter, index).packets for engine in engines)

    def _install(self, plan: Plan) -> None:
        for name, part in plan.items():
            install(self.engines[name], part.items)

    def _aggregation(self) -> Plan:
        job = Job(self._lease, self.members, FIRST_UDP_PORT, 0, self.spec.window)
        return plan_aggregation(self.spec.topology, aggregation_tree(self.spec.topology, job))

    def _make_stations(
        self, starts: Sequence[float], outputs: Sequence[Sequence[Vector]]
    ) -> list[WorkerStation]:
        spec, topology = self.spec, self.spec.topology
        stations = []
        for rank, name in enumerate(self.members):
            host = topology.host(name)
            workers = spec.counted or len(self.members)
            # A worker that counts too few of them has a rank within what it counts.
            lease = Lease(self._lease, rank % workers, workers, spec.window, 0, spec.values)
            station = WorkerStation(
                self.make_worker(lease, spec.recovery),
                host,
                topology.switch(host.leaf).mac,
                FIRST_UDP_PORT,
                [vectors[rank] for vectors in self.inputs],
                starts[rank],
                outputs[rank],
                in_place=self.in_place,
            )
            stations.append(station)
        return stations


def quantized_sum(inputs: Sequence[Vector], values: int, counted: int) -> tuple[Vector, int]:
    """What every worker must get, bit for bit, and how many chunks of `values` saturate (at the upper limit).

    Exact integers, dequantized; `counted`: how many workers each believes there are.
    """
    length = len(inputs[0])
    exponents = np.max([quantization.block_exponents(_blocks(x, values), counted)[0] for x in inputs], axis=0)
    factors = quantization.scales(exponents, counted)[:, np.newaxis]
    sums = np.zeros((len(exponents), values), np.int64)
    for x in inputs:
        sums += np.rint(_blocks(x, values).astype(np.float64) * factors).astype(np.int64)
    saturated = int(np.count_nonzero((sums > quantization.LARGEST_SUM).any(axis=1)))
    result = np.minimum(sums, quantization.LARGEST_SUM) / factors
    return result.astype(np.float32).reshape(-1)[:length], saturated


def _blocks(x: Vector, values: int) -> Vector:
    padding = -len(x) % values
    return (np.pad(x, (0, padding)) if padding else x).reshape(-1, values)
