"""A checksum that the sender's kernel has left to the network card is completed if the program reads it."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from scapy.layers.inet import IP, UDP
from scapy.packet import Raw

from fanin.p4compiler import compile_file
from fanin.p4switch.codegen.names import RUNTIME
from fanin.p4switch.engine.engine import Engine
from tests.p4switch.segments import ETHERNET, UDP_CHECKSUM, partial, payload

PROGRAM = """
#include <core.p4>
#include <v1model.p4>
header ethernet_t { bit<48> destination; bit<48> source; bit<16> ethertype; }
header ipv4_t { bit<160> all; }
header udp_t { bit<16> source; bit<16> destination; bit<16> length; bit<8> high; bit<8> low; }
struct headers_t { ethernet_t ethernet; ipv4_t ipv4; udp_t udp; udp_t other; }
struct metadata_t { bit<16> found; }
parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ethernet);
        packet.extract(hdr.ipv4);
        packet.extract(hdr.udp);
        transition accept;
    }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply {} }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply { STATEMENT standard_metadata.egress_spec = 1; }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) { apply {} }
control D(packet_out packet, in headers_t hdr) {
    apply { packet.emit(hdr.ethernet); packet.emit(hdr.ipv4); packet.emit(hdr.udp); }
}
V1Switch(P(), V(), I(), E(), V(), D()) main;
"""
FOUND = 12  # the ethertype, where some put what they read


class Left(ctypes.Structure):
    _fields_ = (
        ("length", ctypes.c_uint32),
        ("checksum", ctypes.c_int32),
        ("bytes", ctypes.c_uint8 * 2048),
    )


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., None]:
    library = tmp_path_factory.mktemp("partial") / "partial.so"
    source = Path(__file__).with_name("partial_harness.c")
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]
    subprocess.run(["cc", *flags, "-I", str(RUNTIME), "-o", str(library), str(source)], check=True)
    return ctypes.CDLL(str(library)).process_partial  # type: ignore[no-any-return]


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("statement", "reads"),
    [
        ("", False),
        ("hdr.ethernet.ethertype = hdr.udp.length;", False),
        ("hdr.udp.source = hdr.udp.source + 1;", False),
        ("hdr.udp.source = 1; hdr.udp.destination = 2;", False),
        ("hdr.ethernet.ethertype = hdr.udp.high ++ hdr.udp.low;", True),
        ("hdr.ethernet.ethertype[7:0] = hdr.udp.high;", True),
        ("hdr.ethernet.ethertype[7:0] = hdr.udp.low;", True),
        ("hdr.other = hdr.udp; hdr.ethernet.ethertype = hdr.other.high ++ hdr.other.low;", True),
        ("if (hdr.ethernet.ethertype == 1) { meta.found[7:0] = hdr.udp.low; }", True),
    ],
)
@pytest.mark.slow
def test_completed_if_it_is_read(
    process: Callable[..., None], tmp_path: Path, statement: str, reads: bool
) -> None:
    program = tmp_path / "reads.p4"
    program.write_text(PROGRAM.replace("STATEMENT", statement))
    switch = Engine.load(compile_file(program).device_config())
    packet = ETHERNET / IP(id=1) / UDP() / payload(301)
    sent, whole, left = partial(packet), bytes(packet), Left()
    base = ctypes.c_void_p(switch.base)
    process(base, sent.data, len(sent.data), sent.checksum, UDP_CHECKSUM, ctypes.byref(left))
    data = bytes(left.bytes)[: left.length]
    assert left.checksum == (-1 if reads else sent.checksum)
    place = sent.checksum
    assert place is not None
    assert data[place : place + 2] == (whole if reads else sent.data)[place : place + 2]
    if statement.endswith("low;"):
        assert data[FOUND + 1] == whole[place + 1]


# Programs that verify and update the checksum themselves: it stays partial where that makes no difference

CHECKING = """
#include <core.p4>
#include <v1model.p4>
header ethernet_t { bit<48> destination; bit<48> source; bit<16> ethertype; }
header ipv4_t { bit<64> front; bit<8> ttl; bit<8> protocol; bit<16> sum; bit<32> source; bit<32> destination; }
header udp_t { bit<16> source; bit<16> destination; bit<16> length; bit<16> checksum; }
header data_t { bit<4> kind; bit<12> more; int<32> a; int<32> b; }
header extra_t { bit<32> x; }
struct headers_t { ethernet_t ethernet; ipv4_t ipv4; udp_t udp; extra_t extra; data_t data; extra_t last; }
struct metadata_t { bit<16> zero; bit<1> flag; }
parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ethernet);
        packet.extract(hdr.ipv4);
        packet.extract(hdr.udp);
        packet.extract(hdr.data);
        transition select(hdr.data.kind) { 1: last; default: accept; }
    }
    state last { packet.extract(hdr.last); transition accept; }
}
#define FIELDS hdr.ipv4.source, hdr.ipv4.destination, 8w0, hdr.ipv4.protocol, hdr.udp.length, \\
               hdr.udp.source, hdr.udp.destination, hdr.udp.length, hdr.data.kind, hdr.data.more, hdr.data.a, hdr.data.b
