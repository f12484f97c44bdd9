"""Packets in the words of BMv2's log.

bmv2_log.txt is what BMv2 (simple_switch_grpc, 2026) logged about the packets below, without times and threads.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.entries import Replica
from fanin.p4switch.trace.bmv2_lines import log_lines
from fanin.p4switch.trace.tracer import traced

LOG = Path(__file__).with_name("bmv2_log.txt")
# BMv2 counts priorities the other way round than P4Runtime, and has a multicast group for each clone session.
_OWN = re.compile(r"Priority: \d+|\[D\] \S+ \[cxt 0\] Cloning packet to MGID \d+")


def test_the_log_of_a_packet_is_that_of_bmv2(engine: Callable[[str], Engine]) -> None:
    switch = engine("bmv2_log")
    switch.multicast.insert(1, (Replica(2, 1), Replica(3, 1)))
    switch.sessions.insert(5, (Replica(4, 0),))
    lines: list[str] = []
    with traced(switch) as tracer:
        for number, what in enumerate((2, 3, 4, 5, 8, 9)):
            switch.process(1, bytes([what, 0, 0, 1, 0, 1, 2, 3]) + bytes(8))
            (packet,) = tracer.packets()
            for level, copy, text in log_lines(packet, tracer, bytes_shown=4):
                place = "" if level == "I" else f"[{number}.{copy}] [cxt 0] "
                lines += f"[{level}] {place}{text}".splitlines()
    said = [re.sub(r"\S*/(?=bmv2_log\.p4)", "", line) for line in lines if line and not _OWN.fullmatch(line)]
    logged = [line for line in LOG.read_text().splitlines() if not _OWN.fullmatch(line)]
    assert said == logged
