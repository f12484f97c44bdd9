"""Keeps a network that is up what it should be: switches that end are started again, and what they lose is put back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

from controller.controller import Controller, Loss
from controller.errors import ControllerError
from controller.jobs import Jobs
from topologies.mininet_net import MininetNetwork

_LOOK_SECONDS = 0.25  # between looks at processes and sessions
_READ_SECONDS = 2.0  # between looks at all tables,
_READ_SHARE = 0.02  # or more, so that reading them takes no more of the time than this


class Watch:
    """Of `network` and its `controller`, on which there are `jobs`. report: is told what was found and done."""

    def __init__(
        self, network: MininetNetwork, controller: Controller, jobs: Jobs, report: Callable[[str], None]
    ) -> None:
        self._network = network
        self._controller = controller
        self._jobs = jobs
        self._report = report
        self._taken_over: Mapping[str, int] = {}
        self._trouble = ""
        self._next_read = 0.0

    async def run(self) -> None:
        """For ever.

        Raises:
            NetworkError: a switch that ends again and again.
        """
        while True:
            for ended in self._network.start_again():
                self._report(f"{ended}\nit is started again")
            self._tell_who_took_over()
            if self._controller.lost() or time.monotonic() >= self._next_read:
                await self._mend()
            await asyncio.sleep(_LOOK_SECONDS)

    def _tell_who_took_over(self) -> None:
        taken_over = self._controller.taken_over()
        for switch in taken_over.keys() - self._taken_over.keys():
            self._report(
                f"{switch} obeys another P4Runtime client now, with election id {taken_over[switch]}; it gets no "
                "leases from here until that client has gone"
            )
        self._taken_over = taken_over

    async def _mend(self) -> None:
        begun = time.monotonic()
        trouble = ""
        try:
            await self._controller.mend()
        except ControllerError as error:
            trouble = str(error)
        if trouble and trouble != self._trouble:
            self._report(f"not all switches hold what they should: {trouble}")
        self._trouble = trouble
        for loss in self._controller.losses():
            self._report(f"{loss}; all entries are installed again")
            if loss.emptied:
                await self._hand_over(loss)
        took = time.monotonic() - begun
        self._next_read = begun + max(_READ_SECONDS, took / _READ_SHARE)

    async def _hand_over(self, loss: Loss) -> None:
        """Where the root has forgotten a result, some workers may have it and the others can never get it."""
        for job in self._jobs.documents():
            if job["state"] == "in network" and job["ring"] and job["switches"][-1] == loss.switch:
                try:
                    await self._jobs.revoke(
                        job["name"], f"{loss.switch}, the root of its tree, has restarted"
                    )
                except ControllerError as error:
                    self._report(f"the lease of {job['name']} is not withdrawn yet: {error}")
