"""ESA (Wang et al., 2022): ATP with priorities. README.md specifies it, and what differs from the paper."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fanin.controller.network import Network
from fanin.controller.plan import Plan, TableEntry
from fanin.controller.tree import Tree
from fanin.protocols.atp import protocol as atp
from fanin.workers import wire
from fanin.workers.slotted import Chunks, Datagrams

PRIORITY = 8  # the lowest bit of the priority in e1
HIGHEST = 15

packet, server, shares_slots, vector, error_bound, survives, invariants = (
    atp.packet,
    atp.server,
    atp.shares_slots,
    atp.vector,
    atp.error_bound,
    atp.survives,
    atp.invariants,
)


class EsaWorker(atp.AtpWorker):
    """A worker of ATP whose packets are the more urgent, the fewer chunks of its vector are left."""

    def updates(self, chunks: Chunks, rows: Chunks) -> Datagrams:
        """Return the packets of chunks [m], with their priorities."""
        datagrams = super().updates(chunks, rows)
        doublings = np.floor(np.log2(self._end - chunks))
        priorities = np.maximum(HIGHEST - doublings, 0).astype(np.uint8)
        wire.as_packets(datagrams)["e1"] |= PRIORITY * priorities
        return datagrams


participant = EsaWorker


def plan_aggregation(network: Network, tree: Tree) -> Plan:
    """Return ATP's entries; that of a lease has also what a switch needs to send its chunks up.

    Raises:
        ControllerError: If a packet has too few bits for the workers.
    """

    def changed(entry: TableEntry, entries: tuple[TableEntry, ...]) -> TableEntry:
        if not entry.action.endswith("in_force"):
            return entry
        child = next(one for one in entries if one.action.endswith("admit_child"))
        more = {name: child.params[name] for name in ("all", "checksums", "uplink")}
        return replace(entry, params={**entry.params, **more})

    return {
        switch: replace(part, entries=tuple(changed(entry, part.entries) for entry in part.entries))
        for switch, part in atp.plan_aggregation(network, tree).items()
    }
