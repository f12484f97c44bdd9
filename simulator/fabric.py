"""All-reduces in virtual time, with the compiled program, the controller's plans and the workers of a live network."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fanin.controller.errors import ControllerError
from fanin.controller.jobs.budget import SlotAllocation
from fanin.controller.jobs.ledger import Identity, NumberSpace, UsedUpError
from fanin.controller.plan import Plan, SwitchPlan, joined
from fanin.controller.planner import OURS, Planner
from fanin.controller.requirements import PROGRAM
from fanin.controller.telemetry import Event, Reason
from fanin.controller.tree import FIRST_UDP_PORT, Tree
from fanin.controller.tree import Job as TreeJob
from fanin.native.collector import without_collector
from fanin.native.text import counted
from fanin.p4compiler import compile_once
from fanin.p4switch.engine.engine import Engine
from fanin.simulator import SECOND, HostModel, VirtualNetwork
from fanin.simulator.compiled import CardInC
from fanin.simulator.hosts.card import Card
from fanin.simulator.hosts.circuits import Circuits
from fanin.simulator.hosts.split import SplitPort
from fanin.simulator.hosts.stations import (
    IdleStation,
    PeerPort,
    Port,
    ServerStation,
    SharedStation,
    Summing,
    SwitchPort,
    SwitchWorker,
    Vector,
    WorkerStation,
    addresses,
)
from fanin.simulator.job_spec import ClusterSpec, JobSpec
from fanin.simulator.network import DEFAULT_HOST, ON_WAKES, MakeNetwork, Observer, Station
from fanin.simulator.tables import install, remove
from fanin.topologies.model import Host, Topology
from fanin.workers import wire
from fanin.workers.collective import Algorithm
from fanin.workers.collective_worker import CollectiveWorker
from fanin.workers.host_based.engine import fastest
from fanin.workers.host_based.participant import Group
from fanin.workers.host_based.transport import HEADER_BYTES, PAYLOAD
from fanin.workers.job.retained_results import RetainedResult
from fanin.workers.protocol import MakeServer, MakeWorker, Worker
from fanin.workers.tensor import Partition, Tensor
from fanin.workers.wire import HEADERS

_SESSIONS = 1 << 16  # session numbers of host groups: more than there are jobs

_LARGEST_DATAGRAM = max(wire.VALUES)  # in the network


def load_switch(program: Path = PROGRAM) -> Engine:
    """Load the compiled program into a switch; its `new_instance()` makes more of them at almost no cost."""
    return Engine.load(compile_once(program).device_config())


class Fabric:
    """A network in virtual time whose switches run the program of `switch`, and the jobs that share it.

    Args:
        topology: The network.
        switch: A switch that has the program. Each switch of the network is a new instance of it.
        host: How hosts notice what arrives.
        seed: Seed of all random draws.
        observer: Called with everything that arrives.
        numbers: Lease and chunk numbers that packets may carry. None allows all, from lease 1 and chunk 0 on.
        planner: Decides the entries of the switches.
        make_network: Builds the network, with the arguments of VirtualNetwork.
        priorities: Whether links have a queue for each priority.
        payload: The most payload of a packet between hosts, in bytes.
        reconfiguration: Seconds in which the switch sets up a circuit, if it is an optical one (hosts/circuits.py).
        loopback: Seconds that a packet takes through the loopback port of a switch; None: switches have none.

    Attributes:
        circuits: The circuits of the switch; None if it switches packets.
        usable: The part of the topology that planning uses.
        checksums: Whether aggregation packets carry UDP checksums.
    """

    def __init__(
        self,
        topology: Topology,
        switch: Engine,
        *,
        host: HostModel = DEFAULT_HOST,
        seed: int = 0,
        observer: Observer | None = None,
        numbers: NumberSpace | None = None,
        planner: Planner = OURS,
        make_network: MakeNetwork = VirtualNetwork,
        priorities: bool = False,
        payload: int = PAYLOAD,
        reconfiguration: float | None = None,
        loopback: float | None = None,
    ) -> None:
        self.topology = topology
        self.circuits = None if reconfiguration is None else Circuits(reconfiguration)
        self.jobs: list[Job] = []
        with without_collector():
            self.engines = {node.name: switch.new_instance(seed) for node in topology.switches}
        self.usable = topology
        # Without corruption they only cost time. A link that corrupts a packet between hosts writes its checksum first.
        self.checksums = any(link.properties.corruption for link in topology.links)
        self._empty: set[str] = set()  # switches that have not been programmed since they restarted
        self._switch, self._seed = switch, seed
        self._retired: list[Engine] = []
        self._placed: dict[str, Station] = {}  # of jobs, by host
        # Of flows and servers, by host, with their UDP ports.
        self._flow_stations: dict[str, tuple[Station | CardInC, Collection[int]]] = {}
        self._coalescing = host.coalescing
        self._cards: dict[str, Card] = {}
        self._numbers = numbers or NumberSpace()
        self.planner = planner
        with without_collector():
            self.install(planner.plan_forwarding(topology))
        self.network = make_network(
            topology,
            self.engines,
            {},
            host=host,
            seed=seed,
            longest_frame=HEADERS + max(_LARGEST_DATAGRAM, HEADER_BYTES + payload),
            observer=observer,
            priorities=priorities,
            loopback=loopback,
        )

    def start(
        self,
        spec: JobSpec,
        inputs: Sequence[Sequence[Vector]],
        starts: Sequence[float] | None = None,
        *,
        make_worker: MakeWorker = Worker,
        make_server: MakeServer | None = None,
        in_place: bool = False,
        place: SlotAllocation | None = None,
    ) -> Job:
        """Start another job, on hosts without a job, with its own slots and UDP ports.

        Args:
            spec: The job.
            inputs: For each all-reduce one vector per worker, [all-reduces][workers].
            starts: Start time of each worker in seconds. None starts all at 0.
            make_worker: Makes a worker from its lease and its timers.
            make_server: Makes the server of each tree, if the protocol has servers; the job then names their hosts.
            in_place: Whether sums replace the inputs.
            place: Slots and UDP ports granted by a budget (controller/jobs/budget.py). None takes the next free ones.
        """
        udp_port = FIRST_UDP_PORT + sum(job.spec.trees for job in self.jobs)
        first_slot = spec.first_slot
        if first_slot is None:
            shared = spec.slots is not None
            first_slot = 0 if shared else sum(job.spec.trees * job.spec.window for job in self.jobs)
        if place:
            udp_port, first_slot = place.job.udp_port, place.job.base
        session = len(self.jobs)
        makers = make_worker, make_server
        job = Job(self, spec, inputs, makers, udp_port, first_slot, session, in_place=in_place)
        self.jobs.append(job)
        with without_collector():
            job.begin(starts or [0.0] * len(job.members))
        return job

    def card(self, host: str) -> Card:
        """Return the network card of a host, for what it sends to other hosts.

        It is given something whenever the host looks at its packets, and so needs as much as its link sends meanwhile.
        """
        if host not in self._cards:
            (link,) = self.topology.links_of(host)
            self._cards[host] = Card(link, self._coalescing, self.topology.host(host).ip, self.circuits)
        return self._cards[host]

    def has_plain_card(self, host: str) -> bool:
        """Return whether a host's packets need no circuits, and no time of its processor."""
        return self.card(host).plain and not self.network.packet_seconds(host)

    def take_numbers(self, chunks: int) -> Identity:
        """Return the lease number and the chunk numbers that the packets of a new lease carry.

        Raises:
            ControllerError: There are not so many numbers, or none while leases are in force.
        """
        in_force = {granted.lease for job in self.jobs for granted in job.granted}
        try:
            return self._numbers.take(chunks, in_force)
        except UsedUpError:
            if in_force:
                raise
        self.empty_cells()
        self._numbers.start_again()
        return self._numbers.take(chunks)

    def empty_cells(self) -> None:
        """Load the program into all switches again. No lease may be in force."""
        for name in self.engines:
            self._push(name)
            self._install_forwarding(name)

    @property
    def finished(self) -> bool:
        """Return whether every worker has all its sums."""
        return all(station.finished for job in self.jobs for station in job.stations)

    def run(self, limit: float) -> bool:
        """Run until every worker has all its sums; return False if `limit` (seconds) comes first."""
        return self._run_until_done([station for job in self.jobs for station in job.stations], limit)

    def run_job(self, job: Job, limit: float) -> bool:
        """Run until every worker of `job` has all its sums; return False if `limit` (seconds) comes first."""
        return self._run_until_done(job.stations, limit)

    def _run_until_done(self, stations: Sequence[WorkerStation[Any]], limit: float) -> bool:
        waiting = list(stations)

        def done() -> bool:
            while waiting and waiting[-1].finished:
                waiting.pop()
            return not waiting

        return self.network.run(done, limit, watched=ON_WAKES)

    def host_bytes(self, hosts: Collection[str] | None = None) -> int:
        """Return the bytes, in frames, sent by and to these hosts. None counts all hosts."""
        return self._at_hosts(self.network.links.counts.bytes, hosts)

    def host_packets(self, hosts: Collection[str] | None = None) -> int:
        """Return the packets sent by and to these hosts. None counts all hosts."""
        return self._at_hosts(self.network.links.counts.packets, hosts)

    def _at_hosts(self, counts: NDArray[np.int64], hosts: Collection[str] | None) -> int:
        wanted = {host.name for host in self.topology.hosts} if hosts is None else set(hosts)
        joined = zip(self.network.link_ends, counts.tolist(), strict=True)
        return sum(count for ends, count in joined if wanted & set(ends))

    def drops(self) -> Mapping[Reason, int]:
        """Return the number of packets that switches dropped, by reason, over all switches."""
        return {reason: self._count("ingress.drops", reason) for reason in Reason}

    def events(self) -> Mapping[Event, int]:
        """Return the aggregation event counts, over all switches."""
        return {event: self._count("ingress.aggregation.events", event) for event in Event}

    def _count(self, counter: str, index: int) -> int:
        engines = [*self.engines.values(), *self._retired]
        return sum(engine.counter(counter).read(index).packets for engine in engines)

    def restart_switch(self, name: str, notice: float) -> None:
        """Make a switch lose all its state. The controller notices after `notice` seconds and programs it.

        The jobs that aggregate in it get a new lease (see Job). All others continue.
        """
        self._push(name)
        self.network.run(limit=self.network.now / SECOND + notice)
        self._install_forwarding(name)
        for job in self.jobs:
            job.go_on_after(name)

    def empty_switch(self, name: str) -> None:
        """Make a switch lose all its state. It stays unprogrammed until refill_switch()."""
        self._push(name)
        self._empty.add(name)

    def refill_switch(self, name: str) -> None:
        """Install the table entries again that a switch has lost."""
        if name in self._empty:
            self._empty.remove(name)
            self._install_forwarding(name)
            for job in self.jobs:
                job.reinstall(name)

    def reroute(self, usable: Topology) -> None:
        """Use only the links of `usable` for ordinary packets, and for the trees of new leases, from now on."""
        before, after = (self.planner.plan_forwarding(network) for network in (self.usable, usable))
        self.usable = usable
        changed = [name for name in self.engines if before.get(name) != after.get(name)]
        self.remove({name: before[name] for name in changed if name in before})
        self.install({name: after[name] for name in changed if name in after})

    def _push(self, name: str) -> None:
        """Load the program into a switch, which clears its tables, registers and counters."""
        self._retired.append(self.engines[name])
        self.engines[name] = self._switch.new_instance(self._seed)
        self.network.replace_switch(name, self.engines[name])

    def lose_registers(self, name: str) -> None:
        """Make a switch lose the contents of its registers but keep its tables. The controller does not notice."""
        self._retired.append(self.engines[name])
        self.engines[name] = self._switch.new_instance(self._seed)
        self._install_forwarding(name)
        for job in self.jobs:
            job.reinstall(name)
        self.network.replace_switch(name, self.engines[name])

    def left_behind(self) -> Iterator[str]:
        """Describe what switches hold besides forwarding: table entries and multicast groups of leases."""
        for name, engine in self.engines.items():
            bare = self._switch.new_instance(self._seed)
            install(bare, self._forwarding(name).items)
            for table in engine.program.tables:
                there, expected = (
                    {entry.key for entry in one.table(table).entries()} for one in (engine, bare)
                )
                if there != expected:
                    entries = counted(len(there), "entry", "entries")
                    yield f"{name} has {entries} in {table}, {len(expected)} without any lease"
            groups = engine.multicast.all().keys() - bare.multicast.all().keys()
            if groups:
                yield f"{name} has multicast groups of no lease: {sorted(groups)}"

    def place(self, host: str, station: WorkerStation[Any], start: float) -> None:
        """Run a job's station on a host from `start` (seconds) on, next to one that add_flow_station() has put there.

        Raises:
            ValueError: The other station was there before the job.
        """
        if host in self._flow_stations and host not in self._placed:
            raise ValueError(f"host {host} has flows already; start jobs before flows")
        self._placed[host] = station
        self.network.replace_station(host, self._station_at(host), start)

    def place_server(self, host: str, station: ServerStation, udp_port: int) -> None:
        """Run the server of a job, which receives at `udp_port`, on a host without a job."""
        self._flow_stations[host] = station, (udp_port,)
        self.network.replace_station(host, self._station_at(host), self.network.now / SECOND)

    def vacate(self, host: str) -> None:
        """Remove the job's station from a host, without a replacement."""
        self._placed[host] = IdleStation()
        if host in self._flow_stations:
            self.network.replace_station(host, self._station_at(host), self.network.now / SECOND)
        else:
            self.network.remove_station(host)

    def add_flow_station(
        self, host: str, station: Station | CardInC, ports: Collection[int], start: float
    ) -> None:
        """Give the frames to UDP `ports` of a host to another station from `start` (seconds) on, next to a job's.

        Raises:
            ValueError: The host already has such a station.
        """
        if host in self._flow_stations:
            raise ValueError(f"host {host} has other flows already; give all flows of a host at once")
        self._flow_stations[host] = station, ports
        job = self._placed[host].deadline() if host in self._placed else None
        self.network.replace_station(host, self._station_at(host), start if job is None else min(start, job))

    def _station_at(self, host: str) -> Station | CardInC:
        if host not in self._flow_stations:
            return self._placed[host]
        station, ports = self._flow_stations[host]
        if host not in self._placed:
            return station
        assert not isinstance(station, CardInC)  # it has the network card for itself
        return SharedStation(self._placed[host], station, ports)

    def _install_forwarding(self, name: str) -> None:
        self.install({name: self._forwarding(name)})

    def _forwarding(self, name: str) -> SwitchPlan:
        return self.planner.plan_forwarding(self.usable).get(name, SwitchPlan(()))

    def install(self, plan: Plan) -> None:
        """Program switches, except those that wait for refill_switch()."""
        for name, part in plan.items():
            if name not in self._empty:
                install(self.engines[name], part.items)

    def remove(self, plan: Plan) -> None:
        """Remove a plan from the switches, except from those that wait for refill_switch()."""
        for name, part in plan.items():
            if name not in self._empty:
                remove(self.engines[name], part.items)


