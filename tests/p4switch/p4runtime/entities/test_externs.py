"""Counters, registers and multicast groups over P4Runtime."""

import pytest
from finsy.proto import p4r

INVALID = "INVALID_ARGUMENT"


# Counters


def counter(program, index=None, **fields):
    entry = p4r.CounterEntry(counter_id=program.id("arrivals"), **fields)
    if index is not None:
        entry.index.index = index
    return p4r.Entity(counter_entry=entry)


def counts(controller, query):
    entries = [entity.counter_entry for entity in controller.read(query)]
    return {entry.index.index: (entry.data.packet_count, entry.data.byte_count) for entry in entries}


def test_a_counter_starts_at_zero(controller, program):
    assert counts(controller, counter(program)) == dict.fromkeys(range(16), (0, 0))


def test_one_cell_of_a_counter_is_set(controller, program):
    controller.modify(counter(program, 3, data={"packet_count": 7, "byte_count": 700}))
    assert counts(controller, counter(program, 3)) == {3: (7, 700)}
    assert counts(controller, counter(program))[4] == (0, 0)


def test_every_cell_of_a_counter_is_set_at_once(controller, program):
    controller.modify(counter(program, data={"packet_count": 1}))
    assert set(counts(controller, counter(program)).values()) == {(1, 0)}


def test_without_data_a_counter_stays_as_it_is(controller, program):
    controller.modify(counter(program, 3, data={"packet_count": 7}))
    controller.modify(counter(program, 3))
    assert counts(controller, counter(program, 3)) == {3: (7, 0)}


@pytest.mark.parametrize("data", [{"packet_count": -1}, {"byte_count": -(2**63)}])
def test_a_counter_cannot_be_negative(controller, program, data):
    refused = controller.refusal(controller.modify, counter(program, 3, data=data))
    assert refused.codes == [INVALID]
    assert counts(controller, counter(program, 3)) == {3: (0, 0)}


def test_an_entry_with_a_negative_counter_is_not_inserted(controller, program):
    refused = controller.refusal(controller.insert, program.host(5, counter_data={"packet_count": -1}))
    assert refused.codes == [INVALID]
    assert controller.read(program.entry("hosts")) == []


def test_every_counter_is_read_by_id_zero(controller):
    assert len(counts(controller, p4r.Entity(counter_entry={}))) == 16


# Registers


def register(program, name, index=None, **fields):
    entry = p4r.RegisterEntry(register_id=program.id(name), **fields)
    if index is not None:
        entry.index.index = index
    return p4r.Entity(register_entry=entry)


def cells(controller, query):
    entries = [entity.register_entry for entity in controller.read(query)]
    return [entry.data.bitstring for entry in sorted(entries, key=lambda entry: entry.index.index)]


def test_a_register_is_written_and_read(controller, program):
    controller.modify(register(program, "last_type", 2, data={"bitstring": b"\x12\x34"}))
    assert cells(controller, register(program, "last_type", 2)) == [b"\x12\x34"]
    assert cells(controller, register(program, "last_type")) == [b"\0", b"\0", b"\x12\x34", *[b"\0"] * 5]


def test_every_cell_of_a_register_is_written_at_once(controller, program):
    controller.modify(register(program, "last_type", data={"bitstring": b"\x05"}))
    assert cells(controller, register(program, "last_type")) == [b"\x05"] * 8


def test_a_signed_register_has_signed_values(controller, program):
    controller.modify(register(program, "balance", 1, data={"bitstring": b"\xff\xff\x85"}))
    assert cells(controller, register(program, "balance")) == [b"\0", b"\x85", b"\0", b"\0"]


def test_every_register_is_read_by_id_zero(controller):
    assert len(cells(controller, p4r.Entity(register_entry={}))) == 8 + 4


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ({}, "the request has None"),
        ({"bool": True}, "the request has bool"),
        ({"bitstring": b"\1\0\0\0\0"}, "does not fit bit<32>"),
    ],
)
def test_a_register_takes_only_values_of_its_type(controller, program, data, why):
    refused = controller.refusal(controller.modify, register(program, "last_type", 0, data=data))
    assert refused.codes == [INVALID]
    assert why in refused.message


