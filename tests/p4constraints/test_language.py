"""The language of constraints: what it accepts, and what its expressions mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanin.p4constraints.language import INT, Constraint, ConstraintError, Type

TYPES = {
    "hdr.valid": Type("exact", 1),
    "vlan": Type("exact", 12),
    "dst": Type("ternary", 32),
    "prefix": Type("lpm", 32),
    "port": Type("range", 16),
    "maybe": Type("optional", 8),
    "mac": Type("ternary", 48),
    "::priority": INT,
}
FULL = (1 << 32) - 1


def holds(text: str, **values: object) -> bool:
    given = {name.replace("__", "."): value for name, value in values.items()}
    given = {"::priority" if name == "priority" else name: value for name, value in given.items()}
    return Constraint.parse(text, TYPES).violated(given) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "values", "outcome"),
    [
        ("true", {}, True),
        ("false", {}, False),
        ("hdr.valid == 1", {"hdr__valid": 1}, True),
        ("vlan > 0x10 && vlan <= 0b100000", {"vlan": 32}, True),
        ("vlan != 0d7", {"vlan": 7}, False),
        ("vlan == 0o17", {"vlan": 15}, True),
        ("dst == 5", {"dst": (5, FULL)}, True),
        ("dst == 5", {"dst": (5, 0xFF)}, False),
        ("dst::mask == 0 || dst::mask == -1", {"dst": (9, FULL)}, True),
        ("dst::mask == 0 || dst::mask == -1", {"dst": (9, 0xFF)}, False),
        ("hdr.valid == 0 -> dst::mask == 0", {"hdr__valid": 0, "dst": (1, 1)}, False),
        ("hdr.valid == 0 -> dst::mask == 0", {"hdr__valid": 1, "dst": (1, 1)}, True),
        ("prefix::prefix_length <= 24", {"prefix": (0, 24)}, True),
        ("prefix::prefix_length <= 24", {"prefix": (0, 25)}, False),
        ("prefix == ipv4('10.0.0.1')", {"prefix": (0x0A000001, 32)}, True),
        ("port::low >= 1024; port::high < 2000;", {"port": (1024, 1999)}, True),
        ("port == 80", {"port": (80, 80)}, True),
        ("port == 80", {"port": (80, 81)}, False),
        ("maybe == 3", {"maybe": (3, 255)}, True),
        ("mac::value == mac('00:00:00:00:00:05')", {"mac": (5, 0)}, True),
        ("dst::value < ipv6('::')", {"dst": (0, 0)}, False),
        ("::priority < 100", {"priority": 99}, True),
        ("-1 < 1 && --2 == 2", {}, True),
        ("!(vlan == 1)", {"vlan": 1}, False),
        ("(vlan == 1) == true", {"vlan": 1}, True),
        ("// first\n vlan == 1; /* second */ hdr.valid == 1", {"vlan": 1, "hdr__valid": 0}, False),
        ("vlan == 1 || vlan == 2 && hdr.valid == 0", {"vlan": 1, "hdr__valid": 1}, True),
        ("(vlan == 1; hdr.valid == 1)", {"vlan": 1, "hdr__valid": 0}, False),
    ],
)
def test_what_a_constraint_means(text: str, values: dict[str, object], outcome: bool) -> None:
    assert holds(text, **values) is outcome


@pytest.mark.parametrize(
    ("text", "at", "why"),
    [
        ("", 0, "a key, a number or a parenthesis is expected here, not the end"),
        ("vlan ==", 7, "is expected here, not the end"),
        ("vlan == 1 vlan", 10, "an operator, or ';' is expected here, not 'vlan'"),
        ("vlan", 0, "an expression of type bool is needed here, this has type exact<12>"),
        ("1 + 1 == 2", 2, "'+' is not part of the language"),
        ("nobody == 1", 0, "there is no 'nobody' here; there are hdr.valid, vlan"),
        ("vlan::mask == 1", 6, "'vlan' has type exact<12>, which has value, not 'mask'"),
        ("dst > 5", 4, "'>' compares numbers, not ternary<32>: write '::' and a field"),
        ("vlan == 5000", 5, "5000 does not fit exact<12>"),
        ("vlan == dst", 5, "'==' cannot compare exact<12> with ternary<32>"),
        ("vlan == true", 5, "'==' cannot compare exact<12> with bool"),
        ("hdr.valid == vlan == 0", 18, "write parentheses"),
        ("true -> true -> true", 13, "write parentheses"),
        ("!vlan", 0, "type bool is needed"),
        ("-vlan == 1", 0, "type int is needed"),
        ("(vlan == 1", 10, "')' is expected here"),
        ("vlan == ipv4('1.2.3')", 13, "not an address of type ipv4"),
        ("vlan == mac(5)", 12, "an address in single quotes"),
        ("::timeout == 1", 2, "there is no '::timeout' here"),
        ("(" * 200 + "true" + ")" * 200, 100, "nested over 100 deep"),
        ("!" * 200 + "true", 99, "nested over 100 deep"),
    ],
)
def test_what_is_not_a_constraint(text: str, at: int, why: str) -> None:
    with pytest.raises(ConstraintError) as refused:
        Constraint.parse(text, TYPES)
    assert why in refused.value.message
    assert refused.value.offset == at


def test_the_violated_clause_is_named_with_the_keys_that_it_mentions() -> None:
    constraint = Constraint.parse("vlan != 0;\n  hdr.valid == 1 ->  dst::mask == 0;", TYPES)
    clause = constraint.violated({"vlan": 1, "hdr.valid": 1, "dst": (1, 1)})
    assert clause is not None
    assert clause.text == "hdr.valid == 1 -> dst::mask == 0"
    assert clause.names == ("dst", "hdr.valid")


@given(st.integers(0, 4095), st.integers(0, 4095), st.integers(0, 4095))
def test_precedence_is_that_of_the_specification(vlan: int, low: int, high: int) -> None:
    text = f"vlan < {low} || vlan > {low} && vlan < {high} -> vlan != {high}"
    expected = not (vlan < low or (vlan > low and vlan < high)) or vlan != high
    assert holds(text, vlan=vlan) is expected


@given(st.text(alphabet="vlandst:01 ()&|!-<>=;'.", max_size=40))
def test_any_text_is_a_constraint_or_an_error_with_its_place(text: str) -> None:
    offset = 0
    try:
        Constraint.parse(text, TYPES)
    except ConstraintError as error:
        offset = error.offset
    assert 0 <= offset <= len(text)
