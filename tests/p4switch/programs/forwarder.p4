// Port 1 to port 2 and back; what is sent to an all-ones destination goes to the CPU port. It looks at Ethernet alone.
#include <core.p4>
#include <v1model.p4>

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> ethertype;
}
struct headers_t { ethernet_t ethernet; }
struct metadata_t {}

parser parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ethernet);
        transition accept;
    }
}
control verify_checksums(inout headers_t hdr, inout metadata_t meta) { apply {} }
control ingress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        if (standard_metadata.ingress_port == 255) {
            standard_metadata.egress_spec = 1;
        } else if (hdr.ethernet.destination == 0xffffffffffff) {
            standard_metadata.egress_spec = 255;
        } else {
            standard_metadata.egress_spec = 3 - standard_metadata.ingress_port;
        }
    }
}
control egress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) { apply {} }
control update_checksums(inout headers_t hdr, inout metadata_t meta) { apply {} }
control deparse(packet_out packet, in headers_t hdr) {
    apply { packet.emit(hdr.ethernet); }
}

V1Switch(parse(), verify_checksums(), ingress(), egress(), update_checksums(), deparse()) main;
