"""Action profiles and selectors, value sets, digests, direct meters and the ageing of entries."""

from __future__ import annotations

import gc
import os
import weakref
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.entries import (
    ActionCall,
    Digest,
    Entry,
    EntryAction,
    EntryKey,
    Exact,
    GroupReference,
    MemberReference,
    MeterConfig,
    OneShot,
    TableError,
    TableErrorCode,
    Ternary,
)

PATHS, MARKS, RATES = "Receive.paths", "Receive.marks", "Receive.rates"


@pytest.fixture
def switch(engine: Callable[[str], Engine]) -> Engine:
    return engine("entities")


def forward(port: int) -> ActionCall:
    return ActionCall("Receive.forward", (port,))


def mark(label: int) -> ActionCall:
    return ActionCall("Receive.mark", (label,))


def entry(key: int, action: EntryAction) -> Entry:
    return Entry(EntryKey((Exact(key),)), action)


def sent(
    switch: Engine, source: int = 0, destination: int = 1, kind: int = 0, now: int = 0
) -> tuple[int, int, int]:
    """Port, label and colour of what a packet became."""
    packet = bytes([kind >> 8, kind & 255, source, destination, 0xFF, 0xFF])
    [(port, out)] = switch.process(7, packet, now)
    return port, out[4], out[5]


def refusal(code: TableErrorCode, call: Callable[..., object], *arguments: object) -> None:
    with pytest.raises(TableError) as caught:
        call(*arguments)
    assert caught.value.code is code


def test_entries_follow_their_member(switch: Engine) -> None:
    profile = switch.profile("Receive.mark_choice")
    profile.insert_member(3, mark(30))
    switch.table(MARKS).insert(entry(1, MemberReference(3)))
    switch.table(MARKS).insert(entry(2, MemberReference(3)))
    assert sent(switch, destination=1)[1] == sent(switch, destination=2)[1] == 30
    profile = switch.profile("Receive.mark_choice")
    profile.modify_member(3, mark(31))
    refusal(TableErrorCode.FAILED_PRECONDITION, profile.delete_member, 3)
    assert sent(switch, destination=1)[1] == sent(switch, destination=2)[1] == 31
    for key in (1, 2):
        switch.table(MARKS).delete(EntryKey((Exact(key),)))
    profile = switch.profile("Receive.mark_choice")
    profile.delete_member(3)
    assert profile.members == {}
    assert sent(switch, destination=1)[1] == 0


def test_a_profile_refuses_what_does_not_fit(switch: Engine) -> None:
    refusal(TableErrorCode.NOT_FOUND, switch.table(MARKS).insert, entry(1, MemberReference(9)))
    refusal(TableErrorCode.INVALID_ARGUMENT, switch.table(RATES).insert, entry(1, MemberReference(9)))
    profile = switch.profile("Receive.mark_choice")
    refusal(TableErrorCode.INVALID_ARGUMENT, profile.insert_member, 1, forward(1))
    refusal(TableErrorCode.INVALID_ARGUMENT, profile.insert_group, 1, ())
    for number in range(16):
        profile.insert_member(number, mark(number))
    refusal(TableErrorCode.RESOURCE_EXHAUSTED, profile.insert_member, 16, mark(1))
    refusal(TableErrorCode.ALREADY_EXISTS, profile.insert_member, 1, mark(1))


def test_an_entry_of_a_table_with_a_profile_has_no_action_of_its_own(switch: Engine) -> None:
    profile = switch.profile("Receive.mark_choice")
    profile.insert_member(3, mark(30))
    refusal(TableErrorCode.INVALID_ARGUMENT, switch.table(MARKS).insert, entry(1, mark(1)))
    switch.table(MARKS).insert(entry(1, MemberReference(3)))
    refusal(TableErrorCode.INVALID_ARGUMENT, switch.table(MARKS).modify, entry(1, mark(1)))


@pytest.fixture
def group(switch: Engine) -> Iterator[None]:
    """Group 1 of members 10, 20, 30, which send to those ports, the last with weight 2."""
    profile = switch.profile("Receive.path_choice")
    for number in (30, 10, 20):
        profile.insert_member(number, forward(number))
    profile.insert_group(1, ((30, 2), (10, 1), (20, 1)))
    return None


@pytest.mark.usefixtures("group")
def test_a_group_chooses_by_the_hash(switch: Engine) -> None:
    """The identity of the source, modulo the weights, in the order of the members."""
    switch.table(PATHS).insert(entry(1, GroupReference(1)))
    assert [sent(switch, source=s)[0] for s in range(8)] == [10, 20, 30, 30] * 2
    profile = switch.profile("Receive.path_choice")
    profile.modify_group(1, ((20, 1), (30, 1)))
    refusal(TableErrorCode.FAILED_PRECONDITION, profile.delete_group, 1)
    refusal(TableErrorCode.NOT_FOUND, profile.modify_group, 2, ())
    refusal(TableErrorCode.NOT_FOUND, profile.modify_group, 1, ((9, 1),))
    profile.delete_member(10)
    assert [sent(switch, source=s)[0] for s in range(4)] == [20, 30] * 2
    profile = switch.profile("Receive.path_choice")
    profile.modify_member(20, forward(21))
    assert [sent(switch, source=s)[0] for s in range(4)] == [21, 30] * 2


