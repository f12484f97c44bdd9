"""Constraints on entries: @entry_restriction, @action_restriction, @refers_to and @p4runtime_role."""

import json
from pathlib import Path

import grpc
import pytest
from finsy.proto import p4r

from fanin.p4compiler import compile_once
from tests.p4switch.p4runtime.conftest import Program

INVALID, IN_USE, DENIED = "INVALID_ARGUMENT", "FAILED_PRECONDITION", "PERMISSION_DENIED"


@pytest.fixture(scope="module")
def constrained():
    compiled = compile_once(Path(__file__).with_name("constrained.p4"))
    return Program(compiled.p4info, json.dumps(compiled.json).encode())


@pytest.fixture
def primary(connect, constrained):
    controller = connect().become_primary()
    controller.set_pipeline(constrained.config)
    return controller


def route(program, vrf, length=16, mask=0xFF, priority=10, action=None):
    match = [program.exact(vrf), program.lpm(0x0A000000, length, 2)]
    if mask:
        match.append(program.ternary(0, mask, 3))
    return program.entry(
        "routes", *match, priority=priority, action=action or program.action("forward", b"\1")
    )


def nexthop(program, number, action=None):
    return program.entry("nexthops", program.exact(number), action=action or program.action("forward", b"\1"))


def neighbor(program, of, number):
    keys = program.exact(of), program.exact(number, 2)
    return program.entry("neighbors", *keys, action=program.action("forward", b"\1"))


def refused(primary, request, *entities):
    refusal = primary.refusal(request, *entities)
    [detail] = [detail for detail in refusal.details if detail.canonical_code]
    return next(code for code in refusal.codes if code != "OK"), detail.message


# Restrictions


def test_an_entry_that_keeps_the_restriction_is_taken(primary, constrained):
    entries = [route(constrained, 1), route(constrained, 1, length=7, mask=0)]
    primary.insert(*entries)
    assert len(primary.read(constrained.entry("routes"))) == 2


@pytest.mark.parametrize(
    ("change", "clause", "values"),
    [
        ({"vrf": 0}, "vrf != 0", "vrf = 0x0"),
        (
            {"vrf": 1, "length": 7},
            "address::prefix_length < 8 -> kind::mask == 0",
            "address = (0xa000000, 0x7), kind = (0x0, 0xff)",
        ),
        ({"vrf": 1, "priority": 1001}, "::priority <= 1000", "::priority = 0x3e9"),
    ],
)
def test_a_violation_names_the_constraint_and_the_values(primary, constrained, change, clause, values):
    code, message = refused(primary, primary.insert, route(constrained, **change))
    assert code == INVALID
    assert message == f"table Receive.routes: @entry_restriction is violated: {clause}; here {values}"
    assert primary.read(constrained.entry("routes")) == []


def test_an_action_is_restricted_wherever_it_is_used(primary, constrained):
    message = "action Receive.forward: @action_restriction is violated: port != 0; here port = 0x0"
    nowhere = constrained.action("forward", b"\0")
    member = {"action_profile_id": constrained.id("choices"), "member_id": 1, "action": nowhere}
    default = constrained.entry("nexthops", is_default_action=True, action=nowhere)
    assert refused(primary, primary.insert, route(constrained, 1, action=nowhere)) == (INVALID, message)
    assert refused(primary, primary.insert, p4r.Entity(action_profile_member=member)) == (INVALID, message)
    assert refused(primary, primary.modify, default) == (INVALID, message)
    primary.insert(route(constrained, 1))
    assert refused(primary, primary.modify, route(constrained, 1, action=nowhere)) == (INVALID, message)


# References


def test_a_reference_needs_its_entry(primary, constrained):
    using = route(constrained, 1, action=constrained.action("use", b"\5"))
    code, message = refused(primary, primary.insert, using)
    assert code == INVALID
    assert message == (
        "action Receive.use: @refers_to: there is no entry of table Receive.nexthops with nexthop = 5"
    )
    primary.insert(nexthop(constrained, 5))
    primary.insert(using)


def test_an_entry_that_is_referred_to_cannot_be_removed(primary, constrained):
    using = route(constrained, 1, action=constrained.action("use", b"\5"))
    primary.insert(nexthop(constrained, 5), using)
    code, message = refused(primary, primary.delete, nexthop(constrained, 5))
    assert code == IN_USE
    assert "is referred to by 1 others" in message
    primary.modify(route(constrained, 1))
    primary.delete(nexthop(constrained, 5))