control V(inout headers_t hdr, inout metadata_t meta) { apply { VERIFY } }
control U(inout headers_t hdr, inout metadata_t meta) { apply { UPDATE } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        meta.flag = (bit<1>)(hdr.udp.checksum != 0);
        if (standard_metadata.checksum_error == 1) { hdr.ethernet.ethertype = 0xBAD; }
        INGRESS
        standard_metadata.egress_spec = 1;
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) { apply { EGRESS } }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }
V1Switch(P(), V(), I(), E(), U(), D()) main;
"""
VERIFY = {
    "against the field": "verify_checksum(true, { FIELDS }, hdr.udp.checksum, HashAlgorithm.csum16);",
    "against 0": (
        "verify_checksum(hdr.udp.checksum != 0, { FIELDS, hdr.last.x, hdr.udp.checksum }, meta.zero,"
        " HashAlgorithm.csum16);"
    ),
    "with what may be there": (
        "verify_checksum(true, { FIELDS, hdr.last.x }, hdr.udp.checksum, HashAlgorithm.csum16);"
    ),
    "with payload": (
        "verify_checksum_with_payload(true, { FIELDS }, hdr.udp.checksum, HashAlgorithm.csum16);"
    ),
}
UPDATE = {
    "always": "update_checksum(true, { FIELDS }, hdr.udp.checksum, HashAlgorithm.csum16);",
    "if there was one": (
        "update_checksum(meta.flag == 1, { FIELDS, hdr.last.x }, hdr.udp.checksum, HashAlgorithm.csum16);"
        "update_checksum(meta.flag == 1 && hdr.udp.checksum == 0, { 16w0 }, hdr.udp.checksum, HashAlgorithm.csum16);"
    ),
    "with payload": (
        "update_checksum_with_payload(true, { FIELDS }, hdr.udp.checksum, HashAlgorithm.csum16);"
    ),
}
STATEMENTS = {
    "nothing": ("", ""),
    "other addresses": (
        "hdr.ipv4.source = 0x0A000009;",
        "hdr.udp.destination = 77; hdr.ipv4.destination = 1;",
    ),
    "other data": ("hdr.data.a = hdr.data.a + 1;", "hdr.data.more = 3;"),
    "a header more": ("hdr.extra.setValid(); hdr.extra.x = 0x12345678;", ""),
    "a header less": ("hdr.data.setInvalid();", ""),
    "no checksum": ("", "hdr.udp.checksum = 0;"),
    "cut off": ("truncate(50);", ""),
    "cut off behind the data": ("", "truncate(52);"),
    "a header more at the end": ("hdr.last.setValid(); hdr.last.x = 0x12345678;", ""),
}
DATA = {
    "just the headers": bytes(range(10)),
    "more than the headers": bytes(range(21)),
    "one header more": bytes([0x10, *range(1, 14)]),
    "that and more": bytes([0x10, *range(1, 20)]),
}


@pytest.fixture(scope="module")
def switches(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Engine]:
    folder = tmp_path_factory.mktemp("programs")

    @cache
    def load(verify: str, update: str, statements: str) -> Engine:
        ingress, egress = STATEMENTS[statements]
        text = CHECKING.replace("INGRESS", ingress).replace("EGRESS", egress)
        text = text.replace("VERIFY", VERIFY[verify]).replace("UPDATE", UPDATE[update])
        (folder / "checking.p4").write_text(text)
        return Engine.load(compile_file(folder / "checking.p4").device_config())

    return load


def completed(left: Left) -> bytes:
    """Return the packet that a network card, or the receiver's kernel, makes of the one that left."""
    data = bytearray(left.bytes[: left.length])
    if left.checksum >= 0:
        total = sum(int.from_bytes(data[i : i + 2].ljust(2, b"\0"), "big") for i in range(34, len(data), 2))
        data[left.checksum : left.checksum + 2] = ((0xFFFF - total % 0xFFFF) or 0xFFFF).to_bytes(2, "big")
    return bytes(data)


