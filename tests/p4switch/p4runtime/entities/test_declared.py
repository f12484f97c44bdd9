"""Entries that a program declares with priorities (specification, "Preinitialized tables"), and types of keys."""

import json
from pathlib import Path

import pytest
from finsy.proto import p4r

from fanin.p4compiler import compile_once
from tests.p4switch.p4runtime.conftest import Program


@pytest.fixture(scope="module")
def declared():
    compiled = compile_once(Path(__file__).with_name("declared.p4"))
    return Program(compiled.p4info, json.dumps(compiled.json).encode())


@pytest.fixture
def primary(connect, declared):
    controller = connect().become_primary()
    controller.set_pipeline(declared.config)
    return controller


@pytest.fixture
def way(device):
    """Where a packet with these fields leaves."""

    def way(kind, small=0, large=0, narrow=0, wide=0):
        fields = (kind << 32) + ((small & 0xFF) << 24) + ((large & 0xFFF) << 12) + (narrow << 0)
        packet = (
            bytes([kind, small & 0xFF]) + ((large & 0xFFF) << 4).to_bytes(2, "big") + bytes([narrow, wide])
        )
        assert fields >= 0
        ((leaving, _),) = device.pipeline.engine.process(5, packet)
        return leaving

    return way


def forward(program, port):
    return program.action("forward", bytes([port]))


def ternary(program, table, value, port, priority):
    match = [] if value is None else [program.ternary(value, 0xFF)]
    return program.entry(table, *match, action=forward(program, port), priority=priority)


# Priorities


def priorities(primary, program, table):
    return [entity.table_entry.priority for entity in primary.read(program.entry(table))]


def test_the_priorities_are_those_written(primary, declared):
    assert priorities(primary, declared, "written") == [10, 20, 5]


def test_const_entries_have_the_priorities_n_to_1(primary, declared):
    assert priorities(primary, declared, "ordered") == [3, 2, 1]


def test_p4runtime_has_no_priority_0_so_all_are_one_higher(primary, declared):
    assert priorities(primary, declared, "zero") == [4, 1]


@pytest.mark.parametrize(("priority", "leaving"), [(100, 9), (10 + 1, 9), (9, 1)])
def test_an_insert_wins_over_a_lower_priority_of_the_program(primary, declared, way, priority, leaving):
    primary.insert(ternary(declared, "written", None, 9, priority))
    assert way(1) == leaving


def test_a_written_priority_addresses_the_entry(primary, declared, way):
    primary.modify(ternary(declared, "written", 1, 7, 10))
    assert way(1) == 7
    primary.delete(ternary(declared, "written", 1, 7, 10))
    assert way(1) == 3


# Const entries among others


def test_a_const_entry_cannot_be_deleted_or_modified(primary, declared, way):
    const = ternary(declared, "written", 2, 9, 20)
    for request in (primary.delete, primary.modify):
        refusal = primary.refusal(request, const)
        assert refusal.codes == ["PERMISSION_DENIED"]
        assert "this entry const" in refusal.message
    assert way(2) == 2


def test_only_const_entries_are_marked(primary, declared):
    found = primary.read(declared.entry("written"))
    assert [entity.table_entry.is_const for entity in found] == [False, True, False]


def test_reconciliation_keeps_const_entries_and_what_was_written(primary, declared, way):
    primary.insert(ternary(declared, "written", 5, 9, 30))
    primary.delete(ternary(declared, "written", 1, 1, 10))
    again = declared.config
    again.p4info.pkg_info.version = "2"
    primary.set_pipeline(again, "RECONCILE_AND_COMMIT")
    assert sorted(priorities(primary, declared, "written")) == [5, 20, 30]
    assert [way(kind) for kind in (1, 2, 5)] == [3, 2, 9]


# Signed keys (specification, "Bytestrings")


def signed(program, small, large, mask=b"\x0f\xff", port=4):
    match = [p4r.FieldMatch(field_id=1, exact={"value": small})]
    if large is not None:
        match.append(p4r.FieldMatch(field_id=2, ternary={"value": large, "mask": mask}))
    return program.entry("signs", *match, action=forward(program, port), priority=1)


