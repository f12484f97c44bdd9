"""One lease after another over the same slots, among packets of earlier leases, none of which may be admitted.

python -m fanin.assurance.soak.leases --leases 1000000

takes a lease, sums a vector, and returns the lease, repeatedly, without reloading the program while unused numbers
remain (docs/reference/protocol.md, Leases).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray

from fanin.assurance.soak.hosts import SoakHost
from fanin.controller.jobs.ledger import CHUNKS, LEASES, NumberSpace
from fanin.controller.telemetry import Event, Reason
from fanin.p4switch.engine.engine import Engine
from fanin.simulator import SECOND
from fanin.simulator.fabric import Fabric, load_switch
from fanin.simulator.hosts.stations import Frames, WorkerStation
from fanin.simulator.job_spec import JobSpec
from fanin.topologies.model import Topology
from fanin.topologies.shapes import leaf_spine

VALUES, WINDOW = 64, 4
SLOTS = 1024
REMEMBERED = 64  # frames kept for each host: so many of the latest leases, and as many of all leases
LIMIT = 1.0  # seconds of virtual time for an all-reduce
# Drops of a packet of an earlier lease: another id is not admitted, another range of the same id is refused.
_OLD = (Reason.NOT_ADMITTED, Reason.BAD_CHUNK, Reason.BAD_SLOT)


class _Old(NamedTuple):
    lease: int  # how many there were before
    frame: NDArray[np.uint8]


class Past:
    """Packets of earlier leases at one host, in both directions. Some are replayed with each batch.

    Args:
        seed: Seed of the draws.
        until: A packet is replayed until so many leases later.

    Attributes:
        replayed: Number of packets replayed to switches.
    """

    def __init__(self, seed: list[int], until: int) -> None:
        self.replayed = 0
        self._draw = np.random.Generator(np.random.PCG64(seed))
        self._until = until
        self._lease = 0
        self._latest: tuple[deque[_Old], deque[_Old]] = (deque(maxlen=REMEMBERED), deque(maxlen=REMEMBERED))
        self._all: tuple[list[_Old], list[_Old]] = ([], [])

    def begin(self, lease: int) -> None:
        """Begin the next lease. All packets so far belong to earlier ones."""
        self._lease = lease

    def out_of(self, batches: list[Frames]) -> list[Frames]:
        """Return packets to send additionally."""
        old = self._replay(0, batches)
        self.replayed += len(old)
        return old

    def into(self, frames: Frames) -> list[Frames]:
        """Return packets to receive additionally."""
        return self._replay(1, [frames])

    def _replay(self, direction: int, batches: Iterable[Frames]) -> list[Frames]:
        found = []
        for frames in batches:
            memory = (self._latest, self._all)[self._draw.integers(2)][direction]
            if memory:
                old = memory[self._draw.integers(len(memory))]
                if 0 < self._lease - old.lease < self._until:
                    found.append(old.frame[np.newaxis].copy())
            self._remember(direction, frames)
        return found

    def _remember(self, direction: int, frames: Frames) -> None:
        """Keep one of the frames. Each lease is equally likely to be among all that are kept."""
        old = _Old(self._lease, frames[self._draw.integers(len(frames))].copy())
        self._latest[direction].append(old)
        kept = self._all[direction]
        if len(kept) < REMEMBERED:
            kept.append(old)
        elif (place := self._draw.integers(self._lease + 1)) < REMEMBERED:
            kept[place] = old


class WrongSumError(AssertionError):
    """A packet of an earlier lease was added up, or taken for a result."""


@dataclass(slots=True)
class Count:
    """Counts of a succession of leases.

    Attributes:
        leases: Number of leases.
        replayed: Packets of earlier leases that were sent to switches.
        rounds: How often all numbers were used.
    """

    leases: int = 0
    replayed: int = 0
    rounds: int = 1


class Succession(Fabric):
    """Leases of `chunks` numbers each, one after the other, on all hosts of a network.

    Args:
        topology: The network.
        switch: A switch that has the program.
        chunks: Chunk numbers of each lease.
        seed: Seed of the draws.
        replayed_for: Packets are replayed until so many leases later. None: until their numbers are reused.
    """

    def __init__(
        self, topology: Topology, switch: Engine, chunks: int, seed: int = 0, replayed_for: int | None = None
    ) -> None:
        super().__init__(topology, switch, seed=seed, numbers=NumberSpace())
        self.count = Count()
        self._chunks = chunks
        self._draw = np.random.Generator(np.random.PCG64([seed, 0]))
        until = replayed_for or LEASES * (CHUNKS // chunks)
        self._pasts = {host.name: Past([seed, 1 + i], until) for i, host in enumerate(topology.hosts)}
        self._hosts: list[SoakHost] = []
        self._added = 0

    def place(self, host: str, station: WorkerStation[Any], start: float) -> None:
        """Run a station on a host, with packets of earlier leases; see Fabric."""
        soaked = SoakHost(station, self._pasts[host])
        self._hosts.append(soaked)
        self.network.replace_station(host, soaked, start)

    def empty_cells(self) -> None:
        """See Fabric."""
        super().empty_cells()
        self.count.rounds += 1

    def next(self) -> None:
        """Take a lease, sum integers, and return the lease.

        Raises:
            WrongSumError: Some worker has another sum, or none.
        """
        self.count.leases += 1
        for past in self._pasts.values():
            past.begin(self.count.leases)
        # Slots in turn, so that a cell keeps its contents until its slot is reused.
        first_slot = WINDOW * self.count.leases % SLOTS
        spec = JobSpec(window=WINDOW, values=VALUES, chunks=self._chunks, first_slot=first_slot)
        chunks = int(self._draw.choice([1, 1, 1, WINDOW + 2]))
        # Small enough that quantization changes none.
        shape = (len(self._pasts), VALUES * chunks)
        inputs = self._draw.integers(-1000, 1000, shape).astype(np.float32)
        job = self.start(spec, [list(inputs)])
        hosts, self._hosts = self._hosts, []
        limit = self.network.now / SECOND + LIMIT
        if not self.network.run(lambda: all(host.done for host in hosts), limit):
            raise WrongSumError(f"lease {self.count.leases}: not finished after {LIMIT:g} s")
        for rank, host in enumerate(hosts):
            if host.error or not np.array_equal(host.station.outputs[0], inputs.sum(axis=0)):
                raise WrongSumError(f"lease {self.count.leases}, rank {rank}: {host.error or 'a wrong sum'}")
        # The first packets of a vector carry only exponents.
        self._added += job.contributions * (chunks + min(chunks, WINDOW))
        job.end()
        self.jobs.clear()

    def check(self) -> None:
        """Check that switches have added up the jobs' contributions, refused everything else, and hold nothing more.

        Raises:
            WrongSumError: They have not.
        """
        self.count.replayed = sum(past.replayed for past in self._pasts.values())
        events, drops = self.events(), self.drops()
        if (added := events[Event.NEW_CHUNK] + events[Event.ADDED]) != self._added:
            raise WrongSumError(
                f"switches added {added} contributions up, of {self._added} that the jobs have"
            )
        if (refused := sum(drops[reason] for reason in _OLD)) != self.count.replayed:
            raise WrongSumError(
                f"switches refused {refused} packets, of {self.count.replayed} of earlier leases"
            )
        for problem in self.left_behind():
            raise WrongSumError(problem)


def main(leases: int = 1_000_000, log2_chunks: int = 20, racks: int = 1, seed: int = 0) -> None:
    """Run so many leases of 2^log2_chunks chunk numbers each, on two workers in each rack."""
    network = leaf_spine(spines=int(racks > 1), leaves=racks, hosts_per_leaf=2)
    succession = Succession(network, load_switch(), 2**log2_chunks, seed)
    for number in range(1, leases + 1):
        succession.next()
        if number == leases or number % 10_000 == 0:
            succession.check()
            count = succession.count
            typer.echo(
                f"{count.leases:,} leases, {count.replayed:,} old packets, {count.rounds - 1} new rounds"
            )


if __name__ == "__main__":
    typer.run(main)
