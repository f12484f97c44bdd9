"""Runs of similar statements that can be written as C loops.

P4 has no loops in controls: a program that adds 64 registers to 64 header fields contains 64 statements. A run is a
group of primitives that repeats with only header fields and registers advancing. gcc vectorizes it as a loop, and
compiles it in a fraction of the time. Registers that advance together are stored in one row (state.py).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from fanin.p4switch.bmv2json.expressions import Constant, Expression, Field
from fanin.p4switch.bmv2json.program import Argument, ExpressionList, FieldType, Named, Primitive, Program
from fanin.p4switch.codegen.uses import Uses, fields_in

FEWEST = 4  # repetitions that are worth a loop
LONGEST_GROUP = 16  # primitives
ROLLED = {"assign", "modify_field", "register_read", "register_write"}
MACHINE_WIDTHS = (8, 16, 32, 64)


@dataclass(frozen=True, slots=True)
class Advancing:
    """Header field that advances by `stride` bits with each repetition, starting at `first`."""

    header: str
    first: FieldType
    stride: int


@dataclass(frozen=True, slots=True)
class Run:
    """Repetitions of a group, in which advancing fields are `Advancing` and registers those of the first repetition.

    Attributes:
        group: The primitives of one repetition.
        count: The number of repetitions.
        registers: The sequences of registers that advance, by the first of each.
        index: The index at which all registers are accessed; None without registers.
        size: The number of cells of each register.
        length: The number of primitives that the run replaces.
        first: The first primitive as it is in the program.
    """

    group: tuple[Primitive, ...]
    count: int
    registers: dict[str, tuple[str, ...]]
    index: Expression | None
    size: int
    length: int
    first: Primitive  # as it is in the program


Part = Primitive | Run


class RunFinder:
    """Search for runs in the actions of a program; `rows` and `headers` collect what advances in them."""

    def __init__(self, program: Program, uses: Uses) -> None:
        self.program = program
        self.uses = uses
        self.rows: list[tuple[str, ...]] = []
        self.headers: set[str] = set()
        self._columns: dict[str, tuple[int, int]] = {}
        self._leaves_of: dict[int, list[Any]] = {}
        self._parts = {a.id: self._split(a.primitives) for a in program.actions.values()}

    def parts(self, action: int) -> list[Part]:
        """Return the primitives of an action, with each run among them as a `Run`."""
        return self._parts[action]

    def _split(self, primitives: Sequence[Primitive]) -> list[Part]:
        if any(p.kind.jumps for p in primitives):
            return list(primitives)  # a jump may lead into a run
        shapes = [self._shape(p) for p in primitives]
        parts: list[Part] = []
        at = 0
        while at < len(primitives):
            run = self._run_at(primitives, shapes, at)
            if run is not None and self._place(run):
                parts.append(run)
                at += run.length
            else:
                parts.append(primitives[at])
                at += 1
        return parts

    def _run_at(self, primitives: Sequence[Primitive], shapes: list[Hashable], at: int) -> Run | None:
        """Return the run that begins here: the longest one, with the shortest group."""
        best: Run | None = None
        for size in range(1, LONGEST_GROUP + 1):
            if best is not None and size % len(best.group) == 0:
                continue
            pattern, count = shapes[at : at + size], 1
            while shapes[at + count * size : at + (count + 1) * size] == pattern:
                count += 1
            if count < FEWEST or any(p.op not in ROLLED for p in primitives[at : at + size]):
                continue
            groups = [tuple(primitives[at + n * size : at + (n + 1) * size]) for n in range(count)]
            run = self._rolled(groups)
            if run is not None and (best is None or run.length > best.length):
                best = run
        return best

    def _shape(self, node: Any) -> Hashable:
        """Return a key that is equal for primitives which differ only in fields and registers of one kind."""
        match node:
            case Primitive(op, arguments):
                return (op, tuple(self._shape(a) for a in arguments))
            case Field(header):
                kind = self.program.field_type(node)
                return (header, kind.width, kind.signed, kind.behind_varbit)
            case Named("register_array", name) if name in self.program.registers:
                register = self.program.registers[name]
                return ("register", register.width, register.size)
        if is_dataclass(node):
            return (type(node), *(self._shape(getattr(node, f.name)) for f in fields(node)))
        return node  # type: ignore[no-any-return]

    def _rolled(self, groups: list[tuple[Primitive, ...]]) -> Run | None:
        """Return the groups as a run of all repetitions that advance evenly, or None if those are too few."""
        columns = list(zip(*([leaf for p in g for leaf in self._leaves(p)] for g in groups), strict=True))
        count = min((self._even(column) for column in columns), default=0)
        if count < FEWEST:
            return None
        groups = groups[:count]
        if not all(self._is_temporary(column[:count], groups) for column in columns):
            return None
        sequences = {
            column[0].name: tuple(leaf.name for leaf in column[:count])
            for column in columns
            if isinstance(column[0], Named)
        }
        leaves = map(self._in_loop, columns)
        group = tuple(_rebuilt(p, lambda _leaf: next(leaves)) for p in groups[0])
        places = {register_place(p) for p in group if p.op in ("register_read", "register_write")}
        index = places.pop()[1] if len(places) == 1 else None
        size = min((self.program.registers[name].size for name in sequences), default=0)
        if sequences and not self._is_fixed(index, group):
            return None
        return Run(group, count, sequences, index, size, count * len(group), groups[0][0])

    def _in_loop(self, column: tuple[Any, ...]) -> Any:
        """Return the operand of a column in the loop: its first leaf, advancing if the leaves are different fields."""
        first, second = column[0], column[1]
        if not isinstance(first, Field) or first == second or self._is_metadata(first):
            return first
        kind, following = self.program.field_type(first), self.program.field_type(second)
        return Advancing(first.header, kind, following.offset - kind.offset)

    def _even(self, column: tuple[Any, ...]) -> int:
        """Return how many leaves of a column, from the first, are equal or advance by a constant step."""
        first = column[0]
        if isinstance(first, Named):
            names = [leaf.name for leaf in column]
            if names[0] == names[1]:
                return next((n for n, name in enumerate(names) if name != names[0]), len(names))
            return next((n for n, name in enumerate(names) if name in names[:n]), len(names))
        if self._is_metadata(first):
            return len(column)
        kinds = [self.program.field_type(leaf) for leaf in column]
        stride = kinds[1].offset - kinds[0].offset
        uneven = kinds[0].width not in MACHINE_WIDTHS or kinds[0].offset % 8 or stride % 8
        if stride and (uneven or kinds[0].behind_varbit):
            return 1
        steps = enumerate(kinds)
        return next((n for n, k in steps if k.offset != kinds[0].offset + n * stride), len(kinds))

    def _is_temporary(self, column: tuple[Any, ...], groups: list[tuple[Primitive, ...]]) -> bool:
        """Return whether a column of metadata is a single field, or temporaries that no other statement uses.

        Such a temporary (compilers number them) is set in its group before it is read, so one is enough for all groups.
        """
        if not isinstance(column[0], Field) or not self._is_metadata(column[0]) or len(set(column)) == 1:
            return True
        for leaf, group in zip(column, groups, strict=True):
            inside = [self.uses.fields(p).count(leaf) for p in group]
            if self.uses.total[leaf] != sum(inside):
                return False
            first = next(p for p, count in zip(group, inside, strict=True) if count)
            if not self.uses.sets(first, leaf):
                return False
        return True

    def _is_fixed(self, index: Expression | None, group: tuple[Primitive, ...]) -> bool:
        """Return whether an index is the same in every repetition."""
        if index is None or any(isinstance(node, Advancing) for node in nodes(index)):
            return False
        written = {p.arguments[0] for p in group if p.op != "register_write"}
        return not any(field in written for field in fields_in(index))

    def _place(self, run: Run) -> bool:
        """Assign rows to the run's registers. Return False if they have rows already in which they do not advance."""
        for sequence in run.registers.values():
            columns = [self._columns.get(name) for name in sequence]
            if all(c is None for c in columns) and len(set(sequence)) == len(sequence):
                self._columns.update({name: (len(self.rows), n) for n, name in enumerate(sequence)})
                self.rows.append(sequence)
                continue
            first, second = columns[0], columns[1]
            if first is None or second is None:
                return False
            step = second[1] - first[1]
            if any(c != (first[0], first[1] + n * step) for n, c in enumerate(columns)):
                return False
        self.headers.update(node.header for node in nodes(run.group) if isinstance(node, Advancing))
        return True

    def _is_metadata(self, field: Field) -> bool:
        return self.program.headers[field.header].is_metadata

    def _leaves(self, primitive: Primitive) -> list[Any]:
        """Return the fields and registers of a primitive, from left to right."""
        found = self._leaves_of.get(id(primitive))
        if found is None:
            found = self._leaves_of[id(primitive)] = []
            _rebuilt(primitive, found.append)
        return found


