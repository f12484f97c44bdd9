"""The requests of a program or a packet have bounds: sizes when the program is loaded, all else as it runs.

test_sanitizers.py runs this module with the sanitizers in the process, where reaching outside memory ends it.
"""

from __future__ import annotations

import random
import struct
import zlib
from typing import Any

import pytest

from fanin.p4switch.bmv2json.program import ProgramError
from fanin.p4switch.codegen.translate import translate
from fanin.p4switch.engine.engine import LONGEST_PACKET, Engine
from fanin.p4switch.engine.library import Drops
from fanin.p4switch.entries import (
    ActionCall,
    Entry,
    EntryKey,
    Exact,
    Replica,
    TableError,
    TableErrorCode,
)
from fanin.p4switch.reader import read_program
from tests.p4switch.documents import (
    assign,
    call,
    changed,
    document,
    extract,
    field,
    header,
    in_egress,
    number,
    operation,
    parser,
)

pytestmark = pytest.mark.slow

SEND_BACK = assign(field("standard_metadata", "egress_spec"), field("standard_metadata", "ingress_port"))
FIELD_LISTS = [{"id": 1, "name": "nothing", "elements": []}]

# As it runs: packets that grow, and packets that never end


def growing(*requests: dict[str, Any]) -> bytes:
    """Puts 1,000 bytes in front of each packet, and then what is requested happens to it."""
    return document(
        {"flag": [["f", 8, False]], "added": [["bytes", 8000, False]]},
        [call("add_header", header("added")), *requests],
        **parser(extract("flag")),
        field_lists=FIELD_LISTS,
    )


def test_a_packet_that_grows_for_ever_is_dropped_and_counted() -> None:
    engine = Engine.load(growing(call("recirculate", number(1))))
    assert engine.process(1, bytes(60)) == []
    assert engine.drops().too_long == 1
    assert engine.process(1, bytes(LONGEST_PACKET)) == []
    assert engine.drops().too_long == 2


def test_a_packet_that_grows_beyond_the_longest_does_not_leave() -> None:
    engine = Engine.load(growing())
    ((_, whole),) = engine.process(1, bytes(LONGEST_PACKET - 1000))
    assert len(whole) == LONGEST_PACKET
    assert engine.process(1, bytes(LONGEST_PACKET - 999)) == []
    assert engine.drops().too_long == 1


def test_a_packet_that_was_cut_may_grow() -> None:
    engine = Engine.load(growing(call("truncate", number(80))))
    ((_, whole),) = engine.process(1, bytes(LONGEST_PACKET))
    assert len(whole) == 80
    assert engine.drops().too_long == 0


@pytest.mark.parametrize("clone", ["clone_ingress_pkt_to_egress", "clone_egress_pkt_to_egress"])
def test_clones_of_a_packet_that_grows_end_with_it(clone: str) -> None:
    request = call(clone, number(5), number(1))
    again = call("recirculate", number(1))
    program = growing(again, request) if "ingress" in clone else in_egress(growing(again), request)
    engine = Engine.load(program)
    engine.sessions.insert(5, (Replica(7, 1), Replica(8, 2)))
    copies = engine.process(1, bytes(60))
    assert all(len(packet) <= LONGEST_PACKET for _, packet in copies)
    assert engine.drops() != Drops()


def test_a_packet_that_is_resubmitted_for_ever_is_dropped_and_counted() -> None:
    engine = Engine.load(growing(call("resubmit", number(1))))
    assert engine.process(1, bytes(60)) == []
    assert engine.drops() == Drops(too_often=1)


def test_replicas_count_as_passes() -> None:
    """Recirculation that multiplies: without a common bound each of thousands would become a hundred again."""
    multicast = assign(field("standard_metadata", "mcast_grp"), number(1))
    program = document({"h": [["a", 8, False]]}, [multicast], field_lists=FIELD_LISTS)
    config = in_egress(program, call("recirculate", number(1)))
    engine = Engine.load(config)
    engine.multicast.insert(1, tuple(Replica(n, n) for n in range(100)))
    assert engine.process(1, b"x") == []
    assert 0 < engine.drops().too_often < 10_000


