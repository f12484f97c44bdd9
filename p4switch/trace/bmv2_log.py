"""Log of packets in the words of BMv2's log."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from fanin.native.text import counted
from fanin.native.toolchain import ToolchainError
from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.log import write_lines
from fanin.p4switch.trace.bmv2_lines import log_lines
from fanin.p4switch.trace.events import PacketTrace
from fanin.p4switch.trace.tracer import TraceError, Tracer, traced

_log = logging.getLogger(__name__)
_PAUSE = 0.1  # seconds between two reads from the switch
_MOST_AT_END = (
    10_000  # packets, about two seconds' work: after a flood, a switch ends without the millions it has kept
)


class PacketLog:
    """Thread that logs what the running engine does with each packet, until it is stopped.

    Args:
        running: Returns the engine that runs now, or None.
        levels: The first letters of the levels to be logged.
        bytes_shown: The bytes of each packet that arrives or leaves to be logged.
    """

    def __init__(self, running: Callable[[], Engine | None], levels: str, bytes_shown: int) -> None:
        self._running = running
        self._levels = levels
        self._shown = bytes_shown
        self._packets = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="packet log", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Log the packets so far, at most _MOST_AT_END from now on, and stop."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            engine = self._running()
            if engine is not None:
                try:
                    with traced(engine, logs=True) as tracer:
                        tracer.share()
                        self._follow(engine, tracer)
                except (TraceError, ToolchainError) as error:
                    _log.warning("packets are not logged: %s", error)
                    return
            self._stop.wait(_PAUSE)

    def _follow(self, engine: Engine, tracer: Tracer) -> None:
        """Log the packets of this engine until it is replaced or the log is stopped."""
        lost = at_end = 0
        while engine is self._running():
            # The last look comes after the stop, so that nothing before it is left out.
            last = self._stop.is_set()
            for packet in tracer.packets():
                at_end += self._stop.is_set()
                if at_end > _MOST_AT_END:
                    _log.warning(
                        "the last packets are not logged: there were too many to write before the end"
                    )
                    return
                self._write(packet, tracer)
            if tracer.lost > lost:
                what = counted(tracer.lost - lost, "packet is", "packets are")
                _log.warning("%s not logged: there was no memory for more", what)
                lost = tracer.lost
            if last:
                return
            self._stop.wait(_PAUSE)

    def _write(self, packet: PacketTrace, tracer: Tracer) -> None:
        lines = []
        for level, copy, text in log_lines(packet, tracer, self._shown):
            place = "" if copy is None else f"[{self._packets}.{copy}] [cxt 0] "
            if level in self._levels:
                lines.append((level, place + text))
        write_lines(lines)
        self._packets += 1
