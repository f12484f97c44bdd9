"""Properties of each primitive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fanin.p4switch.bmv2json.program import Primitive
    from fanin.p4switch.codegen.writer import Writer
    from fanin.p4switch.trace.decode import PacketDecoder


@dataclass(frozen=True, slots=True)
class Message:
    """Message of a program for the switch's log. `level` is info or error."""

    level: str
    text: str


class PrimitiveKind:
    """Kind of primitive. `p4switch/primitives` has a module for each kind, or for a few that belong together.

    Not a dataclass, so that code that looks through a program's parts does not look into it.

    Attributes:
        name: Its name in BMv2's JSON.
        parameters: What each argument must be, for example "target" or "register_array".
        write: Writes its C: takes a PrimitiveWriter, a Writer, and the arguments.
        helper: Writes a C function, once for each program that uses the kind: takes a Writer and the function's name.
            `write` finds the name in `writer.helper`. None if there is none.
        trace: Adds its events to a trace: takes a PacketDecoder, the call, and the recorded words. None for a primitive
            that assigns to its first argument, or that has only a name to show.
        message: Returns its message for the log: takes the call and the recorded words. None if it has none.
        traces_itself: Whether `write` also writes the trace record.
        overwrites: Whether it sets its first argument without reading it.
        sets_local: Whether its target may be a local variable of the action, if the action sets it before reading it.
        sets_fields: Fields of its header argument that it sets.
        makes_valid: Whether it may make the header, stack or union of its first argument valid.
        request: What it requests for the end of the pipeline: "clone", "resubmit", "recirculate" or "digest".
        jumps: Whether its last argument is the index of a primitive to continue at.
        may_end: Whether the pipeline may end with it.
        may_fail: Whether the packet may be dropped by it at once.
        repeatable: Whether it treats packets with equal fields equally, so that egress can be replayed.
    """

    def __init__(
        self,
        name: str,
        parameters: tuple[str, ...],
        write: Callable[..., None],
        *,
        helper: Callable[[Writer, str], None] | None = None,
        trace: Callable[[PacketDecoder, Primitive, tuple[int, ...]], None] | None = None,
        message: Callable[[Primitive, tuple[int, ...]], Message] | None = None,
        traces_itself: bool = False,
        overwrites: bool = False,
        sets_local: bool = False,
        sets_fields: tuple[str, ...] = (),
        makes_valid: bool = False,
        request: str | None = None,
        jumps: bool = False,
        may_end: bool = False,
        may_fail: bool = False,
        repeatable: bool = False,
    ) -> None:
        self.name = name
        self.parameters = parameters
        self.write = write
        self.helper = helper
        self.trace = trace
        self.message = message
        self.traces_itself = traces_itself
        self.overwrites = overwrites
        self.sets_local = sets_local
        self.sets_fields = sets_fields
        self.makes_valid = makes_valid
        self.request = request
        self.jumps = jumps
        self.may_end = may_end
        self.may_fail = may_fail
        self.repeatable = repeatable

    def __repr__(self) -> str:
        return f"PrimitiveKind({self.name!r})"
