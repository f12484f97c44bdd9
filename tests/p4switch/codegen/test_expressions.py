"""Expressions mean what BMv2 computes with integers of any size."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fanin.p4switch.bmv2json.program import ProgramError
from fanin.p4switch.codegen.translate import translate
from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.reader import read_program
from tests.p4switch.codegen.oracle import Expressions, Values, cut, evaluate
from tests.p4switch.documents import assign, document, field, number, operation
from tests.sizes import sized

pytestmark = pytest.mark.slow

INPUTS: list[list[Any]] = [
    ["u1", 1, False],
    ["u3", 3, False],
    ["u4", 4, False],
    ["u8", 8, False],
    ["u16", 16, False],
    ["u32", 32, False],
    ["u48", 48, False],
    ["u64", 64, False],
    ["s8", 8, True],
    ["s13", 13, True],
    ["pad", 3, False],
    ["s16", 16, True],
    ["s32", 32, True],
    ["s32b", 32, True],
    ["s64", 64, True],
]
OUTPUTS = [
    (1, False),
    (7, False),
    (8, False),
    (16, True),
    (32, False),
    (32, True),
    (13, False),
    (51, True),
    (64, False),
]
WIDTHS = (1, 3, 8, 9, 16, 31, 32, 33, 48, 64)  # to which results are brought in between
# Numbers that no C integer holds, among others.
WIDE_INPUTS: list[list[Any]] = [
    ["u129", 129, False],
    ["u200", 200, False],
    ["u256", 256, False],
    ["s135", 135, True],
    ["s320", 320, True],
    ["u32", 32, False],
    ["s64", 64, True],
    ["u128", 128, False],
    ["u72", 72, False],
    ["s104", 104, True],
]
WIDE_OUTPUTS = [(130, False), (256, True), (7, False), (192, False), (135, True), (64, True), (321, False)]
WIDE_WIDTHS = (9, 64, 72, 100, 128, 129, 192, 256)


def unpacked(data: bytes, fields: list[list[Any]]) -> list[int]:
    """The values of fields that stand one after another."""
    bits, values = int.from_bytes(data, "big"), []
    left = 8 * len(data)
    for _, width, signed in fields:
        left -= width
        values.append(cut(bits >> left, width, signed))
    return values


def outputs(count: int, kinds: list[tuple[int, bool]]) -> list[list[Any]]:
    """Result fields of all kinds, filled up to whole bytes."""
    fields: list[list[Any]] = [[f"r{n}", *kinds[n % len(kinds)]] for n in range(count)]
    fields.append(["filler", -sum(width for _, width, _ in fields) % 8 or 8, False])
    return fields


def check(maker: Expressions, inputs: list[list[Any]], kinds: list[tuple[int, bool]], count: int) -> None:
    """A switch that computes random expressions into fields of their own, beside Python's integers."""
    results = outputs(count, kinds)
    expressions: list[dict[str, Any]] = []
    while len(expressions) < count:
        candidate = maker.number(3)
        try:  # some need too many bits in between; the engine says so
            translate(
                read_program(
                    document({"in": inputs, "out": results}, [assign(field("out", "r0"), candidate)])
                )
            )
        except ProgramError:
            continue
        expressions.append(candidate)
    primitives = [assign(field("out", f"r{n}"), e) for n, e in enumerate(expressions)]
    engine = Engine.load(document({"in": inputs, "out": results}, primitives))
    size = sum(width for _, width, _ in results) // 8
    length = sum(width for _, width, _ in inputs) // 8

    @settings(max_examples=sized(50, 150), database=None)
    @given(st.one_of(st.binary(min_size=length, max_size=length), extremes(inputs)))
    def law(data: bytes) -> None:
        values: Values = {("in", f[0]): v for f, v in zip(inputs, unpacked(data, inputs), strict=True)}
        [(_, packet)] = engine.process(1, data + bytes(size))
        got = unpacked(packet[len(data) :], results)
        for n, expression in enumerate(expressions):
            width, signed = kinds[n % len(kinds)]
            assert got[n] == cut(evaluate(expression, values), width, signed), expression

    law()


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(6))
def test_any_expression(seed: int) -> None:
    """Random trees of every operator, on random and on extreme operands."""
    check(Expressions(seed, [("in", name) for name, _, _ in INPUTS], WIDTHS), INPUTS, OUTPUTS, 80)


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(2))
def test_any_expression_of_numbers_wider_than_c_has(seed: int) -> None:
    names = [("in", name) for name, _, _ in WIDE_INPUTS]
    check(Expressions(seed, names, WIDE_WIDTHS), WIDE_INPUTS, WIDE_OUTPUTS, 40)


