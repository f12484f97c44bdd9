"""A v1model program as its BMv2 JSON describes it, which all other modules of the switch read.

Names are those of the JSON; `reader.read_program` builds a `Program` from the file.
Source: BMv2's docs/JSON_format.md, format 2.x.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePath

from fanin.p4switch.bmv2json.expressions import Constant, Expression, Field, HeaderName
from fanin.p4switch.bmv2json.primitive_kind import PrimitiveKind

LONGEST_PACKET = 65600  # as in runtime/switch.h: IPv4 has 65,535 bytes, without Ethernet and tags
MAX_MESSAGE = 1000  # characters: gRPC clients accept 8 KB for everything about an error


class ProgramError(Exception):
    """Malformed BMv2 JSON, or a program that the switch does not support. The message names the element."""

    def __init__(self, message: str) -> None:
        cut = message if len(message) <= MAX_MESSAGE else f"{message[:MAX_MESSAGE]}…"
        super().__init__("".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in cut))


@dataclass(frozen=True, slots=True)
class Source:
    """Place of an element in the P4 source, and its text."""

    file: str
    line: int
    fragment: str

    def __str__(self) -> str:
        """Format it without the folder, so that the same program in another folder is found in the cache."""
        return f"{PurePath(self.file).name}:{self.line}: {self.fragment}"


@dataclass(frozen=True, slots=True)
class Named:
    """Named object as a primitive's argument; `kind` is the JSON's: register_array, counter_array, ..."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class ExpressionList:
    """List of expressions as one argument."""

    items: tuple[Expression, ...]


Argument = Expression | Named | ExpressionList


@dataclass(frozen=True, slots=True)
class Primitive:
    """Primitive call in an action."""

    kind: PrimitiveKind
    arguments: tuple[Argument, ...]
    source: Source | None = None

    @property
    def op(self) -> str:
        """The primitive's name."""
        return self.kind.name


# Headers and metadata.


@dataclass(frozen=True, slots=True)
class FieldType:
    """Field of a header type.

    Attributes:
        name: The field's name.
        width: Its width in bits; of a varbit the largest one.
        signed: True for int<>.
        offset: The bits before it, with varbits counted as empty.
        varying: True for a varbit.
        behind_varbit: True if a varbit precedes it.
    """

    name: str
    width: int
    signed: bool
    offset: int
    varying: bool = False
    behind_varbit: bool = False


@dataclass(frozen=True)
class HeaderType:
    """Header or struct type; `width` is in bits, with a varbit at its longest."""

    name: str
    fields: tuple[FieldType, ...]
    width: int

    @property
    def fixed_bytes(self) -> int:
        """Return its length in bytes without the varbit."""
        return (self.width - (self.varbit.width if self.varbit else 0)) // 8

    @property
    def varbit(self) -> FieldType | None:
        """Return its varbit, or None."""
        return next((f for f in self.fields if f.varying), None)

    @property
    def shape(self) -> tuple[tuple[int, bool], ...]:
        """Return the widths of the fields and which one is the varbit: headers of equal shape can be assigned."""
        return tuple((f.width, f.varying) for f in self.fields)

    def field(self, name: str) -> FieldType | None:
        """Return the field of that name, or None."""
        return self._by_name.get(name)

    @cached_property
    def _by_name(self) -> dict[str, FieldType]:
        return {f.name: f for f in reversed(self.fields)}  # of several fields with one name the first


@dataclass(frozen=True, slots=True)
class Header:
    """Instance of a header type.

    Metadata is never part of a packet. Metadata with a varbit is stored like a header that is always valid: then
    `always_valid` is True and `is_metadata` is False.
    """

    name: str
    id: int
    type: HeaderType
    is_metadata: bool
    always_valid: bool = False


@dataclass(frozen=True, slots=True)
class HeaderStack:
    """Header stack with the instances of its elements, in order.

    In a stack of unions `unit` is the number of members of each element, and `headers` lists all members.
    """

    name: str
    headers: tuple[str, ...]
    unit: int = 1

    @property
    def depth(self) -> int:
        """Return the number of elements."""
        return len(self.headers) // self.unit


@dataclass(frozen=True, slots=True)
class HeaderUnion:
    """Header union with its members, at most one of which is valid."""

    name: str
    headers: tuple[str, ...]


