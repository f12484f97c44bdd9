"""Tables find what a plain search through all entries finds, whatever was added, changed and removed before."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fanin.p4switch.bmv2json.notation import key_text
from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.entries import (
    ActionCall,
    CounterValue,
    Entry,
    EntryKey,
    Exact,
    Lpm,
    Match,
    Optional_,
    Range,
    TableError,
    TableErrorCode,
    Ternary,
)
from tests.sizes import sized

pytestmark = pytest.mark.slow

PROBE = {"a": 8, "b": 16, "c": 16, "d": 4, "e": 4, "f": 128}
TABLES = {
    "exact": [("a", "exact"), ("c", "exact"), ("e", "exact")],
    "lpm": [("d", "exact"), ("b", "lpm")],
    "ternary": [("a", "ternary"), ("b", "ternary"), ("e", "exact")],
    "range": [("b", "range"), ("d", "exact"), ("c", "range"), ("a", "ternary")],
    "optional": [("a", "optional"), ("c", "optional")],
    "wide": [("a", "exact"), ("f", "lpm")],
    "span": [("a", "ternary"), ("f", "range"), ("b", "range")],
}
PRIORITIZED = {"ternary", "range", "optional", "span"}
ANSWERS = ["exact", "lpm", "ternary", "range", "optional", "wide", "span"]


def table(kind: str) -> str:
    return f"ingress.{kind}_table"


def entry(kind: str, key: EntryKey, answer: int) -> Entry:
    return Entry(key, ActionCall(f"ingress.answer_{kind}", (answer,)))


def few(width: int) -> st.SearchStrategy[int]:
    """Values of a field, so few that matches overlap."""
    top, middle = 1 << (width - 1), 1 << width // 2
    values = [0, 1, 2, 3, middle - 1, middle, middle + 1, top, top | 1, top | 2, (1 << width) - 1]
    return st.sampled_from(values)


@st.composite
def matches(draw: st.DrawFn, kind: str) -> EntryKey:
    """A key for a table of that kind."""
    parts: list[Match] = []
    for name, how in TABLES[kind]:
        width = PROBE[name]
        value = draw(few(width))
        if how == "exact":
            parts.append(Exact(value))
        elif how == "lpm":
            length = draw(st.sampled_from([0, 1, 2, width // 2, width - 1, width]))
            parts.append(Lpm(value & ~((1 << (width - length)) - 1), length))
        elif how == "ternary":
            mask = draw(st.sampled_from([0, 1, 3, 1 << (width - 1), (1 << width) - 1]))
            parts.append(Ternary(value & mask, mask))
        elif how == "range":
            high = draw(few(width).filter(lambda n, low=value: n >= low))
            parts.append(Range(value, high))
        else:
            parts.append(Optional_(draw(st.sampled_from([None, value]))))
    # Of entries with equal priority any may win: give each its own.
    return EntryKey(tuple(parts), draw(st.integers(1, 10**6)) if kind in PRIORITIZED else 0)


def covers(match: Match, value: int, width: int) -> bool:
    match match:
        case Exact(wanted):
            return value == wanted
        case Lpm(prefix, length):
            return value >> (width - length) == prefix >> (width - length)
        case Ternary(wanted, mask):
            return value & mask == wanted
        case Range(low, high):
            return low <= value <= high
        case Optional_(wanted_or_none):
            return wanted_or_none is None or value == wanted_or_none


def search(kind: str, entries: dict[EntryKey, int], probe: dict[str, int]) -> int:
    """The answer of the best entry that covers the probe, by looking at all."""
    found = [
        (key.priority or max([m.prefix_length for m in key.match if isinstance(m, Lpm)], default=0), answer)
        for key, answer in entries.items()
        if all(covers(m, probe[n], PROBE[n]) for m, (n, _) in zip(key.match, TABLES[kind], strict=True))
    ]
    return max(found)[1] if found else 0


def packet(probe: dict[str, int]) -> bytes:
    head = struct.pack(">BHHB", probe["a"], probe["b"], probe["c"], probe["d"] << 4 | probe["e"])
    return head + probe["f"].to_bytes(16, "big") + bytes(28)


def ask(switch: Engine, probe: dict[str, int]) -> dict[str, int]:
    """Return the answer of every table to a probe."""
    [(_, out)] = switch.process(1, packet(probe))
    return dict(zip(ANSWERS, struct.unpack(">7I", out[22:]), strict=True))


@st.composite
def steps(draw: st.DrawFn, kind: str) -> list[tuple[str, EntryKey]]:
    keys = draw(
        st.lists(matches(kind), min_size=1, max_size=25, unique_by=(lambda k: k, lambda k: k.priority or k))
    )
    done = [("insert", key) for key in keys]
    for key in draw(st.lists(st.sampled_from(keys), max_size=15, unique=True)):
        done.append((draw(st.sampled_from(["delete", "modify"])), key))
    return done


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", TABLES)
def test_look_up_equals_search(kind: str, engine: Callable[[str], Engine]) -> None:
    switch = engine("tables")
    found = switch.table(table(kind))
    probes = st.fixed_dictionaries({name: few(width) for name, width in PROBE.items()})

    @settings(max_examples=sized(40, 120))
    @given(steps(kind), st.lists(probes, min_size=1, max_size=20))
    def law(done: list[tuple[str, EntryKey]], asked: list[dict[str, int]]) -> None:
        for left in found.entries():
            found.delete(left.key)
        entries: dict[EntryKey, int] = {}
        for number, (what, key) in enumerate(done, 1):
            if what == "delete":
                found.delete(key)
                del entries[key]
            else:
                made = entry(kind, key, number)
                (found.modify if what == "modify" else found.insert)(made)
                entries[key] = number
        for probe in asked:
            assert ask(switch, probe)[kind] == search(kind, entries, probe)
        assert {e.key: e.action.args[0] for e in found.entries()} == entries

    law()


def test_many_entries(engine: Callable[[str], Engine]) -> None:
    """Growing and shrinking a table by thousands of entries loses none."""
    switch = engine("tables")
    chosen = random.Random(1)
    prefixes = {
        (d, b >> (16 - n) << (16 - n), n)
        for d in range(16)
        for n in (3, 8, 12, 16)
        for b in range(0, 65536, 977)
    }
    everything = {EntryKey((Exact(d), Lpm(b, n))): i for i, (d, b, n) in enumerate(sorted(prefixes), 1)}
    limit = switch.program.tables[table("lpm")].max_size
    entries = dict(chosen.sample(sorted(everything.items(), key=str), limit))
    for key, answer in entries.items():
        switch.table(table("lpm")).insert(entry("lpm", key, answer))
    for key in chosen.sample(list(entries), limit // 2):
        switch.table(table("lpm")).delete(key)
        del entries[key]
    for _ in range(2000):
        probe = {"a": 0, "b": chosen.getrandbits(16), "c": 0, "d": chosen.getrandbits(4), "e": 0, "f": 0}
        assert ask(switch, probe)["lpm"] == search("lpm", entries, probe)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["ternary", "range", "span"])
def test_many_masks(kind: str, engine: Callable[[str], Engine]) -> None:
    """Hundreds of entries, hardly two with the same mask or range, while they come and go: none is missed."""
    switch = engine("tables")
    chosen = random.Random(2)

    def match(name: str, how: str) -> Match:
        top = 1 << PROBE[name]
        if how == "exact":
            return Exact(chosen.randrange(2))
        if how == "range":
            low = chosen.randrange(top)
            return Range(low, min(top - 1, low + chosen.choice([0, 3, top // 200, top // 2])))
        mask = chosen.getrandbits(PROBE[name]) & chosen.getrandbits(PROBE[name])
        return Ternary(chosen.randrange(top) & mask, mask)

    entries: dict[EntryKey, int] = {}
    for number in range(1, sized(300, 900)):
        key = EntryKey(
            tuple(match(name, how) for name, how in TABLES[kind]), chosen.randrange(100) * 1000 + number
        )
        switch.table(table(kind)).insert(entry(kind, key, number))
        entries[key] = number
        if number % 3 == 0:
            gone = chosen.choice(list(entries))
            switch.table(table(kind)).delete(gone)
            del entries[gone]
        probe = {name: chosen.randrange(1 << width) for name, width in PROBE.items()} | {"d": 1, "e": 1}
        assert ask(switch, probe)[kind] == search(kind, entries, probe)
    while entries:
        gone = chosen.choice(list(entries))
        switch.table(table(kind)).delete(gone)
        del entries[gone]
        assert ask(switch, probe)[kind] == search(kind, entries, probe)


def refused(code: TableErrorCode, call: Callable[[], object]) -> str:
    with pytest.raises(TableError) as caught:
        call()
    assert caught.value.code is code
    return caught.value.message


def test_writes_that_are_refused(engine: Callable[[str], Engine]) -> None:
    """Each with its own code, and a message that names the table and the field."""
    switch = engine("tables")
    key = EntryKey((Exact(1), Exact(2), Exact(3)))
    good = entry("exact", key, 7)
    exact = table("exact")
    refused(TableErrorCode.NOT_FOUND, lambda: switch.table(exact).delete(key))
    refused(TableErrorCode.NOT_FOUND, lambda: switch.table(exact).modify(good))
    refused(TableErrorCode.NOT_FOUND, lambda: switch.table("nowhere").insert(good))
    switch.table(exact).insert(good)
    refused(TableErrorCode.ALREADY_EXISTS, lambda: switch.table(exact).insert(good))

    def invalid(entry_: Entry, of: str = "exact") -> str:
        return refused(TableErrorCode.INVALID_ARGUMENT, lambda: switch.table(table(of)).insert(entry_))

    assert "3 match fields" in invalid(entry("exact", EntryKey((Exact(1),)), 7))
    assert "hdr.probe.a: 256" in invalid(entry("exact", EntryKey((Exact(256), Exact(2), Exact(3))), 7))
    assert "exact is needed" in invalid(entry("exact", EntryKey((Lpm(0, 0), Exact(2), Exact(3))), 7))
    assert "no priority" in invalid(entry("exact", EntryKey(key.match, 5), 7))
    assert "answer_lpm is not one of its actions" in invalid(
        Entry(EntryKey((Exact(9), *key.match[1:])), ActionCall("ingress.answer_lpm", (1,)))
    )
    assert "needs 1 argument, not 0" in invalid(
        Entry(EntryKey((Exact(9), *key.match[1:])), ActionCall("ingress.answer_exact"))
    )
    assert "32 bits" in invalid(entry("exact", EntryKey((Exact(9), *key.match[1:])), 1 << 32))
    assert "outside its mask" in invalid(entry("lpm", EntryKey((Exact(1), Lpm(1, 8))), 1), "lpm")
    assert "is empty" in invalid(
        entry("range", EntryKey((Range(5, 4), Exact(1), Range(0, 1), Ternary(0, 0)), 1), 1), "range"
    )
    for n in range(99):
        switch.table(exact).insert(entry("exact", EntryKey((Exact(n), Exact(0), Exact(0))), n))
    assert "full: 100" in refused(
        TableErrorCode.RESOURCE_EXHAUSTED,
        lambda: switch.table(exact).insert(entry("exact", EntryKey((Exact(200), Exact(0), Exact(0))), 1)),
    )


def test_a_message_names_a_key_as_people_write_it(engine: Callable[[str], Engine]) -> None:
    switch = engine("tables")
    key = EntryKey((Ternary(5, 0xF0 | 5), Ternary(0, 0), Exact(3)), 7)
    add = partial(switch.table(table("ternary")).insert, entry("ternary", key, 1))
    add()
    with pytest.raises(TableError, match=r"= 5 &&& 0xf5, .* = 0 &&& 0x0, .* = 3 with priority 7 exists"):
        add()


def test_a_message_shortens_a_long_key() -> None:
    text = key_text({"wide": hex((1 << 16000) - 1)}, 3)
    assert text.startswith("wide = 0xffff")
    assert text.endswith("… with priority 3")
    assert len(text) < 300


def test_default_action(engine: Callable[[str], Engine]) -> None:
    switch = engine("tables")
    probe = dict.fromkeys(PROBE, 0)
    exact = table("exact")
    assert switch.table(exact).default() == ActionCall("ingress.answer_exact", (0,))
    switch.table(exact).set_default(ActionCall("ingress.answer_exact", (42,)))
    assert ask(switch, probe)["exact"] == 42
    switch.table(exact).set_default(None)
    assert ask(switch, probe)["exact"] == 0


def test_direct_counter(engine: Callable[[str], Engine]) -> None:
    """Hits count packets and the bytes of the packet as it arrived; misses count in the default entry."""
    switch = engine("tables")
    key = EntryKey((Exact(1), Exact(2), Exact(3)))
    switch.table(table("exact")).insert(entry("exact", key, 7))
    hit = {"a": 1, "b": 0, "c": 2, "d": 0, "e": 3, "f": 0}
    for probe in (hit, hit, {**hit, "a": 2}):
        ask(switch, probe)
    assert switch.table(table("exact")).counter(key) == CounterValue(2, 2 * 50)
    assert switch.table(table("exact")).counter(None) == CounterValue(1, 50)
    switch.table(table("exact")).write_counter(key, CounterValue(10, 1000))
    ask(switch, hit)
    assert switch.table(table("exact")).counter(key) == CounterValue(11, 1050)
    refused(TableErrorCode.INVALID_ARGUMENT, lambda: switch.table(table("lpm")).counter(key))


def test_const_entries(config: Callable[[str], bytes]) -> None:
    """As p4c writes them: bits behind a prefix do not count, and of overlapping ones the lower priority wins."""
    document = json.loads(config("tables"))
    tables = {t["name"]: t for p in document["pipelines"] for t in p["tables"]}

    def declared(kind: str, answer: int, priority: int, *matches: dict[str, Any]) -> dict[str, Any]:
        action = {"action_id": tables[table(kind)]["action_ids"][0], "action_data": [hex(answer)]}
        return {"match_key": list(matches), "action_entry": action, "priority": priority}

    def exact(value: int) -> dict[str, Any]:
        return {"match_type": "exact", "key": hex(value)}

    def ternary(value: int, mask: int) -> dict[str, Any]:
        return {"match_type": "ternary", "key": hex(value), "mask": hex(mask)}

    prefix = {"match_type": "lpm", "key": "0x1234", "prefix_length": 8}
    tables[table("lpm")]["entries"] = [declared("lpm", 1, 1, exact(2), prefix)]
    tables[table("ternary")]["entries"] = [
        declared("ternary", 8, 7, ternary(1, 1), ternary(0, 0), exact(0)),
        declared("ternary", 9, 3, ternary(3, 3), ternary(0, 0), exact(0)),
    ]
    switch = Engine.load(json.dumps(document).encode())
    probe = {"a": 3, "b": 0x12FF, "c": 0, "d": 2, "e": 0, "f": 0}
    assert ask(switch, probe)["lpm"] == 1
    assert ask(switch, {**probe, "b": 0x13FF})["lpm"] == 0
    assert ask(switch, probe)["ternary"] == 9
    assert ask(switch, {**probe, "a": 1})["ternary"] == 8
    assert [e.is_const for e in switch.table(table("ternary")).entries()] == [True, True]
    key = switch.table(table("lpm")).entries()[0].key
    refused(TableErrorCode.INVALID_ARGUMENT, lambda: switch.table(table("lpm")).delete(key))
