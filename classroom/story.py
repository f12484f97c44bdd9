"""The story of a test: the steps that ran, and what went wrong at the last of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from scapy.packet import Packet, Raw

from fanin.p4switch.bmv2json.expressions import Field
from fanin.p4switch.bmv2json.notation import number_text
from fanin.p4switch.bmv2json.program import Program


@dataclass(frozen=True, slots=True)
class Row:
    """A field of a packet: its name, what was expected, and what the packet had."""

    name: str
    expected: str
    actual: str


@dataclass(frozen=True, slots=True)
class Problem:
    """The reason why a test failed.

    Attributes:
        text: What was expected, and what happened instead.
        rows: The fields of a packet that differ.
        trace: The path of the packet that went wrong through the student's program, or empty.
        broken: A file of the student is missing, does not compile, raises an error or returns entries that do not
            fit the program, so that no hint helps.
        causes: What the student's program did that may have led to it, the most likely cause first (causes.py).
    """

    text: str
    rows: tuple[Row, ...] = ()
    trace: str = ""
    broken: bool = False
    causes: tuple[str, ...] = ()


class ExpectationError(Exception):
    """The student's program does not do what a test expects."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.text)
        self.problem = problem


class NotPossibleError(Exception):
    """A test cannot run on this kind of switch; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one test.

    Attributes:
        test: The name of its function.
        title: What it tests.
        points: The points that it is worth.
        hidden: Only a grader runs it.
        steps: The steps that ran; the last is the one at which it failed.
        problem: What went wrong, or None if it passed.
        not_run: Why the test could not run on this kind of switch, or empty.
    """

    test: str
    title: str
    points: int
    hidden: bool
    steps: tuple[str, ...] = ()
    problem: Problem | None = None
    not_run: str = ""

    @property
    def passed(self) -> bool:
        """Return whether the test passed."""
        return self.problem is None and not self.not_run

    def document(self) -> dict[str, Any]:
        """Return the outcome as a JSON object; `outcome_from` reads it."""
        problem = self.problem and {
            "text": self.problem.text,
            "rows": [[row.name, row.expected, row.actual] for row in self.problem.rows],
            "trace": self.problem.trace,
            "broken": self.problem.broken,
            "causes": [*self.problem.causes],
        }
        return {
            "test": self.test,
            "title": self.title,
            "points": self.points,
            "hidden": self.hidden,
            "steps": [*self.steps],
            "problem": problem,
            "not_run": self.not_run,
        }


def outcome_from(document: dict[str, Any]) -> Outcome:
    """Return the outcome that `Outcome.document` wrote."""
    found = document["problem"]
    problem = found and Problem(
        **found | {"rows": tuple(Row(*row) for row in found["rows"]), "causes": tuple(found["causes"])}
    )
    return Outcome(**document | {"steps": tuple(document["steps"]), "problem": problem})


@dataclass(slots=True)
class Story:
    """The steps of a test that runs."""

    steps: list[str] = field(default_factory=list)

    def step(self, text: str) -> None:
        """Begin a step."""
        self.steps.append(text)


def told(outcome: Outcome) -> str:
    """Return a failure as text: numbered steps, fields, and the trace."""
    problem = outcome.problem
    assert problem is not None
    lines = [f"  {number}. {step}" for number, step in enumerate(outcome.steps, 1)]
    lines += [f"     {line}" for line in problem.text.splitlines()]
    if problem.rows:
        lines += ["", *_table(problem.rows)]
    if problem.trace:
        lines += [
            "",
            "  The packet in your program:",
            *(f"    {line}" for line in problem.trace.splitlines()),
        ]
    return "\n".join(lines)


def _table(rows: tuple[Row, ...]) -> list[str]:
    name, expected = (
        max(len(title), *(len(text) for text in column))
        for title, column in (("field", [r.name for r in rows]), ("expected", [r.expected for r in rows]))
    )
    cells = [("field", "expected", "actual"), *((row.name, row.expected, row.actual) for row in rows)]
    return [f"     {a:{name}}  {b:{expected}}  {c}".rstrip() for a, b, c in cells]


