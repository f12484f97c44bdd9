"""Counters: count."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fanin.p4switch.bmv2json.expressions import Expression, Field
from fanin.p4switch.bmv2json.primitive_kind import PrimitiveKind
from fanin.p4switch.bmv2json.program import Named

if TYPE_CHECKING:
    from fanin.p4switch.bmv2json.program import Primitive
    from fanin.p4switch.codegen.actions import PrimitiveWriter
    from fanin.p4switch.codegen.writer import Writer
    from fanin.p4switch.trace.decode import PacketDecoder

_COUNTED = re.compile(r"\w+\.count\(([A-Z][A-Z0-9_]*)\)")  # with a constant as its index


def _write(writer: PrimitiveWriter, out: Writer, counter: Named, index: Expression) -> None:
    """Write a count. If the index is out of range, nothing is counted."""
    member = writer.state.counter(counter.name, writer.where)
    at = writer.index(out, index)
    with out.block(f"if ({at} < {writer.layout.program.counters[counter.name].size})"):
        out.line(f"count(&s->{member}[{at}], p->ingress_length);")
        if writer.replayed:
            out.line(f"replay_counted(&s->replay, &s->{member}[{at}]);")
    writer.trace_words(out, at)


def _trace(packet: PacketDecoder, call: Primitive, words: tuple[int, ...]) -> None:
    counter, index = call.arguments
    assert isinstance(counter, Named)
    written = _COUNTED.fullmatch(call.source.fragment) if call.source else None
    constant = written[1] if written else packet.constant(index, words[0]) if isinstance(index, Field) else ""
    size = packet.program.counters[counter.name].size
    packet.add_access("count", counter.name, words[0], size, None, call.source, constant)


KINDS = (
    PrimitiveKind(
        "count",
        ("counter_array", "value"),
        _write,
        trace=_trace,
        traces_itself=True,
        repeatable=True,  # replay.h records the counters
    ),
)
