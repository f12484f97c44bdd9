"""Table entries over P4Runtime (specification, "TableEntry", "Write RPC", "Read RPC")."""

import grpc
import pytest
from finsy.proto import p4r

INVALID, DENIED = "INVALID_ARGUMENT", "PERMISSION_DENIED"


def entries(controller, query):
    return [entity.table_entry for entity in controller.read(query)]


def test_what_is_written_is_read(controller, program):
    written = [program.host(0x0A, port=3), program.host(0xFFFFFFFFFFFF, port=4, metadata=b"mine")]
    controller.insert(*written)
    found = entries(controller, program.entry("hosts"))
    assert sorted(found, key=str) == sorted((entity.table_entry for entity in written), key=str)


def test_every_match_kind_is_read_as_written(controller, program):
    written = [
        program.host(1),
        program.route(0x0A000000, 8),
        program.route(0x0A000001, 32),
        program.entry("routes", action=program.action("drop")),
        program.entry("acl", program.ternary(5, 7), action=program.action("drop"), priority=10),
        program.entry(
            "acl",
            program.ternary(0x800, 0xFFFF, field_id=2),
            program.ternary(1, 1),
            action=program.action("drop"),
            priority=20,
        ),
        program.entry("acl", action=program.action("NoAction"), priority=1),
    ]
    controller.insert(*written)
    found = entries(controller, program.entry("hosts"))
    for table in ("routes", "acl"):
        found += entries(controller, program.entry(table))

    def content(entry):
        return (
            entry.table_id,
            sorted(str(match) for match in entry.match),
            entry.priority,
            str(entry.action),
        )

    assert sorted(map(content, found)) == sorted(content(entity.table_entry) for entity in written)


def test_longer_bytestrings_mean_the_same_and_are_read_in_canonical_form(controller, program):
    match = p4r.FieldMatch(field_id=1, exact=p4r.FieldMatch.Exact(value=bytes(9) + b"\x05"))
    controller.insert(program.entry("hosts", match, action=program.action("forward", b"\0\0\1")))
    (found,) = entries(controller, program.entry("hosts"))
    assert found.match[0].exact.value == b"\x05"
    assert found.action.action.params[0].value == b"\x01"
    assert controller.refusal(controller.insert, program.host(5)).codes == ["ALREADY_EXISTS"]


def test_modify_replaces_the_action(controller, program):
    controller.insert(program.host(1, port=3, metadata=b"old"))
    controller.modify(program.host(1, port=4))
    (found,) = entries(controller, program.entry("hosts"))
    assert found == program.host(1, port=4).table_entry


def test_modify_without_an_action_keeps_it(controller, program):
    controller.insert(program.host(1, port=3))
    controller.modify(program.entry("hosts", program.exact(1), metadata=b"new"))
    (found,) = entries(controller, program.entry("hosts"))
    assert found == program.host(1, port=3, metadata=b"new").table_entry


def test_delete_needs_only_the_key(controller, program):
    controller.insert(program.host(1), program.host(2))
    nonsense = p4r.Action(action_id=99)
    controller.delete(program.entry("hosts", program.exact(1), action=nonsense))
    assert entries(controller, program.entry("hosts")) == [program.host(2).table_entry]


def test_an_entry_deleted_and_inserted_again_has_no_memory(controller, program):
    controller.insert(program.host(1, controller_metadata=7, metadata=b"x"))
    controller.delete(program.host(1))
    controller.insert(program.host(1))
    assert entries(controller, program.entry("hosts")) == [program.host(1).table_entry]


# Errors


def test_each_update_of_a_batch_has_its_own_fate(controller, program):
    controller.insert(program.host(1))
    refused = controller.refusal(
        controller.write,
        ("INSERT", program.host(2)),
        ("INSERT", program.host(1)),
        ("MODIFY", program.host(3)),
        ("DELETE", program.host(1)),
    )
    assert refused.code is grpc.StatusCode.UNKNOWN
    assert refused.codes == ["OK", "ALREADY_EXISTS", "NOT_FOUND", "OK"]
    assert refused.details[0] == p4r.Error()
    assert "hosts" in refused.details[1].message
    assert entries(controller, program.entry("hosts")) == [program.host(2).table_entry]


def test_a_full_table_takes_no_more(controller, program):
    refused = controller.refusal(controller.insert, *(program.host(n) for n in range(65)))
    assert refused.codes == ["OK"] * 64 + ["RESOURCE_EXHAUSTED"]