def differing(expected: Packet, actual: bytes, program: Program) -> tuple[Row, ...]:
    """Return the fields in which a packet differs from the one that was expected, with the program's names.

    Args:
        expected: The packet, by layers. What is actual is read as the same layers.
        actual: The bytes that came.
        program: The program that sent it. A layer gets the names of the header that its deparser emits at that place;
            if there is none of this length, it keeps scapy's.
    """
    rest, rows = actual, []
    headers = iter(program.deparser.order)
    for layer in _layers(type(expected)(bytes(expected)), expected):
        kind = type(layer)
        head, rest = rest[: _head_bytes(layer)], rest[_head_bytes(layer) :]
        wanted = bytes(layer)[: _head_bytes(layer)]
        if not isinstance(layer, Raw):
            remaining = [*headers]
            name = next((each for each in remaining if _bytes_of(program, each) == len(wanted)), None)
            headers = iter(remaining if name is None else remaining[remaining.index(name) + 1 :])
        if head == wanted:
            continue
        if isinstance(layer, Raw):
            rows.append(Row("payload", wanted.hex(" "), head.hex(" ") or "missing"))
        elif len(head) < len(wanted):
            rows.append(Row(str(layer.name), f"{len(wanted)} bytes", f"only {len(head)} bytes are left"))
        elif name is not None:
            rows += _named_fields(program, name, wanted, head)
        elif type(other := kind(head)) is kind:
            rows += _fields(layer, other)
        else:  # such as Ether, which reads a type below 1536 as the length of an IEEE 802.3 frame
            rows.append(Row(str(layer.name), wanted.hex(" "), head.hex(" ")))
    if rest:
        rows.append(Row("after the packet", "nothing", f"{len(rest)} bytes: {rest[:16].hex(' ')}"))
    return tuple(rows)


def _bytes_of(program: Program, header: str) -> int | None:
    """Return the length of a header, or None if it varies."""
    kind = program.headers[header].type
    return None if kind.varbit is not None else kind.width // 8


def _named_fields(program: Program, header: str, wanted: bytes, actual: bytes) -> Iterator[Row]:
    for kind in program.headers[header].type.fields:
        below = 8 * len(wanted) - kind.offset - kind.width
        one, other = (int.from_bytes(each) >> below & (1 << kind.width) - 1 for each in (wanted, actual))
        if one != other:
            field = Field(header, kind.name)
            texts = (number_text(program, field, kind.width, each) for each in (one, other))
            yield Row(f"{header}.{kind.name}", *texts)


def _layers(packet: Packet, like: Packet) -> list[Packet]:
    """Return the layers of a built packet, with the kinds of the packet it was built from."""
    found: list[Packet] = []
    data = bytes(packet)
    here: Any = like
    while isinstance(here, Packet) and type(here).__name__ != "NoPayload":
        built = type(here)(data)
        length = len(data) - len(bytes(here.payload))
        built.remove_payload()
        found.append(built)
        data = data[length:]
        here = here.payload
    return found


def _head_bytes(layer: Packet) -> int:
    return len(bytes(layer))


def _fields(expected: Packet, actual: Packet) -> list[Row]:
    rows = []
    for part in expected.fields_desc:
        one, other = expected.getfieldval(part.name), actual.getfieldval(part.name)
        if one != other:
            rows.append(
                Row(f"{expected.name}.{part.name}", _shown(expected, part, one), _shown(actual, part, other))
            )
    return rows


def _shown(packet: Packet, part: Any, value: Any) -> str:
    text = str(part.i2repr(packet, value))
    return f"{text} (0x{value:x})" if isinstance(value, int) and value > 9 and text == str(value) else text


def summary(packet: Packet) -> str:
    """Return one line about a packet: its layers and their most telling fields."""
    return str(packet.summary())
