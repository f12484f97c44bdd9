/* Varbits: extracted, copied with their header and alone, compared, summed up, emitted; all errors of their length. */

#include <core.p4>
#include <v1model.p4>

header length_t {
    bit<8> options;
    bit<8> action_;
    bit<16> bits;
}
header record_t {
    bit<16> checksum;
    varbit<64> options;
}
struct headers_t {
    length_t length;
    record_t first;
    record_t second;
}
struct metadata_t {
    bit<1> unused;
}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.length);
        packet.extract(hdr.first, (bit<32>)hdr.length.bits);
        transition select(hdr.length.options) {
            0: accept;
            default: second;
        }
    }
    state second {
        packet.extract(hdr.second, (bit<32>)hdr.length.options * 8);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control Receive(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        standard_metadata.egress_spec = 1;
        if (standard_metadata.parser_error != error.NoError) {
            standard_metadata.egress_spec = 2;
            if (standard_metadata.parser_error == error.PacketTooShort) {
                standard_metadata.egress_spec = 3;
            } else if (standard_metadata.parser_error == error.HeaderTooShort) {
                standard_metadata.egress_spec = 4;
            }
        } else if (hdr.length.action_ == 1) {
            hdr.first = hdr.second;
        } else if (hdr.length.action_ == 2) {
            hdr.second = hdr.first;
            hdr.first.checksum = 0xffff;
        } else if (hdr.length.action_ == 3) {
            if (hdr.first == hdr.second) {
                standard_metadata.egress_spec = 5;
            }
        } else if (hdr.length.action_ == 4) {
            hdr.first.setInvalid();
        }
    }
}

control Send(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {}
}

control Compute(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.length.action_ == 5, { hdr.length.bits, hdr.first.options }, hdr.first.checksum,
                        HashAlgorithm.csum16);
    }
}

control D(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.length);
        packet.emit(hdr.first);
        packet.emit(hdr.second);
    }
}

V1Switch(P(), Verify(), Receive(), Send(), Compute(), D()) main;
