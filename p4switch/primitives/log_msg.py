"""Messages: log_msg()."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fanin.native.text import printable
from fanin.p4switch.bmv2json.primitive_kind import Message, PrimitiveKind
from fanin.p4switch.bmv2json.program import ExpressionList, Named
from fanin.p4switch.word_packing import from_words

if TYPE_CHECKING:
    from fanin.p4switch.bmv2json.program import Primitive
    from fanin.p4switch.codegen.actions import PrimitiveWriter
    from fanin.p4switch.codegen.writer import Writer
    from fanin.p4switch.trace.decode import PacketDecoder

_PLACE = re.compile(r"(?<!\\)\{.*?(?<!\\)\}", re.DOTALL)  # of a value; \{ and \} stand for themselves
_BRACE = re.compile(r"\\([{}])")


def _write(writer: PrimitiveWriter, out: Writer, text: Named, values: ExpressionList) -> None:
    """Write log_msg(): the switch keeps the values, and the reader of its messages puts them into the text."""
    if len(_PLACE.findall(text.name)) != len(values.items):
        raise writer.unsupported(f"log_msg: {len(values.items)} values for {text.name!r}")
    words = [word for value in values.items for word in writer.sized_words(value)]
    array = f"(const uint64_t[]){{{', '.join(words)}}}" if words else "NULL"
    out.line(f"report_message(&s->base, {writer.number}, {array}, {len(words)});")
    writer.trace_words(out, *words)


def _message(call: Primitive, words: tuple[int, ...]) -> Message:
    """Return the text with the values, in decimal as on BMv2."""
    text = call.arguments[0]
    assert isinstance(text, Named)
    rest = iter(words)
    values = iter([str(_value(head, rest)) for head in rest])
    filled = _PLACE.sub(lambda _: next(values), text.name)
    return Message("info", printable(_BRACE.sub(r"\1", filled)))


def _value(head: int, rest: Iterator[int]) -> int:
    count, signed = head >> 1, head & 1
    number = from_words(next(rest) for _ in range(count))
    return number - (signed * (number >> (64 * count - 1)) << 64 * count)


def _trace(packet: PacketDecoder, call: Primitive, words: tuple[int, ...]) -> None:
    packet.add_call(call)
    packet.add_message(call, words)


KINDS = (
    PrimitiveKind(
        "log_msg", ("string", "values"), _write, trace=_trace, traces_itself=True, message=_message
    ),
)