def test_references_to_one_table_mean_one_entry(primary, constrained):
    primary.insert(neighbor(constrained, 1, 2), neighbor(constrained, 3, 4))
    mixed = nexthop(constrained, 9, constrained.action("neighbor", b"\1", b"\4"))
    assert refused(primary, primary.insert, mixed)[0] == INVALID
    primary.insert(nexthop(constrained, 9, constrained.action("neighbor", b"\3", b"\4")))
    assert refused(primary, primary.delete, neighbor(constrained, 3, 4))[0] == IN_USE
    primary.delete(neighbor(constrained, 1, 2))


def test_members_refer_too(primary, constrained):
    action = constrained.action("use", b"\5")
    member = p4r.Entity(
        action_profile_member={
            "action_profile_id": constrained.id("choices"),
            "member_id": 1,
            "action": action,
        }
    )
    assert refused(primary, primary.insert, member)[0] == INVALID
    primary.insert(nexthop(constrained, 5), member)
    assert refused(primary, primary.delete, nexthop(constrained, 5))[0] == IN_USE
    primary.delete(member)
    primary.delete(nexthop(constrained, 5))


def test_multicast_groups_are_referred_to_as_a_table(primary, constrained):
    using = route(constrained, 1, action=constrained.action("replicate", b"\7"))
    assert refused(primary, primary.insert, using) == (
        INVALID,
        "action Receive.replicate: @refers_to: there is no multicast group 7",
    )
    group = {"multicast_group_entry": {"multicast_group_id": 7, "replicas": [{"port": b"\1"}]}}
    primary.insert(p4r.Entity(packet_replication_engine_entry=group))
    primary.insert(using)


def test_a_rollback_keeps_the_references_right(primary, constrained):
    using = route(constrained, 1, action=constrained.action("use", b"\5"))
    updates = [("INSERT", nexthop(constrained, 5)), ("INSERT", using), ("INSERT", using)]
    refusal = primary.refusal(primary.write, *updates, atomicity="ROLLBACK_ON_ERROR")
    assert refusal.codes == ["ABORTED", "ABORTED", "ALREADY_EXISTS"]
    assert refused(primary, primary.insert, using)[0] == INVALID
    primary.insert(nexthop(constrained, 5))
    primary.delete(nexthop(constrained, 5))


def test_reconciliation_keeps_entries_with_references(primary, constrained):
    using = route(constrained, 1, action=constrained.action("use", b"\5"))
    primary.insert(nexthop(constrained, 5), using)
    again = constrained.config
    again.p4info.pkg_info.version = "2"
    primary.set_pipeline(again, "RECONCILE_AND_COMMIT")
    assert primary.read(constrained.entry("routes")) == [using]
    assert refused(primary, primary.delete, nexthop(constrained, 5))[0] == IN_USE


# Roles


def test_a_role_writes_and_reads_its_tables_and_those_of_no_role(connect, primary, constrained):
    router = connect().become_primary(1, role="routing")
    router.insert(route(constrained, 1), neighbor(constrained, 1, 2))
    code, message = refused(router, router.insert, nexthop(constrained, 5))
    assert code == DENIED
    assert "@p4runtime_role gives it to another role" in message
    primary.insert(nexthop(constrained, 5))
    every = p4r.Entity(table_entry={})
    assert {entity.table_entry.table_id for entity in router.read(every)} == {
        constrained.id("routes"),
        constrained.id("neighbors"),
    }
    assert len(primary.read(every)) == 3


# What is malformed


def pipeline(program, annotate):
    config = program.config
    annotate(config.p4info)
    return config


def replaced(old, new):
    def annotate(p4info):
        for part in (*p4info.tables, *p4info.actions):
            annotations = [text.replace(old, new) for text in part.preamble.annotations]
            part.preamble.annotations[:] = annotations
            for field in getattr(part, "params", ()):
                field.annotations[:] = [text.replace(old, new) for text in field.annotations]

    return annotate


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("vrf != 0", "vrf !=", "@entry_restriction of Receive.routes is malformed"),
        ("port < 500", "port < true", "@action_restriction of Receive.forward is malformed"),
        ('"routing"', "routing", "@p4runtime_role needs the name of a role in quotes"),
        ("nexthops , nexthop", "nexthops", "@refers_to needs a table and a field"),
        ("nexthops , nexthop", "nexthops , vrf", "table nexthops has no key vrf"),
    ],
)
def test_a_p4info_with_a_malformed_annotation_is_refused(connect, constrained, old, new, why):
    controller = connect().become_primary()
    refusal = controller.refusal(controller.set_pipeline, pipeline(constrained, replaced(old, new)))
    assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
    assert why in refusal.message
