"""Explains why a job makes no progress: which packet of each open chunk is missing, and what is known about its sender.

A chunk's sum climbs its tree, and the result comes down (docs/reference/protocol.md). So the cells of the switches
show how far each chunk has come: the lowest switch that lacks a child's part waits for that child. If the root has the
result, the highest switch that lacks it waits for its parent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from fanin.controller.jobs.reports import WorkerState
from fanin.controller.telemetry import Reason
from fanin.native.text import counted
from fanin.testbed.monitoring.snapshot import Cell, Cells, JobView, LinkView, Part, Snapshot
from fanin.testbed.monitoring.waiting import waited_for, waiters

_EXPECTED = {Reason.DUPLICATE.name, Reason.STALE_RESULT.name, Reason.OLD_CHUNK.name}

Payload = Literal["update", "sum", "result"]


@dataclass(frozen=True, slots=True)
class Hop:
    """The packet that one end of a link must send to the other: a worker's update, a switch's sum, or a result."""

    sender: str
    receiver: str
    what: Payload

    def __str__(self) -> str:
        return f"{self.sender}'s {self.what} for {self.receiver}"


@dataclass(frozen=True, slots=True)
class Missing:
    """Chunks that wait for the same packet.

    Attributes:
        chunks: Ranges of chunk numbers, both ends included.
        hop: The missing packet.
        known: What is known about its sender and its link.
    """

    chunks: tuple[tuple[int, int], ...]
    hop: Hop
    known: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """The reason why a job makes no progress.

    Attributes:
        waiting: Workers at which nothing new has arrived.
        missing: The missing packets.
        unknown: Why chunks cannot be followed, or "".
        culprit: The most likely cause, as a sentence.
    """

    waiting: tuple[WorkerState, ...]
    missing: tuple[Missing, ...]
    unknown: str
    culprit: str


def explain(
    job: JobView, cells: Mapping[str, Cells], now: Snapshot, before: Snapshot, processes: Mapping[int, str]
) -> Explanation:
    """Explain why a job makes no progress.

    Args:
        job: The job.
        cells: Its cells by switch, read after the snapshots.
        now: Snapshot of the network.
        before: A snapshot some seconds before `now`.
        processes: By process id, what the process of a worker is doing, if known.
    """
    waiting = tuple(waiters(job, now.at))
    if not waiting:
        return Explanation(
            (), (), "", "No worker of the job has waited for a second: the job makes progress."
        )
    unknown = "; ".join(f"{switch}: {found.error}" for switch, found in cells.items() if found.error)
    if cells.keys() != {part.switch for part in job.tree}:
        unknown = "the job has lost its lease since"
    facts = _Facts(job, now, before, processes)
    open_chunks = _open_chunks(waiting)
    hops: defaultdict[Hop, list[int]] = defaultdict(list)
    if not unknown:
        tree = _Tree(job, {switch: found.cells for switch, found in cells.items()})
        for chunk, hosts in open_chunks.items():
            for hop in tree.missing(chunk, hosts):
                hops[hop].append(chunk)
    most_first = sorted(hops.items(), key=lambda each: -len(each[1]))
    missing = tuple(
        Missing(tuple(_ranges(chunks)), hop, facts.of_sender(hop.sender) + facts.of_link(hop))
        for hop, chunks in most_first
    )
    return Explanation(waiting, missing, unknown, facts.culprit([hop for hop, _ in most_first]))


class _Tree:
    """The cells of a job's switches."""

    def __init__(self, job: JobView, cells: Mapping[str, Mapping[int, Cell]]) -> None:
        self._job = job
        self._cells = cells
        self._parts = {part.switch: part for part in job.tree}
        self._parents = {child: part.switch for part in job.tree for child in part.children}

    def missing(self, chunk: int, hosts: Iterable[str]) -> set[Hop]:
        """Return the packets that must be sent next so that the workers on `hosts` get the result."""
        root = self._job.tree[-1]
        if not self._done(root.switch, chunk):
            return self._missing_below(root, chunk)
        return {self._missing_above(host, chunk) for host in hosts}

    def _missing_below(self, part: Part, chunk: int) -> set[Hop]:
        cell = self._cell(part.switch, chunk)
        found: set[Hop] = set()
        for bit, child in enumerate(part.children):
            if cell is not None and cell.seen >> bit & 1:
                continue
            if child in self._parts:
                found |= self._missing_below(self._parts[child], chunk) or {Hop(child, part.switch, "sum")}
            else:
                found.add(Hop(child, part.switch, "update"))
        return found

    def _missing_above(self, node: str, chunk: int) -> Hop:
        above = self._parents[node]
        if above == self._job.tree[-1].switch or self._done(above, chunk):
            return Hop(above, node, "result")
        return self._missing_above(above, chunk)

    def _done(self, switch: str, chunk: int) -> bool:
        cell = self._cell(switch, chunk)
        return cell is not None and cell.done

    def _cell(self, switch: str, chunk: int) -> Cell | None:
        """Return the switch's cell for the chunk, or None; docs/reference/protocol.md defines slot and version."""
        assert self._job.slots is not None
        window = self._job.window
        slot, version = self._job.slots[0] + chunk % window, chunk // window % 2
        cell = self._cells[switch][2 * slot + version]
        return cell if (cell.lease, cell.chunk) == (self._job.lease, chunk) else None


