"""Replicas of a superframe's packets: whatever egress does, replayed or not they are what they would be alone."""

from __future__ import annotations

import ctypes
import struct
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fanin.p4compiler import compile_file
from fanin.p4switch.codegen.names import RUNTIME
from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.entries import ActionCall, Entry, EntryKey, Exact, Replica
from tests.sizes import sized

pytestmark = pytest.mark.slow

PROGRAM = """
#include <core.p4>
#include <v1model.p4>
header first_t { bit<8> group; bit<8> kind; bit<16> number; bit<32> address; bit<16> sum; bit<4> high; bit<4> low; }
header second_t { bit<8> more; bit<32> address; }
struct headers_t { first_t first; second_t second; second_t absent; }
struct metadata_t { bit<8> kind; bit<16> copy; bit<128> wide; }
parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.first);
        transition select(hdr.first.kind) { 9: accept; default: more; }
    }
    state more { packet.extract(hdr.second); transition accept; }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply {} }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        meta.kind = hdr.first.kind;
        meta.wide = (bit<128>)hdr.first.kind;
        standard.mcast_grp = (bit<16>)hdr.first.group;
        INGRESS
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    register<bit<32>>(4) passed;
    counter(8, CounterType.packets_and_bytes) ports;
    direct_counter(CounterType.packets) hits;
    action rewrite(bit<32> address) { hdr.first.address = address; }
    action number(bit<32> address) {
        bit<32> n;
        passed.read(n, 1);
        passed.write(1, n + 1);
        hdr.first.address = address + n;
    }
    action leave_out() { mark_to_drop(standard); }
    table receivers {
        key = { meta.kind: exact; standard.egress_rid: exact; }
        actions = { rewrite; number; leave_out; NoAction; }
        COUNTED
        default_action = NoAction();
    }
    apply { receivers.apply(); EGRESS }
}
control C(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(CONDITION, { hdr.first.number, hdr.first.address }, hdr.first.sum, HashAlgorithm.csum16);
    }
}
control D(packet_out packet, in headers_t hdr) {
    apply { DEPARSED packet.emit(hdr.absent); }
}
V1Switch(P(), V(), I(), E(), C(), D()) main;
"""
EGRESS = {
    "a table": "",
    "what it looks at": "if (hdr.second.more == 1) { hdr.first.address = 7; }",
    "part of a byte": "hdr.first.low = (bit<4>)standard.egress_rid; if (hdr.first.number == 3) { hdr.first.low = 0; }",
    "a read before a write": "hdr.first.address = hdr.first.address + (bit<32>)standard.egress_rid;",
    "wide metadata": "if (meta.wide == 2) { hdr.first.address = 9; }",
    "a counter": "ports.count((bit<32>)standard.egress_port);",
    "many counters": "\n".join(f"ports.count({i % 8});" for i in range(6)),
    "a header that is not there": "hdr.absent.address = 5; hdr.first.address = hdr.absent.address;",
    "a header that comes": "hdr.absent.setValid(); hdr.absent.address = (bit<32>)standard.egress_rid;",
    "a register": "passed.write(0, (bit<32>)meta.kind);",
    "its length": "if (standard.packet_length > 100) { hdr.first.address = standard.packet_length; }",
    "fewer bytes": "if (standard.egress_rid == 2) { truncate(7); }",
    "the time": "hdr.first.address = (bit<32>)standard.egress_global_timestamp;",
}
REPLICAS = (Replica(1, 1), Replica(2, 2), Replica(2, 3), Replica(3, 4))
KINDS = (1, 2, 9)
Sent = list[tuple[int, bytes]]
Process = Callable[[Engine, int, Sequence[bytes]], Sent]


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Process:
    library = tmp_path_factory.mktemp("replay") / "replay.so"
    source = Path(__file__).with_name("replay_harness.c")
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]
    subprocess.run(["cc", *flags, "-I", str(RUNTIME), "-o", str(library), str(source)], check=True)
    function = ctypes.CDLL(str(library)).process_all
    function.restype = ctypes.c_uint64
    room = ctypes.create_string_buffer(1 << 20)

    def process(switch: Engine, superframe: int, packets: Sequence[bytes]) -> Sent:
        base, number = ctypes.c_void_p(switch.base), ctypes.c_uint64(superframe)
        lengths = (ctypes.c_uint32 * len(packets))(*map(len, packets))
        used = function(base, number, b"".join(packets), lengths, len(packets), room)
        left: Sent = []
        at = 0
        while at < used:
            port, length = struct.unpack_from("=II", room, at)
            left.append((port, ctypes.string_at(ctypes.addressof(room) + at + 8, length)))
            at += 8 + length
        return left

    return process