# Parser and deparser.


@dataclass(frozen=True, slots=True)
class ExtractHeader:
    """Extraction into a header instance; `length` is the size of its varbit in bits."""

    header: str
    length: Expression | None = None


@dataclass(frozen=True, slots=True)
class ExtractNext:
    """Extraction into the next element of a header stack; in a stack of unions into the union's `member`."""

    stack: str
    member: int = 0
    length: Expression | None = None


@dataclass(frozen=True, slots=True)
class Set:
    """Assignment in a parser state."""

    target: Expression
    value: Expression


@dataclass(frozen=True, slots=True)
class Verify:
    """Check that stops parsing with an error unless the condition holds."""

    condition: Expression
    error: Expression


@dataclass(frozen=True, slots=True)
class Advance:
    """Advance over a number of bits of the packet."""

    bits: Expression


@dataclass(frozen=True, slots=True)
class ParserCall:
    """Primitive called from a parser state."""

    primitive: Primitive


ParserOperation = ExtractHeader | ExtractNext | Set | Verify | Advance | ParserCall


@dataclass(frozen=True, slots=True)
class Transition:
    """Transition to a state if the key equals `values` under `masks`, or is in a value set; if all are None, always."""

    values: tuple[int, ...] | None
    masks: tuple[int | None, ...] | None
    next_state: str | None
    value_set: str | None = None


@dataclass(frozen=True, slots=True)
class ParserState:
    """Parser state: its operations, then a choice by the transition key."""

    name: str
    operations: tuple[ParserOperation, ...]
    key: tuple[Expression, ...]
    key_widths: tuple[int, ...]
    transitions: tuple[Transition, ...]


@dataclass(frozen=True, slots=True)
class Parser:
    """Parser, with its states by name."""

    name: str
    initial: str | None
    states: dict[str, ParserState]


@dataclass(frozen=True, slots=True)
class Deparser:
    """Deparser: it runs the primitives, then emits the valid headers in this order."""

    name: str
    order: tuple[str, ...]
    primitives: tuple[Primitive, ...] = ()


# Match-action.


@dataclass(frozen=True, slots=True)
class ActionParameter:
    """Parameter whose value a table entry gives; `width` is in bits."""

    name: str
    width: int


@dataclass(frozen=True, slots=True)
class Action:
    """Action. Names are not unique, ids are."""

    name: str
    id: int
    parameters: tuple[ActionParameter, ...]
    primitives: tuple[Primitive, ...]
    source: Source | None = None


@dataclass(frozen=True, slots=True)
class TableKey:
    """Key field; `kind` is exact, lpm, ternary, range, optional or valid; `mask` None means all bits.

    Numbers of a `signed` field are in two's complement, and unsigned ones here.
    """

    name: str
    kind: str
    target: Field
    width: int
    mask: int | None
    signed: bool = False


@dataclass(frozen=True, slots=True)
class ConstMatch:
    """Match of a const entry. `second` is the mask, the prefix length or the upper end, depending on `kind`."""

    kind: str
    value: int
    second: int


@dataclass(frozen=True, slots=True)
class ConstEntry:
    """Entry declared by the program, with P4Runtime's priority, where the largest wins.

    `is_const` is True for an entry that is `const` itself. The table's entries may be const besides.
    """

    matches: tuple[ConstMatch, ...]
    priority: int
    action: int
    data: tuple[int, ...]
    is_const: bool = False


@dataclass(frozen=True, slots=True)
class DefaultAction:
    """Default action, which runs on a miss; `is_const` if the control plane cannot change it."""

    action: int
    data: tuple[int, ...]
    is_const: bool


