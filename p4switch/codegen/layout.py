"""The representation of a program's fields in C.

Headers stay in the packet, in network byte order: extraction only points at them (`p->header[H_ipv4]`), and the macro
`ipv4_t_ttl` expands to a field's bit offset and width. Metadata are native integers in `p->meta`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fanin.p4switch.bmv2json.expressions import Field, HeaderName, StackElement, StackName, UnionName
from fanin.p4switch.bmv2json.program import (
    FieldType,
    Header,
    HeaderStack,
    HeaderType,
    HeaderUnion,
    ParserCall,
    Primitive,
    Program,
    ProgramError,
)
from fanin.p4switch.codegen.names import Names
from fanin.p4switch.codegen.tracing import trusted_headers
from fanin.p4switch.codegen.uses import Uses, jumps_back
from fanin.p4switch.codegen.writer import Writer

WIDEST = 128  # bits of C's widest integer; anything wider is a wide_t (wide.h)


def machine_width(width: int) -> int:
    """Return the width of the narrowest C integer that holds `width` bits, at most WIDEST."""
    return next(w for w in (8, 16, 32, 64, 128) if width <= w)


def storage_type(width: int, *, signed: bool = False) -> str:
    """Return the C type of a variable of `width` bits."""
    return "wide_t" if width > WIDEST else f"{'' if signed else 'u'}int{machine_width(width)}_t"


def access(width: int) -> str:
    """Return the suffix of the functions in bits.h and wide.h for `width` bits, as in get32, get64, get128, getwide."""
    return "wide" if width > WIDEST else str(max(32, machine_width(width)))


def wide_words(program: Program) -> int:
    """Return the number of words of a wide_t, enough for the product of the program's widest numbers."""
    widths = [f.width for h in program.header_types.values() for f in h.fields if not f.varying]
    widths += [p.width for action in program.actions.values() for p in action.parameters]
    widths += [r.width for r in program.registers.values()]
    return max(WIDEST, *widths) // 32 + 2


def cell_bytes(program: Program, width: int) -> int:
    """Return the size in bytes of a register cell of `width` bits."""
    return machine_width(width) // 8 if width <= WIDEST else 8 * wide_words(program)


QUEUEING = ("enq_timestamp", "enq_qdepth", "deq_timedelta", "deq_qdepth")