def program(folder: Path, egress: str, **parts: str) -> Engine:
    """`parts`: what stands in the program's other places instead of the usual."""
    usual = {
        "ingress": "",
        "counted": "",
        "condition": "true",
        "deparsed": "packet.emit(hdr.first); packet.emit(hdr.second);",
    }
    text = PROGRAM.replace("EGRESS", egress)
    for place, part in (usual | parts).items():
        text = text.replace(place.upper(), part)
    source = folder / "replayed.p4"
    source.write_text(text)
    return Engine.load(compile_file(source).device_config())


def receiver(kind: int, rid: int, action: str, *arguments: int) -> Entry:
    return Entry(EntryKey((Exact(kind), Exact(rid))), ActionCall(action, arguments))


def fill(switch: Engine, actions: Sequence[str]) -> Engine:
    """Entries for every kind and replica, their actions in turn, and a group of all replicas and one of two."""
    switch.multicast.insert(1, REPLICAS)
    switch.multicast.insert(2, REPLICAS[1:3])
    places = [(kind, replica.instance) for kind in KINDS for replica in REPLICAS]
    for number, (kind, rid) in enumerate(places):
        action = actions[number % len(actions)]
        arguments = () if action in ("E.leave_out", "NoAction") else (0x0A000000 + number,)
        switch.table("E.receivers").insert(receiver(kind, rid, action, *arguments))
    return switch


def packet(
    group: int = 1,
    kind: int = 1,
    number: int = 0,
    address: int = 0,
    low: int = 0,
    more: int = 0,
    length: int = 160,
) -> bytes:
    head = struct.pack(">BBHIHB", group, kind, number, address, 0xBEEF, low) + bytes([more])
    return head + bytes((number + i) & 0xFF for i in range(length - len(head)))


VARIANTS = [
    *(
        packet(),
        packet(),
        packet(group=2),
        packet(kind=2),
        packet(kind=9),
        packet(number=3),
        packet(address=7),
    ),
    *(packet(low=0x11), packet(more=1), packet(number=3, more=1), packet(length=150), packet(length=60)),
]
packets = st.lists(st.sampled_from(VARIANTS), min_size=4, max_size=16)


def assert_as_if_alone(process: Process, switch: Engine, actions: Sequence[str], sent: list[bytes]) -> None:
    """Bytes, ports, order, counters and registers."""
    together, alone = fill(switch.new_instance(), actions), fill(switch.new_instance(), actions)
    half = len(sent) // 2
    left = process(together, 1, sent[:half]) + process(together, 2, sent[half:])
    assert left == process(alone, 0, sent)
    assert together.counter("E.ports").read_all() == alone.counter("E.ports").read_all()
    assert together.register("E.passed").read() == alone.register("E.passed").read()
    if together.program.tables["E.receivers"].with_counters:
        for entry in alone.table("E.receivers").entries():
            wanted = alone.table("E.receivers").counter(entry.key)
            assert together.table("E.receivers").counter(entry.key) == wanted


@pytest.mark.few(6)
@pytest.mark.parametrize("egress", EGRESS.values(), ids=EGRESS)
def test_as_if_alone(process: Process, tmp_path: Path, egress: str) -> None:
    switch = program(tmp_path, egress)

    @settings(max_examples=sized(33, 100))
    @given(
        packets, st.lists(st.sampled_from(["E.rewrite", "E.number", "E.leave_out", "NoAction"]), min_size=1)
    )
    def law(sent: list[bytes], actions: list[str]) -> None:
        assert_as_if_alone(process, switch, actions, sent)

    law()


