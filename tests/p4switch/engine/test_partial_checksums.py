"""A checksum that the sender's kernel has left to the network card is completed if the program reads it."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from scapy.layers.inet import IP, UDP

from p4compiler import compile_file
from p4switch.engine import Engine
from p4switch.toolchain import RUNTIME
from tests.p4switch.engine.test_offload import ETHERNET, UDP_CHECKSUM, partial, payload

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
def test_completed_if_it_is_read(
    process: Callable[..., None], tmp_path: Path, statement: str, reads: bool
) -> None:
    program = tmp_path / "reads.p4"
    program.write_text(PROGRAM.replace("STATEMENT", statement))
    switch = Engine.load(compile_file(program).json_text().encode())
    packet = ETHERNET / IP(id=1) / UDP() / payload(301)
    sent, whole, left = partial(packet), bytes(packet), Left()
    base = ctypes.c_void_p(switch._base)
    process(base, sent.data, len(sent.data), sent.checksum, UDP_CHECKSUM, ctypes.byref(left))
    data = bytes(left.bytes)[: left.length]
    assert left.checksum == (-1 if reads else sent.checksum)
    place = sent.checksum
    assert place is not None
    assert data[place : place + 2] == (whole if reads else sent.data)[place : place + 2]
    if statement.endswith("low;"):
        assert data[FOUND + 1] == whole[place + 1]
