/* Checksums verified and updated, with a condition, with the payload, and over a header that may be missing. */

#include <core.p4>
#include <v1model.p4>

header small_ip_t {
    bit<8> protocol;
    bit<8> flags;
    bit<16> checksum;
    bit<32> address;
}
header small_udp_t {
    bit<16> port;
    bit<16> checksum;
}
struct headers_t {
    small_ip_t ip;
    small_udp_t udp;
}
struct metadata_t {}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ip);
        transition select(hdr.ip.protocol) {
            17: udp;
            default: accept;
        }
    }

    state udp {
        packet.extract(hdr.udp);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.ip.flags != 0xff, { hdr.ip.protocol, hdr.ip.flags, hdr.ip.address }, hdr.ip.checksum,
                        HashAlgorithm.csum16);
    }
}

control Receive(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        standard_metadata.egress_spec = standard_metadata.checksum_error == 1 ? 9w2 : 9w1;
        if (hdr.ip.flags == 1) {
            hdr.ip.address = hdr.ip.address + 1;
        }
    }
}

control Send(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {}
}

control Update(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(true, { hdr.ip.protocol, hdr.ip.flags, hdr.ip.address }, hdr.ip.checksum, HashAlgorithm.csum16);
        update_checksum_with_payload(hdr.udp.isValid(), { hdr.ip.address, 8w0, hdr.ip.protocol, hdr.udp.port },
                                     hdr.udp.checksum, HashAlgorithm.csum16);
    }
}

control Emit(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(P(), Verify(), Receive(), Send(), Update(), Emit()) main;
