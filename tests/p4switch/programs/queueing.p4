/* Writes what egress finds in the queueing metadata over the first bytes of a datagram's payload. */

#include <core.p4>
#include <v1model.p4>

header ethernet_t {
    bit<96> addresses;
    bit<16> kind;
}

header ipv4_t {
    bit<160> fields;
}

header udp_t {
    bit<48> fields;
    bit<16> checksum;
}

header report_t {
    bit<16> number;
    bit<32> enq_timestamp;
    bit<32> enq_qdepth;
    bit<32> deq_timedelta;
    bit<32> deq_qdepth;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t ipv4;
    udp_t udp;
    report_t report;
}

struct metadata_t {
}

parser MyParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        packet.extract(hdr.ipv4);
        packet.extract(hdr.udp);
        packet.extract(hdr.report);
        transition accept;
    }
}

control MyVerify(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = 3 - standard.ingress_port;
    }
}

control MyEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        hdr.udp.checksum = 0;
        hdr.report.enq_timestamp = standard.enq_timestamp;
        hdr.report.enq_qdepth = (bit<32>)standard.enq_qdepth;
        hdr.report.deq_timedelta = standard.deq_timedelta;
        hdr.report.deq_qdepth = (bit<32>)standard.deq_qdepth;
    }
}

control MyCompute(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control MyDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(MyParser(), MyVerify(), MyIngress(), MyEgress(), MyCompute(), MyDeparser()) main;
