// A table that forwards by port.
#include <core.p4>
#include <v1model.p4>

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> type;
}
struct headers_t {
    ethernet_t ethernet;
}
struct metadata_t {}

parser CourseParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        transition accept;
    }
}

control CourseVerify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control CourseIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action forward(bit<9> port) {
        standard.egress_spec = port;
    }
    action drop() {
        mark_to_drop(standard);
    }
    table ports {
        key = { standard.ingress_port: exact; }
        actions = { forward; drop; }
        default_action = drop();
    }
    apply {
        ports.apply();
    }
}

control CourseEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {}
}

control CourseCompute(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control CourseDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
    }
}

V1Switch(CourseParser(), CourseVerify(), CourseIngress(), CourseEgress(), CourseCompute(), CourseDeparser()) main;
