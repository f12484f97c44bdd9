"""A program with tables, and switches that run it."""

from __future__ import annotations

from pathlib import Path

from fanin.controller.entry_files import NamedEntry
from fanin.experiments.scenario.compilers import compile_program

ROOT = Path(__file__).parents[2]

FANIN = ROOT / "p4src" / "fanin.p4"

TABLES = ROOT / "tests" / "p4switch" / "programs" / "tables.p4"

HUB = """
#include <core.p4>
#include <v1model.p4>
header ethernet_t { bit<48> destination; bit<48> source; bit<16> type; }
struct headers_t { ethernet_t ethernet; }
struct metadata_t {}
parser parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start { packet.extract(hdr.ethernet); transition accept; }
}
control none(inout headers_t hdr, inout metadata_t meta) { apply {} }
control ingress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    counter(4, CounterType.packets) arrivals;
    action send(bit<9> port) { standard.egress_spec = port; }
    action drop() { mark_to_drop(standard); }
    table hosts {
        key = { hdr.ethernet.destination: exact; }
        actions = { send; drop; }
        default_action = drop();
    }
    apply { arrivals.count(COUNTED); hosts.apply(); EXTRA }
}
control egress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) { apply {} }
control deparse(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.ethernet); } }
V1Switch(parse(), none(), ingress(), egress(), none(), deparse()) main;
"""

HOST = NamedEntry(
    "ingress.hosts", {"hdr.ethernet.destination": 0x02_00_00_00_00_01}, "ingress.send", {"port": 3}
)


def hub(folder: Path, *, counted: str = "1", extra: str = ""):
    source = folder / "hub.p4"
    source.write_text(HUB.replace("COUNTED", counted).replace("EXTRA", extra))
    return compile_program(source, "embedded")
