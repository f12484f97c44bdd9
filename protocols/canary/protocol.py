"""Canary (De Sensi et al., 2024): README.md specifies it, and what differs from the paper."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fanin.controller import plan, tree
from fanin.controller.errors import ControllerError
from fanin.controller.network import Host, Network, Switch
from fanin.controller.plan import MulticastGroup, Plan, SwitchPlan, TableEntry, Value
from fanin.controller.routes import Routes
from fanin.controller.tree import Aggregator, Job, Tree
from fanin.topologies.model import LOOPBACK_IN
from fanin.workers import wire
from fanin.workers.lease import Lease
from fanin.workers.recovery import Recovery
from fanin.workers.slotted import Chunks, Datagrams, FixedPointWorker
from fanin.workers.values import fixed_point

MOST_WORKERS = 32  # a packet has a bit for each
MOST_PORTS = 32  # a switch has a bit for each, from port 1 on
HOLD = {"virtual": 5e-6, "live": 2e-3}  # seconds for which a switch holds a chunk
SLACK = 140_000  # bytes that may wait at the usual port before a packet takes a less busy one
_LOOP = 0  # the member that is the loopback port
_EVERY_RANK = 2**32 - 1

# -- the worker ------------------------------------------------------------------------------------------------------


class CanaryWorker(FixedPointWorker):
    """A worker that also leads every n-th chunk: it completes these sums, and sends their results."""

    def __init__(self, lease: Lease, recovery: Recovery) -> None:
        super().__init__(lease, recovery)
        self._everyone = (1 << lease.workers) - 1
        # The chunks that it leads, by chunk modulo 2W: a packet of chunk k + 2W shows that all have the result of k.
        rows = 2 * lease.window
        self._led = np.full(rows, -1, np.int64)
        self._ranks = np.zeros(rows, np.int64)  # workers whose values are in the sum
        self._sums = np.zeros((rows, lease.values), np.int32)
        self._complete: list[Chunks] = []  # results to send

    def datagrams_to_send(self, now: float) -> Sequence[Datagrams]:
        """Return results of chunks that this worker completed, and its values of all others; see Participant.

        Raises:
            StallError: If nothing new has arrived for too long.
        """
        chunks = self.due(now)
        rows = chunks % len(self._led)
        complete = (self._led[rows] == chunks) & (self._ranks[rows] == self._everyone)
        results = np.unique(np.concatenate([chunks[complete], *self._complete]))
        self._complete = []
        others = chunks[~complete]
        again = self._times_sent[others % self.lease.window] > 1
        packets = self.packets(others, self._integers[others - self._first])
        packets["call"], packets["e0"] = 1 << self.lease.rank, again
        batches = self.packets(results, self._sums[results % len(self._led)], wire.RESULT), packets
        return [self.sent(wire.as_datagrams(each)) for each in batches if len(each)]

    def packets(
        self, chunks: Chunks, values: NDArray[np.int32], message: int = wire.UPDATE
    ) -> NDArray[np.void]:
        """Return the packets of chunks [m], with the ranks of their leaders."""
        packets = super().packets(chunks, values, message)
        packets["e1"] = chunks % self.lease.workers
        return packets

    def _leads(self, chunks: Chunks) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = chunks % self.lease.workers == self.lease.rank
        return found

    def receive(self, datagrams: Datagrams, now: float) -> None:
        """Process datagrams that have arrived: parts of sums that this worker leads, and results; see Participant."""
        if datagrams.shape[1] == self._layout.itemsize:
            packets = wire.as_packets(np.ascontiguousarray(datagrams))
            chunks = packets["tsi"].astype(np.int64)
            parts = packets["kind"] == wire.kind(wire.UPDATE, self.lease.values)
            parts &= (packets["lease"] == self.lease.id) & self._leads(chunks)
            # An earlier lease with this number may have had higher chunk numbers.
            parts &= (chunks >= self.lease.first_chunk) & (chunks <= self.lease.last_chunk)
            if parts.any():
                self.statistics.datagrams_received += int(parts.sum())
                self.statistics.bytes_received += int(parts.sum()) * self._layout.itemsize
                self._add(chunks[parts], packets["call"][parts].astype(np.int64), packets["values"][parts])
                datagrams = datagrams[~parts]
        if len(datagrams):
            super().receive(datagrams, now)

    def _add(self, chunks: Chunks, ranks: NDArray[np.int64], values: NDArray[np.int32]) -> None:
        """Add parts [m] of sums, each with a bit for each of its workers, and values [m, elements]."""
        # Those of different chunks are independent, and those of one chunk come in turn.
        left = np.arange(len(chunks))
        while len(left):
            _, first = np.unique(chunks[left], return_index=True)
            self._add_each(chunks[left[first]], ranks[left[first]], values[left[first]])
            left = np.delete(left, first)

    def _add_each(self, chunks: Chunks, ranks: NDArray[np.int64], values: NDArray[np.int32]) -> None:
        """Add parts of different chunks. A part with workers whose values are there already is ignored."""
        rows = chunks % len(self._led)
        begins = self._led[rows] < chunks
        self._led[rows[begins]] = chunks[begins]
        self._ranks[rows[begins]] = 0
        self._sums[rows[begins]] = 0
        adds = (self._led[rows] == chunks) & (self._ranks[rows] & ranks == 0)
        self._sums[rows[adds]] += values[adds]
        self._ranks[rows[adds]] |= ranks[adds]
        self._complete.append(chunks[adds & (self._ranks[rows] == self._everyone)])


participant, packet = CanaryWorker, wire.full_packet


def loopback(world: str) -> float:
    """Return how long a packet takes through a loopback port, in seconds: the time for which a switch holds a chunk."""
    return HOLD[world]


# -- the plan --------------------------------------------------------------------------------------------------------


def plan_forwarding(network: Network) -> Plan:
    """Return fanin's entries, and the rates of all ports."""
    plans = plan.plan_forwarding(network)
    return {
        switch.name: plan.joined(
            [
                plans[switch.name],
                SwitchPlan(
                    tuple(
                        _entry(
                            "egress.leaving.rates",
                            {"standard_metadata.egress_port": port},
                            "occupy",
                            {"byte_time": _byte_time(rate)},
                        )
                        for port, neighbour in sorted(network.neighbours(switch.name).items())
                        if (rate := network.rate_towards(switch.name, neighbour)) is not None
                    )
                ),
            ]
        )
        for switch in network.switches
    }


