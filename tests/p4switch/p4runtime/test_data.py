"""Values as P4Data (specification, "Representation of Arbitrary P4 Types")."""

import pytest
from finsy.proto import p4d, p4t
from google.protobuf import text_format

from fanin.p4switch.p4runtime.codec.data import data_type
from fanin.p4switch.p4runtime.codec.translation import Translations
from fanin.p4switch.p4runtime.errors import P4RuntimeError

TYPES = text_format.Parse(
    """
    enums { key: "Color" value { members { name: "red" } members { name: "blue" } } }
    serializable_enums { key: "Kind" value { underlying_type { bitwidth: 8 } } }
    error { members: "NoError" members: "PacketTooShort" }
    new_types { key: "plain" value { original_type { bitstring { bit { bitwidth: 8 } } } } }
    new_types { key: "named" value { translated_type { uri: "x" sdn_string { } } } }
    new_types { key: "wide" value { translated_type { uri: "x" sdn_bitwidth: 32 } } }
    new_types { key: "again" value { original_type { struct { name: "itself" } } } }
    structs { key: "itself" value { members { name: "a" type_spec { new_type { name: "again" } } } } }
    structs {
      key: "pair"
      value {
        members { name: "a" type_spec { bool { } } }
        members { name: "b" type_spec { tuple { members { bitstring { int { bitwidth: 8 } } } } } }
      }
    }
    """,
    p4t.P4TypeInfo(),
)


def of(spec):
    parsed = text_format.Parse(spec, p4t.P4DataTypeSpec())
    return data_type(parsed, TYPES, Translations(TYPES), "register r")


SINGLE = [
    ("bitstring { bit { bitwidth: 8 } }", 0xFE, {"bitstring": b"\xfe"}),
    ("bitstring { int { bitwidth: 8 } }", 0xFE, {"bitstring": b"\xfe"}),
    ("bitstring { int { bitwidth: 8 } }", 0x7F, {"bitstring": b"\x7f"}),
    ("bool { }", 1, {"bool": True}),
    ('enum { name: "Color" }', 1, {"enum": "blue"}),
    ('serializable_enum { name: "Kind" }', 5, {"enum_value": b"\5"}),
    ("error { }", 1, {"error": "PacketTooShort"}),
    ('new_type { name: "plain" }', 7, {"bitstring": b"\7"}),
    ('new_type { name: "named" }', 1, {"bitstring": b"blue"}),
    ('new_type { name: "wide" }', 9, {"bitstring": b"\x09"}),
]


@pytest.mark.parametrize(("spec", "value", "message"), SINGLE)
def test_single_values_both_ways(spec, value, message):
    kind = of(spec)
    assert kind.size == 1
    assert kind.decode(p4d.P4Data(**message), 8) == value
    assert kind.encode(iter([value])) == p4d.P4Data(**message)


def test_a_struct_has_its_members_values_one_behind_the_other():
    kind = of('struct { name: "pair" }')
    assert kind.size == 2
    inner = {"tuple": {"members": [{"bitstring": b"\xff"}]}}
    assert kind.encode(iter([1, 255])) == p4d.P4Data(struct={"members": [{"bool": True}, inner]})
    with pytest.raises(P4RuntimeError, match="cannot be written"):
        kind.decode(p4d.P4Data(), 8)


@pytest.mark.parametrize(
    ("spec", "message", "why"),
    [
        ("bool { }", {"bitstring": b"\1"}, "register r has a bool, the request has bitstring"),
        ("bitstring { bit { bitwidth: 8 } }", {}, "register r has a bitstring, the request has None"),
        ("bitstring { bit { bitwidth: 8 } }", {"bitstring": b"\1\0"}, "does not fit bit<8>"),
        ("bitstring { int { bitwidth: 8 } }", {"bitstring": b"\0\x80"}, "does not fit int<8>"),
        ('serializable_enum { name: "Kind" }', {"bitstring": b"\1"}, "has a enum_value"),
        ('enum { name: "Color" }', {"enum": "green"}, "'green' is none of red, blue"),
    ],
)
def test_values_of_another_type_are_refused(spec, message, why):
    with pytest.raises(P4RuntimeError) as refused:
        of(spec).decode(p4d.P4Data(**message), 8)
    assert refused.value.code.name == "INVALID_ARGUMENT"
    assert why in refused.value.message


def test_an_enum_without_that_member_is_told_by_its_number():
    assert of('enum { name: "Color" }').encode(iter([9])) == p4d.P4Data(enum="9")


def test_headers_are_not_supported():
    with pytest.raises(P4RuntimeError) as refused:
        of('header { name: "h" }')
    assert refused.value.code.name == "UNIMPLEMENTED"


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ("bitstring { int { bitwidth: 0 } }", "register r: the P4Info has a signed number of 0 bits"),
        ("bitstring { int { bitwidth: -1 } }", "of -1 bits"),
        ("bitstring { int { bitwidth: 2147483647 } }", "of 2147483647 bits"),
        ('struct { name: "itself" }', "register r: the P4Info has a type that contains itself"),
        ('new_type { name: "again" }', "contains itself"),
    ],
)
def test_types_that_cannot_be_are_refused(spec, complaint):
    with pytest.raises(P4RuntimeError, match=complaint) as caught:
        of(spec)
    assert caught.value.code.name == "INVALID_ARGUMENT"