@pytest.mark.few(8)
@pytest.mark.parametrize("statements", STATEMENTS)
@pytest.mark.parametrize(
    ("verify", "update"),
    [
        ("against 0", "if there was one"),
        ("against the field", "always"),
        ("with payload", "with payload"),
        ("with what may be there", "always"),
    ],
)
@pytest.mark.slow
def test_partial_or_complete_makes_no_difference(
    process: Callable[..., None], switches: Callable[..., Engine], verify: str, update: str, statements: str
) -> None:
    switch = switches(verify, update, statements)
    for name, data in DATA.items():
        packet = ETHERNET / IP(src="10.0.0.1", dst="10.0.0.2", id=1) / UDP(sport=1, dport=2) / Raw(data)
        sent, left = partial(packet), Left()
        base = ctypes.c_void_p(switch.base)
        for wrong in (0, 1):
            came, whole = bytearray(sent.data), bytearray(bytes(packet))
            came[27] ^= wrong  # an address of which the sums know nothing
            whole[27] ^= wrong
            process(base, bytes(came), len(came), sent.checksum, UDP_CHECKSUM, ctypes.byref(left))
            [(_, expected)] = switch.process(1, bytes(whole))
            assert completed(left) == expected, name


@pytest.mark.slow
def test_a_complete_checksum_of_zero_is_not_taken_for_a_partial_one(
    process: Callable[..., None], switches: Callable[..., Engine]
) -> None:
    """It leaves as 0xFFFF, in a packet that grew, so that its checksum could not stay partial."""
    switch = switches("against 0", "if there was one", "a header more")
    headers, data = (
        ETHERNET / IP(src="10.0.0.1", dst="10.0.0.2", id=1) / UDP(sport=1, dport=2),
        bytes(range(8)),
    )
    rest = bytes(headers / Raw(data + bytes(2)))[40:42]
    packet, left = headers / Raw(data + rest), Left()
    sent, base = partial(packet), ctypes.c_void_p(switch.base)
    process(base, sent.data, len(sent.data), sent.checksum, UDP_CHECKSUM, ctypes.byref(left))
    [(_, expected)] = switch.process(1, bytes(packet))
    assert expected[40:42] == b"\xff\xff"
    assert completed(left) == expected


@pytest.mark.few(0)
@pytest.mark.slow
def test_what_is_verified_and_updated_by_the_pseudo_header_alone_stays_partial(
    process: Callable[..., None], switches: Callable[..., Engine]
) -> None:
    stays = {
        ("against 0", "if there was one"): {"just the headers", "one header more"},
        ("against the field", "always"): {"just the headers"},
        ("with payload", "with payload"): {"just the headers", "more than the headers"},
    }
    for (verify, update), expected in stays.items():
        for statements in ("nothing", "other addresses", "other data"):
            switch = switches(verify, update, statements)
            found = set()
            for name, data in DATA.items():
                sent, left = partial(ETHERNET / IP(dst="10.0.0.2") / UDP() / Raw(data)), Left()
                base = ctypes.c_void_p(switch.base)
                process(base, sent.data, len(sent.data), sent.checksum, UDP_CHECKSUM, ctypes.byref(left))
                found |= {name} if left.checksum >= 0 else set()
            assert found == expected, (verify, statements)


@pytest.mark.few(0)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("verify", "update", "statements", "data"),
    [
        ("with what may be there", "always", "cut off behind the data", "one header more"),
        ("against 0", "if there was one", "a header more at the end", "just the headers"),
    ],
)
def test_what_the_program_cuts_off_or_adds_stays_partial_if_the_sum_is_of_all_that_leaves(
    process: Callable[..., None],
    switches: Callable[..., Engine],
    verify: str,
    update: str,
    statements: str,
    data: str,
) -> None:
    switch = switches(verify, update, statements)
    sent, left = partial(ETHERNET / IP(dst="10.0.0.2") / UDP() / Raw(DATA[data])), Left()
    process(
        ctypes.c_void_p(switch.base),
        sent.data,
        len(sent.data),
        sent.checksum,
        UDP_CHECKSUM,
        ctypes.byref(left),
    )
    assert left.checksum == sent.checksum


@pytest.mark.slow
def test_the_c_of_a_program_is_always_the_same() -> None:
    """Whatever order sets have in a process: two fields may begin at one place, behind and in a varbit."""
    program = Path(__file__).parents[1] / "stf/varbit_shifted.p4"
    translating = """
import sys, pathlib, p4compiler, fanin.p4switch.reader, fanin.p4switch.codegen.translate
config = p4compiler.compile_file(pathlib.Path(sys.argv[1])).device_config()
print(fanin.p4switch.codegen.translate.translate(fanin.p4switch.reader.read_program(config)))
"""
    command = [sys.executable, "-c", translating, str(program)]
    first, second = (
        subprocess.run(
            command, env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in "12"
    )
    assert first == second