def test_what_waits_for_its_next_pass_has_a_bound_of_memory() -> None:
    """A thousand clones of the longest packet would be 65 MB."""
    once = call(
        "_jump_if_zero", operation("==", field("standard_metadata", "instance_type"), number(0)), number(2)
    )
    clone = call("clone_egress_pkt_to_egress", number(5), number(1))
    engine = Engine.load(in_egress(growing(), once, clone))
    engine.sessions.insert(5, tuple(Replica(n % 512, n) for n in range(1000)))
    few = len(engine.process(1, bytes(LONGEST_PACKET - 1000)))
    assert 100 < few < 1001
    assert engine.drops() == Drops(no_room=1001 - few)
    assert len(engine.process(1, bytes(60))) == 1001


@pytest.mark.parametrize("sessions", [False, True])
def test_a_group_has_at_most_4096_replicas(sessions: bool) -> None:
    engine = Engine.load(growing())
    insert = (engine.sessions if sessions else engine.multicast).insert
    insert(1, (Replica(1, 1),) * 4096)
    with pytest.raises(TableError, match="4097 replicas: a group has at most 4096") as caught:
        insert(2, (Replica(1, 1),) * 4097)
    assert caught.value.code == TableErrorCode.RESOURCE_EXHAUSTED


def jumping(offset: int, *before: dict[str, Any]) -> bytes:
    """h.a = h.a - 1; as long as it is not 0, once more from the statement number `offset` on."""
    count_down = assign(field("h", "a"), operation("-", field("h", "a"), number(1)))
    more = operation("b2d", None, operation("==", field("h", "a"), number(0)))
    return document(
        {"h": [["a", 32, False]]}, [*before, count_down, call("_jump_if_zero", more, number(offset))]
    )


def test_a_loop_of_jumps_runs_to_its_end() -> None:
    engine = Engine.load(jumping(0))
    assert engine.process(1, struct.pack(">I", 1000)) == [(1, bytes(4))]
    assert engine.drops() == Drops()


def test_a_loop_of_jumps_without_end_is_left_and_its_packet_dropped() -> None:
    engine = Engine.load(jumping(0))
    assert engine.process(1, bytes(4)) == []  # 2^32 rounds
    assert engine.drops() == Drops(too_many_jumps=1)
    engine = Engine.load(jumping(0, call("_jump", number(0))))
    assert engine.process(1, bytes(4)) == []
    assert engine.drops() == Drops(too_many_jumps=1)


# As it runs: headers and the ends of packets


AHEAD: dict[str, Any] = {"type": "lookahead", "value": [0, 64]}
IS_ONES = operation("==", AHEAD, number((1 << 64) - 1))


@pytest.mark.parametrize(
    "operations",
    [
        [call("verify", {"type": "expression", "value": IS_ONES}, number(7))],
        [call("advance", {"type": "expression", "value": operation("&", AHEAD, number(0))})],
        [
            call(
                "primitive",
                assign(field("meta", "m"), operation("+", AHEAD, number(0))),
            )
        ],
    ],
)
def test_looking_ahead_beyond_the_end_is_a_packet_too_short(operations: list[Any]) -> None:
    """Wherever the lookahead stands: in verify(), in an amount, in a call."""
    config = document(
        {"h": [["a", 8, False]], "out": [["e", 32, False]]},
        [
            call("add_header", header("out")),
            assign(field("out", "e"), field("standard_metadata", "parser_error")),
        ],
        metadata=[["m", 64, False]],
        **parser(extract("h"), *operations),
    )
    engine = Engine.load(config)
    engine.process(1, b"\xff" * LONGEST_PACKET)
    ((_, left),) = engine.process(1, b"\xff" * 8)
    assert left[:5] == b"\xff" + struct.pack(">I", 1)  # PacketTooShort


def test_the_length_of_a_varbit_may_be_looked_ahead_for() -> None:
    def varying(parsed: Any) -> None:
        parsed["header_types"][3].update(fields=[["v", "*"]], max_length=200)

    length = {"type": "expression", "value": operation("&", AHEAD, number(0xF8))}
    config = changed(
        document(
            {"h": [["a", 8, False]], "v": [["v", 8, False]], "out": [["e", 32, False]]},
            [
                call("add_header", header("out")),
                assign(field("out", "e"), field("standard_metadata", "parser_error")),
            ],
            **parser(extract("h"), call("extract_VL", {"type": "regular", "value": "v"}, length)),
        ),
        varying,
    )
    engine = Engine.load(config)
    engine.process(1, b"\xff" * LONGEST_PACKET)
    ((_, left),) = engine.process(1, b"\xff" * 8)
    assert left[-11:-7] == struct.pack(">I", 1)


