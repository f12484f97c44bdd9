"""Jobs that wait in turn for their hosts and for a place in the controller's budget, and return both."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fanin.controller.jobs.budget import Budget, NoRoomError, SlotAllocation
from fanin.native.text import counted
from fanin.simulator.fabric import Job


@dataclass(frozen=True, slots=True)
class _Waiting:
    hosts: Sequence[str]
    slots: int
    begin: Callable[[SlotAllocation], Job]


class Queue:
    """A queue without overtaking, as in controller/jobs/lifecycle.py. A host runs one worker at a time."""

    def __init__(self, budget: Budget) -> None:
        self.running: dict[Job, SlotAllocation] = {}
        self.waited = 0  # jobs that could not begin at once
        self._budget = budget
        self._waiting: deque[_Waiting] = deque()

    def join(self, hosts: Sequence[str], slots: int, begin: Callable[[SlotAllocation], Job]) -> None:
        """Add a job; `begin` is called once there is a place for it, possibly immediately."""
        waiting = _Waiting(hosts, slots, begin)
        self._waiting.append(waiting)
        self.grant()
        self.waited += waiting in self._waiting

    def lose_slots(self, job: Job) -> None:
        """Return the slots of a job whose lease is revoked; its workers continue on their hosts without it."""
        if job in self.running:
            self._budget.give_back_slots(self.running[job])
            self.grant()

    def leave(self, job: Job) -> None:
        """Return everything of a job whose lease is revoked and whose workers have ended."""
        self._budget.give_back(self.running.pop(job))

    def grant(self) -> None:
        """Begin the jobs for which there is room."""
        while self._waiting:
            first = self._waiting[0]
            busy = {host for job in self.running for host in job.members}
            if busy & set(first.hosts):
                return
            try:
                place = self._budget.take(first.hosts, first.slots)
            except NoRoomError:
                return
            self._waiting.popleft()
            self.running[first.begin(place)] = place

    def left_behind(self, switches: Sequence[str]) -> list[str]:
        """Describe slots that are still in use at one of the switches."""
        held = {name: self._budget.held(name) for name in switches}
        return [f"{name} did not get back {counted(slots, 'slot')}" for name, slots in held.items() if slots]