@pytest.mark.parametrize(
    ("make", "code", "why"),
    [
        (lambda p: p.entry("hosts", action=p.action("drop")), INVALID, "exact match needs a value"),
        (lambda p: p.entry("hosts", p.exact(1)), INVALID, "needs an action"),
        (lambda p: p.entry("hosts", p.exact(1, field_id=9), action=p.action("drop")), INVALID, "key field 9"),
        (
            lambda p: p.entry("hosts", p.exact(1), p.exact(2), action=p.action("drop")),
            INVALID,
            "more than once",
        ),
        (
            lambda p: p.entry("hosts", p.exact(1 << 48), action=p.action("drop")),
            INVALID,
            "does not fit bit<48>",
        ),
        (lambda p: p.entry("hosts", p.lpm(1, 48), action=p.action("drop")), INVALID, "has exact matches"),
        (lambda p: p.host(1, priority=1), INVALID, "leave the priority unset"),
        (lambda p: p.entry("acl", p.ternary(1, 1), action=p.action("drop")), INVALID, "priority above 0"),
        (lambda p: p.entry("routes", p.lpm(1, 8), action=p.action("drop")), INVALID, "after its prefix"),
        (
            lambda p: p.entry("hosts", p.exact(1), action=p.action("forward")),
            INVALID,
            "takes the parameters 1",
        ),
        (
            lambda p: p.entry("hosts", p.exact(1), action=p.action("forward", b"\1", b"\1")),
            INVALID,
            "no parameter 2",
        ),
        (
            lambda p: p.entry("hosts", p.exact(1), action=p.action("forward", b"\x02\x00")),
            INVALID,
            "does not fit bit<9>",
        ),
        (
            lambda p: p.entry("routes", p.lpm(1, 32), action=p.action("multicast", b"\1")),
            INVALID,
            "no action",
        ),
        (
            lambda p: p.entry("hosts", p.exact(1), action=p.action("NoAction")),
            DENIED,
            "the program marks it @defaultonly",
        ),
        (lambda p: p.host(1, is_const=True), INVALID, "is_const"),
        (lambda p: p.host(1, idle_timeout_ns=1), INVALID, "idle timeouts"),
        (lambda p: p.host(1, time_since_last_hit={}), INVALID, "can only be read"),
        (lambda p: p.host(1, meter_config={}), INVALID, "no direct meter"),
        (lambda p: p.route(1, 32, counter_data={}), INVALID, "no direct counter"),
        (lambda p: p.entry("well_known", p.exact(1), action=p.action("NoAction")), DENIED, "const"),
        (lambda p: p.entry("hosts", action=p.action("drop"), is_default_action=True), INVALID, "MODIFY it"),
        (lambda _: p4r.Entity(table_entry=p4r.TableEntry(table_id=0x02FFFFFF)), INVALID, "no table"),
        (lambda _: p4r.Entity(), INVALID, "no entity"),
        (
            lambda p: p4r.Entity(
                table_entry=p4r.TableEntry(
                    table_id=p.id("hosts"), match=[p.exact(1)], action={"action_profile_member_id": 1}
                )
            ),
            INVALID,
            "takes actions directly",
        ),
    ],
)
def test_a_wrong_insert_is_refused_with_a_reason(controller, program, make, code, why):
    refused = controller.refusal(controller.insert, make(program))
    assert refused.codes == [code]
    assert why in refused.details[0].message
    assert entries(controller, program.entry("hosts")) == []


def test_an_update_needs_a_type(controller, program):
    assert controller.refusal(controller.write, ("UNSPECIFIED", program.host(1))).codes == [INVALID]


@pytest.mark.parametrize("mode", ["ROLLBACK_ON_ERROR", "DATAPLANE_ATOMIC"])
def test_an_atomic_batch_is_done_whole_or_not_at_all(controller, program, mode):
    controller.insert(program.host(1), program.route(1, 32))
    before = entries(controller, program.entry("hosts")) + entries(controller, program.entry("routes"))
    updates = [
        ("INSERT", program.host(2)),
        ("MODIFY", program.host(1, counter_data={"packet_count": 7})),
        ("DELETE", program.route(1, 32)),
        ("MODIFY", program.entry("routes", is_default_action=True, action=program.action("drop"))),
    ]
    refused = controller.refusal(controller.write, *updates, ("INSERT", program.host(1)), atomicity=mode)
    assert refused.codes == ["ABORTED"] * 4 + ["ALREADY_EXISTS"]
    assert (
        entries(controller, program.entry("hosts")) + entries(controller, program.entry("routes")) == before
    )
    controller.write(*updates, atomicity=mode)
    assert len(entries(controller, program.entry("hosts"))) == 2
    assert entries(controller, program.entry("routes")) == []


