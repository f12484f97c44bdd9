"""A v1model program as its BMv2 JSON describes it: what every other module of the switch reads.

Names are those of the JSON; `reader.read_program` builds a `Program` from the file.
Source: BMv2's docs/JSON_format.md, format 2.x.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePath

from fanin.p4switch.bmv2json.expressions import Constant, Expression, Field, HeaderName

LONGEST_PACKET = 65600  # as in runtime/switch.h: IPv4 has 65,535 bytes, before Ethernet and tags
MAX_MESSAGE = 1000  # characters: gRPC's clients take 8 KB of everything that is said of an error


class ProgramError(Exception):
    """A BMv2 JSON that is malformed, or that asks for what this switch does not run; names the element."""

    def __init__(self, message: str) -> None:
        cut = message if len(message) <= MAX_MESSAGE else f"{message[:MAX_MESSAGE]}…"
        super().__init__("".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in cut))


@dataclass(frozen=True, slots=True)
class Source:
    """Where in the P4 source an element stands, and its text."""

    file: str
    line: int
    fragment: str

    def __str__(self) -> str:
        """As the C has it: without the folder, so that the same program in another one is compiled once."""
        return f"{PurePath(self.file).name}:{self.line}: {self.fragment}"


@dataclass(frozen=True, slots=True)
class Named:
    """A program object as a primitive's argument; `kind` is the JSON's: register_array, counter_array, ..."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class ExpressionList:
    """A list of expressions as one argument."""

    items: tuple[Expression, ...]


Argument = Expression | Named | ExpressionList


@dataclass(frozen=True, slots=True)
class Primitive:
    """One primitive call of an action."""

    op: str
    arguments: tuple[Argument, ...]
    source: Source | None = None


# Headers and metadata.


@dataclass(frozen=True, slots=True)
class FieldType:
    """A field of a header type: `width` bits (of a varbit: at most) from bit `offset` on, as if varbits were empty."""

    name: str
    width: int
    signed: bool
    offset: int
    varying: bool = False
    behind_varbit: bool = False


@dataclass(frozen=True)
class HeaderType:
    """A header or struct type; `width` in bits, a varbit at its longest."""

    name: str
    fields: tuple[FieldType, ...]
    width: int

    @property
    def fixed_bytes(self) -> int:
        """Its length without the varbit."""
        return (self.width - (self.varbit.width if self.varbit else 0)) // 8

    @property
    def varbit(self) -> FieldType | None:
        """The field of varying width."""
        return next((f for f in self.fields if f.varying), None)

    @property
    def shape(self) -> tuple[tuple[int, bool], ...]:
        """What headers have in common that can be assigned to each other: widths of fields, and which is the varbit."""
        return tuple((f.width, f.varying) for f in self.fields)

    def field(self, name: str) -> FieldType | None:
        """The field of that name, if there is one."""
        return self._by_name.get(name)

    @cached_property
    def _by_name(self) -> dict[str, FieldType]:
        return {f.name: f for f in reversed(self.fields)}  # of fields of one name the first


@dataclass(frozen=True, slots=True)
class Header:
    """An instance of a header type; metadata never stand in a packet. Those with a varbit are always valid bytes."""

    name: str
    id: int
    type: HeaderType
    is_metadata: bool
    always_valid: bool = False


@dataclass(frozen=True, slots=True)
class HeaderStack:
    """A header stack and its elements' instances, in order; of a stack of unions, `unit` members for each element."""

    name: str
    headers: tuple[str, ...]
    unit: int = 1

    @property
    def depth(self) -> int:
        """The number of elements."""
        return len(self.headers) // self.unit


@dataclass(frozen=True, slots=True)
class HeaderUnion:
    """A header union's members, of which at most one is valid."""

    name: str
    headers: tuple[str, ...]


# Parser and deparser.


@dataclass(frozen=True, slots=True)
class ExtractHeader:
    """Extraction into a header instance; `length`: the bits of its varbit."""

    header: str
    length: Expression | None = None


@dataclass(frozen=True, slots=True)
class ExtractNext:
    """Extraction into the next element of a header stack (of a stack of unions: into that `member`)."""

    stack: str
    member: int = 0
    length: Expression | None = None


