"""One look at a network that is up, as data: its jobs and their workers, switches, links."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from fanin.controller.jobs.reports import WorkerState


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class Part(_Frozen):
    """A switch in a job's tree; child i has bit i in the bitmaps of its cells. parent: None: the root."""

    switch: str
    children: tuple[str, ...]
    parent: str | None


class JobView(_Frozen):
    """A job whose workers have all joined, by rank; without a lease `lease` and `slots` (first, last) are None.

    since: in seconds of the Unix epoch. aborted: why its workers make no more calls; empty: they do.
    """

    name: str
    state: str
    place: int
    why: str
    aborted: str
    since: float
    hosts: tuple[str, ...]
    workers: tuple[WorkerState, ...]
    lease: int | None
    slots: tuple[int, int] | None
    tree: tuple[Part, ...]

    @property
    def window(self) -> int:
        """How many slots it has."""
        return self.slots[1] + 1 - self.slots[0] if self.slots else 0


class FormingView(_Frozen):
    """A job that waits for workers to join on the hosts `missing`."""

    name: str | None
    hosts: tuple[str, ...]
    workers: tuple[WorkerState, ...]
    missing: tuple[str, ...]


class SwitchView(_Frozen):
    """What a switch has counted since its program was pushed: packets received and sent at its ports, drops by reason
    and events of the aggregation by name. error: why that is not known. slots: how many are in use.
    """

    slots: int
    received: int = 0
    sent: int = 0
    drops: dict[str, int] = Field(default_factory=dict)
    events: dict[str, int] = Field(default_factory=dict)
    error: str = ""


class LinkView(_Frozen):
    """One direction of a link. None: not known.

    rate: bits/s; None: unlimited. up: both ends are, and there is a carrier. packets, bytes: what a switch has counted,
    the sender or, where that is a host, the receiver. lost: packets that the link has lost, or for which its queue had
    no room; queue_bytes: what waits there.
    """

    sender: str
    receiver: str
    rate: int | None
    up: bool | None
    packets: int | None
    bytes: int | None
    lost: int | None
    queue_bytes: int | None

    @property
    def name(self) -> str:
        """Its ends."""
        return f"{self.sender} → {self.receiver}"


class Snapshot(_Frozen):
    """All of it, at one moment. at: in seconds of the Unix epoch."""

    at: float
    jobs: tuple[JobView, ...]
    forming: tuple[FormingView, ...]
    switches: dict[str, SwitchView]
    links: tuple[LinkView, ...]


class Cell(_Frozen):
    """What a switch holds of a slot's version: the chunk of which lease, the children seen (bits), whether the result
    is stored."""

    lease: int
    chunk: int
    seen: int
    done: bool


class Cells(_Frozen):
    """The cells of a switch's slots, by 2 · slot + version; error: why they are not known."""

    cells: dict[int, Cell] = Field(default_factory=dict)
    error: str = ""


def per_second(now: int | None, before: int | None, seconds: float) -> float | None:
    """How fast a count grows; None: not known, as after a restart, which begins at 0 again."""
    if now is None or before is None or now < before or seconds <= 0:
        return None
    return (now - before) / seconds
