"""A trace tells what happens to a packet, and changes nothing of it."""

from __future__ import annotations

import json
import random
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from fanin.p4compiler import compile_once
from fanin.p4switch.codegen.translate import translate
from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.entries import (
    ActionCall,
    Entry,
    EntryKey,
    Exact,
    Lpm,
    MeterConfig,
    Optional_,
    Range,
    Replica,
    Ternary,
)
from fanin.p4switch.reader import read_program
from fanin.p4switch.trace.conditions import ConditionError
from fanin.p4switch.trace.events import (
    Access,
    ActionRun,
    Assign,
    Condition,
    Copy,
    Deparse,
    DirectCount,
    Drop,
    Egress,
    Extract,
    HitEntry,
    Ingress,
    Lookup,
    Output,
    PacketTrace,
    Parsed,
    Request,
    Select,
    State,
)
from fanin.p4switch.trace.text import as_text
from fanin.p4switch.trace.tracer import TraceError, followed, traced
from tests.p4switch.codegen.rolled import COUNT, STRAIGHT, aggregation
from tests.p4switch.documents import assign, call, document, field, in_egress, number, operation

STF = Path(__file__).parents[1] / "stf"
PROGRAMS = ("externs", "tables", "entities", "router", "forwarder")
WRITE, READ, COUNTED, EXTRA = 2, 1, 5, 0x81


def command(what: int, index: int = 0, value: int = 0, result: int = 0) -> bytes:
    """A packet for externs.p4."""
    return struct.pack(">BBHIi", what, index, value, result, 0)


def traces(switch: Engine, *packets: bytes, port: int = 3, conditions: str = "") -> list[PacketTrace]:
    with traced(switch, conditions) as tracer:
        for packet in packets:
            switch.process(port, packet)
        return list(tracer.packets())


def of_kind(trace: PacketTrace, kind: type[Any]) -> list[Any]:
    return [event for event in trace.events if isinstance(event, kind)]


def state_of(switch: Engine) -> list[Any]:
    """Registers, counters and the default actions' entries."""
    program = switch.program
    return [
        [switch.register(name).read() for name in program.registers],
        [switch.counter(c.name).read_all() for c in program.counters.values() if c.table is None],
    ]


# Nothing changes


@pytest.mark.few(2)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.slow
def test_packets_and_state_are_the_same_with_and_without(config: Callable[[str], bytes], name: str) -> None:
    rng = random.Random(name)
    plain = Engine.load(config(name))
    watched = plain.new_instance()
    packets = [rng.randbytes(rng.choice([3, 12, 20, 60])) for _ in range(200)]
    # So that much is met: bytes that the programs compare with something.
    packets += [bytes([rng.randrange(20) | rng.choice([0, 0x80])]) + rng.randbytes(30) for _ in range(200)]
    with traced(watched) as tracer:
        for now, packet in enumerate(packets):
            port = rng.randrange(4)
            assert watched.process(port, packet, now) == plain.process(port, packet, now)
        assert len(list(tracer.packets())) == len(packets)
    assert state_of(watched) == state_of(plain)
    for packet in packets[:20]:
        assert watched.process(1, packet) == plain.process(1, packet)


def test_another_library_takes_over_the_same_state(engine: Callable[[str], Engine]) -> None:
    switch = engine("externs")
    switch.process(3, command(WRITE, 4, result=7))
    [trace] = traces(switch, command(READ, 4))
    [read] = of_kind(trace, Access)
    assert (read.operation, read.name, read.index, read.value.number) == ("read", "ingress.cells", 4, 7)
    traces(switch, command(WRITE, 5, result=8))
    assert switch.register("ingress.cells").read(4, 2) == [7, 8]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_ordinary_program_has_nothing_of_it(config: Callable[[str], bytes], name: str) -> None:
    program = read_program(config(name))
    ordinary, recording = translate(program), translate(program, traced=True)
    assert "trace" not in ordinary.lower()
    assert "TRACE(" in recording
    assert recording.count("struct state {") == ordinary.count("struct state {") == 1
    layouts = [
        text[text.index("struct metadata {") : text.index('#include "packet.h"')]
        for text in (ordinary, recording)
    ]
    assert layouts[0] == layouts[1]


# The parser


