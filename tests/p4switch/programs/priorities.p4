/* A packet's number says its priority; what has the number 0xffff is cloned, and its clone says what priority it has. */

#include <core.p4>
#include <v1model.p4>

header datagram_t {
    bit<336> headers;
    bit<16> number;
    bit<8> found;
}
struct headers_t {
    datagram_t datagram;
}
struct metadata_t {}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.datagram);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control Receive(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        standard_metadata.egress_spec = 3 - standard_metadata.ingress_port;
        if (hdr.datagram.number == 0xffff) {
            clone(CloneType.I2E, 5);
        } else {
            standard_metadata.priority = (bit<3>)hdr.datagram.number;
        }
    }
}

control Send(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        if (standard_metadata.instance_type == 1) {
            hdr.datagram.found = (bit<8>)standard_metadata.priority;
        }
    }
}

control Compute(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control D(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.datagram);
    }
}

V1Switch(P(), Verify(), Receive(), Send(), Compute(), D()) main;
