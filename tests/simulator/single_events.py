"""Links with queues one instant after the other, as a model: what windows must give, too."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from dataclasses import dataclass, field

from fanin.simulator.links import PRIORITIES
from fanin.simulator.units import SECOND
from fanin.topologies.link import LinkProperties
from fanin.topologies.model import Topology
from tests.simulator.two_leaves import WAYS, Arrival, Frame, Outage, ports_for


@dataclass
class Queue:
    """The queue of one priority of a direction."""

    waiting: deque[tuple[int, Frame, Direction | None]] = field(default_factory=deque)
    own_until: int = 0  # when its latest frame is out
    paused: bool = False
    since: int = 0
    storming: bool = False
    held: int = 0
    told: bool = False


@dataclass
class Direction:
    """A direction of a link."""

    near: str
    far: str
    near_port: int
    far_port: int
    byte: int  # picoseconds
    queues: list[Queue]  # by priority
    busy_until: int = 0


class SingleEvents:
    """The same world, one instant after the other: pauses arrive, frames arrive, watchdogs look, frames begin to be
    sent, switches look at what they hold, and when a link is up again say so once more."""

    def __init__(
        self, topology: Topology, model: LinkProperties, *, priorities: bool, outage: Outage | None = None
    ) -> None:
        assert model.pause
        self.outage = outage
        self.model, self.pause = model, model.pause
        self.delay = round(model.virtual_delay * SECOND)
        self.directions = [
            Direction(
                *(near.node, far.node, near.port, far.port),
                8 * SECOND // (link.rate_bits_per_second or 0),
                [Queue() for _ in range(PRIORITIES if priorities else 1)],
            )
            for link in topology.links
            for near, far in ((link.a, link.b), (link.b, link.a))
        ]
        self.at = {(d.near, d.near_port): d for d in self.directions}
        self.arrivals: list[Arrival] = []
        self.drops = self.pauses = self.storms = self.given_up = self.lost = 0
        self.events: list[tuple[int, int, int, int, Frame | tuple[int, bool] | None]] = []
        self.number = itertools.count()

    def run(self, frames: list[Frame]) -> None:
        for frame in sorted(frames):
            sending = self.directions.index(self.at[f"h{frame.sender}", 0])
            self._later(frame.time, 2, sending, frame)
        for link, direction in enumerate(self.directions):
            if self.outage and self._goes_down(direction):
                for priority in range(len(direction.queues)):
                    self._later(self.outage.begin, 0, link, (priority, False))
                self._later(self.outage.end, 3, link, None)
        while self.events:
            now = self.events[0][0]
            while self.events and self.events[0][0] == now:
                _, kind, link, _, what = heapq.heappop(self.events)
                direction = self.directions[link]
                if kind == 0:
                    assert isinstance(what, tuple)
                    priority, wait = what
                    self._turn(now, link, direction.queues[priority], wait=wait)
                elif kind == 1:
                    assert isinstance(what, Frame)
                    self._arrive(now, direction, what)
                elif kind == 2:
                    assert isinstance(what, Frame)
                    direction.queues[self._priority(direction, what)].waiting.append((now, what, None))
            self._watch(now)
            for link, direction in enumerate(self.directions):
                self._begin(now, link, direction)
            for link, direction in enumerate(self.directions):
                for priority, queue in enumerate(direction.queues):
                    passed = queue.held > self.pause.xoff_bytes
                    turns = queue.held <= self.pause.xon_bytes if queue.told else passed
                    queue.told ^= turns
                    if turns or (queue.told and self._is_up_again(direction, now)):
                        self._say(now, link, priority, wait=queue.told)

    def _goes_down(self, direction: Direction) -> bool:
        return self.outage is not None and {*self.outage[:2]} == {direction.near, direction.far}

    def _is_up_again(self, direction: Direction, now: int) -> bool:
        return self.outage is not None and self._goes_down(direction) and now == self.outage.end

    def _say(self, now: int, link: int, priority: int, *, wait: bool) -> None:
        arrives = now + self.delay
        down = self.outage if self._goes_down(self.directions[link]) else None
        if not (down and arrives >= down.begin and now < down.end):
            self._later(arrives, 0, link, (priority, wait))

    def _turn(self, now: int, link: int, queue: Queue, *, wait: bool) -> None:
        if queue.paused == wait:
            return
        queue.paused = wait
        queue.since = now
        self.pauses += queue.paused
        self._look_again(now, link)

    def _look_again(self, now: int, link: int) -> None:
        """When a watchdog may have to do something."""
        if self.pause.watchdog:
            for time in (self.pause.watchdog.detection_time, self.pause.watchdog.restoration_time):
                self._later(now + round(time * SECOND), 3, link, None)

    def _watch(self, now: int) -> None:
        dog = self.pause.watchdog
        for direction in self.directions:
            if dog is None or direction.near.startswith("h"):
                continue
            for queue in direction.queues:
                if queue.storming:
                    over = not queue.paused and now - queue.since >= round(dog.restoration_time * SECOND)
                    queue.storming = not over
                elif queue.paused and queue.waiting:
                    since = max(queue.since, queue.waiting[0][0])
                    if now - since >= round(dog.detection_time * SECOND):
                        self._give_up(now, queue)

    def _give_up(self, now: int, queue: Queue) -> None:
        assert self.pause.watchdog
        queue.storming, queue.since = True, now
        self.storms += 1
        if self.pause.watchdog.action == "drop":
            for _, frame, came_by in queue.waiting:
                self._held_for(came_by, frame, -1)
            self.given_up += len(queue.waiting)
            queue.waiting.clear()

    def _begin(self, now: int, link: int, direction: Direction) -> None:
        going = [q for q in direction.queues if q.waiting and not self._heeds_pause(q)]
        if not going or direction.busy_until > now:
            return
        queue = going[-1]
        _, frame, came_by = queue.waiting.popleft()
        direction.busy_until = queue.own_until = now + self._wire(frame) * direction.byte
        self._held_for(came_by, frame, -1)
        arrives = direction.busy_until + self.delay
        if (
            self.outage
            and self._goes_down(direction)
            and arrives > self.outage.begin
            and now < self.outage.end
        ):
            self.lost += 1
        else:
            self._later(arrives, 1, link, frame)
        self._later(direction.busy_until, 3, link, None)

    def _heeds_pause(self, queue: Queue) -> bool:
        alert = self.pause.watchdog and self.pause.watchdog.action == "alert"
        return queue.paused and (not queue.storming or bool(alert))

    def _arrive(self, now: int, direction: Direction, frame: Frame) -> None:
        name = f"{direction.near} > {direction.far}"
        self.arrivals.append(Arrival(now, name, frame.to, frame.sender, frame.length))
        if direction.far not in WAYS:
            return
        for port in ports_for(direction.far, frame.to, direction.far_port):
            out = self.at[direction.far, port]
            queue = out.queues[self._priority(out, frame)]
            if queue.storming and self.pause.watchdog and self.pause.watchdog.action == "drop":
                self.given_up += 1
                continue
            ahead = sum(self._wire(waiting) for _, waiting, _ in queue.waiting) * out.byte
            ahead += max(0, queue.own_until - now)
            room = self.model.queue_bytes
            if room is not None and ahead + self._wire(frame) * out.byte > room * out.byte:
                self.drops += 1
                continue
            queue.waiting.append((now, frame, direction))
            self._held_for(direction, frame, 1)
            self._look_again(now, self.directions.index(out))

    def _held_for(self, came_by: Direction | None, frame: Frame, sign: int) -> None:
        if came_by:
            came_by.queues[self._priority(came_by, frame)].held += sign * self._wire(frame)

    def _priority(self, direction: Direction, frame: Frame) -> int:
        return frame.priority if len(direction.queues) > 1 else 0

    def _wire(self, frame: Frame) -> int:
        return frame.length + self.model.virtual_overhead

    def _later(self, time: int, kind: int, link: int, what: Frame | tuple[int, bool] | None) -> None:
        heapq.heappush(self.events, (time, kind, link, next(self.number), what))