def test_fields_of_no_bits_are_zero() -> None:
    """Read, written, hashed and sent as digests, at the very end of a header."""
    calculation = {"name": "c", "id": 0, "algo": "identity", "input": []}
    calculation["input"] = [{"type": "field", "value": ["h", name]} for name in ("none", "a", "none")]
    config = document(
        {"h": [["a", 8, False], ["none", 0, False]]},
        [
            assign(field("meta", "m"), operation("+", field("h", "none"), field("h", "a"))),
            assign(field("h", "none"), field("h", "a")),
            call("register_read", field("h", "none"), {"type": "register_array", "value": "r"}, number(0)),
            call(
                "modify_field_with_hash_based_offset",
                field("h", "none"),
                number(0),
                {"type": "calculation", "value": "c"},
                number(0),
            ),
            assign(field("h", "a"), operation("+", field("meta", "m"), number(1))),
        ],
        metadata=[["m", 8, False]],
        register_arrays=[{"name": "r", "id": 0, "size": 4, "bitwidth": 8}],
        calculations=[calculation],
    )
    assert Engine.load(config).process(1, b"\x06") == [(1, b"\x07")]


def test_metadata_of_no_bits_are_zero() -> None:
    """Kept for a further pass, computed with in a loop of statements, and looked at in an egress that is replayed."""
    none, count = field("meta", "none"), field("meta", "count")
    config = document(
        {"h": [["a", 8, False]]},
        [
            *[assign(none, operation("+", none, field("h", "a")))] * 5,
            assign(field("h", "a"), operation("+", none, number(7))),
            call("_jump_if_zero", operation("==", count, number(0)), number(9)),
            assign(count, number(1)),
            call("resubmit", number(1)),
        ],
        metadata=[["none", 0, False], ["count", 8, False]],
        field_lists=[{"id": 1, "name": "kept", "elements": [none, count]}],
    )
    assert Engine.load(config).process(0, b"\x06") == [(0, b"\x07")]
    replayed = in_egress(
        document({"h": [["a", 8, False]]}, [], metadata=[["none", 0, False]]),
        assign(field("h", "a"), operation("+", none, number(1))),
    )
    assert Engine.load(replayed).process(1, b"\x06") == [(1, b"\x01")]


@pytest.mark.parametrize("others", [[], ["wide"], ["word"], ["wide", "word"]])
def test_a_key_of_no_bits_is_equal_to_itself(others: list[str]) -> None:
    """Alone, behind a key that takes words of its own, and behind a word that is full."""
    names = [*others, "none"]
    config = document(
        {"h": [["a", 8, False], ["wide", 128, False], ["word", 64, False], ["none", 0, False]]},
        [assign(field("h", "a"), number(9))],
    )

    def change(parsed: Any) -> None:
        parsed["actions"].append({"name": "nothing", "id": 1, "runtime_data": [], "primitives": [SEND_BACK]})
        key = [{"match_type": "exact", "target": ["h", name], "mask": None} for name in names]
        default = {"action_id": 1, "action_data": [], "action_const": False, "action_entry_const": False}
        parsed["pipelines"][0]["tables"][0].update(
            key=key, default_entry=default, action_ids=[0, 1], actions=["act", "nothing"], next_tables={}
        )

    engine = Engine.load(changed(config, change))
    packet = bytes(25)
    assert engine.process(1, packet) == [(1, packet)]
    engine.table("call").insert(Entry(EntryKey((Exact(0),) * len(names)), ActionCall("act")))
    assert engine.process(1, packet) == [(1, b"\x09" + packet[1:])]