def test_the_parsers_way(engine: Callable[[str], Engine]) -> None:
    [trace] = traces(engine("externs"), command(EXTRA) + bytes(range(8)))
    way = [e for e in trace.events if isinstance(e, (State, Extract, Select, Parsed))]
    assert [type(event) for event in way] == [State, Extract, Select, State, Extract, Parsed]
    select = way[2]
    assert (select.case, select.next) == ("0x80 &&& 0x80", "extra")
    assert [(v.name, v.number) for v in select.key] == [("command.what", EXTRA)]
    assert [(v.name, v.number) for v in way[4].fields] == [("a", 0x00010203), ("b", 0x04050607)]
    assert way[5].error == "NoError"


def test_a_packet_that_is_too_short(engine: Callable[[str], Engine]) -> None:
    [trace] = traces(engine("externs"), command(EXTRA) + b"short")
    assert of_kind(trace, Parsed)[0].error == "PacketTooShort"
    assert of_kind(trace, State)[-1].name == "extra"
    assert "stops with error.PacketTooShort" in as_text(trace)


# Tables


def test_a_miss_runs_the_default_action(engine: Callable[[str], Engine]) -> None:
    [trace] = traces(engine("externs"), command(0x77))
    [lookup] = of_kind(trace, Lookup)
    assert (lookup.table, lookup.hit, lookup.entry) == ("ingress.commands", False, None)
    assert [(v.name, v.number) for v in lookup.key] == [("hdr.command.what", 0x77)]
    assert lookup.source.fragment.startswith("commands")
    assert "NoAction" in [run.name for run in of_kind(trace, ActionRun)]


def test_the_entry_that_matched(engine: Callable[[str], Engine]) -> None:
    switch = engine("tables")
    anything = Ternary(0, 0)
    switch.table("ingress.ternary_table").insert(
        Entry(EntryKey((anything, anything, Exact(0)), 5), ActionCall("ingress.answer_ternary", (1,))),
    )
    switch.table("ingress.ternary_table").insert(
        Entry(EntryKey((Ternary(0, 0xF), anything, Exact(0)), 9), ActionCall("ingress.answer_ternary", (2,))),
    )
    switch.table("ingress.optional_table").insert(
        Entry(EntryKey((Optional_(None), Optional_(0)), 1), ActionCall("ingress.answer_optional", (3,))),
    )
    widths = {key.name: key.width for key in switch.program.tables["ingress.range_table"].keys}
    full = Range(0, (1 << widths["hdr.probe.b"]) - 1)
    switch.table("ingress.range_table").insert(
        Entry(EntryKey((full, Exact(0), Range(0, 1), anything), 2), ActionCall("ingress.answer_range", (4,))),
    )
    [trace] = traces(switch, bytes(200))
    lookups = {event.table: event for event in of_kind(trace, Lookup)}
    ternary = lookups["ingress.ternary_table"].entry
    assert ternary.priority == 9
    assert ternary.match == {"hdr.probe.a": "0 &&& 0xf", "hdr.probe.b": "0 &&& 0x0", "hdr.probe.e": "0"}
    assert lookups["ingress.optional_table"].entry.match == {"hdr.probe.a": "any", "hdr.probe.c": "0"}
    assert lookups["ingress.range_table"].entry.match["hdr.probe.c"] == "0..1"
    assert not lookups["ingress.lpm_table"].hit
    arguments = {run.name: run.arguments for run in of_kind(trace, ActionRun)}
    assert [(v.name, v.number) for v in arguments["ingress.answer_ternary"]] == [("n", 2)]


def test_an_entry_that_is_gone_is_not_mistaken_for_another(engine: Callable[[str], Engine]) -> None:
    switch = engine("router")

    def route(prefix: int) -> Entry:
        return Entry(EntryKey((Lpm(prefix, 24),)), ActionCall("ingress.forward", (1, 2)))

    packet = bytes(Ether(src="02:00:00:00:00:02") / IP(src="10.0.0.1", dst="10.0.1.5") / UDP())
    switch.table("ingress.routes").insert(route(0x0A000100))
    with traced(switch) as tracer:
        switch.process(1, packet)
        switch.table("ingress.routes").delete(route(0x0A000100).key)
        switch.table("ingress.routes").insert(route(0x0A000200))
        [trace] = tracer.packets()
    [lookup] = [event for event in of_kind(trace, Lookup) if event.table == "ingress.routes"]
    assert (lookup.hit, lookup.entry) == (True, None)
    assert "removed since" in as_text(trace)


# State