def aggregation_tree(network: Network, job: Job) -> Tree:
    """Return fanin's tree of a job, with all other switches that its packets may cross in front, without children."""
    found = tree.aggregation_tree(network, job)
    there = {part.switch for part in found.aggregators}
    more = [name for name in _Ways(network, job).switches if name not in there]
    return Tree(job, (*(Aggregator(name, (), None) for name in more), *found.aggregators))


def plan_aggregation(network: Network, tree: Tree) -> Plan:
    """Return the entries of all switches that the job's packets may cross, and a group of all neighbours for each.

    Raises:
        ControllerError: If there are too many workers, or a switch has too many ports.
    """
    if len(tree.job.hosts) > MOST_WORKERS:
        raise ControllerError(
            f"a packet of canary has bits for {MOST_WORKERS} workers, not {len(tree.job.hosts)}"
        )
    ways = _Ways(network, tree.job)
    nodes: dict[str, Host | Switch] = {switch.name: switch for switch in network.switches}
    nodes |= {host.name: host for leaf in network.leaves for host in network.hosts_of(leaf.name)}
    return {name: _Part(network, nodes, ways, name).plan() for name in ways.switches}


class _Ways:
    """The shortest paths from a job's hosts to each of them."""

    def __init__(self, network: Network, job: Job) -> None:
        self.network, self.job, self.routes = network, job, Routes(network)
        leaf_of = {host.name: leaf.name for leaf in network.leaves for host in network.hosts_of(leaf.name)}
        if unknown := sorted(set(job.hosts) - set(leaf_of)):
            raise ControllerError(f"no host is called {', '.join(unknown)}")
        self.leaves = [leaf_of[host] for host in job.hosts]  # by rank

        # By switch and leaf: the workers whose packets to the leaf may cross the switch, as bits by rank, and how many
        # links these cross before at most.
        self.workers: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.depth: defaultdict[tuple[str, str], int] = defaultdict(int)
        for rank, start in enumerate(self.leaves):
            for leaf in dict.fromkeys(self.leaves):
                edge, links = [start], 0
                while edge:
                    links += 1
                    for name in edge:
                        self.workers[name, leaf] |= 1 << rank
                        self.depth[name, leaf] = max(self.depth[name, leaf], links)
                    hops = (hop for name in edge for hop in self.routes.next_hops(name, leaf))
                    edge = list(dict.fromkeys(hops))

    @cached_property
    def switches(self) -> Sequence[str]:
        """Return all switches that packets may cross, in the network's order."""
        crossed = {name for name, _ in self.workers}
        return [switch.name for switch in self.network.switches if switch.name in crossed]


