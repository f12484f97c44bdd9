/* Standard metadata: ports, length, instance_type, priority, truncation; structs and headers assigned as a whole. */

#include <core.p4>
#include <v1model.p4>

header h_t {
    bit<8> what;
    bit<8> a;
    bit<16> b;
}
header seen_t {
    bit<8> ingress_port;
    bit<8> egress_port;
    bit<16> packet_length;
    bit<8> instance_type;
}
struct pair_t {
    bit<8> a;
    bit<16> b;
}
struct headers_t {
    seen_t seen;
    h_t h;
    h_t copy;
}
struct metadata_t {
    pair_t pair;
    pair_t other;
    bool flag;
}

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
        standard_metadata.egress_spec = (bit<9>)hdr.h.what;
        meta.pair = { hdr.h.a, hdr.h.b };
        meta.other = meta.pair;
        meta.flag = meta.other == meta.pair && meta.other.a != 7;
        if (hdr.h.what == 2) {
            hdr.copy = hdr.h;
            hdr.copy.a = meta.flag ? 8w1 : 8w0;
        } else if (hdr.h.what == 3) {
            hdr.copy.setValid();
            hdr.copy = { 0xaa, meta.other.a, meta.other.b };
            hdr.h.setInvalid();
        } else if (hdr.h.what == 4) {
            truncate(32w6);
        } else if (hdr.h.what == 5) {
            hdr.h.setInvalid();
        } else if (hdr.h.what == 6) {
            standard_metadata.priority = (bit<3>)hdr.h.a;
        }
    }
}

control Send(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        hdr.seen.setValid();
        hdr.seen.ingress_port = (bit<8>)standard_metadata.ingress_port;
        hdr.seen.egress_port = (bit<8>)standard_metadata.egress_port;
        hdr.seen.packet_length = (bit<16>)standard_metadata.packet_length;
        hdr.seen.instance_type = (bit<8>)standard_metadata.instance_type;
    }
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
