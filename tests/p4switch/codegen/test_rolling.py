"""Like statements become loops, and loops compute what the statements say."""

from __future__ import annotations

import json
import random

import pytest

from fanin.p4switch.codegen.analysis import rolling
from fanin.p4switch.codegen.translate import translate
from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.reader import read_program
from tests.p4switch.codegen.rolled import (
    CELLS,
    COUNT,
    HEADERS,
    METADATA,
    STRAIGHT,
    aggregation,
    read,
    register,
    write,
)
from tests.p4switch.documents import assign, document, field, number, operation


def swapped() -> bytes:
    """Fields in reverse, bytes from words, temporaries that a compiler numbers."""
    primitives = []
    for n in range(COUNT):
        primitives.append(
            assign(field("meta", f"tmp{n}"), operation("+", field("values", f"v{n}"), field("index", "at")))
        )
        primitives.append(
            assign(field("small", f"b{COUNT - 1 - n}"), operation(">>", field("meta", f"tmp{n}"), number(3)))
        )
    return document(HEADERS, primitives, metadata=METADATA)


def changing_index() -> bytes:
    """The index is what the loop itself computes: no loop is allowed to take it as fixed."""
    at = field("index", "at")
    primitives = []
    for n in range(COUNT):
        primitives.append(read(at, f"r{n}", at))
        primitives.append(write(f"r{n}", at, field("values", f"v{n}")))
    return document(
        HEADERS, primitives, metadata=METADATA, register_arrays=[register(f"r{n}") for n in range(COUNT)]
    )


def one_field_for_all() -> bytes:
    """A sum over fields: only one operand advances."""
    seen = field("index", "seen")
    primitives = [
        assign(seen, operation("+", operation("^", seen, field("small", f"b{n}")), field("values", f"v{n}")))
        for n in range(COUNT)
    ]
    return document(HEADERS, primitives, metadata=METADATA)


PROGRAMS = {
    "aggregation": (aggregation(STRAIGHT, field("index", "at")), 2),
    "registers in another order": (aggregation(STRAIGHT[::-1], field("index", "at")), 2),
    "registers out of order": (
        aggregation(random.Random(3).sample(STRAIGHT, COUNT), field("index", "at")),
        2,
    ),
    "swapped": (swapped(), 1),
    "changing index": (changing_index(), 0),
    "one field for all": (one_field_for_all(), 1),
}


def loops(source: str) -> int:
    return source.count("for (int i = 0;")


@pytest.mark.slow
@pytest.mark.few(3)
@pytest.mark.parametrize("name", PROGRAMS)
def test_loops_change_nothing(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The same packets through the program with loops and without: same packets out, same registers."""
    config, expected = PROGRAMS[name]
    assert loops(translate(read_program(config))) == expected
    rolled = Engine.load(config)
    monkeypatch.setattr(rolling, "FEWEST", 10**6)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    assert loops(translate(read_program(config))) == 0
    plain = Engine.load(config)
    draw = random.Random(name)
    for _ in range(200):
        at = draw.choice([0, 1, CELLS - 1, CELLS, 2**32 - 1])
        extreme = [0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]
        words = [draw.choice([draw.getrandbits(32), draw.choice(extreme)]) for _ in range(COUNT)]
        packet = b"".join(n.to_bytes(4, "big") for n in [at, 7, *words]) + draw.randbytes(COUNT)
        if draw.random() < 0.1:
            packet = packet[: draw.randrange(len(packet))]  # headers that stay invalid
        assert rolled.process(1, packet) == plain.process(1, packet)
    for register_ in rolled.program.registers:
        assert rolled.register(register_).read() == plain.register(register_).read()


def test_registers_that_advance_share_a_row() -> None:
    """Consecutive in memory for one cell, whatever their order in the program."""
    source = translate(read_program(aggregation(STRAIGHT, field("index", "at"))))
    assert f"uint32_t reg_r0[{CELLS}][{COUNT}]" in source


def test_registers_of_other_sizes_are_not_mixed() -> None:
    document_ = json.loads(aggregation(STRAIGHT, field("index", "at")))
    document_["register_arrays"][5]["size"] = 3
    switch = Engine.load(json.dumps(document_).encode())
    packet = b"".join(n.to_bytes(4, "big") for n in [7, 0, *range(COUNT)]) + bytes(COUNT)
    switch.process(1, packet)
    assert [switch.register(f"r{n}").read(7, 1) for n in (4, 6)] == [[4], [6]]
    assert switch.register("r5").read() == [0, 0, 0]
