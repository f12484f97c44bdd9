"""Traces in the words of BMv2's log, which course texts quote."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime

from fanin.native.toolchain import ToolchainError
from fanin.p4switch.bmv2json.program import Source
from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.trace.events import (
    Access,
    ActionRun,
    Assign,
    Call,
    Condition,
    Deparse,
    Drop,
    Egress,
    Event,
    Extract,
    Ingress,
    Lookup,
    NamedValues,
    Output,
    PacketTrace,
    Parse,
    Parsed,
    Request,
    Select,
    State,
    VerifyChecksum,
)
from fanin.p4switch.trace.tracer import TraceError, traced

LOGGER = "bmv2"  # its records are lines of the log as they are
_PAUSE = 0.1  # seconds between two reads from the switch
_REQUESTS = {
    "multicast": "Multicast requested for packet",
    "clone": "Cloning packet",
    "resubmit": "Resubmitting packet",
    "recirculate": "Recirculating packet",
    "digest": "Learning sample",
}

_log = logging.getLogger(LOGGER)


class PacketLog:
    """Thread that logs what the running engine does with each packet, until it is stopped.

    Args:
        running: Returns the engine that runs now, or None.
        bytes_shown: The bytes of each packet that arrives or leaves to be logged.
    """

    def __init__(self, running: Callable[[], Engine | None], bytes_shown: int) -> None:
        self._running = running
        self._shown = bytes_shown
        self._packets = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="packet log", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Log the packets so far, and stop."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            engine = self._running()
            if engine is not None:
                try:
                    with traced(engine) as tracer:
                        while engine is self._running():
                            # The last look comes after the stop, so that nothing before it is left out.
                            last = self._stop.is_set()
                            for packet in tracer.packets():
                                self._write(packet)
                            if last:
                                return
                            self._stop.wait(_PAUSE)
                except (TraceError, ToolchainError) as error:
                    logging.getLogger(__name__).warning("packets are not logged: %s", error)
                    return
            self._stop.wait(_PAUSE)

    def _write(self, packet: PacketTrace) -> None:
        thread = threading.get_native_id()
        now = datetime.fromtimestamp(time.time()).strftime("%H:%M:%S.%f")[:-3]
        for level, text in log_lines(packet, self._shown):
            _log.debug(
                "[%s] [bmv2] [%s] [thread %d] [%d.0] [cxt 0] %s", now, level, thread, self._packets, text
            )
        self._packets += 1


def log_lines(packet: PacketTrace, bytes_shown: int = 0) -> Iterator[tuple[str, str]]:
    """Yield what BMv2 logs about a packet: the level, D or T, and the text.

    Args:
        packet: The packet and what happened to it.
        bytes_shown: The bytes of each packet that arrives or leaves to be logged.
    """
    yield "D", f"Processing packet received on port {packet.port}"
    if bytes_shown:
        yield "D", _content("Received packet", packet.packet, f"on port {packet.port}", bytes_shown)
    pipeline = ""  # that the packet is in
    state = ""
    deparsing = False
    for event in packet.events:
        if pipeline and isinstance(event, (Ingress, Egress, Deparse, Output)):
            yield "D", f"Pipeline '{pipeline}': end"
            pipeline = ""
        if deparsing and not isinstance(event, Deparse):
            yield "D", "Deparser 'deparser': end"
            deparsing = False
        match event:
            case Ingress():
                pipeline = "ingress"
                yield "D", "Pipeline 'ingress': start"
            case Egress(port):
                pipeline = "egress"
                yield "D", f"Egress port is {port}"
                yield "D", "Pipeline 'egress': start"
            case State(name):
                state = name
                yield "D", f"Parser 'parser' entering state '{name}'"
            case Select(key):
                yield "D", f"Parser state '{state}': key is {_hex(key)}"
            case Deparse(header):
                if not deparsing:
                    deparsing = True
                    yield "D", "Deparser 'deparser': start"
                yield "D", f"Deparsing header '{header}'"
            case Drop(reason):
                place = f" at the end of {pipeline}" if pipeline else ""
                yield "D", f"Dropping packet{place} ({reason})"
            case Output(port, _, content):
                if bytes_shown:
                    yield "D", _content("Transmitting packet", content, f"out of port {port}", bytes_shown)
                yield "D", f"Transmitting packet of size {len(content)} out of port {port}"
            case _:
                yield from _lines(event)


def _lines(event: Event) -> Iterator[tuple[str, str]]:
    """Yield the lines of an event that needs none of those before it."""
    match event:
        case Parse():
            yield "D", "Parser 'parser': start"
        case Extract(header):
            yield "D", f"Extracting header '{header}'"
        case Parsed(error):
            if error != "NoError":
                yield "D", f"Exception while parsing: {error}"
            yield "D", "Parser 'parser': end"
        case VerifyChecksum(name, correct):
            yield "D", f"Verified checksum '{name}': {str(correct).lower()}"
        case Condition(text, outcome, _, _, source):
            yield "T", f'{_at(source)}Condition "{text}" is {str(outcome).lower()}'
        case Lookup(table, key, hit, entry, source):
            yield "T", f"{_at(source)}Applying table '{table}'"
            if key:
                yield "D", "Looking up key:\n" + "".join(f"* {v.name:20}: {v.number:x}\n" for v in key)
            handle = f" with handle {entry.index}" if entry is not None else ""
            yield "D", f"Table '{table}': {f'hit{handle}' if hit else 'miss'}"
        case ActionRun(name, arguments, implied) if not implied:
            data = "".join(f"{value.number:x}," for value in arguments)
            yield "D", f"Action entry is {name} - {data}"
            yield "T", f"Action {name}"
        case Assign(target, _, source):
            yield "T", f"{_at(source)}Primitive {source.fragment if source else target}"
        case Access(operation, name, index, _, _, source):
            yield (
                "T",
                f"{_at(source)}Primitive {source.fragment if source else f'{operation} {name}[{index}]'}",
            )
        case Call(operation, source):
            yield "T", f"{_at(source)}Primitive {source.fragment if source else operation}"
        case Request(what) if what in _REQUESTS:
            yield "D", _REQUESTS[what]


def _at(source: Source | None) -> str:
    return f"{source.file}({source.line}) " if source else ""


def _hex(values: NamedValues) -> str:
    return "".join(f"{value.number:x}" for value in values)


def _content(what: str, packet: bytes, where: str, shown: int) -> str:
    first = packet[:shown].hex(" ")
    return f"{what} of length {len(packet)} {where}: first {min(shown, len(packet))} bytes of packet data are: {first}"