@dataclass(frozen=True, slots=True)
class Table:
    """Match-action table. `next_nodes` maps action names, or __HIT__ and __MISS__, to nodes, where None is the end."""

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
    direct_meter: str | None = None

    @property
    def successors(self) -> tuple[str | None, ...]:
        """Return the nodes that may run after this one. None is the end of the pipeline."""
        return (*self.next_nodes.values(), self.default_next)

    @property
    def is_call(self) -> bool:
        """Return whether the table only calls an action: no keys, no counters or meters, and a fixed default action."""
        fixed = self.default is not None and self.default.is_const
        return fixed and not self.keys and not self.with_counters and self.direct_meter is None

    def action(self, name: str) -> Action | None:
        """Return the table's action of that name, or None."""
        return next((a for a in self.actions if a.name == name), None)

    def action_for(self, name: str, given: Mapping[str, object], where: str) -> Action:
        """Return the table's action of that name, which takes these arguments.

        Args:
            name: The full name of the action.
            given: The arguments, by the names of parameters.
            where: What has the action, for the message.

        Raises:
            ValueError: The table has no such action, or it takes other arguments.
        """
        action = self.action(name)
        if action is None:
            there = ", ".join(each.name for each in self.actions)
            raise ValueError(f"{where}: it has no action {name}; there are {there}")
        names = [parameter.name for parameter in action.parameters]
        if set(names) != set(given):
            raise ValueError(
                f"{where}: action {action.name} takes ({', '.join(names)}), not ({', '.join(given)})"
            )
        return action


@dataclass(frozen=True, slots=True)
class Branch:
    """If: the next node when the condition holds, and when it does not."""

    name: str
    condition: Expression
    when_true: str | None
    when_false: str | None
    source: Source | None = None

    @property
    def successors(self) -> tuple[str | None, ...]:
        """Return the two next nodes."""
        return (self.when_true, self.when_false)


@dataclass(frozen=True, slots=True)
class ActionNode:
    """Direct call of an action without parameters."""

    name: str
    action: Action
    next_node: str | None
    source: Source | None = None

    @property
    def successors(self) -> tuple[str | None, ...]:
        """Return the next node."""
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
    """Packet and byte counters. Direct ones belong to the entries of `table`."""

    name: str
    id: int
    size: int
    table: str | None


@dataclass(frozen=True, slots=True)
class RegisterArray:
    """Register array of `size` cells of `width` bits."""

    name: str
    id: int
    size: int
    width: int


@dataclass(frozen=True, slots=True)
class MeterArray:
    """Meters of packets or bytes. Direct ones belong to the entries of `table` and set `target`."""

    name: str
    id: int
    size: int
    rates: int
    by_bytes: bool
    table: str | None
    target: Field | None


@dataclass(frozen=True, slots=True)
class ValueSet:
    """Value set that parser states compare their key with; `table` stores the values."""

    name: str
    id: int
    table: Table


@dataclass(frozen=True, slots=True)
class ActionProfile:
    """Action profile: members (actions with data) that tables share; with a selector (a calculation) also groups."""

    name: str
    id: int
    max_size: int
    selector: str | None


@dataclass(frozen=True, slots=True)
class FieldList:
    """Fields to preserve or to send; primitives refer to the list by its number."""

    id: int
    name: str
    fields: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class CalculationInput:
    """Input of a calculation: a field, a header, a constant of `width` bits, or the payload (None)."""

    value: Field | HeaderName | Constant | None
    width: int = 0


REMEMBERING = {"toeplitz", "round_robin", "round_robin_consistent", "crc16_custom", "crc32_custom"}
"""Hash algorithms whose result depends on state set by a controller or by earlier packets."""


@dataclass(frozen=True, slots=True)
class Calculation:
    """Hash of fields with a named algorithm."""

    name: str
    algorithm: str
    inputs: tuple[CalculationInput, ...]


@dataclass(frozen=True, slots=True)
class Checksum:
    """Calculation whose result is stored in a field: verified after parsing, updated before deparsing, or both."""

    name: str
    target: Field
    calculation: str
    update: bool
    verify: bool
    condition: Expression | None


@dataclass(frozen=True, slots=True)
class Program:
    """Program. Dictionaries are by name, in the JSON's order."""

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
        """Return the names of the calculations that keep state between packets."""
        return [c.name for c in self.calculations.values() if c.algorithm in REMEMBERING]

    def field_type(self, reference: Field) -> FieldType:
        """Return the type of a field.

        Raises:
            ProgramError: If there is no such field.
        """
        header = self.headers.get(reference.header)
        found = header.type.field(reference.name) if header else None
        if found is None:
            raise ProgramError(f"field {reference.header}.{reference.name} does not exist")
        return found