@pytest.mark.parametrize("small", [-128, -99, -1, 0, 1, 127])
@pytest.mark.parametrize("large", [-739, 2047, -2048])
def test_signed_keys_are_in_twos_complement(primary, declared, way, small, large):
    def octets(value):
        return value.to_bytes((value if value >= 0 else ~value).bit_length() // 8 + 1, "big", signed=True)

    entry = signed(declared, octets(small), octets(large))
    primary.insert(entry)
    assert way(8, small, large) == 4
    assert primary.read(declared.entry("signs")) == [entry]


def test_more_sign_bytes_are_accepted_and_the_shortest_form_is_read(primary, declared):
    primary.insert(signed(declared, b"\xff\xff\x9d", b"\xff\xff\xff"))
    assert primary.read(declared.entry("signs")) == [signed(declared, b"\x9d", b"\xff")]


@pytest.mark.parametrize(
    ("small", "large"), [(b"\x00\x9d", b"\0"), (b"\0", b"\x8d\x1d"), (b"\0", b"\x0d\x1d")]
)
def test_a_number_that_its_signed_type_does_not_have_is_refused(primary, declared, small, large):
    refusal = primary.refusal(primary.insert, signed(declared, small, large))
    assert refusal.codes == ["INVALID_ARGUMENT"]
    assert "does not fit int<" in refusal.message


def test_a_signed_range_lies_on_one_side_of_zero(primary, declared, way):
    def span(low, high):
        match = p4r.FieldMatch(
            field_id=1,
            range={"low": low.to_bytes(1, "big", signed=True), "high": high.to_bytes(1, "big", signed=True)},
        )
        return declared.entry("spans", match, action=forward(declared, 6), priority=1)

    primary.insert(span(-5, -2))
    assert [way(8, small) == 6 for small in (-6, -5, -2, -1)] == [False, True, True, False]
    assert primary.refusal(primary.insert, span(-2, 3)).codes == ["UNIMPLEMENTED"]
    assert primary.refusal(primary.insert, span(3, 2)).codes == ["INVALID_ARGUMENT"]


# Translated types


def typed(program, narrow, length, wide, action=None):
    match = [p4r.FieldMatch(field_id=2, exact={"value": wide})]
    if length:
        match.insert(0, p4r.FieldMatch(field_id=1, lpm={"value": narrow, "prefix_len": length}))
    return program.entry("types", *match, action=action or forward(program, 5))


def test_a_narrower_type_of_the_control_plane_limits_the_values(primary, declared):
    for value in (b"\x0f", b"\0\x0f"):
        entry = typed(declared, value, 4, b"\1")
        primary.insert(entry)
        primary.delete(entry)
    refusal = primary.refusal(primary.insert, typed(declared, b"\x10", 4, b"\1"))
    assert refusal.codes == ["INVALID_ARGUMENT"]
    assert "bit<4>" in refusal.message
    label = typed(declared, b"\1", 4, b"\1", declared.action("label", b"\x10"))
    assert primary.refusal(primary.insert, label).codes == ["INVALID_ARGUMENT"]


def test_a_prefix_counts_the_bits_of_the_control_planes_type(primary, declared, way):
    entry = typed(declared, b"\x08", 1, b"\1")  # 8 to 15 of the sixteen values
    primary.insert(entry)
    assert [way(9, narrow=narrow, wide=1) == 5 for narrow in (7, 8, 15, 16, 0x88)] == [
        False,
        True,
        True,
        False,
        False,
    ]
    assert primary.read(declared.entry("types")) == [entry]
    assert primary.refusal(primary.insert, typed(declared, b"\x08", 5, b"\1")).codes == ["INVALID_ARGUMENT"]


def test_a_wider_type_of_the_control_plane_takes_what_the_field_holds(primary, declared):
    primary.insert(typed(declared, b"\x08", 1, b"\0\0\0\xff"))
    refusal = primary.refusal(primary.insert, typed(declared, b"\x08", 1, b"\1\0"))
    assert refusal.codes == ["INVALID_ARGUMENT"]
    assert "bit<8>" in refusal.message


# Hidden actions


def test_a_hidden_action_is_read_and_written_by_the_id_that_tables_refer_to(primary, declared):
    """As p4c's, the P4Info does not describe it."""
    described = {action.preamble.id for action in declared.p4info.actions}
    [table] = [each for each in declared.p4info.tables if each.preamble.alias == "private"]
    [hidden] = [ref.id for ref in table.action_refs if ref.id not in described]

    def entries():
        return [entity.table_entry for entity in primary.read(declared.entry("private"))]

    first, second = entries()
    assert [entry.action.action.action_id for entry in (first, second)] == [declared.id("forward"), hidden]
    first.action.action.CopyFrom(p4r.Action(action_id=hidden))
    first.action.action.params.add(param_id=1, value=b"\x05")
    primary.modify(p4r.Entity(table_entry=first))
    assert entries() == [first, second]
