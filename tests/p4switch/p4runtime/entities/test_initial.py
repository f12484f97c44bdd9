"""Entries that a program lets be changed (specification, "Preinitialized tables"), and ranges in value sets."""

import json
from pathlib import Path

import pytest
from finsy.proto import p4r
from hypothesis import given
from hypothesis import strategies as st

from fanin.p4compiler import compile_once
from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.entries import EntryKey, Range, TableError, Ternary
from tests.p4switch.p4runtime.conftest import Program


@pytest.fixture(scope="module")
def initial():
    compiled = compile_once(Path(__file__).with_name("initial.p4"))
    return Program(compiled.p4info, json.dumps(compiled.json).encode())


@pytest.fixture
def primary(connect, initial):
    controller = connect().become_primary()
    controller.set_pipeline(initial.config)
    return controller


def way(device, kind, port=0):
    ((leaving, _),) = device.pipeline.engine.process(5, port.to_bytes(2, "big") + bytes([kind]))
    return leaving


def kind(program, value, port):
    return program.entry("kinds", program.exact(value), action=program.action("forward", bytes([port])))


def test_initial_entries_are_ordinary_ones(primary, initial, device):
    assert primary.read(initial.entry("kinds")) == [kind(initial, 1, 1), kind(initial, 2, 2)]
    primary.insert(*(kind(initial, n, 4) for n in range(3, 17)))
    assert primary.refusal(primary.insert, kind(initial, 17, 4), kind(initial, 1, 1)).codes == [
        "RESOURCE_EXHAUSTED",
        "ALREADY_EXISTS",
    ]
    primary.modify(kind(initial, 1, 5))
    primary.delete(kind(initial, 2, 2))
    assert [way(device, n) for n in (1, 2, 3)] == [5, 3, 4]


def test_reconciliation_keeps_the_entries_as_they_are(primary, initial, device):
    primary.modify(kind(initial, 1, 5))
    primary.delete(kind(initial, 2, 2))
    again = initial.config
    again.p4info.pkg_info.version = "2"
    primary.set_pipeline(again, "RECONCILE_AND_COMMIT")
    assert primary.read(initial.entry("kinds")) == [kind(initial, 1, 5)]
    assert [way(device, n) for n in (1, 2)] == [5, 3]
    primary.set_pipeline(initial.config)
    assert [way(device, n) for n in (1, 2)] == [1, 2]


def test_const_entries_are_never_idle(primary, initial):
    """Specification, "Constant Tables": only their direct resources can be changed."""
    fixed = initial.entry("fixed", initial.exact(1))
    primary.modify(fixed)
    fixed.table_entry.idle_timeout_ns = 10**9
    assert primary.refusal(primary.modify, fixed).codes == ["INVALID_ARGUMENT"]


def services(program, *members):
    entry = p4r.ValueSetEntry(value_set_id=program.id("services"))
    for low, high, *kinds in members:
        member = entry.members.add()
        member.match.add(
            field_id=1, range={"low": low.to_bytes(2, "big").lstrip(b"\0"), "high": high.to_bytes(2, "big")}
        )
        for value, mask in kinds:
            member.match.append(program.ternary(value, mask, field_id=2))
    return p4r.Entity(value_set_entry=entry)


def test_ranges_in_a_value_set(primary, initial, device):
    written = services(initial, (1000, 2000), (80, 443, (8, 8)))
    primary.modify(written)
    assert primary.read(services(initial)) == [written]
    ports = (999, 1000, 1500, 2000, 2001, 100)
    assert [way(device, 9, port) == 7 for port in ports] == [False, True, True, True, False, True]
    assert [way(device, 1, port) == 7 for port in ports] == [False, True, True, True, False, False]
    primary.modify(services(initial))
    assert way(device, 9, 1500) == 3


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ([(1, 2), (3, 4), (5, 6)], "RESOURCE_EXHAUSTED"),
        ([(1, 2), (1, 2)], "ALREADY_EXISTS"),
        ([(2, 1)], "INVALID_ARGUMENT"),
    ],
)
def test_a_wrong_value_set_leaves_the_present_one(primary, initial, members, code):
    primary.modify(services(initial, (1, 1)))
    assert primary.refusal(primary.modify, services(initial, *members)).codes == [code]
    assert primary.read(services(initial)) == [services(initial, (1, 1))]


@pytest.fixture(scope="module")
def engine(initial):
    return Engine.load(initial.device_config)


@given(st.lists(st.integers(0, 2**16 - 1), min_size=2, max_size=2), st.integers(0, 2**16 - 1))
def test_a_range_holds_what_lies_in_it(engine, ends, port):
    low, high = sorted(ends)
    engine.value_set("P.services").write([EntryKey((Range(low, high), Ternary(0, 0)), 1)])
    for probe in {port, low, high, max(0, low - 1), min(high + 1, 2**16 - 1)}:
        ((leaving, _),) = engine.process(5, probe.to_bytes(2, "big") + b"\1")
        assert (leaving == 7) == (low <= probe <= high)


def test_too_wide_a_range_is_refused(engine):
    with pytest.raises(TableError, match="does not fit"):
        engine.value_set("P.services").write([EntryKey((Range(0, 1 << 16), Ternary(0, 0)), 1)])