def test_registers_counters_and_places_that_are_not_there(engine: Callable[[str], Engine]) -> None:
    write, beyond, count = traces(
        engine("externs"), command(WRITE, 9, result=6), command(WRITE, 10, result=6), command(COUNTED, 3)
    )
    assert [(e.operation, e.index, e.in_range, e.value.number) for e in of_kind(write, Access)] == [
        ("write", 9, True, 6)
    ]
    assert [(e.index, e.in_range, e.value) for e in of_kind(beyond, Access)] == [(10, False, None)]
    assert "write ingress.cells[10]: out of range, nothing happens" in as_text(beyond)
    assert [(e.operation, e.name, e.index) for e in of_kind(count, Access)] == [
        ("count", "ingress.counted", 3)
    ]


def test_a_direct_meters_colour(engine: Callable[[str], Engine]) -> None:
    switch = engine("entities")
    key = EntryKey((Exact(7),))
    switch.table("Receive.rates").insert(Entry(key, ActionCall("Receive.metered")))
    switch.table("Receive.rates").configure_meter(key, MeterConfig(1, 1, 1, 1))
    packet = bytes([0, 0, 7, 9, 0, 0])
    first, second = traces(switch, packet, packet)
    assert [e.value.number for t in (first, second) for e in of_kind(t, Access)] == [0, 2]


def test_what_a_direct_counter_has_counted_for_an_entry(engine: Callable[[str], Engine]) -> None:
    switch = engine("tables")
    packet = bytes(60)
    miss, again = traces(switch, packet, packet)
    assert of_kind(miss, DirectCount) == [DirectCount("ingress.hits", 1, 60)]
    assert of_kind(again, DirectCount) == [DirectCount("ingress.hits", 2, 120)]
    (lookup,) = (number for number, line in enumerate(as_text(again).splitlines()) if "exact_table" in line)
    assert as_text(again).splitlines()[lookup + 2] == "      count ingress.hits: 2 packets, 120 bytes"


def test_a_loop_over_registers_is_one_line_of_text_and_all_of_json() -> None:
    switch = Engine.load(aggregation(STRAIGHT, field("index", "at")))
    packet = struct.pack(f">II{COUNT}i{COUNT}B", 5, 0, *range(COUNT), *range(COUNT))
    [trace] = traces(switch, packet)
    reads = [e for e in of_kind(trace, Access) if e.operation == "read"]
    writes = [e for e in of_kind(trace, Access) if e.operation == "write"]
    assert [(e.name, e.index, e.value.number) for e in reads] == [(f"r{n}", 5, 0) for n in range(COUNT)]
    assert [(e.name, e.value.number) for e in writes] == [(f"r{n}", n) for n in range(COUNT)]
    text = as_text(trace)
    assert f"read r0..r{COUNT - 1}[5] = 0 ({COUNT} times)" in text
    assert f"write r0..r{COUNT - 1}[5] = [0, 1, 2, 3, … {COUNT - 1}]" in text
    told = [e for e in trace.document()["events"] if e["event"] == "Access"]
    assert len(told) == 2 * COUNT
    assert told[-1] == {
        "event": "Access",
        "copy": 0,
        "operation": "write",
        "name": f"r{COUNT - 1}",
        "index": 5,
        "in_range": True,
        "value": COUNT - 1,
        "source": None,
        "constant": "",
    }


def test_a_loop_over_registers_out_of_range() -> None:
    switch = Engine.load(aggregation(STRAIGHT, field("index", "at")))
    [trace] = traces(switch, struct.pack(f">II{COUNT}i{COUNT}B", 1000, 0, *range(COUNT), *range(COUNT)))
    assert {(e.index, e.in_range) for e in of_kind(trace, Access)} == {(1000, False)}
    assert f"write r0..r{COUNT - 1}[1000]: out of range, nothing happens" in as_text(trace)


