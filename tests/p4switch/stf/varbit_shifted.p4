/* A varbit that begins and ends within a byte: parsed, copied with its header, and sent; the fields around it change. */

#include <core.p4>
#include <v1model.p4>

header item_t {
    bit<4> length;
    varbit<120> data;
    bit<12> sum;
}
struct headers_t {
    item_t first;
    item_t second;
}
struct metadata_t {}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        bit<4> length = packet.lookahead<bit<4>>();
        packet.extract(hdr.first, (bit<32>)length * 8);
        transition select(hdr.first.sum) {
            1: more;
            default: accept;
        }
    }
    state more {
        bit<4> length = packet.lookahead<bit<4>>();
        packet.extract(hdr.second, (bit<32>)length * 8);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control Receive(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        standard_metadata.egress_spec = 1;
        if (hdr.second.isValid()) {
            hdr.first = hdr.second;
            hdr.second.sum = hdr.second.sum + 0x100;
        }
        hdr.first.length = 0xf;
        hdr.first.sum = hdr.first.sum ^ 0xff0;
    }
}

control Send(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {}
}

control Compute(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control D(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.first);
        packet.emit(hdr.second);
    }
}

V1Switch(P(), Verify(), Receive(), Send(), Compute(), D()) main;
