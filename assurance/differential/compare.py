"""The four pairs of compilers and switches, each compared with the first that runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, auto
from functools import cache
from pathlib import Path
from typing import Any

from fanin.assurance.differential.client import SwitchError
from fanin.assurance.differential.packets import Packet
from fanin.assurance.differential.switches import SwitchRun, run
from fanin.controller.entry_files import Entries
from fanin.experiments.scenario.compilers import CompiledProgram, compile_program
from fanin.experiments.scenario.tools import Compiler, SwitchKind, ToolError
from fanin.p4compiler import CompileError


@dataclass(frozen=True, slots=True)
class Pair:
    """A compiler and a switch."""

    compiler: Compiler
    engine: SwitchKind

    def __str__(self) -> str:
        """Return both names."""
        return f"{_NAMES[self.compiler]} on {_NAMES[self.engine]}"


_NAMES = {"embedded": "ours", "p4c": "p4c", "bmv2": "BMv2"}
# The reference first.
PAIRS = (Pair("p4c", "bmv2"), Pair("embedded", "bmv2"), Pair("p4c", "embedded"), Pair("embedded", "embedded"))
_REPEATS = 3  # runs of the reference: a random bit is the same again in half of them


class Kind(IntEnum):
    """Kinds of things that can differ, in the order in which their differences are listed."""

    ENTRIES = auto()
    PACKETS = auto()
    COUNTERS = auto()


@dataclass(frozen=True, slots=True)
class Difference:
    """An entry, a packet or a counter for which a pair's outcome differs from the reference's.

    Attributes:
        kind: What differs.
        what: The entry, packet or counter.
        reference: The reference's outcome.
        other: The pair's outcome.
        undefined: Whether the reference itself differs in another run. The program then reads the clock, a random
            number or fields of an invalid header, or it has a register in both pipelines.
    """

    kind: Kind
    what: str
    reference: str
    other: str
    undefined: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one pair: it cannot run, it is the reference, or it agrees or differs.

    Attributes:
        pair: The pair.
        cannot: Why it cannot run, or None.
        outcome: Its outcome, or None.
        differences: Its differences from the reference.
        traces: Traces of both for the first packet that differs, if any packet does.
    """

    pair: Pair
    cannot: Exception | None = None
    outcome: SwitchRun | None = None
    differences: Sequence[Difference] = ()
    traces: Sequence[str] = ()


# The program from each compiler, or why it does not compile.
Compiled = Mapping[Compiler, CompiledProgram | Exception]


def compile_both(program: Path) -> Compiled:
    """Compile the program with each compiler."""
    compiled: dict[Compiler, CompiledProgram | Exception] = {}
    compilers: tuple[Compiler, ...] = ("p4c", "embedded")
    for compiler in compilers:
        try:
            compiled[compiler] = compile_program(program, compiler)
        except (ToolError, CompileError) as error:
            compiled[compiler] = error
    return compiled


# What can differ: an entry by its index (groups first), a packet by its index, a counter's cell by its name.
_Thing = tuple[Kind, int | str]


def compare(compiled: Compiled, entries: Entries, packets: Sequence[Packet]) -> Iterator[Verdict]:
    """Run each pair and compare it with the reference, which is the first pair that runs."""

    def run_pair(pair: Pair, count: int | None = None, *, traced: bool = False) -> SwitchRun:
        program = compiled[pair.compiler]
        if isinstance(program, Exception):
            raise program
        return run(pair.engine, program, entries, packets[:count], with_trace=traced)

    reference: Pair | None = None
    expected: Mapping[_Thing, object] = {}

    @cache
    def repeated() -> list[Mapping[_Thing, object]]:
        assert reference is not None
        return [_observed(run_pair(reference)) for _ in range(_REPEATS)]

    def is_undefined(thing: _Thing) -> bool:
        return any(again.get(thing) != expected.get(thing) for again in repeated())

    for pair in PAIRS:
        try:
            outcome = run_pair(pair)
        except (SwitchError, ToolError, CompileError, ValueError) as error:
            yield Verdict(pair, cannot=error)
            continue
        found = _observed(outcome)
        if reference is None:
            reference, expected = pair, found
        differing = sorted(t for t in expected.keys() | found.keys() if expected.get(t) != found.get(t))
        differences = [
            Difference(
                thing[0],
                _name(thing, entries, packets),
                _text(thing, expected, found),
                _text(thing, found, expected),
                is_undefined(thing),
            )
            for thing in differing
        ]
        traces = []
        if places := [place for kind, place in differing if kind is Kind.PACKETS]:
            first = min(places, key=lambda place: (is_undefined((Kind.PACKETS, place)), place))
            assert isinstance(first, int)
            for of in (reference, pair):
                trace = run_pair(of, first + 1, traced=True).trace
                traces.append(f"{of} on packet {first + 1}:\n{trace}")
        yield Verdict(pair, outcome=outcome, differences=differences, traces=traces)


def _observed(outcome: SwitchRun) -> Mapping[_Thing, object]:
    """Return everything that can differ; accepted entries and counters at 0 are left out."""
    observed: dict[_Thing, object] = {(Kind.ENTRIES, place): "refused" for place in outcome.refused}
    observed |= {(Kind.PACKETS, place): outputs for place, outputs in enumerate(outcome.outputs)}
    observed |= {(Kind.COUNTERS, name): counted for name, counted in outcome.counts.items()}
    return observed


def _name(thing: _Thing, entries: Entries, packets: Sequence[Packet]) -> str:
    match thing:
        case Kind.ENTRIES, int(place):
            groups = [f"multicast group {group} -> {ports}" for group, ports in entries.groups.items()]
            return groups[place] if place < len(groups) else f"{entries.entries[place - len(groups)]}"
        case Kind.PACKETS, int(place):
            port, packet = packets[place]
            return f"packet {place + 1}, {len(packet)} bytes on port {port}: {packet.hex()}"
    return f"counter {thing[1]}"


def _text(thing: _Thing, of: Mapping[_Thing, Any], counterpart: Mapping[_Thing, Any]) -> str:
    match thing[0]:
        case Kind.ENTRIES:
            return str(of.get(thing, "taken"))
        case Kind.PACKETS:
            return _show(of[thing], counterpart[thing])
    packets, octets = of.get(thing, (0, 0))
    return f"{packets} packets, {octets} bytes"


def _show(outputs: Sequence[Packet], counterpart: Sequence[Packet]) -> str:
    """Describe the outputs. If one is as long as its counterpart, say where they begin to differ."""
    if not outputs:
        return "no output"
    lines = []
    for index, (port, packet) in enumerate(outputs):
        text = f"port {port}, {len(packet)} bytes: {packet.hex()}"
        if index < len(counterpart) and len(counterpart[index][1]) == len(packet):
            pairs = zip(packet, counterpart[index][1], strict=True)
            at = next((place for place, (x, y) in enumerate(pairs) if x != y), None)
            text += "" if at is None else f" (differs from byte {at} on)"
        lines.append(text)
    return "\n".join(lines)