@pytest.mark.parametrize("width", [65, 128, 130, 200])
def test_constants_of_any_width_are_hashed(width: int) -> None:
    value = (0x9F << width - 8) | 0x77
    config = document(
        {"h": [["a", 64, False]]},
        [
            call(
                "modify_field_with_hash_based_offset",
                field("h", "a"),
                number(0),
                {"type": "calculation", "value": "c"},
                number(0),
            )
        ],
        calculations=[
            {
                "name": "c",
                "id": 0,
                "algo": "identity",
                "input": [{"type": "hexstr", "value": hex(value), "bitwidth": width}],
            }
        ],
    ).replace(b'"identity"', b'"xor32"')
    padded = value << -width % 8
    data = padded.to_bytes((width + 7) // 8, "big")
    data += bytes(-len(data) % 4)
    expected = 0
    for at in range(0, len(data), 4):
        expected ^= int.from_bytes(data[at : at + 4], "big")
    engine = Engine.load(
        changed(
            config, lambda d: d["actions"][0]["primitives"][0]["parameters"].__setitem__(3, number(1 << 32))
        )
    )
    ((_, left),) = engine.process(1, bytes(8))
    assert int.from_bytes(left, "big") == expected


def test_there_is_room_to_hash_a_header_and_the_longest_payload() -> None:
    inputs = [{"type": "header", "value": "h"}, {"type": "payload"}]
    config = document(
        {"h": [["all", 8 * 1000, False]], "out": [["sum", 32, False]]},
        [
            call("add_header", header("out")),
            call(
                "modify_field_with_hash_based_offset",
                field("out", "sum"),
                number(0),
                {"type": "calculation", "value": "c"},
                number(1 << 32),
            ),
        ],
        **parser(extract("h")),
        calculations=[{"name": "c", "id": 0, "algo": "crc32", "input": inputs}],
        deparsers=[{"name": "deparser", "id": 0, "order": ["out"]}],
    )
    packet = random.Random(1).randbytes(LONGEST_PACKET)
    ((_, left),) = Engine.load(config).process(1, packet)
    assert left == struct.pack(">I", zlib.crc32(packet)) + packet[1000:]


# When the program is loaded

BYTES = [["a", 32, False], ["b", 32, False]]
TWO = {"long": [["a", 8000, False]], "short": [["a", 8, False]]}
TWINS = {"one": [["a", 8, False], ["b", 24, False]], "two": [["c", 8, False], ["d", 24, False]]}


def calculation(
    inputs: list[dict[str, Any]], config: bytes = document({"h": [["a", 4096, False]]}, [])
) -> bytes:
    return changed(
        config, lambda d: d.update(calculations=[{"name": "c", "id": 0, "algo": "crc32", "input": inputs}])
    )


def fields_of(name: str, kind: str = "field") -> dict[str, Any]:
    return {"type": kind, "value": ["h", "a"] if kind == "field" else name}


def stacks(elements: dict[str, list[list[Any]]], *calls: dict[str, Any], **sections: Any) -> bytes:
    return document(elements, list(calls), **parser(), **sections)


def stack(name: str, ids: list[int]) -> dict[str, Any]:
    return {"name": name, "id": 0, "size": len(ids), "header_type": "", "header_ids": ids}


KEY = {"name": "call", "id": 0, "match_type": "exact"}
TOO_LARGE = {
    "calculation c: its input: 66048 bytes, at most 65600": calculation([fields_of("h")] * 129),
    "calculation c: its input: 66560 bytes": calculation([fields_of("h", "header")] * 130),
    "calculation c: its input: 67584 bytes": calculation(
        [{"type": "hexstr", "value": "0x0", "bitwidth": 1 << 13}] * 66
    ),
    "calculation c: meta is metadata": calculation([fields_of("meta", "header")]),
    "digest d: its fields: 66048 bytes": document(
        {"h": [["a", 4096, False]]},
        [call("generate_digest", number(1), number(1))],
        learn_lists=[{"id": 1, "name": "d", "elements": [field("h", "a")] * 129}],
    ),
    "header type h_t: 65536 bytes": document(
        {"h": [["a", 8, False]] + [[f"f{n}", 1 << 13, False] for n in range(64)]}, []
    ).replace(b'["a", 8', b'["a", 0'),
    "the program's headers: 1049600 bytes together": document(
        {f"h{n}": [["a", 1 << 13, False]] for n in range(1025)}, []
    ),
    "the program's metadata: 66088 bytes, at most 65536": document(
        {"h": BYTES}, [], metadata=[[f"m{n}", 1 << 13, False] for n in range(32)]
    ),
    "deparser deparser: its headers: 1049600 bytes together": document(
        {"h": [["a", 1 << 13, False]]}, [], deparsers=[{"name": "deparser", "id": 0, "order": ["h"] * 1025}]
    ),
    "action act: its parameters: 81920 bits together": changed(
        document({"h": BYTES}, []),
        lambda d: d["actions"].append(
            {
                "name": "act",
                "id": 7,
                "runtime_data": [{"name": str(n), "bitwidth": 1 << 13} for n in range(10)],
                "primitives": [],
            }
        ),
    ),
    "table call: its keys: 81920 bits": changed(
        document({"h": [[name, 1 << 13, False] for name in "abcdefghij"]}, []),
        lambda d: d["pipelines"][0]["tables"][0].update(
            key=[{"match_type": "exact", "target": ["h", f], "mask": None} for f in "abcdefghij"],
            default_entry=None,
        ),
    ),
    "register r: 4294967295 cells of 8 bytes": document(
        {"h": BYTES}, [], register_arrays=[{"name": "r", "id": 0, "size": 2**32 - 1, "bitwidth": 64}]
    ),
    "bitwidth of 'r' is 4294967295": document(
        {"h": BYTES}, [], register_arrays=[{"name": "r", "id": 0, "size": 1, "bitwidth": 2**32 - 1}]
    ),
    "counter c: 4294967295 cells": document(
        {"h": BYTES}, [], counter_arrays=[{"name": "c", "id": 0, "size": 2**32 - 1, "is_direct": False}]
    ),
    "meter m: 4294967295 cells": document(
        {"h": BYTES},
        [],
        meter_arrays=[
            {"name": "m", "id": 0, "size": 2**32 - 1, "is_direct": False, "type": "bytes", "rate_count": 2}
        ],
    ),
    "parser state start: a lookahead of 8 bits at 524801": document(
        {"h": BYTES}, [], **parser(call("set", field("h", "a"), {"type": "lookahead", "value": [524801, 8]}))
    ),
    "action act: a jump to -1": document({"h": BYTES}, [call("_jump", number(-1))]),
    "action act: a jump to 9, of 2 primitives": document({"h": BYTES}, [call("_jump", number(9))]),
    "parser state start: a jump outside an action": document(
        {"h": BYTES}, [], **parser(call("primitive", call("_jump", number(0))))
    ),
}
UNLIKE = {
    "action act: headers long and short differ in their fields": document(
        TWO, [call("assign_header", header("long"), header("short"))]
    ),
    "action act: headers short and long differ in their fields": document(
        TWO, [call("copy_header", header("short"), header("long"))]
    ),
    "action act: headers long and short differ in their fields, too": document(
        TWO,
        [
            assign(
                field("short", "a"), operation("b2d", None, operation("==", header("long"), header("short")))
            )
        ],
    ),
    "header stack s: its elements long and short differ in their fields": stacks(
        TWO, header_stacks=[stack("s", [2, 3])]
    ),
    "header union stack s: its elements have different members": stacks(
        {f"h{n}": [["a", 8, False]] for n in range(3)},
        header_unions=[
            {"name": "u0", "id": 0, "header_ids": [2, 3]},
            {"name": "u1", "id": 1, "header_ids": [4]},
        ],
        header_union_stacks=[{"name": "s", "id": 0, "header_union_ids": [0, 1]}],
    ),
    "action act: stacks s and t differ in their elements": stacks(
        {f"h{n}": [["a", 8, False]] for n in range(8)},
        call(
            "assign_header_stack",
            {"type": "header_stack", "value": "s"},
            {"type": "header_stack", "value": "t"},
        ),
        header_stacks=[stack("t", [2, 3, 4, 5])],
        header_unions=[
            {"name": "u0", "id": 0, "header_ids": [6, 7]},
            {"name": "u1", "id": 1, "header_ids": [8, 9]},
        ],
        header_union_stacks=[{"name": "s", "id": 1, "header_union_ids": [0, 1]}],
    ),
}
REFUSED = TOO_LARGE | UNLIKE


@pytest.mark.parametrize("message", REFUSED)
def test_refused_when_the_program_is_loaded(message: str) -> None:
    with pytest.raises(ProgramError) as caught:
        translate(read_program(REFUSED[message]))
    assert message.removesuffix(", too") in str(caught.value)


def test_headers_whose_fields_are_alike_are_assigned() -> None:
    """Their types may have other names: a generic header is a type for each of its arguments."""
    engine = Engine.load(document(TWINS, [call("assign_header", header("one"), header("two"))]))
    assert engine.process(1, bytes(range(8))) == [(1, bytes([4, 5, 6, 7, 4, 5, 6, 7]))]
