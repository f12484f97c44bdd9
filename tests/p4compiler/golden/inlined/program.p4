// A function, a control inside another one, an action with parameters of both kinds, and switches.
#include <core.p4>
#include <v1model.p4>

header h_t { bit<8> a; bit<16> b; }
struct headers { h_t h; }
struct metadata { bit<16> sum; bool seen; }

bit<16> twice(in bit<16> value) {
    if (value > 100) { return 100; }
    return value * 2;
}

control Count(inout bit<16> total)(bit<32> cells) {
    register<bit<16>>(cells) seen;
    apply {
        bit<16> before;
        seen.read(before, 0);
        total = total + before;
        seen.write(0, total);
    }
}

parser MyParser(packet_in packet, out headers hdr, inout metadata meta, inout standard_metadata_t standard_metadata) {
    state start { packet.extract(hdr.h); transition accept; }
}
control MyVerify(inout headers hdr, inout metadata meta) { apply { } }
control MyIngress(inout headers hdr, inout metadata meta, inout standard_metadata_t standard_metadata) {
    Count(8) count;
    action set(out bit<16> where, bit<9> port) { where = twice(hdr.h.b); standard_metadata.egress_spec = port; }
    table next {
        key = { hdr.h.a: exact; hdr.h.b + 1: ternary @name("more"); }
        actions = { set(meta.sum); NoAction; }
        default_action = NoAction;
        const entries = { (1, _): set(2); (2, 16w4 &&& 16w0xC): set(3); }
    }
    apply {
        switch (next.apply().action_run) {
            set: { count.apply(meta.sum); }
            default: { exit; }
        }
        if (meta.seen) { hdr.h.b[7:0] = hdr.h.a; }
    }
}
control MyEgress(inout headers hdr, inout metadata meta, inout standard_metadata_t standard_metadata) {
    apply {
        switch (hdr.h.a) {
            1: 2: { meta.seen = true; }
            default: { hdr.h = { 1, meta.sum }; }
        }
    }
}
control MyCompute(inout headers hdr, inout metadata meta) { apply { } }
control MyDeparser(packet_out packet, in headers hdr) { apply { packet.emit(hdr); } }
V1Switch(MyParser(), MyVerify(), MyIngress(), MyEgress(), MyCompute(), MyDeparser()) main;
