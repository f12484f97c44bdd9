"""SwitchML as published (Sapio et al., NSDI 2021): README.md specifies it, and what differs from the paper."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fanin.controller import plan
from fanin.controller.network import Network
from fanin.controller.plan import Plan, TableEntry
from fanin.controller.tree import Tree
from fanin.workers import wire
from fanin.workers.lease import Lease
from fanin.workers.recovery import Recovery
from fanin.workers.slotted import Chunks, Datagrams, SlottedWorker, Vector
from fanin.workers.values import fixed_point

# -- the worker ------------------------------------------------------------------------------------------------------


class SwitchMLWorker(SlottedWorker):
    """A worker with fixed-point numbers, one packet in flight in each slot, a fixed timeout."""

    def __init__(self, lease: Lease, recovery: Recovery) -> None:
        super().__init__(lease, recovery, lease.values)
        self._scale = fixed_point.scale(lease.workers)
        self._integers = np.zeros((0, lease.values), np.int32)
        self._layout = wire.packet_dtype(lease.values)

    def load(self, x: Vector) -> None:
        """Turn a vector [chunks, elements] into integers."""
        self._integers = fixed_point.integers(x, self.lease.workers)

    def updates(self, chunks: Chunks, rows: Chunks) -> Datagrams:
        """Return the packets of chunks [m]."""
        packets = np.zeros(len(chunks), self._layout)
        packets["kind"], packets["lease"] = wire.kind(wire.UPDATE, self.lease.values), self.lease.id
        packets["tsi"] = chunks
        packets["pool_index"] = wire.pool_index(chunks, self.lease.first_slot, self.lease.window)
        packets["values"] = self._integers[rows]
        return wire.as_datagrams(packets)

    def results(self, datagrams: Datagrams) -> tuple[Chunks, Vector]:
        """Return the chunks [m] of results, and the sums [m, elements]."""
        if datagrams.shape[1] != self._layout.itemsize:
            return np.full(len(datagrams), -1), np.zeros((len(datagrams), self.lease.values), np.float32)
        packets = wire.as_packets(np.ascontiguousarray(datagrams))
        ours = packets["kind"] & ~np.uint8(wire.SATURATED) == wire.kind(wire.RESULT, self.lease.values)
        ours &= packets["lease"] == self.lease.id
        sums = (packets["values"] / self._scale).astype(np.float32)
        return np.where(ours, packets["tsi"].astype(np.int64), -1), sums


def participant(lease: Lease, recovery: Recovery) -> SwitchMLWorker:
    """Return the worker of a lease."""
    return SwitchMLWorker(lease, recovery)


def packet(values: int) -> tuple[int, int]:
    """Return the elements in a packet, and its UDP payload in bytes."""
    return values, wire.packet_dtype(values).itemsize


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


def vector(draw: np.random.Generator, elements: int) -> Vector:
    """Draw a worker's vector, [elements], within what the fixed factor can send."""
    return fixed_point.draw_vector(draw, elements)


def error_bound(inputs: Sequence[NDArray[np.float32]], _values: int, _window: int) -> NDArray[np.float64]:
    """Return the bound [elements]: half a step for each worker, and the rounding of the result to float32."""
    return fixed_point.sum_bound(inputs)


def survives() -> Iterable[str]:
    """Return no faults beyond loss: the paper assumes that packets between a worker and its switch stay in order."""
    return ()