def register_place(primitive: Primitive) -> tuple[str, Expression]:
    """Return the register and index of a register_read or register_write."""
    arguments: tuple[Argument, ...] = primitive.arguments
    position = 0 if primitive.op == "register_write" else 1
    register, index = arguments[position], arguments[position + 1]
    assert isinstance(register, Named)
    assert not isinstance(index, (Named, ExpressionList))
    return register.name, index


def nodes(node: Any) -> Iterator[Any]:
    """Yield a node and all nodes inside it."""
    if isinstance(node, tuple):
        for item in node:
            yield from nodes(item)
        return
    yield node
    if is_dataclass(node) and not isinstance(node, (Field, Advancing)):
        for part in fields(node):
            yield from nodes(getattr(node, part.name))


def _rebuilt(node: Any, replace: Callable[[Any], Any]) -> Any:
    """Return the node with its fields and registers replaced, in order from left to right."""
    if isinstance(node, Field) or (isinstance(node, Named) and node.kind == "register_array"):
        return replace(node)
    if isinstance(node, tuple):
        return tuple(_rebuilt(item, replace) for item in node)
    if is_dataclass(node) and not isinstance(node, (Constant, Named)):
        kind: Any = type(node)
        return kind(*(_rebuilt(getattr(node, f.name), replace) for f in fields(node)))
    return node
