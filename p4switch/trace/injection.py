"""The management call "Inject", which sends a packet through a running switch and returns its trace."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fanin.native.toolchain import ToolchainError
from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.engine.live_ports import PortError
from fanin.p4switch.management.service import ManagementError, Method

if TYPE_CHECKING:
    from fanin.p4switch.trace.events import PacketTrace

_PAUSE = 0.01  # seconds between two checks for the trace
_SECONDS = 10.0  # seconds that the packet may take


def inject_call(running: Callable[[], Engine | None]) -> dict[str, Method]:
    """Return the call Inject: {"port": 1, "packet": HEX, "json": false, "verbose": false} returns {"trace": TEXT}.

    The program processes the packet as if it had arrived at that port, without the port's emulated link, and the
    results are sent. TEXT is JSON if `json` is true. Errors are raised as ManagementError.
    """

    def inject(request: dict[str, Any]) -> dict[str, Any]:
        # Imported here because most switches are never traced.
        from fanin.p4switch.trace.text import as_text
        from fanin.p4switch.trace.tracer import TraceError

        match request:
            case {"port": int(port), "packet": str(digits)}:
                pass
            case _:
                raise ManagementError("Inject needs a port (a number) and a packet (hexadecimal digits)")
        try:
            packet = bytes.fromhex(digits)
        except ValueError:
            raise ManagementError(f"packet: {digits!r} is not in hexadecimal digits") from None
        engine = running()
        if engine is None:
            raise ManagementError("the switch has no program")
        ports = sorted(engine.port_statistics())
        if port not in ports:
            known = ", ".join(map(str, ports)) or "none"
            raise ManagementError(f"the switch has no port {port}; there are {known}")
        try:
            found = _through(engine, port, packet)
        except (PortError, TraceError, ToolchainError) as error:
            raise ManagementError(str(error)) from None
        if request.get("json"):
            return {"trace": json.dumps(found.document())}
        return {"trace": as_text(found, verbose=bool(request.get("verbose")))}

    return {"Inject": inject}


def _through(engine: Engine, port: int, packet: bytes) -> PacketTrace:
    from fanin.p4switch.trace.tracer import followed  # not above, as in inject

    with followed(engine, f"port={port}") as tracer:
        engine.packet_out(packet, port)
        end = time.monotonic() + _SECONDS
        while time.monotonic() < end:
            for found in tracer.packets():
                if (found.port, found.packet) == (port, packet):
                    return found
            time.sleep(_PAUSE)
    raise ManagementError(
        f"the packet was not seen for {_SECONDS:g} s: is there too much traffic at port {port}?"
    )
