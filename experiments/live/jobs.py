"""Grants for those who join a network that is up: a lease for each job, and slots and a UDP port of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from controller.controller import Controller, Grant
from controller.errors import ControllerError
from controller.tree import FIRST_UDP_PORT, LAST_UDP_PORT, SLOTS
from experiments.live.work import Pace
from topologies.model import Topology
from workers import Recovery


class NetworkJobs:
    """The jobs on a network whose workers send at `pace`, each with a window of slots that no other job has."""

    def __init__(self, controller: Controller, topology: Topology, pace: Pace) -> None:
        self._controller = controller
        self._topology = topology
        self._pace = pace
        self._free = list(range(min(SLOTS // pace.window, LAST_UDP_PORT - FIRST_UDP_PORT + 1)))

    async def grant(self, hosts: tuple[str, ...]) -> NetworkJob:
        """A job of `hosts`, by rank.

        Raises:
            ControllerError: there is no room, or a switch refuses.
        """
        if not self._free:
            raise ControllerError("all slots are in use; wait until another job has ended")
        place = self._free.pop(0)
        window = self._pace.window
        try:
            grant = await self._controller.grant(hosts, FIRST_UDP_PORT + place, place * window, window)
        except BaseException:
            self.release(place)
            raise
        return NetworkJob(self, grant, place, self._topology, self._pace)

    def release(self, place: int) -> None:
        """For another job."""
        self._free = sorted([*self._free, place])


@dataclass(frozen=True, slots=True)
class NetworkJob:
    """One of them, from its grant on."""

    jobs: NetworkJobs
    granted: Grant
    place: int
    topology: Topology
    pace: Pace

    def assignment(self, name: str) -> Mapping[str, Any]:
        """What makes the InNetworkConfig of the worker on the host `name`, and where each rank listens for the others.

        The TCP ports have the number of the job's UDP port, which no other job has.
        """
        job, pace = self.granted.tree.job, self.pace
        host = self.topology.host(name)
        recovery = Recovery(initial_rto=pace.initial_rto, min_rto=pace.min_rto, granularity=pace.granularity)
        return {
            "lease": asdict(job.lease_of(name)),
            "local": (str(host.ip), job.udp_port),
            "remote": (str(host.gateway), job.udp_port),
            "segments": pace.segments,
            "offload": pace.offload,
            "recovery": asdict(recovery),
            "addresses": [(str(self.topology.host(each).ip), job.udp_port) for each in job.hosts],
        }

    async def withdraw(self) -> None:
        """Its place is free then. After an error, whoever gets it next has the controller try again."""
        self.jobs.release(self.place)
        await self.granted.withdraw()
