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
            TYPE_PROBE: parse_probe;
            default: accept;
        }
    }
    state parse_probe {
        packet.extract(hdr.probe);
        meta.left = hdr.probe.hops;
        verify(hdr.probe.hops <= MOST_HOPS, error.StackOutOfBounds);
        transition next_hop;
    }
    state next_hop {
        transition select(meta.left) {
            0: accept;
            default: parse_hop;
        }
    }
    state parse_hop {
        packet.extract(hdr.hops.next);
        meta.left = meta.left - 1;
        transition next_hop;
    }
}

control MyVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        // Whatever comes in at port 1 leaves at port 2, and the other way round.
        standard.egress_spec = standard.ingress_port == 1 ? 9w2 : 9w1;

        if (hdr.probe.isValid()) {
            if (standard.parser_error != error.NoError || hdr.probe.version != VERSION) {
                mark_to_drop(standard);
            } else if (hdr.probe.hops == MOST_HOPS) {
                hdr.probe.full = 1;
            } else {
                hdr.hops.push_front(1);
                hdr.hops[0].setValid();
                hdr.hops[0].switch_id = SWITCH_ID;
                hdr.hops[0].port = (bit<16>)standard.ingress_port;
                hdr.probe.hops = hdr.probe.hops + 1;
            }
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
        packet.emit(hdr.probe);
        packet.emit(hdr.hops);
    }
}

V1Switch(MyParser(), MyVerifyChecksum(), MyIngress(), MyEgress(), MyComputeChecksum(), MyDeparser()) main;
