"""Where a program's fields live in C.

Headers stay in the packet, in network byte order: extraction only points at them (`p->header[H_ipv4]`), and the macro
`ipv4_t_ttl` expands to a field's bit offset and width. Metadata are native integers in `p->meta`.
"""

from __future__ import annotations

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
from fanin.p4switch.codegen.uses import Uses, jumps_back
from fanin.p4switch.codegen.writer import Writer

WIDEST = 128  # bits of C's widest integer; what is wider is a wide_t (wide.h)
CHANGE_VALIDITY = {
    "add_header",
    "add_header_fast",
    "assign_header",
    "copy_header",
    "push",
    "pop",
    "assign_header_stack",
    "assign_union",
    "assign_union_stack",
}
# What a packet may ask to happen to it once a pipeline is done, beside being sent.
CLONES = {"clone_ingress_pkt_to_egress", "clone_egress_pkt_to_egress"}
REQUESTS = CLONES | {"resubmit", "recirculate", "generate_digest"}


def machine_width(width: int) -> int:
    """The narrowest C integer that holds `width` bits, which are at most WIDEST."""
    return next(w for w in (8, 16, 32, 64, 128) if width <= w)


def storage_type(width: int, *, signed: bool = False) -> str:
    """The C type of a variable of `width` bits."""
    return "wide_t" if width > WIDEST else f"{'' if signed else 'u'}int{machine_width(width)}_t"


def access(width: int) -> str:
    """How the functions of bits.h and wide.h for a field of `width` bits end: get32, get64, get128, getwide."""
    return "wide" if width > WIDEST else str(max(32, machine_width(width)))


def wide_words(program: Program) -> int:
    """The words of a wide_t: room for the product of the program's widest numbers."""
    widths = [f.width for h in program.header_types.values() for f in h.fields if not f.varying]
    widths += [p.width for action in program.actions.values() for p in action.parameters]
    widths += [r.width for r in program.registers.values()]
    return max(WIDEST, *widths) // 32 + 2


def cell_bytes(program: Program, width: int) -> int:
    """The bytes of a register's cell of `width` bits."""
    return machine_width(width) // 8 if width <= WIDEST else 8 * wide_words(program)


QUEUEING = ("enq_timestamp", "enq_qdepth", "deq_timedelta", "deq_qdepth")


