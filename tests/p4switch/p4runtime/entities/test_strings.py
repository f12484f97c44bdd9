"""Types that a program translates for its controller: to strings, and to numbers of another width."""

import json
from pathlib import Path

import pytest
from finsy.proto import p4i, p4r, p4t

from fanin.p4compiler import compile_once
from fanin.p4switch.p4runtime.codec.translation import Strings, Translations
from fanin.p4switch.p4runtime.errors import P4RuntimeError
from tests.p4switch.p4runtime.conftest import CPU_PORT, Program, Refused

INVALID = "INVALID_ARGUMENT"


@pytest.fixture(scope="session")
def strings():
    made = compile_once(Path(__file__).with_name("strings.p4"))
    return Program(made.p4info, json.dumps(made.json).encode())


@pytest.fixture
def primary(connect, strings):
    controller = connect().become_primary()
    controller.set_pipeline(strings.config)
    return controller


@pytest.fixture
def sent(device):
    """Return what a packet of that VRF causes."""

    def sent(vrf, port=7):
        return device.pipeline.engine.process(port, bytes([vrf, 0]))

    return sent


def named(text, kind="exact"):
    return p4r.FieldMatch(field_id=1, **{kind: {"value": text.encode()}})


def route(program, vrf, port):
    return program.entry("routes", named(vrf), action=program.action("forward", port.encode()))


# What a string stands for


def test_a_string_gets_the_lowest_number_that_is_free():
    strings = Strings("name_t", "")
    assert [strings.decode(text, 8, "f") for text in (b"red", b"green", b"red", b"blue")] == [1, 2, 1, 3]
    assert [strings.encode(number) for number in (2, 3, 1)] == [b"green", b"blue", b"red"]


def test_a_decimal_number_stands_for_itself():
    strings = Strings("port_t", "")
    assert [strings.decode(text, 9, "f") for text in (b"2", b"0", b"first", b"second", b"03")] == [
        2,
        0,
        1,
        3,
        4,
    ]
    with pytest.raises(P4RuntimeError, match="f: 'second' stands for 3 already, not '3'") as refused:
        strings.decode(b"3", 9, "f")
    assert refused.value.code.name == INVALID


def test_a_number_that_nobody_has_named_is_written_in_decimal():
    strings = Strings("port_t", "")
    assert strings.encode(1) == b"1"
    assert strings.decode(b"new", 9, "f") == 2


def test_the_program_may_map_strings():
    strings = Strings("vrf_t", r'@p4runtime_translation_mappings({ { "" , 0 } , {"a \"b\"", 0x11},})')
    assert strings.decode(b"", 8, "f") == 0
    assert strings.decode(b'a "b"', 8, "f") == 0x11
    assert strings.encode(0) == b""
    with pytest.raises(P4RuntimeError, match="vrf_t maps 'b' or 1 twice"):
        Strings("vrf_t", '@p4runtime_translation_mappings({{"a", 1}, {"b", 1}})')


@pytest.mark.parametrize(
    ("data", "why", "code"),
    [
        (b"", "f: an empty string, for which the type name_t has no mapping", INVALID),
        (b"\xff", "f: 0xff is not a string in UTF-8", INVALID),
        (b"4", "f: '4' stands for 4, which does not fit bit<2>", INVALID),
        (b"fourth", "f: all numbers of bit<2> belong to other strings", "RESOURCE_EXHAUSTED"),
    ],
)
def test_strings_that_stand_for_nothing(data, why, code):
    strings = Strings("name_t", "")
    for text in (b"first", b"second", b"third"):
        strings.decode(text, 2, "f")
    with pytest.raises(P4RuntimeError) as refused:
        strings.decode(data, 2, "f")
    assert (refused.value.message, refused.value.code.name) == (why, code)
    assert strings.decode(b"third", 2, "f") == 3


def test_what_is_no_number_and_no_string_is_refused():
    described = p4i.MatchField(name="error")
    with pytest.raises(P4RuntimeError) as refused:
        Translations(p4t.P4TypeInfo()).of(described, 32).decode(b"\1", 8, "key error")
    assert refused.value.code.name == "UNIMPLEMENTED"


# Where values are written


def test_keys_and_parameters(primary, strings, sent):
    entries = [
        route(strings, "default", "12"),
        route(strings, '"quoted"', "uplink"),
        route(strings, "blue", "12"),
    ]
    primary.insert(*entries)
    assert primary.read(strings.entry("routes")) == entries
    assert primary.read(strings.entry("routes", named("blue"))) == [entries[2]]
    assert [sent(vrf)[0][0] for vrf in (0, 0x11, 1)] == [12, 1, 12]
    primary.delete(entries[0])
    assert primary.read(strings.entry("routes")) == entries[1:]
    refused = primary.refusal(primary.insert, strings.entry("routes", named("blue", "optional")))
    assert refused.codes == [INVALID]


def test_optional_keys(primary, strings, sent):
    def mark(label, *match):
        return strings.entry("marks", *match, action=strings.action("mark", bytes([label])), priority=label)

    entries = [mark(9, named("blue", "optional")), mark(5)]
    primary.insert(*entries, route(strings, "blue", "3"), route(strings, "red", "3"))
    assert primary.read(strings.entry("marks")) == entries
    assert [sent(vrf)[0][1] for vrf in (1, 2)] == [b"\1\x09", b"\2\5"]