class Job:
    """One job on a fabric, made by Fabric.start.

    Attributes:
        members: Names of the hosts, by rank.
        ranks: What these ranks were at the beginning.
        stations: Stations on the hosts, by rank, since the newest lease.
        left: Stations of workers that have ended.
        leases: For each lease granted so far, the number of all-reduces that were done before it.
        granted: The newest grant, one lease per tree. Empty if there is none, or if it has been revoked.
        trees: Aggregation trees of this grant.
        contributions: Number of contributions that switches add up per chunk.
        by_ring: Number of all-reduces done before the job fell back to the ring, or None.
    """

    def __init__(
        self,
        fabric: Fabric,
        spec: JobSpec,
        inputs: Sequence[Sequence[Vector]],
        makers: tuple[MakeWorker, MakeServer | None],
        udp_port: int,
        first_slot: int,
        session: int,
        *,
        in_place: bool,
    ) -> None:
        self.spec = spec
        self.members = spec.hosts or tuple(host.name for host in fabric.topology.ranked_hosts)
        self.ranks: Sequence[int] = range(len(self.members))
        self.stations: list[WorkerStation[Any]] = []
        self.left: list[WorkerStation[Any]] = []
        self.trees: tuple[Tree, ...] = ()
        self.leases: list[int] = []
        self.granted: tuple[TreeJob, ...] = ()
        self.contributions = 0
        self.by_ring: int | None = None
        self._fabric = fabric
        self._inputs = inputs
        self._make_worker, self._make_server = makers
        self._udp_port, self._first_slot = udp_port, first_slot
        self._session = session  # number of the group of hosts
        self._in_place = in_place
        self._plan: dict[str, SwitchPlan] = {}
        self._between: Callable[[], None] = lambda: None
        self._groups: list[tuple[int, Sequence[int], Algorithm]] = []
        self._peers = b""  # addresses of the members

    def begin(self, starts: Sequence[float]) -> None:
        """Begin with the first all-reduce."""
        self._place(starts, [()] * len(starts))

    def go_on_after(self, restarted: str) -> None:
        """Continue after a switch has lost its state.

        If the switch aggregates for this job, a new lease is granted. All workers then repeat the first all-reduce that
        some of them have not finished. A job between hosts just continues.
        """
        if restarted in self._plan:
            del self._plan[restarted]
            self.regrant()

    def reinstall(self, name: str) -> None:
        """Install this job's entries in a switch again."""
        if name in self._plan:
            self._fabric.install({name: self._plan[name]})

    def regrant(self, between: Callable[[], None] = lambda: None, *, cut: bool = False) -> None:
        """Revoke the grant, make another, and start over with the first all-reduce that some worker has not finished.

        Args:
            between: Called after each switch has been changed.
            cut: Whether another grant fails first, after half of the switches, and is undone.
        """
        self._withdraw(between)
        if cut:
            parts = list(self._next_plan().items())
            for name, part in parts[: len(parts) // 2 + 1]:
                self._fabric.install({name: part})
                between()
                self._fabric.remove({name: part})
        self._between = between
        done = min(len(station.outputs) for station in self.stations)
        now = self._fabric.network.now / SECOND
        self._place([now] * len(self.stations), [station.outputs[:done] for station in self.stations])

    def revoke(self, between: Callable[[], None]) -> None:
        """Revoke the job's lease; `between` is called after each switch has been changed."""
        self._withdraw(between)
        self.granted = ()

    def carry_on(self, outputs: Sequence[Sequence[Vector]], now: float) -> None:
        """Continue without a lease, using the ring between the hosts, after the sums `outputs` of each worker."""
        self.by_ring = len(outputs[0])
        recovery = self.spec.ring_recovery or self.spec.recovery
        self.spec = replace(self.spec, algorithm="ring", recovery=recovery)
        self._place([now] * len(self.stations), outputs)

    def regroup(self, staying: Sequence[int], outputs: Sequence[Sequence[Vector]], now: float) -> None:
        """Continue with these ranks only, after the sums `outputs` of each.

        They use another lease, or the ring if there is none.
        """
        self.revoke(lambda: None)
        self.left += [station for rank, station in enumerate(self.stations) if rank not in staying]
        self.stations = [self.stations[rank] for rank in staying]
        self.members = tuple(self.members[rank] for rank in staying)
        self.ranks = [self.ranks[rank] for rank in staying]
        self._session += _SESSIONS  # packets in flight between hosts belong to the previous group
        try:
            self._place([now] * len(staying), outputs)
        except ControllerError:
            self.carry_on(outputs, now)

    @property
    def changed(self) -> bool:
        """Return whether the all-reduces were done by different workers or in different ways."""
        return len(self._groups) > 1

    def done_by(self, index: int) -> tuple[Sequence[int], Algorithm]:
        """Return which ranks, numbered as at the beginning, did an all-reduce, and with which algorithm."""
        return next(group[1:] for group in reversed(self._groups) if group[0] <= index)

    def end(self) -> None:
        """Revoke the lease after the workers have ended. May be called twice."""
        self.revoke(lambda: None)

    def _withdraw(self, between: Callable[[], None]) -> None:
        for name in list(self._plan):
            self._fabric.remove({name: self._plan.pop(name)})
            between()

    def _place(self, starts: Sequence[float], outputs: Sequence[Sequence[Vector]]) -> None:
        port = self._switch_port if self.spec.algorithm == "in-network" else self._peer_port
        self._peers = addresses(self._fabric.topology.host(name) for name in self.members)
        if self.spec.algorithm == "in-network":
            self._grant()
            self.leases.append(len(outputs[0]))
        self._groups.append((len(outputs[0]), self.ranks, self.spec.algorithm))
        before = self.stations
        self.stations = [
            WorkerStation(
                port(rank),
                _OwnVectors(self._inputs, self.ranks[rank]),
                starts[rank],
                outputs[rank],
                in_place=self._in_place,
                pauses=self.spec.pauses[self.ranks[rank]] if self.spec.pauses else (),
                per_step=self.spec.per_step,
                kept=RetainedResult(len(outputs[rank])) if self._keeps else None,
                called=0 if self.spec.on_call else None,
                until_sum=self.spec.until_sum,
            )
            for rank in range(len(self.members))
        ]
        for station, earlier, start in zip(self.stations, before, starts, strict=False):
            station.go_on_from(earlier, start)
        for member, station, start in zip(self.members, self.stations, starts, strict=True):
            self._fabric.place(member, station, start)

    @property
    def _keeps(self) -> bool:
        """Return whether an all-reduce may have to be repeated, from inputs that nothing has overwritten."""
        return self.spec.elastic or (self.spec.ring and bool(self.granted))

    def _grant(self) -> None:
        for name, part in self._next_plan().items():
            self._fabric.install({name: part})
            self._plan[name] = part
            self._between()
        for granted in self.granted:
            if granted.server is not None:
                self._place_server(granted, granted.server)

    def _place_server(self, granted: TreeJob, name: str) -> None:
        assert self._make_server is not None
        topology = self._fabric.topology
        host = topology.host(name)
        server = self._make_server(granted.lease_of(0, self.spec.values), self.spec.recovery)
        port = SwitchPort(
            server,
            host,
            topology.switch(host.leaf).mac,
            granted.udp_port,
            self.spec.priority,
            checksums=granted.checksums,
        )
        self._fabric.place_server(name, ServerStation(port), granted.udp_port)

    def _next_plan(self) -> Plan:
        """Return the plan of a new grant."""
        self.granted = ()  # the previous grant is no longer in force
        network, planner = self._fabric.usable, self._fabric.planner
        spec = self.spec
        for number in range(spec.trees):
            wanted = TreeJob(
                hosts=self.members,
                udp_port=self._udp_port + number,
                base=self._first_slot + (0 if spec.slots else number * spec.window),
                slots=spec.slots or spec.window,
                checksums=self._fabric.checksums,
                window=spec.window if spec.slots else None,
                server=spec.servers[number] if spec.servers else None,
                **asdict(self._fabric.take_numbers(spec.chunks)),
            )
            self.granted += (wanted,)
        self.trees = tuple(planner.aggregation_tree(network, wanted) for wanted in self.granted)
        self.contributions = sum(len(part.children) for tree in self.trees for part in tree.aggregators)
        plans = [planner.plan_aggregation(network, tree) for tree in self.trees]
        return {
            name: joined(plan[name] for plan in plans if name in plan)
            for name in dict.fromkeys(chain(*plans))
        }

    def _switch_port(self, rank: int) -> Port[Summing]:
        ports = [self._port_of(granted, rank) for granted in self.granted]
        return ports[0] if len(ports) == 1 else SplitPort(ports)

    def _port_of(self, granted: TreeJob, rank: int) -> SwitchPort[SwitchWorker]:
        spec = self.spec
        lease = granted.lease_of(rank, spec.values)
        if spec.counted:  # may be fewer than there are, so the rank is taken modulo this number
            lease = replace(lease, workers=spec.counted, rank=rank % spec.counted)
        operations = [call for call in spec.calls if isinstance(call, str)]
        exchanges = any(operation != "all-reduce" for operation in operations)
        worker = (
            CollectiveWorker(lease, spec.recovery, operations)
            if exchanges
            else self._make_worker(lease, spec.recovery)
        )
        if spec.counted:
            assert isinstance(worker, Worker)  # not a user's worker
            _keep_quiet(worker)
        return SwitchPort(
            worker,
            *self._host(rank),
            granted.udp_port,
            spec.priority,
            checksums=granted.checksums,
            card=self._fabric.card(self.members[rank]) if spec.on_call or spec.shares_card else None,
        )

    def _peer_port(self, rank: int) -> PeerPort:
        spec, topology = self.spec, self._fabric.topology
        assert spec.algorithm != "in-network"
        group = Group(
            rank,
            len(self.members),
            spec.algorithm,
            spec.transport,
            spec.shards,
            spec.window,
            spec.window_per,
            session=self._session,
            flows=spec.flows,
            calls=spec.calls,
            payload=spec.payload,
            make_control=spec.congestion_control(topology, self.members[rank]),
        )
        card = self._fabric.card(self.members[rank])
        return PeerPort(fastest(group, spec.recovery), *self._host(rank), self._peers, card, spec.priority)

    def _host(self, rank: int) -> tuple[Host, str]:
        """Return the host of a rank and its gateway's MAC address."""
        host = self._fabric.topology.host(self.members[rank])
        return host, self._fabric.topology.switch(host.leaf).mac


class _OwnVectors(Sequence[Vector]):
    """The vectors of one worker, each looked up when its all-reduce begins."""

    def __init__(self, inputs: Sequence[Sequence[Vector]], rank: int) -> None:
        self._inputs, self._rank = inputs, rank

    def __len__(self) -> int:
        return len(self._inputs)

    def __getitem__(self, call: Any) -> Any:
        return self._inputs[call][self._rank]


def _keep_quiet(worker: Worker) -> None:
    """Make a worker send no agreement digits, which compare what all workers must share (workers/agreement.py)."""
    make = worker._make_tensor

    def quiet(elements: int, call: str, bits: int, partition: Partition | None) -> Tensor:
        tensor = make(elements, call, bits, partition)
        tensor.agreement.digits[:] = 0
        return tensor

    setattr(worker, "_make_tensor", quiet)  # noqa: B010


class Cluster(Fabric):
    """A fabric with one job; see Fabric.start."""

    def __init__(
        self,
        spec: ClusterSpec,
        switch: Engine,
        inputs: Sequence[Sequence[Vector]],
        starts: Sequence[float] | None = None,
        make_worker: MakeWorker = Worker,
        observer: Observer | None = None,
        *,
        make_server: MakeServer | None = None,
        in_place: bool = False,
        planner: Planner = OURS,
        make_network: MakeNetwork = VirtualNetwork,
    ) -> None:
        super().__init__(
            spec.topology,
            switch,
            host=spec.host,
            seed=spec.seed,
            observer=observer,
            planner=planner,
            make_network=make_network,
            priorities=spec.priorities,
            payload=spec.payload,
            reconfiguration=spec.reconfiguration,
            loopback=spec.loopback,
        )
        self.spec = spec
        self._job = self.start(
            spec, inputs, starts, make_worker=make_worker, make_server=make_server, in_place=in_place
        )

    def run(self, limit: float) -> bool:
        """Run until every worker of the job has all its sums; return False if `limit` (seconds) comes first."""
        return self.run_job(self._job, limit)

    @property
    def job(self) -> Job:
        """Return the job with which the cluster began."""
        return self._job

    @property
    def members(self) -> tuple[str, ...]:
        """Return the names of the job's hosts, by rank."""
        return self._job.members

    @property
    def stations(self) -> list[WorkerStation[Any]]:
        """Return the stations of the job's hosts, by rank."""
        return self._job.stations
