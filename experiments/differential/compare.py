"""The four pairs of compilers and switches, each compared with the first that runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from experiments.differential.client import SwitchError
from experiments.differential.entries import Entries
from experiments.differential.packets import Packet
from experiments.differential.switches import Outcome, run
from experiments.scenario.compilers import CompiledProgram, compile_program
from experiments.scenario.tools import Compiler, Engine, ToolError
from p4compiler import CompileError


@dataclass(frozen=True, slots=True)
class Pair:
    """A compiler and a switch."""

    compiler: Compiler
    engine: Engine

    def __str__(self) -> str:
        """Both names."""
        return f"{_NAMES[self.compiler]} on {_NAMES[self.engine]}"


_NAMES = {"embedded": "ours", "p4c": "p4c", "bmv2": "BMv2"}
# The reference first.
PAIRS = (Pair("p4c", "bmv2"), Pair("embedded", "bmv2"), Pair("p4c", "embedded"), Pair("embedded", "embedded"))


@dataclass(frozen=True, slots=True)
class Difference:
    """The first thing that two pairs did otherwise; for a packet, both traces of it.

    undefined: so did the reference when it ran again. The program reads the clock, a random number or the fields of
    an invalid header, in which BMv2 leaves what earlier packets had there, or has a register in both pipelines.
    """

    what: str
    reference: str
    other: str
    traces: Sequence[str] = ()
    undefined: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one pair: it cannot run, it is the reference, or it agrees or differs."""

    pair: Pair
    cannot: Exception | None = None
    outcome: Outcome | None = None
    difference: Difference | None = None


# What a compiler made of a program, or why it made nothing.
Compiled = Mapping[Compiler, CompiledProgram | Exception]


def compile_both(program: Path) -> Compiled:
    """The program by each compiler."""
    compiled: dict[Compiler, CompiledProgram | Exception] = {}
    compilers: tuple[Compiler, ...] = ("p4c", "embedded")
    for compiler in compilers:
        try:
            compiled[compiler] = compile_program(program, compiler)
        except (ToolError, CompileError) as error:
            compiled[compiler] = error
    return compiled


def compare(compiled: Compiled, entries: Entries, packets: Sequence[Packet]) -> Iterator[Verdict]:
    """A verdict on each pair."""
    reference: tuple[Pair, Outcome] | None = None
    for pair in PAIRS:
        program = compiled[pair.compiler]
        if isinstance(program, Exception):
            yield Verdict(pair, cannot=program)
            continue
        try:
            outcome = run(pair.engine, program, entries, packets)
        except (SwitchError, ToolError, ValueError) as error:
            yield Verdict(pair, cannot=error)
            continue
        if reference is None:
            reference = pair, outcome
            yield Verdict(pair, outcome=outcome)
            continue

        def traced(of: Pair, count: int) -> str:
            said = run(of.engine, _usable(compiled, of), entries, packets[:count], traced=True).trace
            return f"{of} on packet {count}:\n{said}"

        found = _first_difference(reference, (pair, outcome), entries, packets, traced)
        if found is not None:
            again = run(reference[0].engine, _usable(compiled, reference[0]), entries, packets)
            undefined = (again.outputs, again.counts) != (reference[1].outputs, reference[1].counts)
            found = replace(found, undefined=undefined)
        yield Verdict(pair, outcome=outcome, difference=found)


def _usable(compiled: Compiled, pair: Pair) -> CompiledProgram:
    program = compiled[pair.compiler]
    assert isinstance(program, CompiledProgram)
    return program


def _first_difference(
    one: tuple[Pair, Outcome],
    two: tuple[Pair, Outcome],
    entries: Entries,
    packets: Sequence[Packet],
    traced: Callable[[Pair, int], str],
) -> Difference | None:
    (first, a), (second, b) = one, two
    if differing := set(a.refused) ^ set(b.refused):
        written = [*(f"multicast group {g} -> {r}" for g, r in entries.groups.items()), *entries.entries]
        place = min(differing)
        verbs = ["refused" if place in outcome.refused else "taken" for outcome in (a, b)]
        return Difference(f"{written[place]}", verbs[0], verbs[1])
    for number, (left, right) in enumerate(zip(a.outputs, b.outputs, strict=True), start=1):
        if left != right:
            port, packet = packets[number - 1]
            what = f"packet {number}, {len(packet)} bytes on port {port}: {packet.hex()}"
            traces = tuple(traced(pair, number) for pair in (first, second))
            return Difference(what, _show(left, right), _show(right, left), traces)
    for name in sorted(a.counts.keys() | b.counts.keys()):
        if a.counts.get(name) != b.counts.get(name):
            values = [outcome.counts.get(name, (0, 0)) for outcome in (a, b)]
            said = [f"{packets} packets, {octets} bytes" for packets, octets in values]
            return Difference(f"counter {name}", said[0], said[1])
    return None


def _show(outputs: Sequence[Packet], beside: Sequence[Packet]) -> str:
    """The outputs; of one that is as long as its counterpart, where it begins to differ."""
    if not outputs:
        return "no output"
    lines = []
    for index, (port, packet) in enumerate(outputs):
        text = f"port {port}, {len(packet)} bytes: {packet.hex()}"
        if index < len(beside) and len(beside[index][1]) == len(packet):
            pairs = zip(packet, beside[index][1], strict=True)
            at = next((place for place, (x, y) in enumerate(pairs) if x != y), None)
            text += "" if at is None else f" (differs from byte {at} on)"
        lines.append(text)
    return "\n".join(lines)