def test_packets_to_and_from_the_controller(primary, strings, device):
    """The header is as the program has it: P4Info hides a field of it and gives another width to one."""
    primary.insert(strings.entry("routes", named("blue"), action=strings.action("punt")))
    ((port, packet),) = device.pipeline.engine.process(300, bytes([1, 0]))
    assert (port, packet) == (CPU_PORT, (300 << 15 | 1 << 7).to_bytes(3, "big") + bytes([1, 0]))
    message = device.pipeline.packet_in.unpack(packet)
    assert message == p4r.PacketIn(
        payload=bytes([1, 0]),
        metadata=[{"metadata_id": 1, "value": b"\x01\x2c"}, {"metadata_id": 2, "value": b"blue"}],
    )
    out = p4r.PacketOut(
        payload=b"xy", metadata=[{"metadata_id": 1, "value": b"8"}, {"metadata_id": 2, "value": b"\0"}]
    )
    assert device.pipeline.packet_out.pack(out) == b"\x04\0xy"


def test_a_header_that_the_program_has_not_is_refused(connect, strings):
    config = strings.config
    config.p4info.controller_packet_metadata[0].metadata[1].name = "elsewhere"
    controller = connect().become_primary()
    refused = controller.refusal(controller.set_pipeline, config)
    assert "no header with the fields ingress_port, elsewhere of packet_in" in refused.message


def test_registers_digests_and_value_sets(connect, strings, sent, device):
    config = strings.config
    field = config.p4info.value_sets[0].match[0]
    field.bitwidth, field.type_name.name = 0, "vrf_t"  # which p4c does not write
    primary = connect().become_primary()
    primary.set_pipeline(config)
    members = {"value_set_id": strings.id("vrfs"), "members": [{"match": [named("blue")]}]}
    primary.modify(p4r.Entity(value_set_entry=members))
    assert primary.read(p4r.Entity(value_set_entry={})) == [p4r.Entity(value_set_entry=members)]
    primary.insert(p4r.Entity(digest_entry={"digest_id": strings.id("learnt_t"), "config": {}}))
    sent(1)
    (learnt,) = primary.receive().digest.data
    assert learnt.struct.members[0].bitstring == b"blue"
    last = {"register_id": strings.id("last"), "index": {"index": 0}, "data": {"bitstring": b"blue"}}
    assert primary.read(p4r.Entity(register_entry=last))[0] == p4r.Entity(register_entry=last)
    last["data"]["bitstring"] = b"default"
    primary.modify(p4r.Entity(register_entry=last))
    assert device.pipeline.engine.register("Receive.last").read(0, 1) == [0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["TERNARY", "LPM", "RANGE"])
def test_strings_have_no_masks_prefixes_and_ranges(connect, strings, kind):
    config = strings.config
    document = json.loads(config.p4_device_config)
    (table,) = (t for t in document["pipelines"][0]["tables"] if t["name"] == "Receive.routes")
    (described,) = (t for t in config.p4info.tables if t.preamble.alias == "routes")
    table["key"][0]["match_type"] = table["match_type"] = kind.lower()
    described.match_fields[0].match_type = p4i.MatchField.MatchType.Value(kind)
    config.p4_device_config = json.dumps(document).encode()
    controller = connect().become_primary()
    refused = controller.refusal(controller.set_pipeline, config)
    assert refused.code.name == "UNIMPLEMENTED"
    assert "exact and optional matches" in refused.message


def test_constraints_see_the_number_of_a_strings_bytes(connect, strings):
    config = p4r.ForwardingPipelineConfig()
    config.CopyFrom(strings.config)
    tables = {table.preamble.alias: table for table in config.p4info.tables}
    tables["routes"].preamble.annotations.append('@entry_restriction("meta.vrf != 0")')
    controller = connect().become_primary()
    controller.set_pipeline(config)
    controller.insert(route(strings, "red", "2"))
    with pytest.raises(
        Refused, match=r"@entry_restriction is violated: meta\.vrf != 0; here meta\.vrf = 0x0"
    ):
        controller.insert(route(strings, "\0", "2"))


def test_constraints_see_whether_an_optional_string_is_given(connect, strings):
    config = p4r.ForwardingPipelineConfig()
    config.CopyFrom(strings.config)
    tables = {table.preamble.alias: table for table in config.p4info.tables}
    restriction = '@entry_restriction("meta.vrf::mask != 0; meta.vrf::mask == -1; meta.vrf != 0x626164")'
    tables["marks"].preamble.annotations.append(restriction)
    controller = connect().become_primary()
    controller.set_pipeline(config)

    def insert(*match):
        action = strings.action("mark", b"\1")
        controller.insert(strings.entry("marks", *match, action=action, priority=9))

    insert(named("blue", "optional"))
    with pytest.raises(Refused, match=r"violated: meta.vrf::mask != 0; here meta.vrf = \(0x0, 0x0\)"):
        insert()
    with pytest.raises(Refused, match=r"violated: meta.vrf != 0x626164; here meta.vrf = \(0x626164, -0x1\)"):
        insert(named("bad", "optional"))
