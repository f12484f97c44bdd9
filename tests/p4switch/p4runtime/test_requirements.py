"""The 165 requirements that 4ward lists, by the numbers of its compliance matrix (smolkaj/4ward, c43a62b).

The numbers 9.40 to 9.44 are given twice there; those of registers have an r here. Our switch answers those with
`differs` in another way, for the reason in docs/reference/p4runtime.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import grpc
import pytest
from finsy.proto import p4r, stratum

from fanin.p4compiler import compile_once
from fanin.p4switch.p4runtime.codec.watch import WatchedPorts
from tests.p4switch.p4runtime.conftest import DEVICE_ID, Controller, Program, Refused

TESTS = Path(__file__).parents[1]
PAGE = Path(__file__).parents[3] / "docs/reference/p4runtime.md"
INVALID, NOT_FOUND, EXISTS, DENIED = "INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED"
PRECONDITION, FULL, UNIMPLEMENTED = "FAILED_PRECONDITION", "RESOURCE_EXHAUSTED", "UNIMPLEMENTED"
FRAME = bytes.fromhex("0000000000bb0000000000aa0800")

COUNT = 165
tried: dict[str, bool] = {}  # whether our switch differs, by number
_Test = TypeVar("_Test", bound=Callable[..., None])


def asks(*numbers: str, differs: bool = False) -> Callable[[_Test], _Test]:
    """Mark a test as that of requirements."""

    def mark(test: _Test) -> _Test:
        assert not tried.keys() & set(numbers)
        tried.update(dict.fromkeys(numbers, differs))
        return test

    return mark


def compiled(path: Path) -> Program:
    made = compile_once(path)
    return Program(made.p4info, json.dumps(made.json).encode())


@pytest.fixture
def running(connect: Callable[[], Controller]) -> Callable[[str], tuple[Controller, Program]]:
    """Return the primary of a switch that runs one of these programs, by its path without .p4."""

    def start(path: str) -> tuple[Controller, Program]:
        program, controller = compiled(TESTS / f"{path}.p4"), connect().become_primary()
        controller.set_pipeline(program.config)
        return controller, program

    return start


def refusal(controller: Controller, kind: str, *entities: p4r.Entity, **fields: Any) -> str:
    """Return the code with which a batch of updates of one kind is refused: that of the first that fails."""
    with pytest.raises(Refused) as caught:
        controller.write(*((kind, entity) for entity in entities), **fields)
    return next((code for code in caught.value.codes if code != "OK"), caught.value.code.name)


def failure(request: Callable[..., object], *arguments: Any, **fields: Any) -> str:
    with pytest.raises(Refused) as caught:
        request(*arguments, **fields)
    return caught.value.code.name


# Client arbitration


@asks("10.1", "10.2", "10.3", "10.4", "10.5")
def test_the_highest_election_id_is_primary(connect, program):
    first, second = connect().become_primary(1), connect()
    first.set_pipeline(program.config)
    second.open()
    assert second.announce(2).status.code == 0
    assert first.receive().arbitration.status.code == grpc.StatusCode.ALREADY_EXISTS.value[0]
    assert refusal(first, "INSERT", program.host(1)) == DENIED
    second.insert(program.host(1))
    assert first.read(program.entry("hosts")) == [program.host(1)]


@asks("10.6", differs=True)
@asks("10.12")
def test_nobody_is_primary_after_the_primary_has_left(connect, program):
    first, backup = connect().become_primary(2), connect()
    first.set_pipeline(program.config)
    backup.open()
    backup.announce(1)
    first.close()
    assert backup.receive().arbitration.status.code == grpc.StatusCode.NOT_FOUND.value[0]
    assert refusal(backup, "INSERT", program.host(1)) == DENIED
    assert backup.announce(3).status.code == 0
    backup.insert(program.host(1))


@asks("10.7")
def test_without_an_election_id_a_client_is_a_backup(connect):
    client = connect()
    client.open()
    assert client.announce(None).status.code == grpc.StatusCode.NOT_FOUND.value[0]


@asks("10.8")
def test_each_role_has_a_primary(connect):
    for role in ("", "routing", "other"):
        connect().become_primary(1, role)


@asks("10.13", differs=True)
def test_a_stream_keeps_its_role(connect):
    client = connect().become_primary(1, "routing")
    assert failure(client.announce, 1, "other") == PRECONDITION


@asks("10.9", "10.10")
def test_a_role_reads_and_writes_its_own_tables(running, connect):
    controller, program = running("p4runtime/entities/constrained")
    routing = connect().become_primary(1, "routing")
    hop = program.entry("nexthops", program.exact(1), action=program.action("forward", b"\1"))
    assert refusal(routing, "INSERT", hop) == DENIED
    controller.insert(hop)
    assert routing.read(program.entry("nexthops")) == []
    assert routing.read(p4r.Entity(table_entry={})) == []
    assert controller.read(p4r.Entity(table_entry={})) == [hop]


@asks("10.11", differs=True)
def test_a_role_may_have_a_config(connect, program):
    client = connect()
    client.open()
    config = stratum.P4RoleConfig(shared_p4_ids=[program.id("routes")])
    assert client.announce(1, "routing", config=config).status.code == 0


# P4Info, default values, read-write symmetry


@asks("6.1", "6.2")
def test_ids_begin_with_the_kind_of_their_object(controller, program):
    prefixes = {"tables": 2, "actions": 1, "counters": 0x12, "registers": 0x16, "direct_counters": 0x13}
    for kind, prefix in prefixes.items():
        assert {each.preamble.id >> 24 for each in getattr(program.p4info, kind)} == {prefix}
    wrong = p4r.Entity(table_entry={"table_id": program.id("forward")})
    assert refusal(controller, "INSERT", wrong) == INVALID


@asks("8.01", "8.02", "8.10", "9.2")
def test_zeros_are_read_as_they_were_written(controller, program):
    controller.insert(program.host(0, port=0))
    assert controller.read(program.entry("hosts")) == [program.host(0, port=0)]


@asks("8.11", "8.12", "9.30", "9.31", "9.32", "9.33", "9.34", "9.35", "9.43a", "9.43b", "11.7")
def test_members_and_groups(running):
    controller, program = running("programs/entities")
    members = [member(program, number, number) for number in (1, 2)]
    controller.insert(*members, group(program, 1, (1, 1), (2, 3)), group(program, 2))
    assert controller.read(p4r.Entity(action_profile_member={})) == members
    assert controller.read(group(program, 0)) == [group(program, 1, (1, 1), (2, 3)), group(program, 2)]
    assert refusal(controller, "INSERT", members[0]) == EXISTS
    controller.modify(group(program, 1, (2, 1)))
    assert controller.read(group(program, 1)) == [group(program, 1, (2, 1))]
    controller.delete(members[0])
    assert controller.read(p4r.Entity(action_profile_member={})) == members[1:]
    assert refusal(controller, "DELETE", group(program, 9)) == NOT_FOUND


@asks("8.13", "r9.40", "r9.41", "r9.42", "r9.43", "11.8", "11.9")
def test_registers(controller, program):
    def register(index: int | None, value: int | None = None) -> p4r.Entity:
        entry = p4r.RegisterEntry(register_id=program.id("last_type"))
        if index is not None:
            entry.index.index = index
        if value is not None:
            entry.data.bitstring = bytes([value])
        return p4r.Entity(register_entry=entry)

    assert controller.read(register(3)) == [register(3, 0)]
    controller.modify(register(3, 7))
    assert controller.read(register(None)) == [register(n, 7 if n == 3 else 0) for n in range(8)]
    assert refusal(controller, "INSERT", register(3, 7)) == INVALID
    assert refusal(controller, "DELETE", register(3)) == INVALID
    assert refusal(controller, "MODIFY", register(8, 7)) == "OUT_OF_RANGE"


# Bytestrings


@asks("8.1", "8.7", "9.14", "9.17", differs=True)
def test_leading_zeros_may_be_left_out_and_are_left_out_in_answers(controller, program):
    padded = program.entry("hosts", action=program.action("forward", b"\0\1"))
    padded.table_entry.match.add(field_id=1, exact={"value": bytes(5) + b"\1"})
    controller.insert(padded)
    assert controller.read(program.entry("hosts")) == [program.host(1)]
    for key, port in ((b"\1" + bytes(6), b"\1"), (b"\2", b"\2\0\0")):
        wrong = program.entry("hosts", action=program.action("forward", port))
        wrong.table_entry.match.add(field_id=1, exact={"value": key})
        assert refusal(controller, "INSERT", wrong) == INVALID


@asks("8.2", "8.3", "8.5", "8.6")
def test_values_have_no_bits_outside_of_their_mask_or_prefix(controller, program):
    drop = program.action("drop")
    for wrong in (
        program.entry("acl", program.ternary(3, 1), action=drop, priority=1),
        program.entry("acl", program.ternary(1 << 48, 1 << 48), action=drop, priority=1),
        program.route(0x0A000001, 8),
        program.route(1 << 32, 8),
    ):
        assert refusal(controller, "INSERT", wrong) == INVALID


@asks("8.4", "8.4a")
def test_a_range_goes_from_low_to_high(running):
    controller, program = running("programs/tables")

    def entry(low: bytes, high: bytes) -> p4r.Entity:
        bounds = p4r.FieldMatch(field_id=1, range={"low": low, "high": high})
        return program.entry(
            "range_table",
            bounds,
            program.exact(1, 2),
            action=program.action("answer_range", b"\1"),
            priority=1,
        )

    controller.insert(entry(b"\1", b"\2"))
    assert refusal(controller, "INSERT", entry(b"\2", b"\1")) == INVALID
    assert refusal(controller, "INSERT", entry(b"\1", b"\1" + bytes(9))) == INVALID


# Table entries


@asks("9.1", "11.1")
def test_without_a_pipeline_nothing_is_read_or_written(connect, program):
    controller = connect().become_primary()
    assert refusal(controller, "INSERT", program.host(1)) == PRECONDITION
    assert failure(controller.read, program.entry("hosts")) == PRECONDITION


@asks("9.3", "9.4", "9.5", "9.6", "9.7", "9.9", "9.22", "11.3", "11.6")
def test_the_life_of_an_entry(controller, program):
    assert controller.read(program.entry("hosts")) == []
    assert refusal(controller, "MODIFY", program.host(1)) == NOT_FOUND
    assert refusal(controller, "DELETE", program.host(1)) == NOT_FOUND
    controller.insert(program.host(1))
    assert refusal(controller, "INSERT", program.host(1, port=2)) == EXISTS
    controller.modify(program.host(1, port=2))
    assert controller.read(program.entry("hosts", program.exact(1))) == [program.host(1, port=2)]
    controller.delete(
        program.entry("hosts", program.exact(1), action=program.action("forward", b"\1", b"\1"))
    )
    assert refusal(controller, "DELETE", program.host(1)) == NOT_FOUND


@asks("9.8", "9.38", "9.41", "r9.44", differs=True)
def test_an_unknown_id_is_invalid(running):
    controller, _ = running("programs/entities")
    for wrong in (
        p4r.Entity(table_entry={"table_id": 0x02000009}),
        p4r.Entity(action_profile_member={"action_profile_id": 0x11000009, "member_id": 1}),
        p4r.Entity(action_profile_group={"action_profile_id": 0x11000009, "group_id": 1}),
    ):
        assert refusal(controller, "INSERT", wrong) == INVALID
    assert refusal(controller, "MODIFY", p4r.Entity(register_entry={"register_id": 0x16000009})) == INVALID


@asks("9.10", "9.11", "9.12", "9.13", "9.15", "9.16", "9.18", "9.19", "9.20", "9.21")
def test_malformed_entries(controller, program):
    forward = program.action("forward", b"\1")
    unknown = p4r.Action(action_id=0x01000009)
    other_parameter = program.action("forward")
    other_parameter.params.add(param_id=9, value=b"\1")
    for wrong in (
        program.entry("hosts", program.exact(1), action=unknown),
        program.entry("routes", program.lpm(1 << 24, 8), action=program.action("multicast", b"\1")),
        program.entry("hosts", program.exact(1), action=program.action("forward")),
        program.entry("hosts", program.exact(1), action=program.action("forward", b"\1", b"\1")),
        program.entry("hosts", program.exact(1), action=other_parameter),
        program.entry("hosts", program.exact(1, 9), action=forward),
        program.entry("hosts", program.ternary(1, 1), action=forward),
        program.entry("hosts", action=forward),
        program.entry("hosts", program.exact(1), program.exact(1), action=forward),
        program.entry("acl", program.ternary(1, 1), action=program.action("drop")),
        program.host(1, priority=1),
    ):
        assert refusal(controller, "INSERT", wrong) == INVALID


@asks("9.24", "9.30b", "9.30c", differs=True)
@asks("9.30a", "7.12")
def test_const_entries_are_read_and_not_written(controller, program):
    (entry,) = controller.read(program.entry("well_known"))
    assert entry.table_entry.match == [program.exact(0x88CC)]
    assert entry.table_entry.is_const
    new = program.entry("well_known", program.exact(1), action=program.action("forward", b"\1"))
    assert refusal(controller, "INSERT", new) == DENIED
    entry.table_entry.is_const = False
    for kind in ("MODIFY", "DELETE"):
        assert refusal(controller, kind, entry) == DENIED


@asks("9.25", "9.26")
def test_default_entries_are_modified_and_have_no_key(controller, program):
    default = program.entry("hosts", is_default_action=True, action=program.action("forward", b"\5"))
    controller.modify(default)
    assert controller.read(program.entry("hosts", is_default_action=True)) == [default]
    assert refusal(controller, "INSERT", default) == INVALID
    assert refusal(controller, "DELETE", default) == INVALID
    keyed = program.host(1, is_default_action=True)
    assert refusal(controller, "MODIFY", keyed) == INVALID


@asks("9.27")
def test_a_table_holds_its_size(controller, program):
    controller.insert(*(program.host(n) for n in range(64)))
    assert refusal(controller, "INSERT", program.host(64)) == FULL


@asks("9.28", "9.80", "9.83", "9.92")
def test_a_batch_is_carried_out_in_order_and_each_error_is_reported(controller, program):
    with pytest.raises(Refused) as caught:
        controller.write(
            ("INSERT", program.host(1)),
            ("MODIFY", program.host(1, port=2)),
            ("INSERT", program.host(1)),
            ("INSERT", program.host(2)),
        )
    assert caught.value.codes == ["OK", "OK", EXISTS, "OK"]
    assert [bool(detail.message) for detail in caught.value.details] == [False, False, True, False]
    assert controller.read(program.entry("hosts")) == [program.host(1, port=2), program.host(2)]


@asks("9.81", "9.82")
@pytest.mark.parametrize("atomicity", ["ROLLBACK_ON_ERROR", "DATAPLANE_ATOMIC"])
def test_a_batch_is_carried_out_completely_or_not_at_all(controller, program, atomicity):
    batch = program.host(1), program.host(2), program.host(1)
    assert refusal(controller, "INSERT", *batch, atomicity=atomicity) != "OK"
    assert controller.read(program.entry("hosts")) == []


@asks("9.30d", "14.7", differs=True)
def test_entries_may_have_an_idle_timeout(running):
    controller, program = running("programs/entities")
    action = program.action("metered")
    controller.insert(program.entry("rates", program.exact(1), action=action, idle_timeout_ns=1_000_000))
    controller.send(packet=p4r.PacketOut(payload=bytes(6)))
    (idle,) = controller.receive().idle_timeout_notification.table_entry
    assert idle.match == [program.exact(1)]


# Action profiles


def member(program: Program, number: int, port: int, action: str = "forward") -> p4r.Entity:
    message = {"action_profile_id": program.id("path_choice"), "member_id": number}
    return p4r.Entity(action_profile_member={**message, "action": program.action(action, bytes([port]))})


def group(program: Program, number: int, *members: tuple[int, int], **fields: Any) -> p4r.Entity:
    message = {"action_profile_id": program.id("path_choice"), "group_id": number, **fields}
    listed = [{"member_id": number, "weight": weight} for number, weight in members]
    return p4r.Entity(action_profile_group={**message, "members": listed})


@asks("9.36")
def test_an_action_set(running):
    controller, program = running("programs/entities")
    choices = [{"action": program.action("forward", bytes([port])), "weight": 1} for port in (1, 3)]
    entry = program.entry("paths", program.exact(1))
    entry.table_entry.action.action_profile_action_set.MergeFrom(
        p4r.ActionProfileActionSet(action_profile_actions=choices)
    )
    controller.insert(entry)
    assert controller.read(program.entry("paths")) == [entry]


@asks("9.37", "9.42")
def test_profiles_and_groups_hold_their_sizes(running):
    controller, program = running("programs/entities")
    config = program.config
    (profile,) = (p for p in config.p4info.action_profiles if p.with_selector)
    profile.max_group_size = 2
    controller.set_pipeline(config)
    controller.insert(*(member(program, number, number % 8) for number in range(1, profile.size + 1)))
    assert refusal(controller, "INSERT", group(program, 1, (1, 1), (2, 2), max_size=2)) == INVALID
    assert refusal(controller, "INSERT", member(program, profile.size + 1, 1)) == FULL


@asks("9.39", "9.40")
def test_the_action_of_a_member_is_checked(running):
    controller, program = running("programs/entities")
    assert refusal(controller, "INSERT", member(program, 1, 1, action="mark")) == INVALID
    wrong = member(program, 1, 1)
    wrong.action_profile_member.action.params[0].value = b"\4\0"
    assert refusal(controller, "INSERT", wrong) == INVALID


@asks("9.43c", differs=True)
def test_a_member_may_watch_a_port(running, device, monkeypatch):
    monkeypatch.setattr(device, "_watched", WatchedPorts(frozenset({1})))
    controller, program = running("programs/entities")
    watching = group(program, 1, (1, 1))
    watching.action_profile_group.members[0].watch_port = b"\1"
    controller.insert(member(program, 1, 1), watching)
    assert controller.read(group(program, 1)) == [watching]


# Counters and meters


@asks("9.29", "9.50")
def test_direct_counters(controller, program):
    controller.insert(program.host(1))
    key = {"table_id": program.id("hosts"), "match": [program.exact(1)]}
    data = {"packet_count": 3, "byte_count": 200}
    controller.modify(p4r.Entity(direct_counter_entry={"table_entry": key, "data": data}))
    (found,) = controller.read(p4r.Entity(direct_counter_entry={"table_entry": key}))
    assert found.direct_counter_entry.data == p4r.CounterData(**data)
    (entry,) = controller.read(program.entry("hosts", counter_data={}))
    assert entry.table_entry.counter_data == p4r.CounterData(**data)


@asks("9.51")
def test_counters(controller, program):
    cell = {"counter_id": program.id("arrivals"), "index": {"index": 2}}
    written = p4r.Entity(counter_entry={**cell, "data": {"packet_count": 3, "byte_count": 4}})
    controller.modify(written)
    assert controller.read(p4r.Entity(counter_entry=cell)) == [written]


@asks("9.52")
def test_direct_meters(running):
    controller, program = running("programs/entities")
    rates = {"cir": 1, "cburst": 2, "pir": 3, "pburst": 4}
    controller.insert(program.entry("rates", program.exact(5), action=program.action("metered")))
    key = {"table_id": program.id("rates"), "match": [program.exact(5)]}
    written = p4r.Entity(direct_meter_entry={"table_entry": key, "config": rates})
    controller.modify(written)
    assert controller.read(p4r.Entity(direct_meter_entry={"table_entry": key})) == [written]


@asks("9.54", differs=True)
@asks("9.53")
def test_meters_and_their_counters(running):
    controller, program = running("p4runtime/entities/meters")
    cell = {"meter_id": program.id("volume"), "index": {"index": 0}}
    rates = {"cir": 1, "cburst": 2, "pir": 1, "pburst": 2}
    controller.modify(p4r.Entity(meter_entry={**cell, "config": rates}))
    (found,) = controller.read(p4r.Entity(meter_entry={**cell, "counter_data": {}}))
    assert found.meter_entry.config == p4r.MeterConfig(**rates)
    assert found.meter_entry.HasField("counter_data")


# The packet replication engine


@asks("9.60", "9.61", "9.62", "9.63", "9.64", "9.65")
@pytest.mark.parametrize("kind", ["multicast_group", "clone_session"])
def test_replicas(controller, kind):
    name = "multicast_group_id" if kind == "multicast_group" else "session_id"

    def entry(*ports: int) -> p4r.Entity:
        replicas = [{"port": bytes([port]), "instance": 1} for port in ports]
        return p4r.Entity(packet_replication_engine_entry={f"{kind}_entry": {name: 5, "replicas": replicas}})

    for absent in ("MODIFY", "DELETE"):
        assert refusal(controller, absent, entry(1)) == NOT_FOUND
    controller.insert(entry(1, 2))
    assert refusal(controller, "INSERT", entry(1)) == EXISTS
    controller.modify(entry(3))
    assert controller.read(entry()) == [entry(3)]
    controller.delete(entry())
    assert refusal(controller, "DELETE", entry()) == NOT_FOUND


# Other entities


@asks("8.20", "9.70", "9.71", "14.5", "14.6", differs=True)
def test_value_sets_and_digests(running):
    controller, program = running("programs/entities")
    types = {"value_set_id": program.id("types"), "members": [{"match": [program.exact(0x800)]}]}
    controller.modify(p4r.Entity(value_set_entry=types))
    assert controller.read(p4r.Entity(value_set_entry={"value_set_id": program.id("types")})) == [
        p4r.Entity(value_set_entry=types)
    ]
    digest = {"digest_id": program.id("learnt_t"), "config": {"max_list_size": 1, "ack_timeout_ns": 1}}
    controller.insert(p4r.Entity(digest_entry=digest))
    controller.send(packet=p4r.PacketOut(payload=bytes.fromhex("080007000000")))
    found = controller.receive().digest
    assert [each.struct.members[0].bitstring for each in found.data] == [b"\7"]
    controller.send(digest_ack={"digest_id": found.digest_id, "list_id": found.list_id})


@asks("9.72")
def test_extern_entries(controller):
    assert refusal(controller, "INSERT", p4r.Entity(extern_entry={"extern_type_id": 0x81})) == UNIMPLEMENTED


# Write


@asks("9.90", "11.11", "12.6")
def test_another_device_is_refused(controller, program):
    assert refusal(controller, "INSERT", program.host(1), device_id=DEVICE_ID + 1) == NOT_FOUND
    assert failure(controller.read, program.entry("hosts"), device_id=DEVICE_ID + 1) == NOT_FOUND
    request = p4r.GetForwardingPipelineConfigRequest(device_id=DEVICE_ID + 1)
    with pytest.raises(grpc.RpcError) as caught:
        controller.stub.GetForwardingPipelineConfig(request)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


@asks("9.91", differs=True)
def test_a_client_that_was_never_primary_writes_nothing(connect, program):
    assert refusal(connect(), "INSERT", program.host(1)) == DENIED


@asks("9.93")
def test_a_batch_may_have_a_member_its_group_and_an_entry(running):
    controller, program = running("programs/entities")
    entry = program.entry("paths", program.exact(1))
    entry.table_entry.action.action_profile_group_id = 1
    controller.insert(member(program, 1, 1), group(program, 1, (1, 1)), entry)
    assert controller.read(program.entry("paths")) == [entry]


# Read


@asks("11.2", "11.4", "11.5", "11.12")
def test_reads(controller, program):
    entries = program.host(1), program.route(0x0A000000, 8)
    controller.insert(*entries)
    everything = controller.read(p4r.Entity(table_entry={}))
    assert [entry for entry in everything if not entry.table_entry.is_const] == list(entries)
    assert controller.read(program.entry("routes")) == [entries[1]]
    assert controller.read() == []
    counter = p4r.Entity(counter_entry={"counter_id": program.id("arrivals"), "index": {"index": 1}})
    both = controller.read(program.entry("hosts"), counter)
    assert [entity.WhichOneof("entity") for entity in both] == ["table_entry", "counter_entry"]


@asks("11.10", differs=True)
def test_default_entries_are_read_on_request(controller, program):
    assert controller.read(program.entry("hosts")) == []
    (default,) = controller.read(program.entry("hosts", is_default_action=True))
    assert default.table_entry.is_default_action


@asks("11.13")
def test_a_read_sees_a_batch_completely_or_not_at_all(controller, program):
    """Reads and writes take the lock of the switch: each read has all entries of a batch, or none."""
    many = [program.host(n) for n in range(60)]
    request = p4r.WriteRequest(device_id=DEVICE_ID, election_id={"low": 1}, atomicity="DATAPLANE_ATOMIC")
    request.updates.extend(p4r.Update(type="INSERT", entity=entity) for entity in many)
    writing = controller.stub.Write.future(request)
    seen = {len(controller.read(program.entry("hosts"))) for _ in range(20)}
    writing.result()
    seen.add(len(controller.read(program.entry("hosts"))))
    assert seen <= {0, 60}


# The pipeline


@asks("7.1", "7.2", "7.8", "7.11")
def test_a_pipeline_replaces_the_one_before_with_its_entries(controller, program):
    controller.insert(program.host(1))
    controller.set_pipeline(program.config)
    assert controller.read(program.entry("hosts")) == []


@asks("7.3", "7.4", "7.5")
@pytest.mark.parametrize("broken", ["empty", "bytes", "no config"])
def test_a_broken_config_is_invalid(controller, program, broken):
    config = program.config
    if broken == "empty":
        config.Clear()
    else:
        config.p4_device_config = b"\x81{" if broken == "bytes" else b""
    assert failure(controller.set_pipeline, config) == INVALID


@asks("7.6")
@pytest.mark.usefixtures("controller")
def test_only_the_primary_sets_a_pipeline(connect, program):
    backup = connect()
    backup.open()
    backup.announce(0)
    assert failure(backup.set_pipeline, program.config) == DENIED


@asks("7.7", "7.9")
def test_verify_save_and_commit(controller, program):
    controller.insert(program.host(1))
    controller.set_pipeline(program.config, "VERIFY")
    assert controller.read(program.entry("hosts")) == [program.host(1)]
    controller.set_pipeline(program.config, "VERIFY_AND_SAVE")
    controller.set_pipeline(None, "COMMIT")
    assert controller.read(program.entry("hosts")) == []


@asks("7.9a", "7.9b")
def test_reconcile_keeps_entries_that_fit(controller, program):
    controller.insert(*(program.host(n) for n in range(3)))
    controller.set_pipeline(program.config, "RECONCILE_AND_COMMIT")
    assert len(controller.read(program.entry("hosts"))) == 3
    config = program.config
    (table,) = (t for t in config.p4info.tables if t.preamble.alias == "hosts")
    table.match_fields[0].bitwidth = 16
    assert failure(controller.set_pipeline, config, "RECONCILE_AND_COMMIT") == INVALID
    assert len(controller.read(program.entry("hosts"))) == 3


@asks("7.10", "12.1", "12.3", "12.4", "12.5")
def test_the_parts_of_the_config(controller, program):
    config = program.config
    config.cookie.cookie = 42
    controller.set_pipeline(config)
    parts = {
        kind: controller.get_pipeline(kind).config
        for kind in ("ALL", "COOKIE_ONLY", "P4INFO_AND_COOKIE", "DEVICE_CONFIG_AND_COOKIE")
    }
    assert {part.cookie.cookie for part in parts.values()} == {42}
    assert parts["ALL"] == config
    found = {kind: (part.HasField("p4info"), bool(part.p4_device_config)) for kind, part in parts.items()}
    assert found["COOKIE_ONLY"] == (False, False)
    assert found["P4INFO_AND_COOKIE"] == (True, False)
    assert found["DEVICE_CONFIG_AND_COOKIE"] == (False, True)


@asks("12.2", differs=True)
def test_without_a_pipeline_the_config_is_empty(connect):
    assert connect().become_primary().get_pipeline().config == p4r.ForwardingPipelineConfig()


# The stream, and capabilities


def packet_out(port: int, payload: bytes = FRAME) -> p4r.PacketOut:
    values = [{"metadata_id": 1, "value": port.to_bytes(2, "big")}, {"metadata_id": 2, "value": b"\0"}]
    return p4r.PacketOut(payload=payload, metadata=values)


@asks("14.1", "14.3")
def test_packets_out_come_in_again_in_order(controller):
    for number in range(20):
        controller.send(packet=packet_out(255, b"\1\2" + bytes([number]) + FRAME))
    assert [controller.receive().packet.payload[0] for _ in range(20)] == list(range(20))


@asks("14.2")
def test_a_packet_out_meets_the_entries(running):
    controller, program = running("programs/entities")
    controller.insert(member(program, 1, 255), *_paths_to_member(program))
    controller.send(packet=p4r.PacketOut(payload=bytes.fromhex("000003010000")))
    assert controller.receive().packet.payload[2:4] == b"\3\1"


def _paths_to_member(program: Program) -> list[p4r.Entity]:
    entry = program.entry("paths", program.exact(1))
    entry.table_entry.action.action_profile_member_id = 1
    return [entry]


@asks("14.4", "14.8")
def test_a_wrong_message_is_reported_on_the_stream(controller):
    controller.send(packet=p4r.PacketOut(payload=FRAME))
    assert controller.receive().error.canonical_code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    controller.send(other={"type_url": "example.org/other"})
    assert controller.receive().error.canonical_code == grpc.StatusCode.UNIMPLEMENTED.value[0]


@asks("13.1", "13.2")
def test_the_version(controller):
    version = controller.stub.Capabilities(p4r.CapabilitiesRequest()).p4runtime_api_version
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)


# Translated types


@asks("15.1", "15.2")
def test_a_wider_type_of_the_controller(running, tmp_path):
    text = (TESTS / "p4runtime/entities/strings.p4").read_text()
    (tmp_path / "wide.p4").write_text(
        text.replace('"example.org/port", string', '"example.org/port", bit<32>')
    )
    controller, program = running(str(tmp_path / "wide"))

    def entry(port: bytes) -> p4r.Entity:
        key = p4r.FieldMatch(field_id=1, exact={"value": b"blue"})
        return program.entry("routes", key, action=program.action("forward", port))

    controller.insert(entry(b"\0\0\1\7"))
    assert controller.read(program.entry("routes")) == [entry(b"\1\7")]
    assert refusal(controller, "MODIFY", entry(b"\2\0")) == INVALID


@asks("9.23", "15.3", "15.4", "15.5", "15.6")
def test_translated_types(running, device):
    controller, program = running("p4runtime/entities/strings")
    key = p4r.FieldMatch(field_id=1, exact={"value": b"blue"})
    entry = program.entry("routes", key, action=program.action("forward", b"7"))
    controller.insert(entry)
    assert controller.read(program.entry("routes")) == [entry]
    assert {port for port, _ in device.pipeline.engine.process(7, bytes([1, 0]))} == {7}
    optional = p4r.FieldMatch(field_id=1, optional={"value": b"blue"})
    plain = program.entry("marks", optional, action=program.action("mark", b"\x09"), priority=1)
    controller.insert(plain)
    assert controller.read(program.entry("marks")) == [plain]


# References and constraints


@asks("17.1", "17.2", "17.3", "17.4", "17.5")
def test_references_need_their_entries(running):
    controller, program = running("p4runtime/entities/constrained")

    def route(action: p4r.Action) -> p4r.Entity:
        keys = program.exact(1), program.lpm(0x0A000000, 16, 2)
        return program.entry("routes", *keys, action=action, priority=1)

    use, replicate = program.action("use", b"\1"), program.action("replicate", b"\1")
    profile = program.id("choices")
    chosen = p4r.Entity(action_profile_member={"action_profile_id": profile, "member_id": 1, "action": use})
    for wrong in (route(use), route(replicate), chosen):
        assert refusal(controller, "INSERT", wrong) == INVALID
    forward = program.action("forward", b"\1")
    controller.insert(program.entry("nexthops", program.exact(1), action=forward))
    group = {"multicast_group_id": 1, "replicas": [{"port": b"\1"}]}
    controller.insert(p4r.Entity(packet_replication_engine_entry={"multicast_group_entry": group}))
    controller.insert(route(use), chosen)
    controller.modify(route(replicate))


@asks("17.6", differs=True)
def test_an_entry_that_is_referred_to_stays(running):
    controller, program = running("p4runtime/entities/constrained")
    hop = program.entry("nexthops", program.exact(1), action=program.action("forward", b"\1"))
    keys = program.exact(1), program.lpm(0x0A000000, 16, 2)
    controller.insert(hop, program.entry("routes", *keys, action=program.action("use", b"\1"), priority=1))
    assert refusal(controller, "DELETE", hop) == PRECONDITION


@asks("18.1", "18.2", "18.3")
def test_restrictions_on_entries(running):
    controller, program = running("p4runtime/entities/constrained")
    keys = program.exact(0), program.lpm(0x0A000000, 16, 2)
    wrong = program.entry("routes", *keys, action=program.action("forward", b"\1"), priority=1)
    with pytest.raises(Refused) as caught:
        controller.insert(wrong)
    assert caught.value.codes == [INVALID]
    assert "vrf != 0" in caught.value.details[0].message
    assert refusal(controller, "DELETE", wrong) == NOT_FOUND


@asks("18.4")
def test_a_program_without_restrictions(controller, program):
    assert "restriction" not in str(program.p4info)
    controller.insert(program.host(0))


# The list


def test_every_requirement_is_tried() -> None:
    assert len(tried) == COUNT


def test_the_page_has_the_requirements_in_which_our_switch_differs() -> None:
    part = PAGE.read_text().partition("## Where the list of 4ward differs")[2].partition("\n## ")[0]
    listed = {
        number for row in re.findall(r"^\| (\d[^|]*) \|", part, re.MULTILINE) for number in _numbers(row)
    }
    assert listed == {number for number, differs in tried.items() if differs}
    assert f"{COUNT - len(listed)} of the {COUNT}" in part


def _numbers(row: str) -> list[str]:
    first_last = re.fullmatch(r"(.*)14\.5 to 14\.7", row)
    found = re.findall(r"r?\d+\.\w+", first_last[1] if first_last else row)
    return [*found, "14.5", "14.6", "14.7"] if first_last else found
