"""Keeps a running network in order: restarts switches that have ended, and restores what they have lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

from fanin.controller.controller import Loss
from fanin.controller.errors import ControllerError
from fanin.controller.jobs.lifecycle import Jobs
from fanin.controller.tree import Aggregator, rests_on
from fanin.testbed.control.controller_process import ControllerProcess
from fanin.testbed.mininet_net import MininetNetwork
from fanin.testbed.network_jobs import NetworkJobs
from fanin.topologies.model import Link

_LOOK_SECONDS = 0.25  # between checks of processes and sessions
_READ_SECONDS = 2.0  # between checks of all tables,
_READ_SHARE = 0.02  # or longer, so that reading them takes no more than this share of the time,
_MAX_READ_SECONDS = 30.0  # but at most this, in case a switch does not answer


class Watch:
    """Watches `network`, its `controller` and its `jobs`. Calls `report` with what was found and done."""

    def __init__(
        self,
        network: MininetNetwork,
        controller: ControllerProcess,
        networked: NetworkJobs,
        jobs: Jobs,
        report: Callable[[str], None],
    ) -> None:
        self._network = network
        self._controller = controller
        self._networked = networked
        self._jobs = jobs
        self._report = report
        self._taken_over: Mapping[str, int] = {}
        self._trouble = ""
        self._down: tuple[Link, ...] = ()
        self._lost: Mapping[str, str] = {}
        self._blind = ""  # why the links could not be checked the last time

    async def run(self, beside: Callable[[], None] | None = None) -> None:
        """Watch indefinitely.

        Args:
            beside: Called each time the network is checked, until it fails.

        Raises:
            NetworkError: A switch or the controller ends repeatedly.
        """
        looking = asyncio.create_task(self._look_on(beside))
        try:
            # This must not wait for `looking`, which may wait for a switch that has ended and is only restarted here.
            while not looking.done():
                for ended in self._network.start_again():
                    self._report(f"{ended}\nit is started again")
                lost = self._network.lost_hosts()
                for host in lost.keys() - self._lost.keys():
                    self._report(lost[host])
                self._lost = lost
                await asyncio.wait([looking], timeout=_LOOK_SECONDS)
        finally:
            looking.cancel()
            await asyncio.wait([looking])
        await looking

    async def _look_on(self, beside: Callable[[], None] | None) -> None:
        next_read = 0.0
        while True:
            await self._look_at_links()
            begun = time.monotonic()
            await self._look(read_tables=begun >= next_read)
            if begun >= next_read:
                share = (time.monotonic() - begun) / _READ_SHARE
                next_read = begun + min(max(_READ_SECONDS, share), _MAX_READ_SECONDS)
            if beside is not None:
                try:
                    beside()
                except Exception as error:  # must not end the supervision
                    self._report(f"waiting workers are no longer logged: {error!r}")
                    beside = None
            await asyncio.sleep(_LOOK_SECONDS)

    async def _look_at_links(self) -> None:
        known = self._down
        try:
            down = self._network.links_down()
        except OSError as error:  # this says nothing about the links
            if self._blind != (why := f"cannot determine whether links are up: {error}"):
                self._report(why)
            self._blind = why
            down = known
        else:
            self._blind = ""
        if down != self._down:
            for what, links in (
                ("is down", set(down) - set(self._down)),
                ("is up again", set(self._down) - set(down)),
            ):
                for link in links:
                    self._report(f"{_name(link)} {what}")
            usable = self._network.topology.without([link for link in down if link.a.port])
            self._networked.reroute(usable)
            try:
                await self._controller.reroute(usable)
            except ControllerError as error:
                self._report(f"not all switches have received their new routes: {error}")
            self._down = down
        for job in self._jobs.documents():
            nodes = {*job["hosts"], *job["switches"]}
            broken = [link for link in down if {link.a.node, link.b.node} <= nodes]
            if broken and job["state"] == "in network" and job["switches"]:
                # If a tree uses a link that was known to be down, or a host's link, another tree would, too.
                for_good = any(link in known or not link.a.port for link in broken)
                await self._end_lease(job, f"{_name(broken[0])} is down", for_good=for_good)

    async def _look(self, *, read_tables: bool) -> None:
        try:
            found = await self._controller.tend(read_tables=read_tables)
        except ControllerError as error:
            if str(error) != self._trouble:
                self._report(str(error))
            self._trouble = str(error)
            return
        for switch in found.taken_over.keys() - self._taken_over.keys():
            self._report(
                f"{switch} obeys another P4Runtime client now, with election id {found.taken_over[switch]}; it gets "
                "no leases from here until that client has gone"
            )
        self._taken_over = found.taken_over
        if found.trouble and found.trouble != self._trouble:
            self._report(f"not all switches hold what they should: {found.trouble}")
        self._trouble = found.trouble
        for loss in found.losses:
            self._report(f"{loss}; all entries are installed again")
            if loss.emptied:
                await self._hand_over(loss)

    async def _hand_over(self, loss: Loss) -> None:
        """End the leases of jobs whose results a switch has lost.

        Some workers may have such a result, and the others can never get it.
        """
        for job in self._jobs.documents():
            tree = [Aggregator(**part) for part in job["tree"]]
            if job["state"] == "in network" and job["ring"] and rests_on(tree, loss.switch):
                await self._end_lease(
                    job, f"{loss.switch}, which adds up for it, has restarted", for_good=False
                )

    async def _end_lease(self, job: Mapping[str, Any], why: str, *, for_good: bool) -> None:
        try:
            await self._jobs.end_lease(job["lease"], why, for_good=for_good)
        except ControllerError as error:
            self._report(f"the lease of {job['name']} is not withdrawn yet: {error}")


def _name(link: Link) -> str:
    return f"the link between {link.a.node} and {link.b.node}"