class Layout:
    """C names and types of headers, fields and metadata.

    What the switch does not support is raised as ProgramError.
    """

    def __init__(self, program: Program, names: Names, uses: Uses, advancing: set[str]) -> None:
        """Decide where headers are stored.

        Args:
            program: The program.
            names: Receives the C names.
            uses: The uses of fields in the program.
            advancing: Headers that loops point at. They must not overlap, even if they are invalid.
        """
        self.program = program
        self.names = names
        self.private = frozenset(f for fields in uses.locals.values() for f in fields)
        self.in_ingress = uses.in_ingress - self.private
        self.inlined = uses.inlined
        self.packet_headers = packet_headers(program)
        self.metadata = [h for h in program.headers.values() if h.is_metadata]
        for header in self.packet_headers:
            if header.type.width % 8:
                raise ProgramError(
                    f"header {header.name}: {header.type.width} bits are not a whole number of bytes"
                )
        self.varbits = any(h.type.varbit for h in self.packet_headers)
        self.calls = list(_calls(program))
        self.requests = {call.kind.request for call in self.calls} - {None}
        blocks = [program.deparser.primitives, *(action.primitives for action in program.actions.values())]
        self.loops = any(jumps_back(block) for block in blocks)
        self.may_fail = self.loops or any(call.kind.may_fail for call in self.calls)
        self.goes_again = bool(self.requests - {"digest"})
        self.bounded = self.loops or self.goes_again
        queueing = [field for name in QUEUEING if (field := self.standard(name))]
        priority = self.standard("priority")
        prioritizes = priority is not None and bool(uses.total[priority] > 0 or "clone" in self.requests)
        self.priority = priority if prioritizes else None  # a clone session may give clones a priority
        self.queues = prioritizes or any(uses.total[field] for field in queueing)
        self.families = self.queues and self.bounded
        own = self._made_valid() | advancing | {h.name for h in self.packet_headers if h.type.varbit}
        self.owned = [h for h in self.packet_headers if h.name in own]

    def _made_valid(self) -> set[str]:
        """Return the headers that the program can make valid itself, which need storage of their own."""
        made: set[str] = set()
        for call in self.calls:
            if call.kind.makes_valid:
                target = call.arguments[0]
                if isinstance(target, StackName):
                    made.update(self.program.stacks[target.name].headers)
                elif isinstance(target, StackElement):
                    made.update(self.program.stacks[target.stack].headers)
                elif isinstance(target, UnionName):
                    made.update(self.program.unions[target.name].headers)
                elif isinstance(target, HeaderName):
                    made.add(target.name)
        return made

    # Headers

    def header_index(self, name: str) -> str:
        """Return the enumerator of a header instance."""
        return self.names.identifier("H_", name)

    def header_pointer(self, name: str) -> str:
        """Return a C expression for the header's first byte."""
        return f"p->header[{self.header_index(name)}]"

    def is_valid(self, name: str) -> str:
        """Return a C condition that the header is valid. Metadata always is."""
        header = self.program.headers[name]
        if header.is_metadata or header.always_valid:
            return "1"
        return f"p->valid[{self.header_index(name)}]"

    def trace_invalid(self, out: Writer, part: object) -> None:
        """Write a trace record for each invalid header of which a part of the program uses fields; see tracing.py."""
        for name in trusted_headers(self.program, part) if out.traced else ():
            if not self.program.headers[name].always_valid:
                out.line(f"if (!{self.is_valid(name)})")
                out.line(f"    TRACE(TRACE_INVALID, {self.header_index(name)});")

    def check_varbit(self, header: str, where: str) -> None:
        """Check that a header's varbit is byte-aligned: only parser and deparser support others."""
        varbit = self.program.headers[header].type.varbit
        if varbit is not None and varbit.offset % 8:
            raise ProgramError(f"{where}: {header}.{varbit.name} is a varbit that is not aligned to bytes")

    def field_base(self, index: str, kind: FieldType) -> str:
        """Return a C expression for the base of a field's offset, in the header with that number."""
        return f"with_varbit(p, {index})" if kind.behind_varbit else f"p->header[{index}]"

    def own_bytes(self, name: str) -> str:
        """Return the storage of a header that is not in the packet."""
        if any(h.name == name for h in self.owned):
            return f"p->own.{self.names.identifier('', name, ('own', name))}"
        return "p->nowhere"

    def field_macro(self, header_type: HeaderType, field: FieldType) -> str:
        """Return the macro for a header field's bit offset and width."""
        return self.names.macro(f"{header_type.name}_{field.name}", ("field", header_type.name, field.name))

    # Metadata

    def function(self, result: str, name: str, *, inlined: bool, more: str = "") -> str:
        """Return the head of the function of an action or table. An inlined one has `m`, the metadata of ingress."""
        kind, metadata = ("INLINE", ", struct ingress_metadata *m") if inlined else ("static", "")
        return f"{kind} {result} {name}(struct state *s, struct packet *p{metadata}{more})"

    def metadata_member(self, reference: Field) -> str:
        """Return the C lvalue of a metadata field."""
        instance = self.names.identifier("", reference.header, ("meta", reference.header))
        member = self.names.identifier("", reference.name, ("member", reference.header, reference.name))
        return f"{'m->' if reference in self.in_ingress else 'p->meta.'}{instance}.{member}"

    def member_type(self, reference: Field) -> str:
        """Return the C type of a metadata field."""
        kind = self.program.field_type(reference)
        return storage_type(kind.width, signed=kind.signed)

    def is_metadata(self, reference: Field) -> bool:
        """Return whether the field is metadata: a native integer, not bytes of the packet."""
        return self.program.headers[reference.header].is_metadata

    def standard(self, name: str, of: str = "standard_metadata") -> Field | None:
        """Return the field that simple_switch knows by a name such as `mcast_grp`, or None. Aliases are resolved."""
        for header in (of, "intrinsic_metadata", "queueing_metadata"):
            found = self.program.aliases.get(f"{header}.{name}", Field(header, name))
            instance = self.program.headers.get(found.header)
            kind = instance.type.field(found.name) if instance is not None else None
            if kind is not None and kind.width:
                return found
        return None

    # Declarations

    def write(self, out: Writer) -> None:
        """Write macros, enumerators and `struct packet`."""
        out.line(f"#define WIDE_WORDS {wide_words(self.program)}")
        out.line('#include "wide.h"')
        out.line()
        self._write_headers(out)
        if self.requests:
            out.line("#define REQUESTS")
            out.line()
        if self.program.unions:
            self._write_unions(out)
        with out.block("struct metadata", ";"):
            self._write_metadata(out, lambda field: field not in self.in_ingress)
        out.line()
        out.comment(
            "Metadata that only ingress uses: local variables, which the compiler may keep in registers."
        )
        with out.block("struct ingress_metadata", ";"):
            self._write_metadata(out, lambda field: field in self.in_ingress)
        out.line()
        self._write_packet(out)

    def stack_next(self, stack: str) -> str:
        """Return the member that counts a stack's elements."""
        return "next." + self.names.identifier("next_", stack, ("next", stack)).removeprefix("next_")

    def _write_headers(self, out: Writer) -> None:
        """Write the positions of the fields of each header type, and the numbers and sizes of headers."""
        types = {h.type.name: h.type for h in self.packet_headers}
        for header_type in types.values():
            out.comment(f"header {header_type.name}: {header_type.width // 8} bytes; bit offset, width")
            for field in header_type.fields:
                out.line(f"#define {self.field_macro(header_type, field)} {field.offset}, {field.width}")
            out.line()
        with out.block("enum", ";"):
            for header in self.packet_headers:
                out.line(f"{self.header_index(header.name)},")
            out.line("HEADERS")
        out.line()
        with out.block("static const uint16_t header_size[HEADERS + 1] =", ";"):
            for header in self.packet_headers:
                varies = "and its varbit" if header.type.varbit else ""
                out.line(f"[{self.header_index(header.name)}] = {header.type.fixed_bytes},", varies)
        out.line()
        if self.varbits:
            out.line("#define VARBITS")
            with out.block(
                "static const uint16_t varbit_at[HEADERS + 1] =", ";", "bytes in front of the varbit"
            ):
                for header in self.packet_headers:
                    if header.type.varbit:
                        out.line(f"[{self.header_index(header.name)}] = {header.type.varbit.offset // 8},")
            out.line()

    def _write_unions(self, out: Writer) -> None:
        out.line("#define UNIONS")
        out.comment("For each member of a header union: the first member, and the number of members.")
        with out.block("static const struct { uint16_t first, count; } union_of[HEADERS + 1] =", ";"):
            for union in self.program.unions.values():
                first = self.header_index(union.headers[0])
                for name in union.headers:
                    out.line(f"[{self.header_index(name)}] = {{{first}, {len(union.headers)}}},")
        out.line()

    def _write_metadata(self, out: Writer, chosen: Callable[[Field], bool]) -> None:
        """Write a struct for each metadata instance, with its chosen fields."""
        for instance in self.metadata:
            name = self.names.identifier("", instance.name, ("meta", instance.name))
            with out.block("struct", f" {name};"):
                for kind in instance.type.fields:
                    field = Field(instance.name, kind.name)
                    if kind.width and field not in self.private and chosen(field):
                        member = self.metadata_member(field).rpartition(".")[2]
                        out.line(f"{self.member_type(field)} {member};")

    def _write_packet(self, out: Writer) -> None:
        longest = max((h.type.width // 8 for h in self.packet_headers), default=0)
        deparsed = sum(self.program.headers[h].type.width // 8 for h in self.program.deparser.order)
        out.line(f"#define HEADROOM {(deparsed + 127) // 64 * 64}")
        out.line()
        with out.block("struct packet", ";"):
            out.line("struct metadata meta;")
            out.line(
                "uint8_t *header[HEADERS + 1];", "in the packet after extraction, else in `own` or `nowhere`"
            )
            out.line("bool valid[HEADERS + 1];")
            with out.block("struct", " next;", "elements of a stack that are in use"):
                for stack in self.program.stacks.values():
                    out.line(f"uint32_t {self.stack_next(stack.name).removeprefix('next.')};")
            if self.varbits:
                out.line("uint16_t varying[HEADERS + 1];", "bytes of each varbit")
            if self.requests:
                out.line("struct { uint32_t clone, clone_list, resubmit, recirculate, digest; } request;")
            out.line(
                "uint8_t *start, *payload, *end;", "the packet, the data after its parsed headers, its end"
            )
            out.line(
                "uint8_t *first;", "the beginning of the packet that leaves, if it is known before egress"
            )
            out.line("uint8_t *checksum;", "a partial checksum, see emit_function")
            out.line("uint16_t partial_sum;", "its value on arrival, or after an update")
            out.line("uint32_t partial_to;", "the most bytes sent of a packet that it covers")
            out.line("uint32_t length, ingress_length;")
            out.line("uint32_t longest, truncate_to;", "the most bytes of a clone; the most bytes sent")
            out.line("uint64_t now;")
            if self.families:
                out.line("struct family *family;", "of a packet that waits")
            out.line(
                "bool exit, checksum_error, failed;", "failed: an assertion failed, so the packet is dropped"
            )
            out.line("bool dirty;", "`own` and `nowhere` are not all zeros")
            with out.block("struct", " own;"):
                for header in self.owned:
                    member = self.own_bytes(header.name).removeprefix("p->own.")
                    out.line(f"uint8_t {member}[{header.type.width // 8 + 8}];")
            out.line(f"uint8_t nowhere[{longest + 8}];", "receives the writes to invalid headers")
            out.line(
                "uint8_t bytes[HEADROOM + LONGEST_PACKET];",
                "of a copy; other packets stay where they arrived",
            )
        out.line()


def packet_headers(program: Program) -> list[Header]:
    """Return the headers of packets, with those of a stack or union adjacent.

    Raises:
        ProgramError: If those of a stack or union are metadata, or belong to several.
    """
    grouped: list[str] = []
    groups: list[HeaderStack | HeaderUnion] = [*program.stacks.values(), *program.unions.values()]
    for group in groups:
        grouped += [name for name in group.headers if name not in grouped]
    names = list(dict.fromkeys([*grouped, *program.headers]))
    for group in groups:
        first = names.index(group.headers[0]) if group.headers else 0
        together = names[first : first + len(group.headers)] == list(group.headers)
        if not together or any(program.headers[name].is_metadata for name in group.headers):
            raise ProgramError(
                f"{group.name}: its headers are metadata or belong to several stacks or unions"
            )
    return [program.headers[name] for name in names if not program.headers[name].is_metadata]


def _calls(program: Program) -> Iterator[Primitive]:
    """Yield every primitive call of the program."""
    for action in program.actions.values():
        yield from action.primitives
    for state in program.parser.states.values():
        yield from (o.primitive for o in state.operations if isinstance(o, ParserCall))
    yield from program.deparser.primitives
