"""Marks in a trace: what a program does with invalid headers, unmatched values and packets without a port."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fanin.p4compiler import compile_file
from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.trace.events import (
    Assign,
    Condition,
    Invalid,
    NotEmitted,
    Output,
    PacketTrace,
    PortNotSet,
    Select,
    UpdateChecksum,
    VerifyChecksum,
)
from fanin.p4switch.trace.text import as_text
from fanin.p4switch.trace.tracer import traced

ROUTER = (Path(__file__).parents[2] / "p4compiler" / "mistakes" / "router.p4").read_text()
TUNNEL = bytes(12) + b"\x12\x12" + bytes(30)  # a packet with hdr.tunnel and no hdr.ipv4
IPV4 = bytes(12) + b"\x08\x00\x45" + bytes(30)
Trace = Callable[..., PacketTrace]
MARKS = (Invalid, NotEmitted, PortNotSet)


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    """The trace of a packet in the router with changes (old, new)."""

    def trace_changed(packet: bytes, *changes: tuple[str, str]) -> PacketTrace:
        text = ROUTER
        for old, new in changes:
            assert old in text
            text = text.replace(old, new, 1)
        program = tmp_path / "router.p4"
        program.write_text(text)
        switch = Engine.load(compile_file(program).device_config())
        with traced(switch) as tracer:
            switch.process(1, packet)
            [found] = tracer.packets()
        return found

    return trace_changed


def marks(found: PacketTrace) -> list[object]:
    return [event for event in found.events if isinstance(event, MARKS)]


FORWARDED = (
    "            drop();\n        }\n        flows",
    "            standard_metadata.egress_spec = 2;\n        }\n        flows",
)
OTHER = bytes(20)


@pytest.mark.slow
def test_a_sound_program_has_no_marks(trace: Trace) -> None:
    assert marks(trace(OTHER, FORWARDED)) == []
    assert marks(trace(TUNNEL)) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "statement", ["meta.flow = hdr.ipv4.dstAddr;", "hdr.ipv4.ttl = 3;", "hdr.ipv4.ttl = hdr.ipv4.ttl - 1;"]
)
def test_a_statement_with_a_field_of_an_invalid_header(trace: Trace, statement: str) -> None:
    change = ("meta.flow = 7;", statement)
    found = trace(TUNNEL, change)
    assert marks(found) == [Invalid("ipv4")]
    assert "ipv4 is not valid: its fields have no defined value" in as_text(found)
    assert {"event": "Invalid", "copy": 0, "header": "ipv4"} in found.document()["events"]
    assert marks(trace(IPV4, change)) == []


@pytest.mark.slow
def test_a_condition_and_a_key_with_a_field_of_an_invalid_header(trace: Trace) -> None:
    condition = ("if (hdr.tunnel.isValid())", "if (hdr.tunnel.dst_id == 5)")
    found = trace(OTHER, condition, FORWARDED)
    assert marks(found) == [Invalid("tunnel")]
    at = found.events.index(Invalid("tunnel"))
    assert isinstance(found.events[at + 1], Condition)
    assert marks(trace(OTHER, ("if (hdr.tunnel.isValid())", "if (!hdr.tunnel.isValid())"))) == [
        Invalid("tunnel")
    ]


@pytest.mark.slow
def test_a_condition_that_tests_the_header_first(trace: Trace) -> None:
    guarded = ("if (hdr.tunnel.isValid())", "if (hdr.tunnel.isValid() && hdr.tunnel.dst_id == 5)")
    found = trace(OTHER, guarded, FORWARDED)
    assert marks(found) == []
    [condition] = [each for each in found.events if isinstance(each, Condition) and "dst_id" in each.text]
    assert (condition.values, condition.invalid) == ((), ["tunnel"])
    assert "dst_id == 5: false (tunnel is not valid)" in as_text(found)
    valid = trace(TUNNEL, guarded)
    [condition] = [each for each in valid.events if isinstance(each, Condition) and "dst_id" in each.text]
    assert ([each.name for each in condition.values], condition.invalid) == (["tunnel.dst_id"], [])


def test_a_checksum_that_is_computed(trace: Trace) -> None:
    found = trace(IPV4, ("            ipv4_lpm.apply();", "            ipv4_forward(9, 2);"))
    [computed] = [each for each in found.events if isinstance(each, UpdateChecksum)]
    [output] = [event for event in found.events if isinstance(event, Output)]
    assert computed.target == "ipv4.hdrChecksum"
    assert computed.value.number == int.from_bytes(output.packet[24:26])
    assert f"checksum computed: ipv4.hdrChecksum = {computed.value.number}" in as_text(found)


NAMES = """
#include <core.p4>
#include <v1model.p4>
header h_t { bit<8> count; bit<8> other; }
struct headers_t { h_t h; }
struct inner_t { bit<8> count; }
struct metadata_t { inner_t inner; bit<8> plain; bit<8> unnamed; }
struct pair_t { bit<8> plain; bit<8> second; }
parser P(packet_in b, out headers_t hdr, inout metadata_t m, inout standard_metadata_t s) {
    state start { b.extract(hdr.h); transition accept; }
}
control V(inout headers_t hdr, inout metadata_t m) { apply {} }
control I(inout headers_t hdr, inout metadata_t m, inout standard_metadata_t s) {
    pair_t pair;
    apply {
        pair.plain = hdr.h.other;
        pair.second = pair.plain + 1;
        m.inner.count = hdr.h.count + 1;
        m.plain = pair.second;
        hdr.h.count = m.inner.count + m.plain + m.unnamed;
        s.egress_spec = (bit<9>)hdr.h.count;
        if (m.inner.count > 3) { hdr.h.other = pair.plain; }
    }
}
control E(inout headers_t hdr, inout metadata_t m, inout standard_metadata_t s) { apply {} }
control C(inout headers_t hdr, inout metadata_t m) { apply {} }
control D(packet_out b, in headers_t hdr) { apply { b.emit(hdr.h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
"""


@pytest.mark.slow
def test_metadata_and_local_structs_have_the_names_of_the_program(tmp_path: Path) -> None:
    program = tmp_path / "names.p4"
    program.write_text(NAMES)
    switch = Engine.load(compile_file(program).device_config())
    with traced(switch) as tracer:
        switch.process(0, bytes.fromhex("0405"))
        [found] = tracer.packets()
    targets = [each.target for each in found.events if isinstance(each, Assign)]
    assert [each for each in targets if "." in each and not each.startswith("h.")] == [
        "pair.plain",
        "pair.second",
        "m.inner.count",
        "m.plain",
        "s.egress_spec",
    ]
    assert "if m.inner.count > 3: true (m.inner.count=5)" in as_text(found)


@pytest.mark.slow
def test_each_checksum_that_is_verified_has_a_verdict_of_its_own(tmp_path: Path) -> None:
    """Also after a wrong one, which sets checksum_error for good."""
    text = (Path(__file__).parents[1] / "stf" / "checksums.p4").read_text()
    also = "verify_checksum(true, { hdr.ip.protocol, 8w0 }, hdr.ip.checksum, HashAlgorithm.csum16);\n        "
    at = text.index("verify_checksum(")
    program = tmp_path / "two.p4"
    program.write_text(text[:at] + also + text[at:])
    switch = Engine.load(compile_file(program).device_config())
    with traced(switch) as tracer:
        switch.process(0, bytes.fromhex("0600effe0a000001"))
        [found] = tracer.packets()
    verified = [each for each in found.events if isinstance(each, VerifyChecksum)]
    assert [(each.correct, each.value.number, each.computed.number) for each in verified] == [
        (False, 0xEFFE, 0xF9FF),
        (True, 0xEFFE, 0xEFFE),
    ]
    assert "checksum verified: ip.checksum = 61438: wrong, it should be 63999" in as_text(found)
    assert "checksum verified: ip.checksum = 61438: correct" in as_text(found)


@pytest.mark.slow
def test_a_valid_header_that_is_not_emitted(trace: Trace) -> None:
    lost = ("        packet.emit(hdr.tunnel);\n", "")
    forwarded = ("            tunnel_exact.apply();", "            tunnel_forward(4);")
    found = trace(TUNNEL, lost, forwarded)
    assert marks(found) == [NotEmitted("tunnel")]
    assert "tunnel is valid but not emitted" in as_text(found)
    [output] = [event for event in found.events if isinstance(event, Output)]
    assert len(output.packet) == len(TUNNEL) - 4
    assert marks(trace(TUNNEL, forwarded)) == []


@pytest.mark.slow
def test_a_variable_that_is_a_header_need_not_be_emitted(trace: Trace) -> None:
    statements = "tunnel_t kept = hdr.tunnel; kept.dst_id = 7; tunnel_forward(4); hdr.tunnel = kept;"
    variable = ("            tunnel_exact.apply();", f"            {statements}")
    assert marks(trace(TUNNEL, variable)) == []


@pytest.mark.slow
def test_a_select_that_no_case_matches(trace: Trace) -> None:
    without = (
        "            TYPE_IPV4: parse_ipv4;\n            default: accept;\n",
        "            TYPE_IPV4: parse_ipv4;\n",
    )
    found = trace(OTHER, without)
    [select] = [event for event in found.events if isinstance(event, Select)]
    assert select.case == "no case matches"
    assert "no case matches" in as_text(found)
    [select] = [event for event in trace(OTHER).events if isinstance(event, Select)]
    assert select.case == "default"


@pytest.mark.slow
def test_a_packet_for_which_no_statement_sets_a_port(trace: Trace) -> None:
    nothing = ("            drop();\n        }\n        flows", "        }\n        flows")
    found = trace(OTHER, nothing)
    assert marks(found) == [PortNotSet()]
    assert "egress_spec was never set: the packet goes to port 0" in as_text(found)
    to_0 = (
        "            drop();\n        }\n        flows",
        "            standard_metadata.egress_spec = 0;\n        }\n        flows",
    )
    assert marks(trace(OTHER, to_0)) == []
    multicast = (nothing[0], "            standard_metadata.mcast_grp = 1;\n        }\n        flows")
    assert marks(trace(OTHER, multicast)) == []
