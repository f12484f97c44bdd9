"""The content of every packet of a run, one line each."""

from __future__ import annotations

from typing import TextIO

from fanin.assurance.soak.scenario import Scenario
from fanin.simulator.links import Packets, Transit
from fanin.workers import wire
from fanin.workers.wire import HEADERS

_TYPES = {
    wire.UPDATE: "update",
    wire.RESULT: "result",
    wire.GIVE: "give",
    wire.TAKE: "take",
    wire.ACKNOWLEDGEMENT: "acknowledgement",
}


class Trace:
    """An observer that writes a line for each packet that arrives: microseconds, link, content."""

    def __init__(self, file: TextIO, scenario: Scenario) -> None:
        self._file = file
        self._links = [
            f"{near.node} > {far.node}"
            for link in scenario.topology.links
            for near, far in ((link.a, link.b), (link.b, link.a))
        ]

    def __call__(self, arrived: Transit, store: Packets) -> None:
        """Write a line for each arrival; see Observer."""
        for link, moment, packet in zip(
            arrived.links.tolist(), arrived.times.tolist(), arrived.packets.tolist(), strict=True
        ):
            size = int(store.lengths[packet]) - HEADERS
            if size not in wire.VALUES:
                self._file.write(
                    f"{moment / 1e6:14.6f} {self._links[link]:16} a frame of {size + HEADERS} bytes\n"
                )
                continue
            what = wire.as_packets(store.rows[packet : packet + 1, HEADERS : HEADERS + size])[0]
            kind, index = int(what["kind"]), int(what["pool_index"])
            values = f" values {what['values'][0]}, {what['values'][1]} …" if wire.VALUES[size] else ""
            self._file.write(
                f"{moment / 1e6:14.6f} {self._links[link]:16} {_TYPES.get(kind >> 4, 'other')} "
                f"lease {what['lease']} chunk {what['tsi']} slot {index & 0x7FFF} version {index >> 15} "
                f"e0 {what['e0']}{values}"
                f"{' saturated' if kind & wire.SATURATED else ''}\n"
            )
