/* bit<0>: fields, variables and constants that take no room. */

#include <core.p4>
#include <v1model.p4>

#define WIDTH 0

const bit<0> NOTHING = 0;

header h_t {
    bit<8> a;
    bit<WIDTH> optional;
    bit<8> b;
}
struct headers_t {
    h_t h;
}
struct metadata_t {
    bit<0> none;
    bit<8> some;
}

parser parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.h);
        transition accept;
    }
}

control check(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control ingress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        bit<0> local = hdr.h.optional;
        meta.none = local;
        meta.some = hdr.h.a ++ local;
        hdr.h.b = meta.some + (bit<8>)meta.none;
        hdr.h.optional = (bit<0>)hdr.h.b;
        if (local == NOTHING && hdr.h.optional == 0w0) {
            hdr.h.a = 7;
        }
        standard.egress_spec = 1;
    }
}

control egress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {}
}

control deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(parse(), check(), ingress(), egress(), check(), deparse()) main;