@pytest.mark.few(5)
@pytest.mark.parametrize(
    "parts",
    [
        {"counted": "counters = hits;"},
        {"condition": "hdr.first.address == 0x0A000001"},
        {"condition": "meta.kind == 1"},
        {"condition": "hdr.first.sum == 0xBEEF"},  # which the update of one replica changes
        {"ingress": "hdr.absent.setValid(); hdr.absent.more = 4;"},
        {"ingress": "if (hdr.first.number == 3) { hdr.absent.more = 3; }"},
        {"deparsed": "packet.emit(hdr.second); packet.emit(hdr.first);"},
        {"ingress": "truncate(120);"},
        {"ingress": "standard.packet_length = 5;"},
        {"ingress": "meta.kind = 1;"},
    ],
    ids=str,
)
def test_around_egress(process: Process, tmp_path: Path, parts: dict[str, str]) -> None:
    """Direct counters, checksums that only some replicas have, headers that are written to but not there, or move."""
    switch = program(
        tmp_path,
        "if (hdr.absent.more == 3 || standard.packet_length == 150 || !hdr.second.isValid()) { hdr.first.low = 1; }",
        **parts,
    )

    @settings(max_examples=sized(33, 100))
    @given(packets, st.lists(st.sampled_from(["E.rewrite", "E.leave_out"]), min_size=1))
    def law(sent: list[bytes], actions: list[str]) -> None:
        assert_as_if_alone(process, switch, actions, sent)

    law()


def test_an_update_that_looks_at_what_egress_sets(process: Process, tmp_path: Path) -> None:
    """Metadata are not replayed."""
    egress = "if (standard.egress_rid == 2) { meta.copy = 1; } else { meta.copy = 0; }"
    switch = program(tmp_path, egress, condition="meta.copy == 1")
    assert_as_if_alone(process, switch, ["E.rewrite"], [packet()] * 8)


def test_a_checksum_that_egress_writes_and_some_replicas_update(process: Process, tmp_path: Path) -> None:
    """The update of one replica does not stay in the next, for which egress wrote the same."""
    egress = "hdr.first.sum = 3; hdr.second.more = (bit<8>)standard.egress_rid;"
    switch = program(tmp_path, egress, condition="hdr.second.more == 1")
    assert_as_if_alone(process, switch, ["NoAction"], [packet()] * 8)


@pytest.mark.parametrize("condition", ["meta.kind == 1", "hdr.first.sum == 0xBEEF"])
def test_conditions_of_updates_are_replayed(process: Process, tmp_path: Path, condition: str) -> None:
    switch = fill(program(tmp_path, "", condition=condition), ["E.rewrite"])
    before = process(switch, 1, [packet()])
    switch.table("E.receivers").modify(receiver(1, 1, "E.rewrite", 0x0B000000))
    assert process(switch, 1, [packet()]) == before


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("egress", "action", "replayed"),
    [
        ("", "E.rewrite", True),
        ("", "E.number", False),
        ("ports.count(1);", "E.rewrite", True),
        ("passed.write(0, 1);", "E.rewrite", False),
        ("hdr.second.setInvalid();", "E.rewrite", False),
    ],
)
def test_what_is_replayed(process: Process, tmp_path: Path, egress: str, action: str, replayed: bool) -> None:
    """A table that changed in the middle of a superframe, which cannot happen under the lock, shows it."""
    switch = fill(program(tmp_path, egress), [action])
    [(_, before), *_] = process(switch, 1, [packet()])
    switch.table("E.receivers").modify(receiver(1, 1, "E.rewrite", 0x0B000000))
    addresses = [process(switch, superframe, [packet()])[0][1][4:8] for superframe in (1, 2, 0)]
    assert (addresses[0] == before[4:8]) == replayed
    assert addresses[1:] == [b"\x0b\0\0\0"] * 2
