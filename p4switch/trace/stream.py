"""Traces of a running switch, for whoever manages it (management/service.py)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

from fanin.native.toolchain import ToolchainError
from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.management.service import ManagementError, Stream
from fanin.p4switch.trace import as_text
from fanin.p4switch.trace.conditions import ConditionError
from fanin.p4switch.trace.tracer import TraceError, traced

_PAUSE = 0.1  # seconds between looks at a switch


def trace_stream(running: Callable[[], Engine | None]) -> Stream:
    """Packets of the engine that is running, until its program is replaced.

    Request: `filter` (trace/conditions.py), `json`, `verbose`. Messages: `ready` first, when packets
    are traced, before which the program may have to be compiled; `trace`, a packet's as text or as JSON; or `lost`, how
    many more there was no room for.

    What cannot be traced is a ManagementError of the stream.
    """

    def stream(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
        engine = running()
        if engine is None:
            raise ManagementError("this switch has no program yet")
        try:
            with traced(engine, str(request.get("filter", ""))) as tracer:
                said = 0
                yield {"ready": True}
                while engine is running():
                    for packet in tracer.packets():
                        told = (
                            json.dumps(packet.document())
                            if request.get("json")
                            else as_text(packet, verbose=bool(request.get("verbose")))
                        )
                        yield {"trace": told}
                    yield {"lost": tracer.lost - said} if tracer.lost > said else {}
                    said = tracer.lost
                    time.sleep(_PAUSE)
        except (ConditionError, TraceError, ToolchainError) as error:
            raise ManagementError(str(error)) from None

    return stream