@pytest.mark.slow
@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("width", "signed"), [(7, False), (12, True), (64, False), (100, False), (128, True)]
)
def test_values_of_any_width(width: int, signed: bool) -> None:
    fields = [["a", width, signed], ["rest", -width % 8, False]] if width % 8 else [["a", width, signed]]
    value = -2 if signed else (1 << width) - 3
    primitives = [assign(field("h", "a"), operation("+", field("h", "a"), number(1)))]
    switch = Engine.load(document({"h": fields}, primitives))
    raw = (value & ((1 << width) - 1)) << (-width % 8)
    [trace] = traces(switch, raw.to_bytes((width + 7) // 8, "big"))
    assert of_kind(trace, Extract)[0].fields[0].number == value
    assert of_kind(trace, Assign)[0].value.number == value + 1
    assert of_kind(trace, Deparse)[0].fields[0].number == value + 1


# The packet's fate


@pytest.fixture(scope="module")
def passes() -> Engine:
    """Clones, resubmission, recirculation, multicast."""
    switch = Engine.load(compile_once(STF / "passes.p4").device_config())
    switch.multicast.insert(7, (Replica(1, 3), Replica(4, 3)))
    switch.sessions.insert(5, (Replica(3, 0),))
    switch.sessions.insert(6, ())
    return switch


def test_an_output_says_its_port_and_bytes(engine: Callable[[str], Engine]) -> None:
    switch = engine("forwarder")
    packet = bytes(20)
    [trace] = traces(switch, packet, port=1)
    assert of_kind(trace, Output) == [Output(2, 0, packet, attached=True)]
    assert (trace.port, trace.packet) == (1, packet)
    assert as_text(trace).endswith("=> 1 packet out: port 2 (20 bytes)")
    conditions = of_kind(trace, Condition)
    assert [(c.text, c.outcome) for c in conditions] == [
        ("standard_metadata.ingress_port == 255", False),
        ("hdr.ethernet.destination == 0xffffffffffff", False),
    ]
    assert [(v.name, v.text) for v in conditions[1].values] == [("ethernet.destination", "00:00:00:00:00:00")]


@pytest.mark.parametrize(
    ("what", "wanted"),
    [
        (1, [("resubmit", 1, None)]),
        (3, [("clone", 5, 1)]),
        (4, [("recirculate", 1, None)] * 2),
        (7, [("clone", 99, 0)]),
    ],
)
def test_what_a_packet_asks_for(passes: Engine, what: int, wanted: list[tuple[str, int, int | None]]) -> None:
    [trace] = traces(passes, bytes([what, 0, 0]), port=1)
    assert [(r.what, r.number, r.copies) for r in of_kind(trace, Request)] == wanted


def test_each_pass_says_what_it_is(passes: Engine) -> None:
    [resubmitted] = traces(passes, bytes([1, 0, 0]), port=1)
    assert [e.instance for e in of_kind(resubmitted, Ingress)] == ["normal", "resubmitted"]
    [cloned] = traces(passes, bytes([5, 0, 0]), port=1)
    assert [(e.port, e.instance) for e in of_kind(cloned, Egress)] == [(2, "normal"), (3, "egress clone")]


def test_a_drop_names_its_line(passes: Engine) -> None:
    [trace] = traces(passes, bytes([7, 0, 0]), port=1)
    [drop] = of_kind(trace, Drop)
    line = (STF / "passes.p4").read_text().splitlines()[drop.source.line - 1]
    assert "mark_to_drop" in line
    assert as_text(trace).splitlines()[-1] == f"  => dropped: mark_to_drop  [passes.p4:{drop.source.line}]"


@pytest.mark.slow
def test_a_drop_tells_what_the_packet_has_left_in_registers() -> None:
    cells = [
        {"name": name, "id": at, "size": 2, "bitwidth": 8} for at, name in enumerate(("sum", "seen", "last"))
    ]
    drop = call("mark_to_drop", {"type": "header", "value": "standard_metadata"})

    def last_line(*names: str) -> str:
        writes = [
            call("register_write", {"type": "register_array", "value": n}, number(1), number(7))
            for n in names
        ]
        [trace] = traces(Engine.load(in_egress(document({}, [], register_arrays=cells), *writes, drop)), b"x")
        return as_text(trace).splitlines()[-1]

    assert last_line() == "  => dropped: mark_to_drop"
    assert last_line("sum") == "  => dropped after writing register sum: mark_to_drop"
    assert (
        last_line("sum", "sum", "seen") == "  => dropped after writing registers sum and seen: mark_to_drop"
    )
    assert last_line("sum", "seen", "last") == "  => dropped after writing 3 registers: mark_to_drop"


def test_a_drop_next_to_packets_that_leave_names_the_copy(passes: Engine) -> None:
    passes.sessions.insert(99, (Replica(9, 0),))
    [trace] = traces(passes, bytes([7, 0, 0]), port=1)
    [drop] = of_kind(trace, Drop)
    itself = f"the packet itself is dropped: mark_to_drop  [passes.p4:{drop.source.line}]"
    assert as_text(trace).splitlines()[-1] == f"  => 1 packet out: port 9 (10 bytes); {itself}"


def test_a_group_without_replicas_drops() -> None:
    group = [assign(field("standard_metadata", "mcast_grp"), number(7))]
    switch = Engine.load(document({"h": [["a", 8, False]]}, group))
    [trace] = traces(switch, b"a")
    assert of_kind(trace, Drop)[0].reason == "multicast group 7 has no replicas"


def test_a_copy_for_each_replica() -> None:
    group = [assign(field("standard_metadata", "mcast_grp"), number(7))]
    switch = Engine.load(document({"h": [["a", 8, False]]}, group))
    switch.multicast.insert(7, (Replica(1, 3), Replica(4, 5)))
    [trace] = traces(switch, b"a")
    assert [(out.port, out.replica) for out in of_kind(trace, Output)] == [(1, 3), (4, 5)]


def test_sending_to_the_drop_port_says_so() -> None:
    switch = Engine.load(document({"h": [["a", 8, False]]}, []))
    [trace] = traces(switch, b"a", port=511)
    assert of_kind(trace, Drop)[0].reason == "egress_spec is the drop port"


def test_a_failed_assertion_drops() -> None:
    claim = {
        "op": "assert",
        "parameters": [{"type": "expression", "value": operation("==", field("h", "a"), number(7))}],
    }
    switch = Engine.load(document({"h": [["a", 8, False]]}, [claim]))
    kept, failed = traces(switch, bytes([7]), bytes([8]))
    assert of_kind(kept, Drop) == []
    assert [drop.reason for drop in of_kind(failed, Drop)] == ["an assertion failed"]


def test_a_digest_and_a_value_set(engine: Callable[[str], Engine]) -> None:
    switch = engine("entities")
    switch.value_set("P.types").write([EntryKey((Exact(0x1234),))])
    known, unknown = traces(switch, bytes.fromhex("123400000000"), bytes.fromhex("123500000000"))
    assert [select.case for trace in (known, unknown) for select in of_kind(trace, Select)] == [
        f"value set {next(iter(switch.program.value_sets))}",
        "default",
    ]
    assert [request.what for request in of_kind(known, Request)] == ["digest"]
    assert of_kind(unknown, Request) == []


# Which packets, and how many


@pytest.mark.parametrize(
    ("conditions", "wanted"),
    [
        ("", [1, 2, 0x81]),
        ("command.what=2", [2]),
        ("hdr.command.what=0x81,port=3", [0x81]),
        ("port=4", []),
        ("command.value=0x1200/8", [2]),
        ("extra.b=1.2.3.4", [0x81]),
        ("extra.b=5", []),
    ],
)
def test_conditions_choose_packets(
    engine: Callable[[str], Engine], conditions: str, wanted: list[int]
) -> None:
    packets = [command(1), command(2, value=0x1234), command(0x81) + bytes([0, 0, 0, 0, 1, 2, 3, 4])]
    switch = engine("externs")
    found = traces(switch, *packets, conditions=conditions)
    assert [trace.packet[0] for trace in found] == wanted
    with traced(switch) as shared:
        shared.share()
        with followed(switch, conditions) as follower:
            for packet in packets:
                switch.process(3, packet)
            assert len(list(shared.packets())) == len(packets)
            assert [trace.packet[0] for trace in follower.packets()] == wanted


@pytest.mark.parametrize(
    ("conditions", "complaint"),
    [
        ("command.nothing=1", "command has what, index, value, result, signed_result"),
        ("nothing.at=1", "HEADER.FIELD of command, extra, other"),
        ("port", "FIELD=VALUE"),
        ("command.what=256", "the field has 8 bits"),
        ("command.what=x", "x is not a number"),
        (",".join(["port=1"] * 9), "at most 8 conditions"),
    ],
)
def test_conditions_that_cannot_be_checked(
    engine: Callable[[str], Engine], conditions: str, complaint: str
) -> None:
    with pytest.raises(ConditionError, match=complaint), traced(engine("externs"), conditions):
        pass


def test_one_trace_at_a_time(engine: Callable[[str], Engine]) -> None:
    switch = engine("externs")
    with traced(switch), pytest.raises(TraceError, match="already"), traced(switch):
        pass
    assert len(traces(switch, command(1))) == 1


def test_what_there_is_no_room_for_is_counted(engine: Callable[[str], Engine]) -> None:
    switch = engine("forwarder")
    packet = bytes(60000)
    with traced(switch) as tracer:
        for _ in range(600):
            switch.process(1, packet)
        found = list(tracer.packets())
        lost = tracer.lost
        assert len(found) + lost == 600
        assert lost > 0
        assert all(trace.packet == packet and of_kind(trace, Output) for trace in found)
        switch.process(1, bytes(20))
        [after] = tracer.packets()
    assert (len(after.packet), tracer.lost) == (20, lost)


# Form


def test_json_has_everything(passes: Engine, engine: Callable[[str], Engine]) -> None:
    for switch, packet in ((passes, bytes([2, 0, 0])), (engine("externs"), command(EXTRA) + bytes(8))):
        [trace] = traces(switch, packet)
        told = json.loads(json.dumps(trace.document()))
        assert told["packet"] == packet.hex()
        assert [event["event"] for event in told["events"]] == [type(e).__name__ for e in trace.events]


def test_an_entry_in_json(engine: Callable[[str], Engine]) -> None:
    [trace] = traces(engine("externs"), command(READ))
    [lookup] = [event for event in trace.document()["events"] if event["event"] == "Lookup"]
    assert lookup["entry"] == {
        "index": lookup["entry"]["index"],
        "match": {"hdr.command.what": "1"},
        "priority": None,
    }
    assert isinstance(of_kind(trace, Lookup)[0].entry, HitEntry)


def test_a_series_of_several_objects_is_named_by_what_differs() -> None:
    events = [Access("read", f"MyIngress.adder{number}.sums", 5, True, None, None) for number in range(4)]
    text = as_text(PacketTrace(0, 0, b"", events, [Copy(None, "arrival")], [0] * 4))
    assert "read MyIngress.adder0.sums..adder3.sums[5], 4 times" in text


def test_a_parameter_that_several_constants_are_given_for_is_no_name_of_theirs(tmp_path: Path) -> None:
    (tmp_path / "program.p4").write_text(
        """
        #include <v1model.p4>
        const bit<8> LOW = 0;
        const bit<8> HIGH = 9;
        header one_t { bit<8> kind; bit<8> way; }
        struct headers_t { one_t one; }
        struct meta_t { bit<8> way; }
        parser read(packet_in p, out headers_t hdr, inout meta_t m, inout standard_metadata_t s) {
            state start { p.extract(hdr.one); transition accept; }
        }
        control none(inout headers_t hdr, inout meta_t m) { apply {} }
        control ingress(inout headers_t hdr, inout meta_t m, inout standard_metadata_t s) {
            action serve(bit<8> kind) { hdr.one.kind = kind; }
            action go() { hdr.one.way = HIGH; s.egress_spec = 1; }
            apply { if (s.ingress_port == 1) { serve(LOW); } else { serve(HIGH); } go(); }
        }
        control egress(inout headers_t hdr, inout meta_t m, inout standard_metadata_t s) { apply {} }
        control write(packet_out p, in headers_t hdr) { apply { p.emit(hdr); } }
        V1Switch(read(), none(), ingress(), egress(), none(), write()) main;
        """
    )
    switch = Engine.load(compile_once(tmp_path / "program.p4").device_config())
    [trace] = traces(switch, bytes([9, 9]))
    text = as_text(trace)
    assert "one.way = 9 HIGH" in text or "way=9 HIGH" in text, text
    assert "9 kind" not in text, text


# Packets without end


@pytest.mark.slow
def test_an_endless_packet_has_a_bounded_text_that_names_the_cause(tmp_path: Path) -> None:
    endless = tmp_path / "endless.p4"
    endless.write_text((STF / "passes.p4").read_text().replace(" && hdr.work.passes < 3", ""))
    [trace] = traces(Engine.load(compile_once(endless).device_config()), bytes([4, 0, 0]), port=1)
    lines = as_text(trace).splitlines()
    [left_out] = (line for line in lines if "left out" in line)
    assert re.fullmatch(r"  … \d+,\d{3} lines are left out here …", left_out)
    assert len(lines) < 600
    at = next(n for n, line in enumerate(endless.read_text().splitlines(), 1) if "recirculate_" in line)
    assert lines[-1].endswith(f"too often: it is recirculated each time  [endless.p4:{at}]")


def test_the_last_line_names_a_bounded_number_of_packets() -> None:
    events = [Output(port, 0, b"x", True) for port in range(1000)]
    text = as_text(PacketTrace(0, 0, b"", events, [Copy(None, "arrival")], [0] * 1000))
    assert text.endswith("port 15 (1 bytes) and 984 more")
