"""The JSON computes, with BMv2's unbounded integers, what the specification defines for the P4 expression."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fanin.p4compiler import compile_file
from tests.p4compiler.conftest import source
from tests.sizes import sized

Values = Mapping[str, int]
FIELDS = {"u1": (1, False), "u8": (8, False), "u13": (13, False), "u32": (32, False), "u64": (64, False)}
FIELDS |= {"s8": (8, True), "s32": (32, True), "s64": (64, True)}
METADATA = " ".join(
    f"{'int' if signed else 'bit'}<{width}> {name};" for name, (width, signed) in FIELDS.items()
)


class Term(NamedTuple):
    """An expression: its text, its type (width None: bool) and what it is worth."""

    text: str
    width: int | None
    signed: bool
    value: Callable[[Values], int]


def wrap(value: int, width: int, signed: bool) -> int:
    value &= (1 << width) - 1
    return value - (1 << width) if signed and value >> (width - 1) else value


def clamp(value: int, width: int, signed: bool) -> int:
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else (0, (1 << width) - 1)
    return min(max(value, low), high)


BINARY: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
}
COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


@cache
def bits(width: int, signed: bool, depth: int) -> st.SearchStrategy[Term]:
    """Expressions of a type."""
    prefix = f"{width}{'s' if signed else 'w'}"
    literals = st.integers(0, (1 << (width - signed)) - 1).map(
        lambda v: Term(f"{prefix}{v}", width, signed, lambda _: v)
    )
    same = [name for name, of in FIELDS.items() if of == (width, signed)]
    fields = [st.just(Term(f"meta.{n}", width, signed, lambda env, n=n: env[n])) for n in same]  # type: ignore[misc]
    if depth == 0:
        return st.one_of(literals, *fields)
    inner = bits(width, signed, depth - 1)

    def binary(op: str, a: Term, b: Term) -> Term:
        return Term(
            f"({a.text} {op} {b.text})", width, signed,
            lambda env: wrap(BINARY[op](a.value(env), b.value(env)), width, signed),
        )  # fmt: skip

    def saturating(op: str, a: Term, b: Term) -> Term:
        return Term(
            f"({a.text} |{op}| {b.text})", width, signed,
            lambda env: clamp(BINARY[op](a.value(env), b.value(env)), width, signed),
        )  # fmt: skip

    def shift(op: str, a: Term, by: int) -> Term:
        def value(env: Values) -> int:
            return wrap(a.value(env) << by if op == "<<" else a.value(env) >> by, width, signed)

        return Term(f"({a.text} {op} {by})", width, signed, value)

    def negative(op: str, a: Term) -> Term:
        return Term(
            f"({op}{a.text})", width, signed,
            lambda env: wrap(-a.value(env) if op == "-" else ~a.value(env), width, signed),
        )  # fmt: skip

    def choice(c: Term, a: Term, b: Term) -> Term:
        return Term(
            f"({c.text} ? {a.text} : {b.text})", width, signed,
            lambda env: a.value(env) if c.value(env) else b.value(env),
        )  # fmt: skip

    def cast(a: Term) -> Term:
        text = f"(({'int' if signed else 'bit'}<{width}>){a.text})"
        return Term(text, width, signed, lambda env: wrap(a.value(env), width, signed))

    def cut(a: Term, low: int) -> Term:
        return Term(
            f"{a.text}[{low + width - 1}:{low}]",
            width,
            False,
            lambda env: wrap(a.value(env) >> low, width, False),
        )

    def join(a: Term, b: Term) -> Term:
        low = b.width or 0
        return Term(
            f"({a.text} ++ {b.text})", width, signed,
            lambda env: wrap(a.value(env) << low | wrap(b.value(env), low, False), width, signed),
        )  # fmt: skip

    options = [
        literals,
        *fields,
        st.builds(binary, st.sampled_from(sorted(BINARY)), inner, inner),
        st.builds(saturating, st.sampled_from("+-"), inner, inner),
        st.builds(shift, st.sampled_from(["<<", ">>"]), inner, st.integers(0, width + 2)),
        st.builds(negative, st.sampled_from("-~"), inner),
        st.builds(choice, booleans(depth - 1), inner, inner),
        st.builds(cast, bits(width, not signed, depth - 1)),
        st.builds(cast, st.sampled_from([1, 8, 13, 32, 64]).flatmap(lambda w: bits(w, signed, depth - 1))),
    ]
    wider = [w for w, s in FIELDS.values() if w > width and not s]
    if not signed and wider:
        whole = st.sampled_from(sorted(n for n, (w, _) in FIELDS.items() if w > width))
        options.append(
            whole.flatmap(
                lambda n: st.builds(
                    cut,
                    st.just(Term(f"meta.{n}", FIELDS[n][0], FIELDS[n][1], lambda env: env[n])),
                    st.integers(0, FIELDS[n][0] - width),
                )
            )
        )
    if width > 8:
        sign = st.booleans()
        right = sign.flatmap(lambda s: bits(8, s, depth - 1))
        options.append(st.builds(join, bits(width - 8, signed, depth - 1), right))
    return st.one_of(options)


@cache
def booleans(depth: int) -> st.SearchStrategy[Term]:
    """Expressions of type bool."""

    def compare(op: str, pair: tuple[Term, Term]) -> Term:
        a, b = pair
        return Term(
            f"({a.text} {op} {b.text})",
            None,
            False,
            lambda env: int(COMPARISONS[op](a.value(env), b.value(env))),
        )

    def logical(op: str, a: Term, b: Term) -> Term:
        return Term(
            f"({a.text} {op}{op} {b.text})", None, False, lambda env: BINARY[op](a.value(env), b.value(env))
        )

    kinds = st.sampled_from([(8, False), (32, True), (13, False)])
    pairs = kinds.flatmap(lambda k: st.tuples(bits(*k, max(depth - 1, 0)), bits(*k, max(depth - 1, 0))))
    comparisons = st.builds(compare, st.sampled_from(sorted(COMPARISONS)), pairs)
    if depth <= 0:
        return comparisons
    inner = booleans(depth - 1)
    return st.one_of(
        comparisons,
        st.builds(lambda a: Term(f"(!{a.text})", None, False, lambda env: 1 - a.value(env)), inner),
        st.builds(logical, st.sampled_from("&|"), inner, inner),
        st.builds(
            lambda c, a, b: Term(
                f"({c.text} ? {a.text} : {b.text})", None, False, lambda e: a.value(e) if c.value(e) else b.value(e)
            ),
            inner, inner, inner,
        ),
    )  # fmt: skip


def evaluate(e: dict[str, Any], env: Values) -> int:
    """BMv2's meaning of an expression of the JSON (behavioral-model, docs/JSON_format.md)."""
    kind, value = e["type"], e["value"]
    if kind == "hexstr":
        return int(value, 16)
    if kind == "bool":
        return int(value)
    if kind == "field":
        assert value[0] == "scalars"
        return env[value[1].removeprefix("metadata.")]
    assert kind == "expression"
    if "op" not in value:
        return evaluate(value, env)
    op = value["op"]
    right = evaluate(value["right"], env)
    if op in ("not", "~", "d2b", "b2d"):
        return {"not": int(not right), "~": ~right, "d2b": int(right != 0), "b2d": right}[op]
    left = evaluate(value["left"], env)
    match op:
        case "?":
            return left if evaluate(value["cond"], env) else right
        case "and":
            return left and right
        case "or":
            return left or right
        case "<<":
            return left << right
        case ">>":
            return left >> right
        case "two_comp_mod":
            return wrap(left, right, True)
        case "sat_cast":
            return clamp(left, right, True)
        case "usat_cast":
            return clamp(left, right, False)
    return int(BINARY[op](left, right) if op in BINARY else COMPARISONS[op](left, right))


