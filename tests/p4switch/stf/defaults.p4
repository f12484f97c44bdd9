/* Default values: `...` in what initializes a struct or a header, and `{#}`, an invalid header. */

#include <core.p4>
#include <v1model.p4>

header h_t {
    bit<8> kind;
    bit<8> a;
    bit<16> b;
}
struct pair_t {
    h_t first;
    h_t second;
}
struct headers_t {
    h_t h;
    pair_t pair;
}
struct numbers_t {
    bit<8> x;
    bit<16> y;
    bool z;
}
struct metadata_t {
    numbers_t numbers;
}

parser parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.h);
        packet.extract(hdr.pair.first);
        packet.extract(hdr.pair.second);
        transition accept;
    }
}

control check(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control ingress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = 1;
        meta.numbers = { 1, 2, true };
        if (hdr.h.kind == 1) {
            meta.numbers = { ... };
        } else if (hdr.h.kind == 2) {
            meta.numbers = { 5, ... };
        } else if (hdr.h.kind == 3) {
            meta.numbers = { y = 6, ... };
        } else if (hdr.h.kind == 4) {
            hdr.pair.first = { ... };
        } else if (hdr.h.kind == 5) {
            hdr.pair.first = { b = 0x1234, ... };
        } else if (hdr.h.kind == 6) {
            hdr.pair = { second = { 9, ... }, ... };
        } else if (hdr.h.kind == 7) {
            hdr.pair.second = {#};
        }
        hdr.h.a = meta.numbers.x;
        hdr.h.b = meta.numbers.y;
        if (meta.numbers.z) {
            hdr.h.a = hdr.h.a + 0x80;
        }
        if (hdr.pair.second == (h_t){#}) {
            hdr.h.a = hdr.h.a + 0x40;
        }
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