@dataclass(frozen=True, slots=True)
class Set:
    """An assignment in a parser state."""

    target: Expression
    value: Expression


@dataclass(frozen=True, slots=True)
class Verify:
    """Stop parsing with an error unless the condition holds."""

    condition: Expression
    error: Expression


@dataclass(frozen=True, slots=True)
class Advance:
    """Skip a number of bits of the packet."""

    bits: Expression


@dataclass(frozen=True, slots=True)
class ParserCall:
    """A primitive called from a parser state."""

    primitive: Primitive


ParserOperation = ExtractHeader | ExtractNext | Set | Verify | Advance | ParserCall


@dataclass(frozen=True, slots=True)
class Transition:
    """Where to go when the key's fields equal `values` under `masks`, or are in a value set; None in all: always."""

    values: tuple[int, ...] | None
    masks: tuple[int | None, ...] | None
    next_state: str | None
    value_set: str | None = None


@dataclass(frozen=True, slots=True)
class ParserState:
    """One state: its operations, then a choice by the transition key."""

    name: str
    operations: tuple[ParserOperation, ...]
    key: tuple[Expression, ...]
    key_widths: tuple[int, ...]
    transitions: tuple[Transition, ...]


@dataclass(frozen=True, slots=True)
class Parser:
    """The parser's states by name."""

    name: str
    initial: str | None
    states: dict[str, ParserState]


@dataclass(frozen=True, slots=True)
class Deparser:
    """The headers in the order in which the valid ones are emitted, after the primitives have run."""

    name: str
    order: tuple[str, ...]
    primitives: tuple[Primitive, ...] = ()


# Match-action.


@dataclass(frozen=True, slots=True)
class ActionParameter:
    """A parameter that a table entry gives; `width` in bits."""

    name: str
    width: int


@dataclass(frozen=True, slots=True)
class Action:
    """An action: several may have one name, ids are unique."""

    name: str
    id: int
    parameters: tuple[ActionParameter, ...]
    primitives: tuple[Primitive, ...]
    source: Source | None = None


@dataclass(frozen=True, slots=True)
class TableKey:
    """One key field; `kind` is exact, lpm, ternary, range, optional or valid; `mask` None: all bits."""

    name: str
    kind: str
    target: Field
    width: int
    mask: int | None


@dataclass(frozen=True, slots=True)
class ConstMatch:
    """One match of a const entry, as the JSON has it; the second number's meaning follows the kind."""

    kind: str
    value: int
    second: int


@dataclass(frozen=True, slots=True)
class ConstEntry:
    """An entry that the program declares; a lower `priority` wins, as in the JSON."""

    matches: tuple[ConstMatch, ...]
    priority: int
    action: int
    data: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DefaultAction:
    """What runs on a miss, and whether the control plane may change it."""

    action: int
    data: tuple[int, ...]
    is_const: bool


@dataclass(frozen=True, slots=True)
class Table:
    """A match-action table. `next_nodes` maps action names, or __HIT__ and __MISS__, to nodes (None: the end)."""

    name: str
    id: int
    match_type: str
    keys: tuple[TableKey, ...]
    actions: tuple[Action, ...]
    max_size: int
    with_counters: bool
    support_timeout: bool
    next_nodes: dict[str, str | None]
    default_next: str | None
    default: DefaultAction | None
    const_entries: tuple[ConstEntry, ...] | None
    source: Source | None = None
    profile: str | None = None
    with_meters: bool = False

    @property
    def successors(self) -> tuple[str | None, ...]:
        """The nodes that may run after this one; None is the end of the pipeline."""
        return (*self.next_nodes.values(), self.default_next)

    @property
    def is_call(self) -> bool:
        """Without keys, with a fixed default action and nothing to count: how p4c writes the call of an action."""
        fixed = self.default is not None and self.default.is_const
        return fixed and not self.keys and not self.with_counters and not self.with_meters

    def action(self, name: str) -> Action | None:
        """The table's action of that name."""
        return next((a for a in self.actions if a.name == name), None)


@dataclass(frozen=True, slots=True)
class Branch:
    """An if: the node to go on with when the condition holds, and when not."""

    name: str
    condition: Expression
    when_true: str | None
    when_false: str | None
    source: Source | None = None

    @property
    def successors(self) -> tuple[str | None, ...]:
        """The two nodes."""
        return (self.when_true, self.when_false)


