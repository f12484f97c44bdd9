"""Packets in the words of BMv2's log."""

from __future__ import annotations

from collections.abc import Callable

from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.entries import ActionCall, Entry, EntryKey, Exact
from fanin.p4switch.trace.bmv2_log import log_lines
from fanin.p4switch.trace.tracer import traced


def test_a_packet_from_its_arrival_to_its_departure(engine: Callable[[str], Engine]) -> None:
    switch = engine("bmv2_runtime")
    switch.table("I.ex").insert(Entry(EntryKey((Exact(7),)), ActionCall("I.send", (3,))))
    with traced(switch) as tracer:
        switch.process(1, b"\7\0\5\0\0\0\1")
        (packet,) = tracer.packets()
    lines = [text for _, text in log_lines(packet, bytes_shown=2)]
    expected = iter(
        [
            "Processing packet received on port 1",
            "Received packet of length 7 on port 1: first 2 bytes of packet data are: 07 00",
            "Parser 'parser': start",
            "Extracting header 'h'",
            "Parser 'parser': end",
            "Pipeline 'ingress': start",
            "Table 'I.ex': hit with handle 0",
            "Action entry is I.send - 3,",
            "Table 'I.te': miss",
            "Pipeline 'ingress': end",
            "Egress port is 1",
            "Pipeline 'egress': start",
            "Pipeline 'egress': end",
            "Deparser 'deparser': start",
            "Deparsing header 'h'",
            "Deparser 'deparser': end",
            "Transmitting packet of size 7 out of port 1",
        ]
    )
    wanted = next(expected)
    for line in lines:
        if line == wanted:
            wanted = next(expected, "")
    assert wanted == "", "\n".join(lines)
