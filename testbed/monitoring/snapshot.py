"""A snapshot of a running network, as data: its jobs and their workers, switches, links."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from fanin.controller.jobs.reports import WorkerState


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class Part(_Frozen):
    """A switch in a job's tree. Child i has bit i in the bitmaps of its cells. The root has no parent."""

    switch: str
    children: tuple[str, ...]
    parent: str | None


class JobView(_Frozen):
    """A job whose workers have all joined.

    Attributes:
        place: Its place in the queue.
        why: Why it is in this state.
        aborted: Why its workers make no more calls. Empty while they do.
        since: When all its workers had joined, in seconds of the Unix epoch.
        hosts: Names of the hosts, in the order of their ranks.
        per_host: Number of workers on each host. Only the first one of each host uses the network, and reports on that.
        workers: State of each worker, by rank.
        lease: Number of its lease, or None.
        slots: First and last slot, or None without a lease.
        tree: Switches of its aggregation tree, the root last.
    """

    name: str
    state: str
    place: int
    why: str
    aborted: str
    since: float
    hosts: tuple[str, ...]
    per_host: int = 1
    workers: tuple[WorkerState, ...]
    lease: int | None
    slots: tuple[int, int] | None
    tree: tuple[Part, ...]

    @property
    def window(self) -> int:
        """Return its number of slots."""
        return self.slots[1] + 1 - self.slots[0] if self.slots else 0

    @property
    def leaders(self) -> tuple[WorkerState, ...]:
        """Return the first worker of each host."""
        return tuple(worker for worker in self.workers if not worker.local)

    def rank(self, worker: WorkerState) -> int:
        """Return the rank of a worker."""
        return self.hosts.index(worker.host) * self.per_host + worker.local

    def named(self, worker: WorkerState) -> str:
        """Return the name of a worker: its host, and its rank if it is one of several there."""
        return worker.host if self.per_host == 1 else f"rank {self.rank(worker)} on {worker.host}"


class FormingView(_Frozen):
    """A job that waits for workers to join on the hosts `missing`."""

    name: str | None
    hosts: tuple[str, ...]
    workers: tuple[WorkerState, ...]
    missing: tuple[str, ...]


class SwitchView(_Frozen):
    """Counts of a switch since its program was loaded.

    Attributes:
        slots: Number of slots in use.
        received: Packets received at all ports.
        sent: Packets sent at all ports.
        drops: Packets dropped, by reason.
        events: Aggregation events, by name.
        error: Why the counts are unknown. Empty if they are known.
    """

    slots: int
    received: int = 0
    sent: int = 0
    drops: dict[str, int] = Field(default_factory=dict)
    events: dict[str, int] = Field(default_factory=dict)
    error: str = ""


class LinkView(_Frozen):
    """One direction of a link. Unknown values are None.

    Attributes:
        sender: Node that sends.
        receiver: Node that receives.
        rate: Its current rate in bits/s, which `fanin link` may have changed. None is unlimited.
        built_rate: The rate with which the network was built. None is unlimited.
        up: Whether both ends are up and there is a carrier.
        packets: Packets counted by a switch: the sender or, if that is a host, the receiver.
        bytes: Bytes, counted alike.
        lost: Packets that the link has lost or its queue had no room for.
        queue_bytes: Bytes that wait in its queue.
    """

    sender: str
    receiver: str
    rate: int | None
    up: bool | None
    packets: int | None
    bytes: int | None
    lost: int | None
    queue_bytes: int | None
    built_rate: int | None = None

    @property
    def name(self) -> str:
        """Return its ends."""
        return f"{self.sender} → {self.receiver}"


class Snapshot(_Frozen):
    """The state of a network at one moment.

    Attributes:
        at: When it was taken, in seconds of the Unix epoch.
    """

    at: float
    jobs: tuple[JobView, ...]
    forming: tuple[FormingView, ...]
    switches: dict[str, SwitchView]
    links: tuple[LinkView, ...]


class Cell(_Frozen):
    """The contents of one version of a slot in a switch.

    Attributes:
        lease: Lease of the chunk.
        chunk: Number of the chunk.
        seen: Children that have contributed, as bits.
        done: Whether the result is stored.
    """

    lease: int
    chunk: int
    seen: int
    done: bool


class Cells(_Frozen):
    """The cells of a switch's slots, by 2 · slot + version. `error` is the reason if they are unknown."""

    cells: dict[int, Cell] = Field(default_factory=dict)
    error: str = ""


def per_second(now: int | None, before: int | None, seconds: float) -> float | None:
    """Return the growth rate of a count; None if it is unknown, as after a restart, which begins at 0 again."""
    if now is None or before is None or now < before or seconds <= 0:
        return None
    return (now - before) / seconds