class _Facts:
    """Known facts about a job's workers, switches and links."""

    def __init__(self, job: JobView, now: Snapshot, before: Snapshot, processes: Mapping[int, str]) -> None:
        self._job = job
        self._now = now
        self._before = before
        self._processes = processes
        self._leaders = {worker.host: worker for worker in job.leaders}
        self._late = waited_for(job, now.at)
        self._waiting = {worker.host for worker in waiters(job, now.at)}
        self._seconds = now.at - before.at

    def of_sender(self, name: str) -> tuple[str, ...]:
        """Return the state of the worker that uses the network on a host; empty for a switch."""
        worker = self._leaders.get(name)
        return () if worker is None else self._of_worker(worker)

    def _of_worker(self, worker: WorkerState) -> tuple[str, ...]:
        if worker.left:
            return (f"process {worker.process} has ended",)
        does = self._processes.get(worker.process)
        found = [f"process {worker.process} {does}"] if does else []
        if worker.local:
            came = f"had come to call {worker.call}" if worker.call else "had not come to any call"
            return (*found, f"{came}, as far as it has reported")
        if worker.report is None or worker.heard is None:
            return (*found, "has not reported since it joined")
        waiting = worker.report.waiting
        ago = f"at its last report, {self._now.at - worker.heard:.0f} s ago"
        if waiting is None:
            return (*found, f"had finished all-reduce {worker.report.all_reduces} {ago}")
        least, most = waiting.sent
        times = f"{most} times" if least == most else f"{least} to {most} times"
        return (*found, f"had sent each packet of all-reduce {waiting.all_reduce} {times} {ago}")

    def of_link(self, hop: Hop) -> tuple[str, ...]:
        """Return whether a link is down, and what is lost or dropped on it or behind it."""
        found = []
        now, before = self._link(self._now, hop), self._link(self._before, hop)
        if now.up is False:
            found.append(f"the link {now.name} is down")
        if lost := (now.lost or 0) - (before.lost or 0):
            found.append(f"the link {now.name} has lost {counted(lost, 'packet')} in {self._seconds:.0f} s")
        if dropped := self._dropped(hop.receiver):
            found.append(f"{hop.receiver} drops: {dropped} in {self._seconds:.0f} s")
        for switch in (hop.sender, hop.receiver):
            if (view := self._now.switches.get(switch)) and view.error:
                found.append(view.error)
        return tuple(found)

    def culprit(self, hops: list[Hop]) -> str:
        """Name the most likely cause in a sentence, with the evidence.

        Args:
            hops: The missing packets, the ones that most chunks wait for first. Empty if they are unknown.
        """
        for name in (part.switch for part in self._job.tree):
            if error := self._now.switches[name].error:
                return f"Most likely the switch {name}: {error}."
        senders = {hop.sender for hop in hops}
        if late := [worker for worker in self._late if worker.host in senders or not hops]:
            names = [self._job.named(worker) for worker in late]
            facts = zip(names, map(self._of_worker, late), strict=True)
            known = "; ".join(f"{name}: {', '.join(told)}" for name, told in facts)
            who = f"{'the worker on ' if self._job.per_host == 1 else ''}{' and '.join(names)}"
            return f"Most likely {who}, without which the others cannot continue ({known})."
        ways = hops or [hop for part in self._job.tree for hop in _links_of(part)]
        for hop in ways:
            found = self.of_link(hop)
            if found:
                return f"Most likely the path from {hop.sender} to {hop.receiver}: {'; '.join(found)}."
        for hop in hops:
            if hop.what == "update" and hop.sender not in self._waiting:
                return (
                    f"Most likely {hop.receiver} has lost what it held (was it restarted?): {hop.sender}, whose "
                    "update it lacks, has the result already and does not retransmit."
                )
        if hops:
            return f"{hops[0]} does not arrive, and nothing shows where it is lost."
        return "All workers are in the same all-reduce, and no link or switch reports a loss."

    def _link(self, look: Snapshot, hop: Hop) -> LinkView:
        return next(link for link in look.links if (link.sender, link.receiver) == (hop.sender, hop.receiver))

    def _dropped(self, switch: str) -> str:
        """Return the drops since the earlier snapshot, by reason, except those that any retransmission causes."""
        now, before = self._now.switches.get(switch), self._before.switches.get(switch)
        if now is None or before is None:
            return ""
        grown = {reason: count - before.drops.get(reason, 0) for reason, count in now.drops.items()}
        told = (reason for reason, count in grown.items() if count > 0 and reason not in _EXPECTED)
        return ", ".join(f"{reason} {grown[reason]:,}" for reason in told)


def _links_of(part: Part) -> Iterator[Hop]:
    for child in part.children:
        yield Hop(child, part.switch, "update")
        yield Hop(part.switch, child, "result")


def _open_chunks(waiting: Iterable[WorkerState]) -> Mapping[int, list[str]]:
    """Return the hosts whose workers wait for a chunk, by chunk."""
    found: defaultdict[int, list[str]] = defaultdict(list)
    for worker in waiting:
        assert worker.report is not None
        assert worker.report.waiting is not None
        for first, last in worker.report.waiting.chunks:
            for chunk in range(first, last + 1):
                found[chunk].append(worker.host)
    return found


def _ranges(chunks: Iterable[int]) -> Iterator[tuple[int, int]]:
    first = last = None
    for chunk in sorted(chunks):
        if last is not None and chunk == last + 1:
            last = chunk
            continue
        if first is not None and last is not None:
            yield first, last
        first = last = chunk
    if first is not None and last is not None:
        yield first, last
