// A parser inside another one, `if` and lookahead in a state, a stack, a value set, masks and ranges.
#include <core.p4>
#include <v1model.p4>

header kind_t { bit<8> kind; bit<8> length; }
header option_t { bit<8> value; }
struct headers { kind_t kind; option_t[2] options; }
struct metadata { bit<8> left; }

parser Options(packet_in packet, out option_t[2] options, inout bit<8> left) {
    state start {
        transition select(left) { 0: accept; 1 .. 2: one; default: reject; }
    }
    state one {
        packet.extract(options.next);
        left = left - 1;
        transition start;
    }
}

parser MyParser(packet_in packet, out headers hdr, inout metadata meta, inout standard_metadata_t standard_metadata) {
    value_set<bit<8>>(4) known;
    Options() options;
    state start {
        if (packet.lookahead<bit<8>>() == 0xff) { packet.advance(8); }
        packet.extract(hdr.kind);
        meta.left = hdr.kind.length;
        transition select(hdr.kind.kind, meta.left[0:0]) {
            (0x10 &&& 0xf0, _): more;
            (_, 1): more;
            default: check;
        }
    }
    state check {
        transition select(hdr.kind.kind) { known: more; default: accept; }
    }
    state more {
        options.apply(packet, hdr.options, meta.left);
        verify(meta.left == 0, error.PacketTooShort);
        transition accept;
    }
}
control MyVerify(inout headers hdr, inout metadata meta) { apply { } }
control MyIngress(inout headers hdr, inout metadata meta, inout standard_metadata_t standard_metadata) { apply { } }
control MyEgress(inout headers hdr, inout metadata meta, inout standard_metadata_t standard_metadata) { apply { } }
control MyCompute(inout headers hdr, inout metadata meta) { apply { } }
control MyDeparser(packet_out packet, in headers hdr) { apply { packet.emit(hdr.kind); packet.emit(hdr.options); } }
V1Switch(MyParser(), MyVerify(), MyIngress(), MyEgress(), MyCompute(), MyDeparser()) main;