@pytest.mark.parametrize("make", [counter, lambda program, *rest: register(program, "last_type", *rest)])
def test_arrays_have_bounds_and_can_only_be_modified(controller, program, make):
    assert controller.refusal(controller.read, make(program, 16)).codes == ["OUT_OF_RANGE"]
    assert controller.refusal(controller.read, make(program, -1)).codes == [INVALID]
    assert controller.refusal(controller.insert, make(program, 0)).codes == [INVALID]
    assert controller.refusal(controller.delete, make(program, 0)).codes == [INVALID]


def test_unknown_arrays_are_refused(controller):
    for query in ({"counter_entry": {"counter_id": 5}}, {"register_entry": {"register_id": 5}}):
        assert controller.refusal(controller.read, p4r.Entity(**query)).codes == [INVALID]


# Multicast groups


def group(number, *replicas, **fields):
    entry = p4r.MulticastGroupEntry(multicast_group_id=number, replicas=replicas, **fields)
    return p4r.Entity(packet_replication_engine_entry={"multicast_group_entry": entry})


def test_a_group_is_read_as_it_was_written(controller):
    old_style = group(1, {"egress_port": 1, "instance": 1}, {"egress_port": 2, "instance": 1})
    new_style = group(2, {"port": b"\x01\x00", "instance": 9}, metadata=b"mine")
    controller.insert(old_style, new_style)
    assert controller.read(group(1)) == [old_style]
    assert controller.read(group(0)) == [old_style, new_style]


def test_a_group_is_modified_and_deleted(controller):
    controller.insert(group(1, {"port": b"\1"}))
    changed = group(1, {"port": b"\2"}, {"port": b"\3"})
    controller.modify(changed)
    assert controller.read(group(1)) == [changed]
    controller.delete(group(1))
    assert controller.read(group(0)) == []
    assert controller.refusal(controller.read, group(1)).codes == ["NOT_FOUND"]


@pytest.mark.parametrize(
    ("kind", "entity", "code"),
    [
        ("INSERT", group(0, {"port": b"\1"}), INVALID),
        ("INSERT", group(0x10000, {"port": b"\1"}), "OUT_OF_RANGE"),
        ("INSERT", group(7, {"port": b"\1"}), "ALREADY_EXISTS"),
        ("MODIFY", group(8, {"port": b"\1"}), "NOT_FOUND"),
        ("DELETE", group(8), "NOT_FOUND"),
        ("INSERT", group(8, {"instance": 1}), INVALID),
        ("INSERT", group(8, {"port": b"\2\0"}), INVALID),
        ("INSERT", group(8, {"egress_port": 512}), INVALID),
        ("INSERT", group(8, {"port": b"\1", "instance": 0x10000}), INVALID),
        ("INSERT", group(8, {"port": b"\1"}, {"egress_port": 1}), INVALID),
    ],
)
def test_a_wrong_group_is_refused(controller, kind, entity, code):
    controller.insert(group(7, {"port": b"\1"}))
    assert controller.refusal(controller.write, (kind, entity)).codes == [code]
    assert controller.read(group(0)) == [group(7, {"port": b"\1"})]


# What there is none of


def test_entities_that_the_program_has_not_are_none_and_cannot_be_written(controller):
    clone = {"packet_replication_engine_entry": {"clone_session_entry": {}}}
    for kind in ({"meter_entry": {}}, {"digest_entry": {}}, {"action_profile_group": {}}, clone):
        assert controller.read(p4r.Entity(**kind)) == []
    for kind in (
        {"meter_entry": {"meter_id": 1}},
        {"digest_entry": {"digest_id": 1}},
        {"action_profile_group": {"action_profile_id": 1}},
    ):
        assert controller.refusal(controller.read, p4r.Entity(**kind)).codes == ["INVALID_ARGUMENT"]
        assert controller.refusal(controller.insert, p4r.Entity(**kind)).codes == ["INVALID_ARGUMENT"]