class Layout:
    """C names and types of headers, fields and metadata.

    What the switch cannot run is a ProgramError.
    """

    def __init__(self, program: Program, names: Names, uses: Uses, advancing: set[str]) -> None:
        """`advancing`: headers that loops point at; even invalid ones must not overlap."""
        self.program = program
        self.names = names
        self.private = frozenset(f for fields in uses.locals.values() for f in fields)
        self.packet_headers = packet_headers(program)
        self.metadata = [h for h in program.headers.values() if h.is_metadata]
        for header in self.packet_headers:
            if header.type.width % 8:
                raise ProgramError(
                    f"header {header.name}: {header.type.width} bits are no whole number of bytes"
                )
        self.stack_of = {name: stack for stack in program.stacks.values() for name in stack.headers}
        self.varbits = any(h.type.varbit for h in self.packet_headers)
        self.requests = REQUESTS & {call.op for call in self._calls()}
        blocks = [program.deparser.primitives, *(action.primitives for action in program.actions.values())]
        self.loops = any(jumps_back(block) for block in blocks)
        self.may_fail = self.loops or any(call.op in ("assert", "assume") for call in self._calls())
        self.goes_again = bool(self.requests - {"generate_digest"})
        self.bounded = self.loops or self.goes_again
        queueing = [field for name in QUEUEING if (field := self.standard(name))]
        priority = self.standard("priority")
        prioritizes = priority is not None and bool(uses.total[priority] > 0 or CLONES & self.requests)
        self.priority = priority if prioritizes else None  # a clone session may give clones one
        self.queues = prioritizes or any(uses.total[field] for field in queueing)
        self.families = self.queues and self.bounded
        own = self._made_valid() | advancing | {h.name for h in self.packet_headers if h.type.varbit}
        self.owned = [h for h in self.packet_headers if h.name in own]

    def _calls(self) -> list[Primitive]:
        """Every primitive of the program."""
        calls = [p for action in self.program.actions.values() for p in action.primitives]
        for state in self.program.parser.states.values():
            calls += [o.primitive for o in state.operations if isinstance(o, ParserCall)]
        return [*calls, *self.program.deparser.primitives]

    def _made_valid(self) -> set[str]:
        """Headers that the program can make valid by itself: they need room of their own."""
        made: set[str] = set()
        for call in self._calls():
            if call.op in CHANGE_VALIDITY:
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
        """The enumerator of a header instance."""
        return self.names.identifier("H_", name)

    def header_pointer(self, name: str) -> str:
        """A C expression for the header's first byte."""
        return f"p->header[{self.header_index(name)}]"

    def is_valid(self, name: str) -> str:
        """A C condition: the header is valid. Metadata always are."""
        header = self.program.headers[name]
        if header.is_metadata or header.always_valid:
            return "1"
        return f"p->valid[{self.header_index(name)}]"

    def check_varbit(self, header: str, where: str) -> None:
        """Refuses a header whose varbit stands within bytes, where only parser and deparser can take it."""
        varbit = self.program.headers[header].type.varbit
        if varbit is not None and varbit.offset % 8:
            raise ProgramError(f"{where}: {header}.{varbit.name} is a varbit that does not begin with a byte")

    def field_base(self, index: str, kind: FieldType) -> str:
        """A C expression for what a field's offset counts from, in the header of that number."""
        return f"with_varbit(p, {index})" if kind.behind_varbit else f"p->header[{index}]"

    def own_bytes(self, name: str) -> str:
        """The room of a header that is not in the packet."""
        if any(h.name == name for h in self.owned):
            return f"p->own.{self.names.identifier('', name, ('own', name))}"
        return "p->nowhere"

    def field_macro(self, header_type: HeaderType, field: FieldType) -> str:
        """The macro for a header field's bit offset and width."""
        return self.names.macro(f"{header_type.name}_{field.name}", ("field", header_type.name, field.name))

    # Metadata

    def metadata_member(self, reference: Field) -> str:
        """The C lvalue of a metadata field."""
        instance = self.names.identifier("", reference.header, ("meta", reference.header))
        member = self.names.identifier("", reference.name, ("member", reference.header, reference.name))
        return f"p->meta.{instance}.{member}"

    def member_type(self, reference: Field) -> str:
        """The C type of a metadata field."""
        kind = self.program.field_type(reference)
        return storage_type(kind.width, signed=kind.signed)

    def is_metadata(self, reference: Field) -> bool:
        """Whether the field is metadata: a native integer and not bytes of the packet."""
        return self.program.headers[reference.header].is_metadata

    def standard(self, name: str, of: str = "standard_metadata") -> Field | None:
        """A field that simple_switch knows by name (`mcast_grp`), where the program has it, aliases resolved."""
        for header in (of, "intrinsic_metadata", "queueing_metadata"):
            found = self.program.aliases.get(f"{header}.{name}", Field(header, name))
            instance = self.program.headers.get(found.header)
            kind = instance.type.field(found.name) if instance is not None else None
            if kind is not None and kind.width:
                return found
        return None

    # Declarations

    def write(self, out: Writer) -> None:
        """Macros, enumerators and `struct packet`."""
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
            for instance in self.metadata:
                self._write_metadata(out, instance)
        out.line()
        self._write_packet(out)

    def stack_next(self, stack: str) -> str:
        """The member that counts a stack's elements."""
        return "next." + self.names.identifier("next_", stack, ("next", stack)).removeprefix("next_")

    def _write_headers(self, out: Writer) -> None:
        """Where the fields of each header type are; the headers' numbers and sizes."""
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
        out.comment("Of a member of a header union: the first of the members, and how many they are.")
        with out.block("static const struct { uint16_t first, count; } union_of[HEADERS + 1] =", ";"):
            for union in self.program.unions.values():
                first = self.header_index(union.headers[0])
                for name in union.headers:
                    out.line(f"[{self.header_index(name)}] = {{{first}, {len(union.headers)}}},")
        out.line()

    def _write_metadata(self, out: Writer, instance: Header) -> None:
        name = self.names.identifier("", instance.name, ("meta", instance.name))
        with out.block("struct", f" {name};"):
            for field in instance.type.fields:
                if field.width and Field(instance.name, field.name) not in self.private:
                    reference = Field(instance.name, field.name)
                    member = self.metadata_member(reference).rpartition(".")[2]
                    out.line(f"{self.member_type(reference)} {member};")

    def _write_packet(self, out: Writer) -> None:
        longest = max((h.type.width // 8 for h in self.packet_headers), default=0)
        deparsed = sum(self.program.headers[h].type.width // 8 for h in self.program.deparser.order)
        out.line(f"#define HEADROOM {(deparsed + 127) // 64 * 64}")
        out.line()
        with out.block("struct packet", ";"):
            out.line(
                "uint8_t *header[HEADERS + 1];", "in the packet once extracted; else in `own` or `nowhere`"
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
                "uint8_t *start, *payload, *end;", "the packet, what is behind its parsed headers, its end"
            )
            out.line("uint8_t *first;", "where the packet begins that leaves, if that is known before egress")
            out.line("uint8_t *checksum;", "a partial checksum, see emit_function")
            out.line("uint16_t partial_sum;", "what it was on arrival, or what an update has made of it")
            out.line("uint32_t length, ingress_length;")
            out.line(
                "uint32_t longest, truncate_to;", "a clone has at most so many bytes; leaves with so many"
            )
            out.line("uint64_t now;")
            if self.families:
                out.line("struct family *family;", "of a packet that waits")
            out.line(
                "bool exit, checksum_error, failed;", "failed: an assertion, so that the packet is dropped"
            )
            out.line("bool dirty;", "`own` and `nowhere` are not all zeros")
            out.line("struct metadata meta;")
            with out.block("struct", " own;"):
                for header in self.owned:
                    member = self.own_bytes(header.name).removeprefix("p->own.")
                    out.line(f"uint8_t {member}[{header.type.width // 8 + 8}];")
            out.line(f"uint8_t nowhere[{longest + 8}];", "what writes to an invalid header are lost in")
            out.line("uint8_t bytes[HEADROOM + LONGEST_PACKET];", "of a copy; others stand where they came")
        out.line()


def packet_headers(program: Program) -> list[Header]:
    """The headers of packets, those of a stack or union one after another.

    Raises:
        ProgramError: those of a stack or union are metadata, or belong to several.
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