def environments() -> st.SearchStrategy[dict[str, int]]:
    def values(width: int, signed: bool) -> st.SearchStrategy[int]:
        low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else (0, (1 << width) - 1)
        return st.one_of(st.integers(low, high), st.sampled_from([low, high, 0, min(1, high), max(low, -1)]))

    return st.fixed_dictionaries({name: values(*of) for name, of in FIELDS.items()})


def written(directory: Path, statement: str) -> dict[str, Any]:
    """The right side of the only assignment of a program."""
    path = directory / "expression.p4"
    path.write_text(source(metadata=METADATA + " bool flag;", apply=statement))
    actions = compile_file(path).json["actions"]
    (primitive,) = actions[0]["primitives"]
    right: dict[str, Any] = primitive["parameters"][1]
    return right


@pytest.mark.slow
@pytest.mark.long
@settings(max_examples=sized(25, 60), suppress_health_check=list(HealthCheck))
@given(term=st.sampled_from(sorted(FIELDS.values())).flatmap(lambda of: bits(*of, 3)), env=environments())
def test_numbers(tmp_path_factory: pytest.TempPathFactory, term: Term, env: dict[str, int]) -> None:
    target = next(name for name, of in FIELDS.items() if of == (term.width, term.signed))
    right = written(tmp_path_factory.mktemp("numbers"), f"meta.{target} = {term.text};")
    assert evaluate(right, env) == term.value(env)


@pytest.mark.slow
@pytest.mark.long
@settings(max_examples=sized(20, 40), suppress_health_check=list(HealthCheck))
@given(term=booleans(3), env=environments())
def test_conditions(tmp_path_factory: pytest.TempPathFactory, term: Term, env: dict[str, int]) -> None:
    right = written(tmp_path_factory.mktemp("conditions"), f"meta.flag = {term.text};")
    assert evaluate(right, env) == term.value(env)


@settings(max_examples=20, suppress_health_check=list(HealthCheck))
@given(low=st.integers(0, 31), size=st.integers(1, 32), env=environments())
def test_writing_a_slice_leaves_the_other_bits(
    tmp_path_factory: pytest.TempPathFactory, low: int, size: int, env: dict[str, int]
) -> None:
    high = min(low + size - 1, 31)
    width = high - low + 1
    right = written(tmp_path_factory.mktemp("slices"), f"meta.s32[{high}:{low}] = (bit<{width}>)meta.u64;")
    mask = ((1 << width) - 1) << low
    expected = wrap(env["s32"] & ~mask | (env["u64"] << low) & mask, 32, True)
    assert evaluate(right, env) == expected


def test_saturation_is_bmv2s_saturating_cast(tmp_path: Path) -> None:
    assert written(tmp_path, "meta.s32 = meta.s32 |+| 1;")["value"]["value"] == {
        "op": "sat_cast",
        "left": {
            "type": "expression",
            "value": {
                "op": "+",
                "left": {"type": "field", "value": ["scalars", "metadata.s32"]},
                "right": {"type": "hexstr", "value": "0x00000001"},
            },
        },
        "right": {"type": "hexstr", "value": "0x20"},
    }