def test_const_entries_can_be_read_but_not_changed(controller, program):
    (found,) = entries(controller, program.entry("well_known"))
    assert found.is_const
    assert found.match == [program.exact(0x88CC)]
    key = program.entry("well_known", program.exact(0x88CC))
    changed = program.entry("well_known", program.exact(0x88CC), action=program.action("NoAction"))
    assert controller.refusal(controller.modify, changed).codes == [DENIED]
    assert controller.refusal(controller.delete, key).codes == [DENIED]


# The default entry


def test_the_default_entry_is_set_and_reset(controller, program):
    default = program.entry("hosts", is_default_action=True)

    def action_id():
        (entry,) = entries(controller, default)
        assert entry.is_default_action
        return entry.action.action.action_id

    assert action_id() == program.id("drop")
    controller.modify(program.entry("hosts", is_default_action=True, action=program.action("forward", b"\5")))
    assert action_id() == program.id("forward")
    controller.modify(default)
    assert action_id() == program.id("drop")


@pytest.mark.parametrize(
    ("kind", "make", "code"),
    [
        ("DELETE", lambda p: p.entry("hosts", is_default_action=True), INVALID),
        ("MODIFY", lambda p: p.entry("hosts", p.exact(1), is_default_action=True), INVALID),
        ("MODIFY", lambda p: p.entry("acl", action=p.action("drop"), is_default_action=True), DENIED),
    ],
)
def test_a_wrong_change_of_the_default_entry_is_refused(controller, program, kind, make, code):
    assert controller.refusal(controller.write, (kind, make(program))).codes == [code]


def test_a_const_default_is_marked(controller, program):
    (found,) = entries(controller, program.entry("acl", is_default_action=True))
    assert found.is_const


# Reading


def test_reading_every_table(controller, program):
    controller.insert(program.host(1), program.route(0x0A000000, 8))
    every = p4r.Entity(table_entry=p4r.TableEntry())
    assert {entry.table_id for entry in entries(controller, every)} == {
        program.id(name) for name in ("hosts", "routes", "well_known")
    }


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"priority": 20}, [2, 3]),
        ({"metadata": b"b"}, [2, 3]),
        ({"controller_metadata": 4}, [3]),
        ({"metadata": b"b", "controller_metadata": 9}, []),
        ({}, [1, 2, 3]),
    ],
)
def test_reads_filter(controller, program, query, expected):
    rows = [(1, 10, b"a", 0), (2, 20, b"b", 0), (3, 20, b"b", 4)]
    controller.insert(
        *(
            program.entry(
                "acl",
                program.ternary(number, 0xFF),
                action=program.action("drop"),
                priority=priority,
                metadata=metadata,
                controller_metadata=cookie,
            )
            for number, priority, metadata, cookie in rows
        )
    )
    found = entries(controller, program.entry("acl", **query))
    assert sorted(entry.match[0].ternary.value[-1] for entry in found) == expected


def test_reads_filter_by_action(controller, program):
    controller.insert(
        program.host(1), program.entry("hosts", program.exact(2), action=program.action("drop"))
    )
    query = program.entry("hosts", action=p4r.Action(action_id=program.id("drop")))
    assert [entry.match[0].exact.value for entry in entries(controller, query)] == [b"\2"]


def test_reading_one_entry(controller, program):
    controller.insert(program.host(1), program.host(2))
    assert entries(controller, program.entry("hosts", program.exact(2))) == [program.host(2).table_entry]
    assert entries(controller, program.entry("hosts", program.exact(3))) == []


@pytest.mark.slow
def test_a_large_table_arrives_whole(controller, program):
    routes = [program.route(n << 8, 24) for n in range(5000)]
    controller.insert(*routes)
    found = entries(controller, program.entry("routes"))
    assert {entry.match[0].lpm.value for entry in found} == {
        route.table_entry.match[0].lpm.value for route in routes
    }


