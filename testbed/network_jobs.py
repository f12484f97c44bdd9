"""Jobs on a running network: each gets a lease, its own slots and ports, and the settings to use them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from fanin.controller.jobs.budget import Budget, SlotAllocation
from fanin.controller.jobs.lifecycle import JobRequest
from fanin.controller.planner import Planner
from fanin.controller.tree import Tree
from fanin.topologies.model import Topology
from fanin.workers import Recovery
from fanin.workers.recovery import Pace

_LEAST_SHARE = 32  # slots of a job that asks for a share of the free ones: with fewer, links idle
_FIRST_TCP_PORT = 28500  # below torchrun's ports, and below those that the kernel gives to connections


class GrantedLease(Protocol):
    """A lease."""

    @property
    def tree(self) -> Tree:
        """Return the aggregation tree of the job that has it."""

    async def withdraw(self) -> None:
        """Revoke it; see controller.Grant."""


class Leases(Protocol):
    """Grants leases: a controller, or one in a process of its own."""

    planner: Planner

    async def grant(self, hosts: Sequence[str], udp_port: int, base: int, slots: int) -> GrantedLease:
        """Grant a lease; see controller.Controller."""


class NetworkJobs:
    """The jobs on a network whose workers send at `pace`, each with slots that no other job has.

    Args:
        controller: Grants leases.
        topology: The network.
        pace: How workers send.
        worker: A Python file with the workers of the network's protocol; None: fanin's own.
    """

    def __init__(
        self, controller: Leases, topology: Topology, pace: Pace, worker: Path | None = None
    ) -> None:
        self.worker = worker
        self.controller = controller
        self.topology = topology
        self.pace = pace
        self.budget = Budget(topology, controller.planner)
        self._numbers: set[int] = set()

    def reroute(self, usable: Topology) -> None:
        """Give jobs trees of this network's links from now on."""
        self.budget.network = usable

    def open(self, request: JobRequest) -> NetworkJob:
        """Return a new job, which has no lease yet."""
        number = next(number for number in range(len(self._numbers) + 1) if number not in self._numbers)
        self._numbers.add(number)
        return NetworkJob(self, request, number)

    def close(self, number: int) -> None:
        """Free the number of a job for another."""
        self._numbers.remove(number)


class NetworkJob:
    """A job of NetworkJobs. Until it is closed, no other has its `number` or, once granted, its UDP port."""

    def __init__(self, jobs: NetworkJobs, request: JobRequest, number: int) -> None:
        self._jobs = jobs
        self._request = request
        self._number = number
        self._place: SlotAllocation | None = None
        self.granted: GrantedLease | None = None

    async def grant(self) -> None:
        """Get a lease with as many slots as requested, or as suit the network's pace.

        If it requests a share of the free slots, it gets no more than that, but 32 even if its share is smaller.

        Raises:
            NoRoomError: Other jobs have the slots.
            ControllerError: The job cannot be placed, or a switch refuses.
        """
        jobs, hosts = self._jobs, self._request.hosts
        slots = self._slots()
        place = jobs.budget.take(hosts, slots)
        try:
            self.granted = await jobs.controller.grant(hosts, place.job.udp_port, place.job.base, slots)
        except BaseException:
            jobs.budget.give_back(place)
            raise
        self._place = place

    def _slots(self) -> int:
        if self._request.slots is not None:
            return self._request.slots
        window, share = self._jobs.pace.window, self._request.slot_share
        if share is None:
            return window
        return min(window, max(_LEAST_SHARE, self._jobs.budget.most(self._request.hosts) // share))

    def assignment(self, name: str) -> Mapping[str, Any]:
        """Return the rank of the worker on the host `name`, the addresses of all ranks, and its InNetworkConfig."""
        topology, hosts = self._jobs.topology, self._request.hosts
        port = _FIRST_TCP_PORT + self._number
        addresses = [(str(topology.host(each).ip), port) for each in hosts]
        return {"rank": hosts.index(name), "addresses": addresses, "config": self._config(name)}

    def _config(self, name: str) -> Mapping[str, Any] | None:
        if self.granted is None:
            return None
        job, pace = self.granted.tree.job, self._jobs.pace
        host = self._jobs.topology.host(name)
        recovery = Recovery(initial_rto=pace.initial_rto, min_rto=pace.min_rto, granularity=pace.granularity)
        return {
            "lease": asdict(job.lease_of(job.hosts.index(name))),
            "local": (str(host.ip), job.udp_port),
            "remote": (str(host.gateway), job.udp_port),
            "segments": pace.segments,
            "offload": pace.offload,
            "growth": pace.growth,
            "recovery": asdict(recovery),
            "worker": None if self._jobs.worker is None else str(self._jobs.worker),
        }

    def lease(self) -> Mapping[str, Any]:
        """Return the lease's number, slots, UDP port and switches, also as a tree; null without a lease."""
        if self.granted is None:
            return {"lease": None, "slots": None, "udp_port": None, "switches": [], "tree": []}
        tree = self.granted.tree
        job = tree.job
        return {
            "lease": job.lease,
            "slots": [job.base, job.base + job.slots - 1],
            "udp_port": job.udp_port,
            "switches": [part.switch for part in tree.aggregators],
            "tree": [asdict(part) for part in tree.aggregators],
        }

    async def withdraw(self) -> None:
        """Revoke the lease and free its slots.

        If that fails, the controller tries again when another job gets the slots.
        """
        if self.granted is None:
            return
        assert self._place is not None
        granted, self.granted = self.granted, None
        self._jobs.budget.give_back_slots(self._place)
        await granted.withdraw()

    def close(self) -> None:
        """Free its ports."""
        if self._place is not None:
            self._jobs.budget.give_back(self._place)
        self._jobs.close(self._number)
