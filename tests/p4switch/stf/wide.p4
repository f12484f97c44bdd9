/* Numbers of more than 128 bits: every operator, registers, keys, lookahead, hashes. */

#include <core.p4>
#include <v1model.p4>

header wide_t {
    bit<8> what;
    bit<256> a;
    bit<256> b;
    int<136> s;
    bit<16> digest;
}
struct headers_t {
    wide_t h;
}
struct metadata_t {
    bit<256> x;
    bit<512> both;
    int<136> signed;
}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.h);
        transition select(hdr.h.a) {
            0x123456789abcdef0123456789abcdef0123456789abcdef: seen;
            default: accept;
        }
    }

    state seen {
        hdr.h.digest = 0x5555;
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control Receive(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    register<bit<256>>(4) cells;

    action mark(bit<256> by, bit<9> port) {
        hdr.h.b = hdr.h.b ^ by;
        standard_metadata.egress_spec = port;
    }
    action other() {
        standard_metadata.egress_spec = 1;
    }
    table marked {
        key = {
            hdr.h.a: ternary;
            hdr.h.what: exact;
        }
        actions = { mark; other; }
        default_action = other;
        const entries = {
            (0xff &&& 0xff, 7): mark(0xfedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210, 2);
        }
    }

    apply {
        meta.x = hdr.h.a;
        meta.signed = hdr.h.s;
        if (hdr.h.what == 0) { meta.x = hdr.h.a + hdr.h.b; }
        else if (hdr.h.what == 1) { meta.x = hdr.h.a - hdr.h.b; }
        else if (hdr.h.what == 2) { meta.x = hdr.h.a * hdr.h.b; }
        else if (hdr.h.what == 3) { meta.x = hdr.h.a |+| hdr.h.b; }
        else if (hdr.h.what == 4) { meta.x = hdr.h.a |-| hdr.h.b; }
        else if (hdr.h.what == 5) { meta.x = hdr.h.a << hdr.h.b[7:0]; }
        else if (hdr.h.what == 6) { meta.x = hdr.h.a >> hdr.h.b[7:0]; }
        else if (hdr.h.what == 7) { meta.x = ~hdr.h.a & hdr.h.b; }
        else if (hdr.h.what == 8) { meta.x = hdr.h.a < hdr.h.b ? 256w1 : 0; }
        else if (hdr.h.what == 9) {
            meta.both = hdr.h.a ++ hdr.h.b;
            meta.x = meta.both[383:128];
        }
        else if (hdr.h.what == 10) { meta.signed = hdr.h.s |+| hdr.h.s; }
        else if (hdr.h.what == 11) { meta.signed = hdr.h.s >> 9; }
        else if (hdr.h.what == 12) { meta.signed = -hdr.h.s; }
        else if (hdr.h.what == 13) {
            cells.read(meta.x, 1);
            cells.write(1, hdr.h.b);
        }
        else if (hdr.h.what == 14) {
            hash(hdr.h.digest, HashAlgorithm.crc16, 16w0, { hdr.h.a, hdr.h.s, meta.x }, 32w65536);
        }
        else if (hdr.h.what == 15) { hdr.h.b[255:100] = hdr.h.a[155:0]; }
        else if (hdr.h.what == 16) {
            if (hdr.h.s < 0) { meta.signed = (int<136>)(bit<136>)hdr.h.a[135:0]; }
            meta.x = (bit<256>)(bit<136>)hdr.h.s;
        }
        marked.apply();
        hdr.h.a = meta.x;
        hdr.h.s = meta.signed;
    }
}

control Send(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {}
}

control Update(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control Emit(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(P(), Verify(), Receive(), Send(), Update(), Emit()) main;
