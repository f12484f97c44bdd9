"""Jobs that wait in turn for their hosts and for a place in the controller's budget, and give both back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fanin.controller.jobs.budget import Budget, NoRoomError, SlotAllocation
from fanin.simulator.fabric import Job


@dataclass(frozen=True, slots=True)
class _Waiting:
    hosts: Sequence[str]
    slots: int
    begin: Callable[[SlotAllocation], Job]


class Queue:
    """As controller/jobs/lifecycle.py has it: nobody overtakes. A host has one worker at a time, of a job that runs."""

    def __init__(self, budget: Budget) -> None:
        self.running: dict[Job, SlotAllocation] = {}
        self.waited = 0  # jobs that could not begin at once
        self._budget = budget
        self._waiting: deque[_Waiting] = deque()

    def join(self, hosts: Sequence[str], slots: int, begin: Callable[[SlotAllocation], Job]) -> None:
        """A job comes; `begin` is called once there is a place for it, maybe at once."""
        waiting = _Waiting(hosts, slots, begin)
        self._waiting.append(waiting)
        self.grant()
        self.waited += waiting in self._waiting

    def lose_slots(self, job: Job) -> None:
        """Its lease is withdrawn; its workers go on without, on their hosts."""
        if job in self.running:
            self._budget.give_back_slots(self.running[job])
            self.grant()

    def leave(self, job: Job) -> None:
        """Its lease is withdrawn and its workers have ended."""
        self._budget.give_back(self.running.pop(job))

    def grant(self) -> None:
        """Let those begin for which there is room."""
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
        """Slots that are still in use at one of them."""
        held = {name: self._budget.held(name) for name in switches}
        return [f"{slots} slots of {name} were not given back" for name, slots in held.items() if slots]
