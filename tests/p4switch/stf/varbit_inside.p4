/* A varbit with fields behind it: extraction, comparison, assignment, reading and writing what follows. */

#include <core.p4>
#include <v1model.p4>

header options_t {
    bit<4> kind;
    bit<4> words;
    varbit<128> data;
    bit<4> what;
    int<12> level;
    bit<32> sum;
}
struct headers_t {
    options_t first;
    options_t second;
}
struct metadata_t {
    bit<16> hash;
}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        bit<8> ahead = packet.lookahead<bit<8>>();
        packet.extract(hdr.first, (bit<32>)ahead[3:0] * 8);
        transition select(hdr.first.kind) {
            1: more;
            default: accept;
        }
    }

    state more {
        bit<8> ahead = packet.lookahead<bit<8>>();
        packet.extract(hdr.second, (bit<32>)ahead[3:0] * 8);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control Receive(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        standard_metadata.egress_spec = 1;
        hash(meta.hash, HashAlgorithm.crc16, 16w0, { hdr.first.what, hdr.first.level, hdr.first.sum, hdr.first.data },
             32w65536);
        if (hdr.second.isValid()) {
            if (hdr.first == hdr.second) {
                standard_metadata.egress_spec = 2;
                hdr.second.setInvalid();
            } else if (hdr.second.what == 1) {
                hdr.first = hdr.second;
                hdr.first.level = hdr.first.level + 1;
            } else if (hdr.second.what == 2) {
                hdr.first.data = hdr.second.data;
                hdr.first.sum = 0xdeadbeef;
            } else {
                hdr.second.sum = hdr.first.sum;
                hdr.first.level = hdr.second.level |+| hdr.first.level;
            }
        }
        hdr.first.sum[15:0] = meta.hash;
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
