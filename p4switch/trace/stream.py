"""The management stream of traces of a running switch (management/service.py)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

from fanin.native.toolchain import ToolchainError
from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.management.service import ManagementError, Stream

_PAUSE = 0.1  # seconds between two reads from a switch


def trace_stream(running: Callable[[], Engine | None]) -> Stream:
    """Return the stream of packets of the running engine, which ends when its program is replaced.

    The request has `filter` (trace/conditions.py), `json` and `verbose`. The first message is `ready`, when packets are
    traced; the program may have to be compiled before that. Further messages are `trace`, a packet as text or as JSON,
    or `lost`, the number of packets since the last message that there was no memory for.

    Errors are raised as ManagementError.
    """

    def stream(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
        # Imported here because most switches are never traced.
        from fanin.p4switch.trace.conditions import ConditionError
        from fanin.p4switch.trace.text import as_text
        from fanin.p4switch.trace.tracer import TraceError, followed

        engine = running()
        if engine is None:
            raise ManagementError("this switch has no program yet")
        try:
            with followed(engine, str(request.get("filter", ""))) as tracer:
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
