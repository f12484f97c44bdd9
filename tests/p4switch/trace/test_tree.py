"""A trace as a tree: which copy of a packet each event belongs to, and what the packet could have met instead."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from fanin.p4compiler import compile_once
from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.entries import (
    ActionCall,
    Entry,
    EntryKey,
    Exact,
    GroupReference,
    MemberReference,
    OneShot,
    Replica,
)
from fanin.p4switch.trace.events import Alternative, Choice, Copy, Lookup, NamedValue, Output, PacketTrace
from fanin.p4switch.trace.text import as_text
from fanin.p4switch.trace.tracer import traced
from tests.p4switch.trace.schema import trace_schema

STF = Path(__file__).parents[1] / "stf"
SCHEMA = Path(__file__).parents[3] / "p4switch" / "trace" / "trace.schema.json"


def trace(switch: Engine, packet: bytes) -> PacketTrace:
    with traced(switch) as tracer:
        switch.process(1, packet)
        [found] = tracer.packets()
    return found


def outputs(found: PacketTrace) -> list[tuple[int, Copy]]:
    """The port of each packet that left, and the copy that it was."""
    owned = zip(found.events, found.owners, strict=True)
    return [(event.port, found.copies[owner]) for event, owner in owned if isinstance(event, Output)]


@pytest.fixture
def passes() -> Engine:
    """passes.p4 with the groups and sessions of passes.stf."""
    switch = Engine.load(compile_once(STF / "passes.p4").device_config())
    switch.multicast.insert(7, (Replica(1, 3), Replica(4, 3)))
    switch.sessions.insert(5, (Replica(3, 0),))
    switch.sessions.insert(6, (Replica(1, 3), Replica(4, 3)))
    return switch


def test_a_packet_alone_is_the_only_copy(passes: Engine) -> None:
    found = trace(passes, b"\0\0\0")
    assert found.copies == [Copy(None, "arrival")]
    assert set(found.owners) == {0}


@pytest.mark.parametrize(
    ("what", "copies"),
    [
        (1, [Copy(0, "resubmitted")]),
        (2, [Copy(0, "ingress clone"), Copy(1, "replication", 0)]),
        (4, [Copy(0, "recirculated"), Copy(1, "recirculated")]),
        (5, [Copy(0, "egress clone")]),
        (
            6,
            [
                Copy(0, "ingress clone"),
                Copy(1, "replication", 3),
                Copy(1, "replication", 3),
                Copy(0, "replication", 3),
                Copy(0, "replication", 3),
            ],
        ),
        (7, []),
    ],
)
def test_every_copy_has_its_parent(passes: Engine, what: int, copies: list[Copy]) -> None:
    found = trace(passes, bytes([what, 0, 0]))
    assert found.copies == [Copy(None, "arrival"), *copies]


def test_every_packet_that_leaves_belongs_to_its_copy(passes: Engine) -> None:
    original = Copy(None, "arrival")
    assert outputs(trace(passes, bytes([2, 0, 0]))) == [(3, Copy(1, "replication", 0)), (2, original)]
    assert outputs(trace(passes, bytes([5, 0, 0]))) == [(2, original), (3, Copy(0, "egress clone"))]
    assert outputs(trace(passes, bytes([4, 0, 0]))) == [(2, Copy(1, "recirculated"))]
    assert [copy.parent for _, copy in outputs(trace(passes, bytes([6, 0, 0])))] == [1, 1, 0, 0]


# Action profiles

PATHS, MARKS = "Receive.paths", "Receive.marks"


def forward(port: int) -> ActionCall:
    return ActionCall("Receive.forward", (port,))


def path(member: int | None, port: int, weight: int = 1) -> Alternative:
    return Alternative(member, weight, "Receive.forward", (NamedValue("port", port, str(port), width=9),))


def choices(switch: Engine, source: int) -> list[Choice]:
    packet = bytes([0, 0, source, 9, 0, 0])
    return [event for event in trace(switch, packet).events if isinstance(event, Choice)]


@pytest.fixture
def entities(engine: Callable[[str], Engine]) -> Engine:
    switch = engine("entities")
    profile = switch.profile("Receive.path_choice")
    for number in (30, 10):
        profile.insert_member(number, forward(number))
    profile.insert_group(1, ((30, 2), (10, 1)))
    return switch


def test_a_choice_names_the_group_its_member_and_the_alternatives(entities: Engine) -> None:
    entities.table(PATHS).insert(Entry(EntryKey((Exact(9),)), GroupReference(1)))
    alternatives = [path(10, 10), path(30, 30, 2)]
    for source, chosen in enumerate((0, 1, 1, 0)):
        assert choices(entities, source) == [Choice(PATHS, "group", 1, chosen, alternatives)]


def test_the_default_entry_chooses_too(entities: Engine) -> None:
    entities.table(PATHS).set_default(GroupReference(1))
    assert choices(entities, 0) == [Choice(PATHS, "group", 1, 0, [path(10, 10), path(30, 30, 2)])]


def test_an_empty_group_chooses_nothing(entities: Engine) -> None:
    entities.profile("Receive.path_choice").insert_group(2, ())
    entities.table(PATHS).insert(Entry(EntryKey((Exact(9),)), GroupReference(2)))
    assert choices(entities, 0) == [Choice(PATHS, "group", 2, None, [])]
    assert "group 2: empty, nothing happens" in as_text(trace(entities, bytes([0, 0, 0, 9, 0, 0])))


def test_an_action_set_chooses_without_members(engine: Callable[[str], Engine]) -> None:
    switch = engine("entities")
    one_shot = OneShot(((forward(5), 1), (forward(6), 1)))
    switch.table(PATHS).insert(Entry(EntryKey((Exact(9),)), one_shot))
    assert choices(switch, 1) == [Choice(PATHS, "action set", None, 1, [path(None, 5), path(None, 6)])]


def test_a_profile_without_a_selector_names_the_member(engine: Callable[[str], Engine]) -> None:
    switch = engine("entities")
    switch.profile("Receive.mark_choice").insert_member(4, ActionCall("Receive.mark", (7,)))
    switch.table(MARKS).insert(Entry(EntryKey((Exact(9),)), MemberReference(4)))
    [choice] = choices(switch, 0)
    assert (choice.table, choice.kind, choice.number, choice.chosen) == (MARKS, "member", 4, 0)


def test_the_text_shows_the_choice_below_its_lookup(entities: Engine) -> None:
    entities.table(PATHS).insert(Entry(EntryKey((Exact(9),)), GroupReference(1)))
    lines = as_text(trace(entities, bytes([0, 0, 1, 9, 0, 0]))).splitlines()
    at = next(n for n, line in enumerate(lines) if "group 1" in line)
    assert lines[at].strip() == (
        "group 1: member 30 of 2: Receive.forward(port=10), Receive.forward(port=30)"
    )
    assert lines[at + 1].strip() == "action Receive.forward(port=30)"


# The schema


def test_the_published_schema_is_that_of_the_events() -> None:
    assert json.loads(SCHEMA.read_text()) == trace_schema()


@pytest.mark.slow
def test_traces_follow_the_schema(passes: Engine, entities: Engine) -> None:
    entities.table(PATHS).insert(Entry(EntryKey((Exact(9),)), GroupReference(1)))
    found = [trace(passes, bytes([what, 0, 0])) for what in range(9)]
    found += [trace(passes, b""), trace(entities, bytes([0, 0, 1, 9, 0, 0]))]
    assert any(isinstance(event, Lookup) for event in found[-1].events)
    for each in found:
        jsonschema.validate(json.loads(json.dumps(each.document())), trace_schema())


def test_the_schema_refuses_what_is_no_trace(passes: Engine) -> None:
    document = json.loads(json.dumps(trace(passes, b"\0\0\0").document()))
    del document["events"][0]["copy"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, trace_schema())


if __name__ == "__main__":
    SCHEMA.write_text(json.dumps(trace_schema(), indent=1) + "\n")
