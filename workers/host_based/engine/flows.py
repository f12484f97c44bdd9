"""Flows between hosts, each end of which C handles."""

from __future__ import annotations

import ctypes
import weakref

import numpy as np
from numpy.typing import NDArray

from fanin.workers.host_based.engine.compiled import Settings, address_of, library
from fanin.workers.host_based.transport import StreamCounts


class CompiledFlows:
    """Flows in C: the number of a flow is the session of its datagrams.

    Args:
        facts: The flows, FLOW [flows]. C counts what is missing, and writes when a flow has ended.
        headers: Headers of the frames of a datagram of 0 bytes that the source of a flow sends, and its destination:
            [flows, 2, bytes].
        unfinished: How many flows have not ended [1], which C counts.
        hosts: Number of hosts that will be added at most.

    Attributes:
        functions: Addresses of the receive_function, send_function and deadline_function of hosts (native/worker.h).

    Raises:
        RuntimeError: The C files have not been compiled here.
        MemoryError: There is no memory.
    """

    def __init__(
        self, facts: NDArray[np.void], headers: NDArray[np.uint8], unfinished: NDArray[np.int64], hosts: int
    ) -> None:
        loaded = library()
        if loaded is None:
            raise RuntimeError("the C files of streams have not been compiled here")
        self._c = loaded
        self._facts = facts
        self._settings: list[Settings] = []
        self._in_use: list[NDArray[np.generic]] = [facts, headers, unfinished]  # memory that C uses
        self._flows = loaded.flows_open(
            facts.ctypes.data, len(facts), headers.ctypes.data, unfinished.ctypes.data, hosts
        )
        if not self._flows:
            raise MemoryError("no memory for flows")
        self.functions = (
            address_of(loaded.flows_receive),
            address_of(loaded.flows_send),
            address_of(loaded.flows_deadline),
        )
        weakref.finalize(self, _close, loaded, self._flows, self._in_use, self._settings)

    def add_host(self, rank: int, settings: Settings) -> int:
        """Let C handle the ends of all flows at a host, and return the address of the worker (native/worker.h).

        Args:
            rank: The host.
            settings: Settings of its streams.
        """
        numbers = np.arange(len(self._facts))
        begins = numbers[self._facts["source"] == rank]
        begins = begins[np.argsort(self._facts["start"][begins], kind="stable")]
        receives = numbers[self._facts["destination"] == rank]
        self._settings.append(settings)
        self._in_use += [begins, receives]
        pairs = (begins.ctypes.data, len(begins), receives.ctypes.data, len(receives))
        worker: int | None = self._c.flows_add_host(self._flows, settings, rank, *pairs)
        if worker is None:
            raise MemoryError("no memory for the flows of a host")
        return worker

    def count(self, counts: StreamCounts) -> None:
        """Add the events of all hosts so far to `counts`."""
        for settings in self._settings:
            settings.add_to(counts)


def _close(loaded: ctypes.CDLL, flows: int, *_in_use: object) -> None:
    """Free the memory of C, which refers to `_in_use` until then."""
    loaded.flows_close(flows)
