// A switch that adds itself to the record of a probe on its way.

#include <core.p4>
#include <v1model.p4>

const bit<16> TYPE_PROBE = 0x88b5; // for local experiments (IEEE 802)

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> type;
}

const bit<4> VERSION = 1;
const bit<8> MOST_HOPS = 8;
const bit<16> SWITCH_ID = 42;

header probe_t {
    bit<4> version;
    bit<3> reserved;
    bit<1> full; // a switch found no room for its hop
    bit<8> hops; // how many follow
}

header hop_t {
    bit<16> switch_id;
    bit<16> port; // where the probe arrived
}

struct headers_t {
    ethernet_t ethernet;
    probe_t probe;
    hop_t[8] hops;
}

struct metadata_t {
    bit<8> left; // hops that the parser has not extracted yet
}

parser MyParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            // TODO 1: go to the state that extracts a probe.
            default: accept;
        }
    }
    // TODO 1: add a state that extracts hdr.probe.
    // TODO 2: add states that extract as many hops as hdr.probe.hops has.
}

control MyVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        // Whatever comes in at port 1 leaves at port 2, and the other way round.
        standard.egress_spec = standard.ingress_port == 1 ? 9w2 : 9w1;

        if (hdr.probe.isValid()) {
            // TODO 3: add a hop in front of the others.
            // TODO 4: mark a probe that is full; drop other versions and malformed probes.
        }
    }
}

control MyEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply { }
}

control MyComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control MyDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        // TODO 5: emit the probe and its hops.
    }
}

V1Switch(MyParser(), MyVerifyChecksum(), MyIngress(), MyEgress(), MyComputeChecksum(), MyDeparser()) main;