@dataclass(frozen=True)
class _Part:
    """One switch's part in a job."""

    network: Network
    nodes: Mapping[str, Host | Switch]
    ways: _Ways
    name: str

    def plan(self) -> SwitchPlan:
        """Return its entries and its multicast group."""
        around = {
            port: node
            for port, node in sorted(self.network.neighbours(self.name).items())
            if node in self.ways.job.hosts or node in self.ways.switches
        }
        if around and max(around) > MOST_PORTS:
            raise ControllerError(
                f"{self.name}: canary has bits for the ports 1 to {MOST_PORTS} of a switch, and the job needs port "
                f"{max(around)}; use switches with fewer ports"
            )
        group = MulticastGroup(self.ways.job.lease, tuple((port, port) for port in around))
        return SwitchPlan((*self._receivers(around), *self._leaders(), *self._admissions(around)), (group,))

    def _receivers(self, around: Mapping[int, str]) -> Iterable[TableEntry]:
        own, job = self.nodes[self.name], self.ways.job
        for member, receiver in ((_LOOP, own), *((port, self.nodes[name]) for port, name in around.items())):
            addresses: dict[str, Value] = {
                "source_mac": own.mac,
                "source": own.ip,
                "source_port": job.udp_port,
                "destination_mac": receiver.mac,
                "destination": receiver.ip,
                "destination_port": job.udp_port,
            }
            match: dict[str, Value] = {"hdr.switchml.lease": job.lease, "meta.member": member}
            yield _entry("egress.receivers", match, "send_to", addresses)

    def _leaders(self) -> Iterable[TableEntry]:
        """Yield the paths to each leader. Paths that several leaders have in common are there once."""
        routes, job, ways = self.ways.routes, self.ways.job, self.ways
        bases: dict[tuple[str, ...], int] = {}
        used = 0
        for rank, (host, leaf) in enumerate(zip(job.hosts, ways.leaves, strict=True)):
            workers = ways.workers.get((self.name, leaf), 0)
            here = leaf == self.name
            hops = (host,) if here else routes.next_hops(self.name, leaf)
            if not workers:
                continue
            # As for ordinary packets: each tier takes another digit of the hash (Routes.stride).
            stride = 1 if here else routes.stride(self.name, down=routes.goes_down(self.name, leaf))
            ports = [self.network.port_towards(self.name, hop) for hop in hops]
            rates = [self.network.rate_towards(self.name, hop) for hop in hops]
            if hops not in bases:
                bases[hops] = used
                for index in range(stride * len(hops)):
                    match: dict[str, Value] = {"hdr.switchml.lease": job.lease, "path": used + index}
                    yield _aggregation("paths", match, "usual", {"port": ports[index // stride]})
                used += stride * len(hops)
            yield _aggregation(
                "leaders",
                {"hdr.switchml.lease": job.lease, "hdr.exponents.unused": rank},
                "towards",
                {
                    "base": bases[hops],
                    "count": stride * len(hops),
                    "ports": sum(1 << (port - 1) for port in ports),
                    "tolerance": max(_byte_time(rate) for rate in rates) * SLACK >> 16,
                    "workers": workers,
                    "port": ports[0] if here else 0,
                    "passes": ways.depth[self.name, leaf],
                },
            )

    def _admissions(self, around: Mapping[int, str]) -> Iterable[TableEntry]:
        own, job = self.nodes[self.name], self.ways.job
        senders = [(port, self.nodes[name], 1 << (port - 1)) for port, name in around.items()]
        for port, sender, bit in (*senders, (LOOPBACK_IN, own, 0)):
            match: dict[str, Value] = {
                "standard_metadata.ingress_port": port,
                "hdr.ipv4.source": sender.ip,
                "hdr.ipv4.destination": own.ip,
                "hdr.udp.source_port": job.udp_port,
                "hdr.switchml.lease": job.lease,
            }
            of_host = sender.name in job.hosts
            params: dict[str, Value] = {
                "member_bit": bit,
                "below": 1 << job.hosts.index(sender.name) if of_host else _EVERY_RANK,
                "base": job.base,
                "slots": job.slots,
                "first_chunk": job.first_chunk,
                "last_chunk": job.last_chunk,
                "checksums": int(job.checksums),
                "group": job.lease,
                "loopback": int(port == LOOPBACK_IN),
            }
            yield _aggregation("admission", match, "admit", params)


def _byte_time(rate: int | None) -> int:
    """Return the time of a byte on a link of `rate` bits per second, in 2^-32 us; 0 if it is unlimited."""
    return 0 if rate is None else round(8_000_000 * 2**32 / rate)


def _aggregation(
    table: str, match: Mapping[str, Value], action: str, params: Mapping[str, Value]
) -> TableEntry:
    return _entry(f"ingress.aggregation.{table}", match, action, params)


def _entry(table: str, match: Mapping[str, Value], action: str, params: Mapping[str, Value]) -> TableEntry:
    return TableEntry(table, match, f"{table.rpartition('.')[0]}.{action}", params)


# -- the oracle ------------------------------------------------------------------------------------------------------


vector, error_bound = fixed_point.draw_vector, fixed_point.sum_bound


def survives() -> Iterable[str]:
    """Return the faults that soak may cause, in addition to loss."""
    return "duplication", "reordering", "corruption", "restarts", "new leases"


def invariants(run: Any) -> Iterable[str]:
    """Yield what is wrong: each worker takes each result once, and a switch adds a worker's values at most once."""
    most = 0
    for job in run.jobs:
        chunks = sum(-(-one.length // job.work.values) for one in job.expected)
        most += chunks * len(job.workers) * len(job.job.trees[0].aggregators)
        for rank, worker in enumerate(job.workers):
            if job.undisturbed and worker.statistics.accepted != chunks:
                yield f"job {job.number}, rank {rank}: {worker.statistics.accepted} results taken of {chunks}"
    if run.undisturbed and run.added > most:
        yield f"switches added {run.added} contributions, and the jobs have {most}"
