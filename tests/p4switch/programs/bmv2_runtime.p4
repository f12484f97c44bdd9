// Every kind of object that BMv2's runtime interface reads and writes.
#include <v1model.p4>
header h_t { bit<8> f; bit<16> g; bit<32> a; }
struct headers { h_t h; }
struct metadata { bit<8> m; bit<32> crc; }
parser P(packet_in p, out headers hdr, inout metadata m, inout standard_metadata_t s) {
    value_set<bit<16>>(4) vs;
    state start { p.extract(hdr.h); transition select(hdr.h.g) { vs: x; default: accept; } }
    state x { transition accept; }
}
control V(inout headers hdr, inout metadata m) { apply { } }
struct dig { bit<8> f; bit<32> a; }
control I(inout headers hdr, inout metadata m, inout standard_metadata_t s) {
    counter(4, CounterType.packets) c; meter(4, MeterType.bytes) me; register<bit<32>>(8) r; register<bit<80>>(2) wide;
    direct_counter(CounterType.packets) dc;
    action send(bit<9> port) { s.egress_spec = port; }
    table ex { key = { hdr.h.f: exact; } actions = { send; NoAction; } default_action = NoAction(); counters = dc; size = 3; }
    table te { key = { hdr.h.f: ternary; hdr.h.a: lpm; hdr.h.g: exact; } actions = { send; NoAction; } }
    table ra { key = { hdr.h.g: range; hdr.h.isValid(): exact; } actions = { send; } support_timeout = true; }
    action_selector(HashAlgorithm.crc16, 16, 14) sel;
    table as { key = { hdr.h.f: exact; hdr.h.a: selector; } actions = { send; NoAction; } implementation = sel; }
    table co { key = { hdr.h.f: exact; } actions = { send; } const entries = { 1: send(2); } }
    table kless { actions = { send; } const default_action = send(1); }
    apply { ex.apply(); te.apply(); ra.apply(); as.apply(); co.apply(); kless.apply(); c.count(1); me.execute_meter<bit<8>>(1, m.m); r.write(0, hdr.h.a); wide.write(0, 5);
      hash(m.crc, HashAlgorithm.crc32_custom, 32w0, { hdr.h.a }, 32w0xffffffff); wide.write(1, (bit<80>) m.crc); digest<dig>(1, {hdr.h.f, hdr.h.a}); }
}
control E(inout headers hdr, inout metadata m, inout standard_metadata_t s) { apply { } }
control D(packet_out p, in headers hdr) { apply { p.emit(hdr.h); } }
V1Switch(P(), V(), I(), E(), V(), D()) main;