@pytest.mark.usefixtures("group")
def test_an_empty_group_does_nothing(switch: Engine) -> None:
    profile = switch.profile("Receive.path_choice")
    profile.insert_group(2, ())
    switch.table(PATHS).insert(entry(1, GroupReference(2)))
    assert sent(switch)[0] == 0


def test_one_shot_groups(switch: Engine) -> None:
    switch.table(PATHS).insert(entry(1, OneShot(((forward(4), 1), (forward(5), 3)))))
    assert Counter(sent(switch, source=s)[0] for s in range(8)) == {4: 2, 5: 6}
    switch.table(PATHS).modify(entry(1, OneShot(((forward(6), 1),))))
    assert {sent(switch, source=s)[0] for s in range(8)} == {6}
    assert switch.table(PATHS).entries() == [entry(1, OneShot(((forward(6), 1),)))]
    switch.table(PATHS).delete(EntryKey((Exact(1),)))
    assert sent(switch)[0] == 0


def members(*values: int) -> list[EntryKey]:
    return [EntryKey((Exact(value),), 1) for value in values]


def test_value_sets_and_digests(switch: Engine) -> None:
    """Only a packet whose type is in the value set is learnt."""
    event = os.eventfd(0, os.EFD_NONBLOCK)
    try:
        switch.keep_digests(event)
        sent(switch, source=1, kind=0x0800)
        assert switch.digests() == []
        switch.value_set("P.types").write(members(0x0800, 0x86DD))
        sent(switch, source=1, kind=0x0800)
        sent(switch, source=2, kind=0x86DD)
        sent(switch, source=3, kind=0x0801)
        assert os.eventfd_read(event) == 2
        assert switch.digests() == [Digest("learnt_t", (1, 7)), Digest("learnt_t", (2, 7))]
        switch.value_set("P.types").write([EntryKey((Ternary(0x0800, 0xFFFE),), 1)])
        sent(switch, source=3, kind=0x0801)
        assert switch.digests() == [Digest("learnt_t", (3, 7))]
        switch.keep_digests(None)
        sent(switch, source=3, kind=0x0801)
        assert switch.digests() == []
    finally:
        os.close(event)


def test_a_value_set_that_is_refused_stays_as_it_was(switch: Engine) -> None:
    switch.value_set("P.types").write(members(1, 2))
    refusal(TableErrorCode.RESOURCE_EXHAUSTED, switch.value_set("P.types").write, members(1, 2, 3, 4, 5))
    refusal(TableErrorCode.INVALID_ARGUMENT, switch.value_set("P.types").write, members(1 << 16))
    refusal(TableErrorCode.NOT_FOUND, switch.value_set, "P.nothing")
    assert switch.value_set("P.types").members == members(1, 2)


def test_direct_meters(switch: Engine) -> None:
    """Two at once and a half per millisecond are green; four at once and one per millisecond are not red."""
    key = EntryKey((Exact(5),))
    switch.table(RATES).insert(Entry(key, ActionCall("Receive.metered")))
    assert switch.table(RATES).meter_config(key) is None
    assert [sent(switch, source=5, now=1)[2] for _ in range(5)] == [0] * 5
    config = MeterConfig(cir=500, cburst=2, pir=1000, pburst=4)
    switch.table(RATES).configure_meter(key, config)
    assert switch.table(RATES).meter_config(key) == config
    assert [sent(switch, source=5, now=1)[2] for _ in range(5)] == [0, 0, 1, 1, 2]
    assert [sent(switch, source=5, now=2001)[2] for _ in range(3)] == [0, 1, 2]
    assert sent(switch, source=6, now=2001)[2] == 0
    refusal(
        TableErrorCode.INVALID_ARGUMENT, switch.table(RATES).configure_meter, key, MeterConfig(2, 1, 1, 1)
    )
    refusal(TableErrorCode.INVALID_ARGUMENT, switch.table(MARKS).configure_meter, key, config)


def test_entries_know_when_they_were_hit(switch: Engine) -> None:
    for source in (5, 6):
        switch.table(RATES).insert(entry(source, ActionCall("Receive.unmetered")))
    sent(switch, source=5, now=1234)
    assert [hit for _, hit in switch.table(RATES).last_hits()] == [1234, 0]


def test_a_transaction_lets_its_own_thread_write(switch: Engine) -> None:
    with switch.lock:
        switch.table(RATES).insert(entry(5, ActionCall("Receive.metered")))
        assert len(switch.table(RATES).entries()) == 1
    assert len(switch.table(RATES).entries()) == 1


def test_the_state_is_there_as_long_as_a_part_of_the_switch(engine: Callable[[str], Engine]) -> None:
    """Without a collection of cycles."""
    table = engine("entities").table(MARKS)
    state = weakref.ref(table._switch)
    gc.disable()
    try:
        assert table.entries() == []
        del table
        assert state() is None
    finally:
        gc.enable()
