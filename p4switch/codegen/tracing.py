"""The records of a traced program (runtime/trace.h), and the numbers by which they name parts of the program.

The library that forwards does not record anything. When somebody traces the switch, a second library of the same
program with the same `struct state` is compiled, and replaces it for that time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import IntEnum, auto
from typing import Any

from fanin.p4switch.bmv2json.expressions import Expression, Field, HeaderName, Unary
from fanin.p4switch.bmv2json.program import Branch, ParserCall, Primitive, Program, Set
from fanin.p4switch.codegen.uses import fields_in


class RecordKind(IntEnum):
    """Kind of a trace record. Comments give what its number refers to, then its words."""

    PACKET = auto()  # port: time
    ARRIVED = auto()  # nothing: length, then the bytes
    PARSE = auto()  # nothing
    STATE = auto()  # parser state
    SELECT = auto()  # parser state: the transition key
    EXTRACT = auto()  # header: length, then the bytes
    PARSED = auto()  # parser error
    CHECKSUM = auto()  # checksum to verify: what the packet has, what it should be
    INGRESS = auto()  # nothing: the instance type
    BRANCH = (
        auto()
    )  # branch: the outcome, a bit for each of the condition's fields whose header is valid, the fields
    TABLE = auto()  # table: whether it hit, the entry's index, the key as packed by KeyLayout
    COUNTED = auto()  # table: what its direct counter has counted for the entry, packets and bytes
    COLOUR = auto()  # table: that of the entry's direct meter
    ACTION = auto()  # action: its arguments
    STATEMENT = auto()  # statement: what it assigned; or an index, and the value there
    FAILED = auto()  # statement: an assertion
    CLONE = auto()  # mirroring session: how many replicas it has
    DIGEST = auto()  # digest
    RESUBMIT = auto()  # field list
    RECIRCULATE = auto()  # field list
    MULTICAST = auto()  # group: how many replicas it has
    PRIORITY = auto()  # the queue that the packet asks for
    QUEUE = auto()  # port: whether the packet waits there, whether it has been dropped
    DEQUEUED = auto()  # port: microseconds that the packet has waited
    INGRESS_DONE = auto()  # egress_spec: the drop port
    EGRESS = auto()  # port: replication id, instance type
    EGRESS_DONE = auto()  # egress_spec: the drop port
    DEPARSE = auto()  # header: length, then the bytes
    TOO_OFTEN = auto()  # nothing
    LOOPING = auto()  # statement: a jump
    TOO_LONG = auto()  # the packet's length
    OUTPUT = auto()  # port: length, then the bytes
    CHOICE = auto()  # table: the position in the entry's group, the size of the group
    CLONED = auto()  # instance type: a copy begins, and ends with COPY_DONE
    REPLICA = auto()  # port: replication id; as CLONED
    COPY_DONE = auto()  # nothing
    LATER = auto()  # instance type: a copy is processed after this packet
    NEXT = auto()  # nothing: the oldest copy that waits begins
    INVALID = auto()  # header that the next branch, table or statement uses although it is invalid
    NOT_EMITTED = auto()  # header that is valid, but that the deparser does not emit
    UPDATED = auto()  # checksum that was computed: its value


MOST_VALID = 64  # fields of a condition of which a record of a branch tells whether their headers are valid


class Numbers:
    """Numbers of the program's parts, in the order in which records number them."""

    def __init__(self, program: Program) -> None:
        self.states = list(program.parser.states.values())
        self.branches = [
            node
            for pipeline in (program.ingress, program.egress)
            for node in pipeline.nodes.values()
            if isinstance(node, Branch)
        ]
        self.tables = list(program.tables.values())
        self.actions = list(program.actions.values())
        self.statements: list[Primitive | Set] = [p for a in self.actions for p in a.primitives]
        for state in self.states:
            for operation in state.operations:
                if isinstance(operation, ParserCall):
                    self.statements.append(operation.primitive)
                elif isinstance(operation, Set):
                    self.statements.append(operation)
        self.statements += program.deparser.primitives
        numbered = (self.states, self.branches, self.tables, self.actions, self.statements)
        # By identity: a statement may occur twice.
        self._of = {id(part): number for parts in numbered for number, part in enumerate(parts)}

    def of(self, part: object) -> int:
        """Return the number of a part."""
        return self._of[id(part)]


def trusted_headers(program: Program, part: object) -> list[str]:
    """Return the packet's headers of which a part of the program uses fields without testing their validity."""
    found = fields_in(part)
    tested = {f.header for f in found if f.name == "$valid$"} | set(_tested_headers(part))
    used = dict.fromkeys(f.header for f in found if f.header not in tested)
    return [name for name in used if name in program.headers and not program.headers[name].is_metadata]


def _tested_headers(node: Any) -> Iterator[str]:
    """Yield the headers whose validity is tested inside a node."""
    match node:
        case Unary("valid", HeaderName(name)):
            yield name
        case tuple():
            for item in node:
                yield from _tested_headers(item)
        case _ if is_dataclass(node):
            for part in fields(node):
                yield from _tested_headers(getattr(node, part.name))


def condition_fields(program: Program, condition: Expression) -> list[Field]:
    """Return the fields whose values explain the outcome of a condition."""
    found = dict.fromkeys(f for f in fields_in(condition) if f.name != "$valid$")
    kinds = {field: program.field_type(field) for field in found}
    return [field for field, kind in kinds.items() if kind.width and not kind.varying]
