/* bit<0>: fields, variables, constants, keys and action data that take no room. */

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
        transition select(hdr.h.optional, hdr.h.a, hdr.h.b) {
            (0, 9, _): nine;
            default: accept;
        }
    }
    state nine {
        hdr.h.a = 10;
        transition accept;
    }
}

control check(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control ingress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action set(bit<0> x, bit<8> y) {
        hdr.h.optional = x;
        hdr.h.b = y;
    }
    table exact_match {
        key = {
            hdr.h.optional: exact;
            hdr.h.a: exact;
        }
        actions = {
            set;
            NoAction;
        }
    }
    table ternary_match {
        key = {
            hdr.h.optional: ternary;
            hdr.h.a: ternary;
        }
        actions = {
            set;
            NoAction;
        }
        entries = {
            (0, 10): set(0, 0x10);
            (_, 0x20 &&& 0xF0): set(0, 0x20);
            (0, 0x30): set(0, 0x30);
        }
    }
    table range_match {
        key = {
            hdr.h.optional: range;
            hdr.h.a: range;
        }
        actions = {
            set;
            NoAction;
        }
        const entries = {
            (_, 0x40 .. 0x4F): set(0, 0x40);
            (0 .. 0, 0x50 .. 0x5F): set(0, 0x50);
        }
    }
    table only_key {
        key = {
            hdr.h.optional: ternary;
        }
        actions = {
            set;
            NoAction;
        }
    }

    apply {
        bit<0> local = hdr.h.optional;
        meta.none = local;
        meta.some = hdr.h.a ++ local;
        hdr.h.b = meta.some + (bit<8>)meta.none;
        hdr.h.optional = (bit<0>)hdr.h.b;
        if (local == NOTHING && hdr.h.optional == 0w0) {
            exact_match.apply();
            ternary_match.apply();
            range_match.apply();
            if (hdr.h.a == 1) {
                hdr.h.a = 7;
            }
            if (hdr.h.a == 0x60) {
                only_key.apply();
            }
        }
        standard.egress_spec = 1;
    }
}

control egress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply { }
}

control deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(parse(), check(), ingress(), egress(), check(), deparse()) main;
