/* bit<> and int<> of odd widths: saturation, wrapping, shifts, slices, concatenation, casts, comparison. */

#include <core.p4>
#include <v1model.p4>

header sums_t {
    bit<8> what;
    bit<13> a;
    bit<13> b;
    int<11> s;
    int<11> t;
    bit<24> result;
}
struct headers_t {
    sums_t h;
}
struct metadata_t {}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.h);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control Receive(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        standard_metadata.egress_spec = 1;
        switch (hdr.h.what) {
            0: { hdr.h.result = (bit<24>)(hdr.h.a + hdr.h.b); }
            1: { hdr.h.result = (bit<24>)(hdr.h.a - hdr.h.b); }
            2: { hdr.h.result = (bit<24>)hdr.h.a * (bit<24>)hdr.h.b; }
            3: { hdr.h.result = (bit<24>)(hdr.h.a |+| hdr.h.b); }
            4: { hdr.h.result = (bit<24>)(hdr.h.a |-| hdr.h.b); }
            5: { hdr.h.result = (bit<24>)(bit<11>)(hdr.h.s |+| hdr.h.t); }
            6: { hdr.h.result = (bit<24>)(bit<11>)(hdr.h.s |-| hdr.h.t); }
            7: { hdr.h.result = (bit<24>)(int<24>)(hdr.h.s * hdr.h.t); }
            8: { hdr.h.result = (bit<24>)(int<24>)(hdr.h.s >> 3); }
            9: { hdr.h.result = (bit<24>)(hdr.h.a << hdr.h.b[3:0]); }
            10: { hdr.h.result = (bit<24>)(hdr.h.a >> hdr.h.b[4:0]); }
            11: { hdr.h.result = hdr.h.a[7:0] ++ hdr.h.b[12:5] ++ 8w0x5a; }
            12: { hdr.h.result = (bit<24>)(~hdr.h.a & 0x1f0f ^ hdr.h.b | 1); }
            13: { hdr.h.result = hdr.h.s < hdr.h.t ? 24w1 : 24w2; }
            14: { hdr.h.result = hdr.h.a < hdr.h.b ? 24w1 : 24w2; }
            15: { hdr.h.result[20:9] = hdr.h.a[11:0]; }
            16: { hdr.h.s = -hdr.h.s; hdr.h.t = (int<11>)-3; }
            17: { hdr.h.result = (bit<24>)(bit<1>)(hdr.h.a == hdr.h.b && hdr.h.s != hdr.h.t || !(hdr.h.a <= 5)); }
            default: { hdr.h.setInvalid(); }
        }
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
