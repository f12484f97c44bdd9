"""Match fields and the engine's matches are the same thing in two notations (specification, "Match Format")."""

from pathlib import Path

import pytest
from finsy.proto import p4i, p4r, p4t
from hypothesis import given
from hypothesis import strategies as st

from fanin.p4compiler import compile_once
from fanin.p4switch.bmv2json.expressions import Field
from fanin.p4switch.bmv2json.program import TableKey
from fanin.p4switch.entries import Exact, Lpm, Optional_, Range, Ternary
from fanin.p4switch.p4runtime.codec.matches import MatchField
from fanin.p4switch.p4runtime.codec.translation import Translations
from fanin.p4switch.p4runtime.errors import P4RuntimeError
from tests.p4switch.p4runtime.conftest import Program

ZERO_WIDTH = Path(__file__).parents[2] / "stf/zero_width.p4"
NUMBERS_ALONE = Translations(p4t.P4TypeInfo())


def field(kind, width):
    info = p4i.MatchField(id=3, name="hdr.h.f", bitwidth=width, match_type=kind.upper())
    return MatchField.of(
        info, TableKey("hdr.h.f", kind, Field("h", "f"), width, None), "t", NUMBERS_ALONE, str
    )


@st.composite
def fields_and_matches(draw):
    width = draw(st.integers(1, 130))
    full = (1 << width) - 1
    value = draw(st.integers(0, full))
    mask = draw(st.integers(0, full))
    length = draw(st.integers(0, width))
    match = draw(
        st.sampled_from(
            [
                Exact(value),
                Lpm(value >> (width - length) << (width - length), length),
                Ternary(value & mask, mask),
                Range(min(value, mask), max(value, mask)),
                Optional_(value),
                Optional_(None),
            ]
        )
    )
    return field(type(match).__name__.lower().rstrip("_"), width), match


@given(fields_and_matches())
def test_a_match_survives_the_way_there_and_back(field_and_match):
    field, match = field_and_match
    message = field.encode(match)
    assert (field.dont_care if message is None else field.decode(message)) == match


@pytest.mark.parametrize(
    ("kind", "dont_care"),
    [("lpm", Lpm(0, 0)), ("ternary", Ternary(0, 0)), ("range", Range(0, 255)), ("optional", Optional_(None))],
)
def test_a_match_of_anything_is_left_out_of_the_message(kind, dont_care):
    assert field(kind, 8).dont_care == dont_care
    assert field(kind, 8).encode(dont_care) is None


def test_an_optional_match_may_be_a_ternary_one_in_the_json():
    """p4c writes it so, since BMv2 knows no optional matches."""
    info = p4i.MatchField(id=3, name="hdr.h.f", bitwidth=8, match_type="OPTIONAL")
    optional = MatchField.of(
        info, TableKey("hdr.h.f", "ternary", Field("h", "f"), 8, None), "t", NUMBERS_ALONE, str
    )
    assert optional.decode(optional.encode(Optional_(5))) == Optional_(5)
    assert optional.dont_care == Optional_(None)
    assert optional.encode(Ternary(5, 255)) == optional.encode(
        Optional_(5)
    )  # of an entry of the program's own
    assert optional.encode(Ternary(0, 0)) is None


def test_an_exact_match_cannot_be_left_out():
    assert field("exact", 8).dont_care is None


@pytest.mark.parametrize(
    ("kind", "message", "why"),
    [
        ("exact", {"exact": {"value": b""}}, "empty"),
        (
            "exact",
            {"exact": {"value": b"\x01\x00"}},
            r"256 \(0x0100\) does not fit bit<8>, which holds 0..255",
        ),
        ("exact", {"ternary": {"value": b"\x01", "mask": b"\x01"}}, "has exact matches"),
        ("exact", {}, "has exact matches"),
        ("lpm", {"lpm": {"value": b"\x80", "prefix_len": 0}}, "leave the field out"),
        ("lpm", {"lpm": {"value": b"\x80", "prefix_len": 9}}, "not in 1..8"),
        (
            "lpm",
            {"lpm": {"value": b"\x81", "prefix_len": 1}},
            "129 has ones after its prefix of 1 bits; the prefix is 128/1",
        ),
        ("ternary", {"ternary": {"value": b"\x00", "mask": b"\x00"}}, "leave the field out"),
        (
            "ternary",
            {"ternary": {"value": b"\x03", "mask": b"\x01"}},
            "3 has ones where its mask 0x1 has zeros; the masked value is 1",
        ),
        ("range", {"range": {"low": b"\x02", "high": b"\x01"}}, "is empty"),
        ("range", {"range": {"low": b"\x00", "high": b"\xff"}}, "leave the field out"),
        ("optional", {"optional": {"value": b"\x01\x00"}}, "does not fit bit<8>"),
    ],
)
def test_a_malformed_match_is_refused(kind, message, why):
    with pytest.raises(P4RuntimeError, match=why) as refused:
        field(kind, 8).decode(p4r.FieldMatch(field_id=3, **message))
    assert refused.value.code.name == "INVALID_ARGUMENT"
    assert "hdr.h.f" in refused.value.message


def test_keys_and_data_of_width_0_are_one_zero_byte(connect):
    """P4Info gives them no width, as it gives none to strings and errors."""
    made = compile_once(ZERO_WIDTH)
    program = Program(made.p4info, made.device_config())
    controller = connect().become_primary()
    controller.set_pipeline(program.config)
    action = program.action("set", b"\0", b"\5")
    exact = program.entry("exact_match", program.exact(0), program.exact(7, 2), action=action)
    omitted = program.entry("only_key", action=action, priority=3)
    controller.insert(exact, omitted)
    for entity in (exact, omitted):
        query = p4r.Entity(table_entry=p4r.TableEntry(table_id=entity.table_entry.table_id))
        assert controller.read(query) == [entity]
    too_large = program.entry("exact_match", program.exact(1), program.exact(8, 2), action=action)
    assert controller.refusal(controller.insert, too_large).codes == ["INVALID_ARGUMENT"]
