"""The switch's log in the words of BMv2's: packets, and messages of the program.

The .txt files are what BMv2 (simple_switch_grpc, 2026) logged about the packets below, without times and threads.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from fanin.p4compiler import compile_once
from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.entries import Replica
from fanin.p4switch.log import LOGGER, MessageLog
from fanin.p4switch.trace import bmv2_log
from fanin.p4switch.trace.bmv2_log import PacketLog

PROGRAMS = Path(__file__).parents[1] / "programs"
LOG = Path(__file__).with_name("bmv2_log.txt")
MESSAGES = Path(__file__).with_name("log_msg.txt")
OUT_OF_BOUNDS = Path(__file__).with_name("out_of_bounds.txt")
# BMv2 counts priorities the other way round than P4Runtime, and has a multicast group for each clone session.
_OWN = re.compile(r"Priority: \d+|\[D\] \S+ \[cxt 0\] Cloning packet to MGID \d+")
_FAILS_ASSERTION = 9  # the first byte of a packet that log_msg.p4 drops


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Return the lines of the log so far, without times and threads."""
    caplog.set_level(logging.INFO, LOGGER)

    def lines() -> list[str]:
        text = "\n".join(record.getMessage() for record in caplog.records if record.name == LOGGER)
        return [
            re.sub(
                r"^\[[0-9:.]+\] \[bmv2\] (\[.\]) \[thread \d+\]", r"\1", re.sub(r"\S*/(?=\w+\.p4)", "", line)
            )
            for line in text.splitlines()
            if line
        ]

    return lines


def test_the_log_of_a_packet_is_that_of_bmv2(
    engine: Callable[[str], Engine], logged: Callable[[], list[str]]
):
    switch = engine("bmv2_log")
    switch.multicast.insert(1, (Replica(2, 1), Replica(3, 1)))
    switch.sessions.insert(5, (Replica(4, 0),))
    log_packets(switch, [bytes([what, 0, 0, 1, 0, 1, 2, 3]) + bytes(8) for what in (2, 3, 4, 5, 8, 9)])
    assert [line for line in logged() if not _OWN.fullmatch(line)] == [
        line for line in LOG.read_text().splitlines() if not _OWN.fullmatch(line)
    ]


def test_messages_are_in_the_log_between_the_lines_of_their_packet(
    engine: Callable[[str], Engine], logged: Callable[[], list[str]]
):
    """After a failed assertion BMv2 logs nothing, because it ends."""
    wanted = MESSAGES.read_text().splitlines()
    log_packets(engine("log_msg"), [message_packet(1), message_packet(_FAILS_ASSERTION)], bytes_shown=0)
    assert logged()[: len(wanted)] == wanted


def test_accesses_beyond_the_end_of_an_array_are_errors(
    engine: Callable[[str], Engine], logged: Callable[[], list[str]]
):
    log_packets(
        engine("out_of_bounds"), [bytes([1, 9, 0, 0, 0, 7]), bytes([1, 3, 0, 0, 0, 7])], bytes_shown=0
    )
    assert logged() == OUT_OF_BOUNDS.read_text().splitlines()


def test_at_level_info_the_log_has_the_messages_alone(
    engine: Callable[[str], Engine], logged: Callable[[], list[str]]
):
    switch, log = engine("log_msg"), MessageLog()
    log.follow(switch)
    for what in (1, _FAILS_ASSERTION):
        switch.process(1, message_packet(what))
    log.write()
    assert logged() == [line for line in MESSAGES.read_text().splitlines() if line[1] in "IE"]


def test_values_of_any_width_are_written_as_on_bmv2(tmp_path: Path):
    text = (PROGRAMS / "log_msg.p4").read_text().replace("bit<128> w;", "bit<128> w; bit<304> x; int<128> y;")
    values = "{hdr.h.x, hdr.h.y, -hdr.h.y, hdr.h.w + 1, hdr.h.i < 0}"
    (tmp_path / "wide.p4").write_text(text.replace('"before"', f'"{{}} {{}} {{}} {{}} {{}}", {values}'))
    switch = Engine.load(compile_once(tmp_path / "wide.p4").device_config())
    switch.process(1, bytes([1, 2, 0, 10, 0xFB, *(16 * [0xFF]), *(38 * [0xAB]), *(16 * [0x80])]))
    (wide,) = (message.text for message in switch.messages()[0] if len(message.text) > 100)
    assert wide == (
        "21856197769612368360903793739168857445634578529686280712707765762484655828048977365167745963 "
        "-169473963133173273960190490760135540608 169473963133173273960190490760135540608 0 1"
    )


def test_at_level_error_the_log_has_failed_assertions_only(
    engine: Callable[[str], Engine], logged: Callable[[], list[str]], caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.ERROR, LOGGER)
    switch, log = engine("log_msg"), MessageLog()
    log.follow(switch)
    switch.process(1, message_packet(_FAILS_ASSERTION))
    log.write()
    assert [line[:17] for line in logged()] == ["[E] Assert error:"]


def test_messages_that_nobody_has_logged_yet_are_kept_for_whoever_follows(
    engine: Callable[[str], Engine], logged: Callable[[], list[str]]
):
    first, second, log = engine("log_msg"), engine("log_msg"), MessageLog()
    first.process(1, message_packet(1))  # while nobody reads messages
    log.follow(first)
    first.process(1, message_packet(2))
    second.process(1, message_packet(3))
    log.follow(second)
    log.write()
    assert [line for line in logged() if "parser" in line] == [f"[I] in parser {n}" for n in (1, 2, 3)]


def test_more_messages_than_can_be_kept_are_counted(
    engine: Callable[[str], Engine], logged: Callable[[], list[str]]
):
    switch, log, packets = engine("log_msg"), MessageLog(), 3000
    log.follow(switch)
    for _ in range(packets):
        switch.process(1, message_packet(1))
    log.write()
    *kept, last = logged()
    (lost,) = map(int, re.findall(r"^\[E\] (\d+) messages were left out", last.replace(",", "")))
    assert len(kept) + lost == 7 * packets
    assert 0 < lost < 7 * packets
    switch.process(1, message_packet(1))
    log.write()
    assert len(logged()) == len(kept) + 1 + 7


def test_after_a_flood_a_switch_ends_without_the_packets_that_it_has_kept(
    engine: Callable[[str], Engine], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    written = []

    def write_after_the_end_has_begun(log: PacketLog, *_: object) -> None:
        assert log._stop.wait(60)
        written.append(log)

    monkeypatch.setattr(bmv2_log, "_MOST_AT_END", 20)
    monkeypatch.setattr(PacketLog, "_write", write_after_the_end_has_begun)
    log_packets(engine("log_msg"), [message_packet(1)] * 100)
    assert len(written) in (20, 21)  # the first may have come before the end
    assert "the last packets are not logged" in caplog.text


def log_packets(switch: Engine, packets: list[bytes], bytes_shown: int = 4) -> None:
    """Log what becomes of packets, as at level trace. They arrive when the log asks for the second time what runs."""
    asked, done = iter((False, True)), threading.Event()

    def running() -> Engine:
        if next(asked, False):
            for packet in packets:
                switch.process(1, packet)
            done.set()
        return switch

    log = PacketLog(running, "TDIE", bytes_shown)
    assert done.wait(60)
    log.stop()
    assert switch.messages() == ([], 0)


def message_packet(what: int) -> bytes:
    return bytes([what, 2, 0, 10, 0xFB, *range(1, 17), 0])
