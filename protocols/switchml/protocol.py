"""SwitchML as published (Sapio et al., NSDI 2021): README.md specifies it, and what differs from the paper."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fanin.controller import plan
from fanin.controller.network import Network
from fanin.controller.plan import Plan, TableEntry
from fanin.controller.tree import Tree
from fanin.workers import wire
from fanin.workers.slotted import FixedPointWorker
from fanin.workers.values import fixed_point

# -- the worker ------------------------------------------------------------------------------------------------------


# One packet in flight in each slot, and a fixed timeout.
participant, packet = FixedPointWorker, wire.full_packet


# -- the plan --------------------------------------------------------------------------------------------------------


def plan_aggregation(network: Network, tree: Tree) -> Plan:
    """Return fanin's entries without chunk numbers, and with the number of children that a switch counts to."""
    return {
        switch: replace(part, entries=tuple(_published(entry) for entry in part.entries))
        for switch, part in plan.plan_aggregation(network, tree).items()
    }


def _published(entry: TableEntry) -> TableEntry:
    params = {
        name: value for name, value in entry.params.items() if name not in ("first_chunk", "last_chunk")
    }
    if isinstance(full := params.pop("full", None), int):
        params["children"] = full.bit_count()
    return replace(entry, params=params)


# -- the oracle ------------------------------------------------------------------------------------------------------


vector, error_bound = fixed_point.draw_vector, fixed_point.sum_bound


def survives() -> Iterable[str]:
    """Return no faults beyond loss: the paper assumes that packets between a worker and its switch stay in order."""
    return ()