def extremes(inputs: list[list[Any]]) -> st.SearchStrategy[bytes]:
    """Every field at a limit: all zeros, all ones, the most and the least of signed ones."""

    def joined(choices: list[int]) -> bytes:
        bits, length = 0, 0
        for (_, width, _), choice in zip(inputs, choices, strict=True):
            value = [0, (1 << width) - 1, 1 << (width - 1), (1 << (width - 1)) - 1, 1][choice]
            bits = bits << width | value & (1 << width) - 1
            length += width
        return bits.to_bytes(length // 8, "big")

    return st.lists(st.integers(0, 4), min_size=len(inputs), max_size=len(inputs)).map(joined)


def test_fields_of_up_to_128_bits() -> None:
    """IPv6 addresses are added, masked, compared and shifted like any number."""
    wide = [["a", 128, False], ["b", 128, False], ["c", 99, False], ["d", 5, False]]
    everything = number((1 << 128) - 1)
    engine = Engine.load(
        document(
            {"h": wide},
            [
                assign(field("h", "c"), operation("^", field("h", "a"), field("h", "b"))),
                assign(
                    field("h", "d"), operation("b2d", None, operation("<", field("h", "a"), field("h", "b")))
                ),
                assign(
                    field("h", "a"),
                    operation("&", operation("+", field("h", "a"), field("h", "b")), everything),
                ),
                assign(field("h", "b"), operation(">>", field("h", "b"), number(70))),
            ],
        )
    )
    a, b = (1 << 128) - 5, 0x1234567890ABCDEF1234567890ABCDEF
    bits = ((a << 128 | b) << 104).to_bytes(45, "big")
    [(_, packet)] = engine.process(1, bits)
    after = unpacked(packet, wide)
    assert after == [(a + b) % (1 << 128), b >> 70, (a ^ b) % (1 << 99), 0]


def test_too_wide_is_refused() -> None:
    """A number that may overflow what the program's fields give room for is an error at load, never a wrong result."""
    product = field("h", "a")
    for _ in range(3):
        product = operation("*", product, field("h", "a"))
    program = document(
        {"h": [["a", 128, False]]}, [assign(field("h", "a"), operation(">>", product, number(3)))]
    )
    with pytest.raises(ProgramError, match=r"action act: .*384 bits"):
        Engine.load(program)


def test_c_grows_no_faster_than_nested_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each operand stands in the C once: thirty levels that doubled it would be more than any compiler takes."""
    monkeypatch.setenv("P4SWITCH_COMPILE_SECONDS", "30")
    a, b = field("h", "a"), field("h", "b")
    clamped, divided, rest = a, a, a
    for _ in range(30):
        clamped = operation("sat_cast", operation("-", operation("+", clamped, a), b), number(16))
        divided = operation("/", operation("&", operation("+", divided, a), number(0xFFFF)), b)
        rest = operation("%", operation("&", operation("*", rest, a), number(0xFFFF)), b)
    results: list[list[Any]] = [["clamped", 16, True], ["divided", 16, False], ["rest", 16, False]]
    primitives = [
        assign(field("out", n), e) for (n, *_), e in zip(results, (clamped, divided, rest), strict=True)
    ]
    engine = Engine.load(document({"h": [["a", 16, False], ["b", 16, False]], "out": results}, primitives))
    for values in ((40000, 300), (300, 7), (5, 0), (7, 65535)):
        data = b"".join(value.to_bytes(2, "big") for value in values)
        [(_, packet)] = engine.process(1, data + bytes(6))
        named = {("h", "a"): values[0], ("h", "b"): values[1]}
        expected = [
            cut(evaluate(e, named), 16, kind[2])
            for e, kind in zip((clamped, divided, rest), results, strict=True)
        ]
        assert unpacked(packet[4:], results) == expected


def test_c_grows_no_faster_than_nested_indices() -> None:
    """s[s[s[…].f].f].f; an index out of range takes the last element."""
    element = {"type": "hexstr", "value": "0x0"}
    stack = {"type": "header_stack", "value": "s"}
    for _ in range(30):
        element = operation("access_field", operation("dereference_header_stack", stack, element), 0)
    elements: dict[str, list[list[Any]]] = {f"s[{n}]": [["f", 8, False]] for n in range(4)}
    stacks = [{"name": "s", "id": 0, "size": 4, "header_type": "", "header_ids": [2, 3, 4, 5]}]
    config = document(
        {**elements, "out": [["r", 8, False]]}, [assign(field("out", "r"), element)], header_stacks=stacks
    )
    engine = Engine.load(config)
    for values in ([1, 2, 3, 0], [2, 0, 9, 1], [3, 1, 1, 3]):
        found = 0
        for _ in range(30):
            found = values[min(found, 3)]
        [(_, packet)] = engine.process(1, bytes([*values, 0]))
        assert packet[-1] == found
