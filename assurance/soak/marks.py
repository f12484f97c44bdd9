"""Congestion marks, judged by what arrives alone: a mark was made by a queue, or was on what a packet is made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from fanin.assurance.soak.scenario import Scenario
from fanin.native.text import counted
from fanin.simulator.links import LinkCounts, Packets, Transit
from fanin.workers import wire
from fanin.workers.congestion import ECN_CONGESTED
from fanin.workers.wire import HEADERS

_ECN = 15  # byte of a frame: in IPv4's header
_DESTINATION_PORT = slice(36, 38)
_HEADER = slice(HEADERS, HEADERS + wire.HEADER.itemsize)

_Chunk = tuple[int, int]  # lease and number


class Marks:
    """An observer of a run on links that mark packets.

    A switch may send a chunk with a mark if a packet of that chunk has come to it with one. All other marks on its
    links must be those that their queues have made, and these are counted.

    A switch must send a chunk with a mark if the first packet of it that came by some link had one: that was added up.
    (A sum that goes up does not know yet how the result comes down.)

    Args:
        every: Whether all first packets are added up: no state is lost, no lease revoked, nobody forges any, and no
            server completes sums.
    """

    def __init__(self, scenario: Scenario, *, every: bool) -> None:
        self._every = every
        self._ends = [
            (near.node, far.node)
            for link in scenario.topology.links
            for near, far in ((link.a, link.b), (link.b, link.a))
        ]
        self._switches = {switch.name for switch in scenario.topology.switches}
        self._came: set[tuple[str, _Chunk]] = set()  # to which node
        # By queues: those of one chunk on one link count once, since a link may duplicate its packet.
        self._made: set[tuple[int, _Chunk]] = set()
        self._first: set[tuple[int, int, _Chunk]] = set()  # packets that have come: link, kind and chunk
        self._due: dict[int, set[tuple[str, _Chunk]]] = {wire.UPDATE: set(), wire.RESULT: set()}
        self._forgotten: Counter[int] = Counter()

    @staticmethod
    def judged_by(scenario: Scenario) -> bool:
        """Return whether links mark packets, and no bit that flips looks like a mark."""
        return scenario.links.ecn_bytes is not None and not scenario.links.corruption

    def __call__(self, arrived: Transit, store: Packets) -> None:
        """Take note of arrivals."""
        heads = store.rows[arrived.packets, : _HEADER.stop]
        ours = np.isin(heads[:, _DESTINATION_PORT].copy().view(">u2")[:, 0], wire.UDP_PORTS)
        ours &= store.lengths[arrived.packets] >= _HEADER.stop
        marked = heads[:, _ECN] & ECN_CONGESTED == ECN_CONGESTED
        if not self._every:
            ours &= marked
        headers = heads[ours, _HEADER].copy().view(wire.HEADER)[:, 0]
        for link, has_mark, kind, lease, number in zip(
            arrived.links[ours].tolist(),
            marked[ours].tolist(),
            (headers["kind"] >> 4).tolist(),
            headers["lease"].tolist(),
            headers["tsi"].tolist(),
            strict=True,
        ):
            chunk = lease, number
            kind = wire.RESULT if kind in (wire.RESULT, wire.ACKNOWLEDGEMENT) else wire.UPDATE
            near, far = self._ends[link]
            if has_mark:
                if near in self._switches and (near, chunk) not in self._came:
                    self._made.add((link, chunk))
                self._came.add((far, chunk))
            if self._every:
                if not has_mark and (near, chunk) in self._due[kind]:
                    self._forgotten[link] += 1
                if has_mark and (link, kind, chunk) not in self._first:
                    self._due[wire.RESULT].add((far, chunk))
                    if kind == wire.UPDATE:
                        self._due[kind].add((far, chunk))
                self._first.add((link, kind, chunk))

    def problems(self, counts: LinkCounts) -> Iterator[str]:
        """Report links on which chunks had marks that neither a queue has made nor a packet has brought."""
        for link, made in Counter(link for link, _ in self._made).items():
            if made > (marks := int(counts.marks[link])):
                near, far = self._ends[link]
                yield f"{near} → {far}: {made} chunks were marked for the first time, and its queue marked {marks}"
        for link, count in self._forgotten.items():
            near, far = self._ends[link]
            yield f"{near} → {far}: {counted(count, 'packet')} without the mark of what they are made of"