def test_a_match_is_read_with_every_priority_unless_one_is_given(controller, program):
    """The entry that matches anything has no match to be told from a read of all."""
    match = program.ternary(5, 7)
    written = [
        program.entry("acl", match, action=program.action("drop"), priority=priority) for priority in (9, 4)
    ]
    other = program.entry("acl", program.ternary(4, 7), action=program.action("drop"), priority=9)
    controller.insert(*written, other)
    assert controller.read(program.entry("acl", match)) == written
    assert controller.read(program.entry("acl", match, priority=4)) == written[1:]
    assert controller.read(program.entry("acl", program.ternary(6, 7))) == []


@pytest.mark.slow
def test_a_read_shows_one_moment(controller, program):
    """Specification, "Parallelism of Read and Write Requests": a write comes before all of a read, or after it."""
    controller.insert(*(program.route(n << 8, 24) for n in range(5000)), program.host(1))
    request = p4r.ReadRequest(device_id=1, entities=[program.entry("routes"), program.entry("hosts")])
    stream = controller.stub.Read(request)
    found = list(next(stream).entities)
    controller.delete(*(program.route(n << 8, 24) for n in range(5000)), program.host(1))
    for response in stream:
        found += response.entities
    assert len(found) == 5001
    assert found[-1] == program.host(1)


def test_a_read_with_a_wrong_part_returns_the_rest_and_says_which(controller, program):
    controller.insert(program.host(1))
    wrong = p4r.Entity(table_entry=p4r.TableEntry(table_id=1))
    request = p4r.ReadRequest(device_id=1, entities=[program.entry("hosts"), wrong, program.entry("hosts")])
    stream = controller.stub.Read(request)
    assert [list(next(stream).entities) for _ in range(2)] == [[program.host(1)], [program.host(1)]]
    refused = controller.refusal(controller.read, program.entry("hosts"), wrong, program.entry("hosts"))
    assert refused.codes == ["OK", INVALID, "OK"]


def test_an_entity_of_no_kind_cannot_be_read(controller):
    assert controller.refusal(controller.read, p4r.Entity()).codes == [INVALID]


def test_another_device_is_not_found(controller, program):
    refused = controller.refusal(controller.read, program.entry("hosts"), device_id=2)
    assert refused.code is grpc.StatusCode.NOT_FOUND


# Direct counters


def test_direct_counters_are_set_and_read(controller, program):
    controller.insert(program.host(1, counter_data={"packet_count": 5, "byte_count": 500}), program.host(2))

    def direct(key, **data):
        entry = key.table_entry
        return p4r.Entity(direct_counter_entry=p4r.DirectCounterEntry(table_entry=entry, **data))

    def counts(query):
        return {
            found.direct_counter_entry.table_entry.match[
                0
            ].exact.value: found.direct_counter_entry.data.packet_count
            for found in controller.read(query)
        }

    assert counts(direct(program.entry("hosts"))) == {b"\1": 5, b"\2": 0}
    controller.modify(direct(program.entry("hosts", program.exact(2)), data={"packet_count": 9}))
    assert counts(direct(program.entry("hosts", program.exact(2)))) == {b"\2": 9}
    assert counts(p4r.Entity(direct_counter_entry={"table_entry": {}})) == {b"\1": 5, b"\2": 9}
    with_counters = entries(controller, program.entry("hosts", counter_data={}))
    assert {entry.match[0].exact.value: entry.counter_data.packet_count for entry in with_counters} == {
        b"\1": 5,
        b"\2": 9,
    }
    missing = direct(program.entry("hosts", program.exact(3)))
    assert controller.refusal(controller.read, missing).codes == ["NOT_FOUND"]
    assert controller.refusal(controller.modify, missing).codes == ["NOT_FOUND"]
    assert controller.refusal(controller.insert, direct(program.host(1))).codes == [INVALID]
    for uncounted in (program.route(1, 32), program.entry("routes")):
        assert controller.refusal(controller.read, direct(uncounted)).codes == [INVALID]


def test_modify_keeps_the_direct_counter(controller, program):
    controller.insert(program.host(1, counter_data={"packet_count": 5}))
    controller.modify(program.host(1, port=9))
    (found,) = entries(controller, program.entry("hosts", counter_data={}))
    assert found.counter_data.packet_count == 5


def test_the_errors_of_a_large_batch_fit_what_finsy_takes(controller, program):
    wrong = program.entry("routes", program.lpm(1, 8), action=program.action("drop"))
    refused = controller.refusal(controller.insert, *[wrong] * 1000)
    assert refused.codes == [INVALID] * 1000
    assert "after its prefix" in refused.details[0].message
    assert sum(detail.ByteSize() for detail in refused.details) + 40 * 1000 < 64 << 10