@dataclass(frozen=True, slots=True)
class ActionNode:
    """A direct call of an action without parameters."""

    name: str
    action: Action
    next_node: str | None
    source: Source | None = None

    @property
    def successors(self) -> tuple[str | None, ...]:
        """The one node."""
        return (self.next_node,)


Node = Table | Branch | ActionNode


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Ingress or egress: a graph of tables and branches."""

    name: str
    initial: str | None
    nodes: dict[str, Node]


# State and externs.


@dataclass(frozen=True, slots=True)
class CounterArray:
    """Packet and byte counters; a direct one belongs to the entries of `table`."""

    name: str
    id: int
    size: int
    table: str | None


@dataclass(frozen=True, slots=True)
class RegisterArray:
    """`size` cells of `width` bits."""

    name: str
    id: int
    size: int
    width: int


@dataclass(frozen=True, slots=True)
class MeterArray:
    """Meters that count packets, or bytes; a direct one belongs to the entries of `table` and sets `target`."""

    name: str
    id: int
    size: int
    rates: int
    by_bytes: bool
    table: str | None
    target: Field | None


@dataclass(frozen=True, slots=True)
class ValueSet:
    """Values, given at run time, that parser states compare their key with; `table` is how they are kept."""

    name: str
    id: int
    table: Table


@dataclass(frozen=True, slots=True)
class ActionProfile:
    """Members (actions with their data) that tables share; with a selector (a calculation) also groups of them."""

    name: str
    id: int
    max_size: int
    selector: str | None


@dataclass(frozen=True, slots=True)
class FieldList:
    """Fields to be kept or sent, by the number with which primitives name them."""

    id: int
    name: str
    fields: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class CalculationInput:
    """A piece of a calculation's input: a field, a header, a constant of `width` bits, or the payload (None)."""

    value: Field | HeaderName | Constant | None
    width: int = 0


REMEMBERING = {"toeplitz", "round_robin", "round_robin_consistent"}
"""Hash algorithms whose result depends on what a controller or earlier packets have left."""


@dataclass(frozen=True, slots=True)
class Calculation:
    """A hash over fields, by algorithm name."""

    name: str
    algorithm: str
    inputs: tuple[CalculationInput, ...]


@dataclass(frozen=True, slots=True)
class Checksum:
    """A calculation whose result a field holds: to verify after parsing, to update before deparsing."""

    name: str
    target: Field
    calculation: str
    update: bool
    verify: bool
    condition: Expression | None


@dataclass(frozen=True, slots=True)
class Program:
    """One program. Dictionaries are by name, in the JSON's order."""

    name: str
    header_types: dict[str, HeaderType]
    headers: dict[str, Header]
    stacks: dict[str, HeaderStack]
    errors: dict[str, int]
    parser: Parser
    deparser: Deparser
    ingress: Pipeline
    egress: Pipeline
    tables: dict[str, Table]
    actions: dict[int, Action]
    counters: dict[str, CounterArray]
    registers: dict[str, RegisterArray]
    meters: dict[str, MeterArray]
    calculations: dict[str, Calculation]
    checksums: tuple[Checksum, ...]
    unions: dict[str, HeaderUnion] = field(default_factory=dict)
    value_sets: dict[str, ValueSet] = field(default_factory=dict)
    profiles: dict[str, ActionProfile] = field(default_factory=dict)
    field_lists: dict[int, FieldList] = field(default_factory=dict)
    digests: dict[int, FieldList] = field(default_factory=dict)
    aliases: dict[str, Field] = field(default_factory=dict)

    @property
    def hash_states(self) -> list[str]:
        """The calculations that remember something from packet to packet."""
        return [c.name for c in self.calculations.values() if c.algorithm in REMEMBERING]

    def field_type(self, reference: Field) -> FieldType:
        """The type of a field.

        Raises:
            ProgramError: the name does not exist.
        """
        header = self.headers.get(reference.header)
        found = header.type.field(reference.name) if header else None
        if found is None:
            raise ProgramError(f"field {reference.header}.{reference.name} does not exist")
        return found
