// A switch that counts what its hosts send, and marks the packets of hosts that send a lot.

#include <core.p4>
#include <v1model.p4>

const bit<16> TYPE_IPV4 = 0x0800;

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> type;
}

const bit<8> LIMIT = 10;  // packets of a host that are not marked
const bit<8> MOST = 255;  // where the count of a host stops
const bit<8> MARK = 0x20; // in the field tos

header ipv4_t {
    bit<4> version;
    bit<4> header_length;
    bit<8> tos;
    bit<16> total_length;
    bit<16> identification;
    bit<3> flags;
    bit<13> fragment_offset;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    bit<32> source;
    bit<32> destination;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t ipv4;
}

struct metadata_t { }

parser MyParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            TYPE_IPV4: parse_ipv4;
            default: accept;
        }
    }
    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        transition accept;
    }
}

control MyVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    // TODO 1: declare a counter port_in with 16 cells, for packets and bytes.
    register<bit<8>>(256) packets_of; // by the last byte of the IPv4 source

    apply {
        // Whatever comes in at port 1 leaves at port 2, and the other way round.
        standard.egress_spec = standard.ingress_port == 1 ? 9w2 : 9w1;

        // TODO 1: count the packet.

        if (hdr.ipv4.isValid()) {
            // TODO 2: add one to the count of the host that sent the packet.
            // TODO 3: mark the packet if the host has sent more than LIMIT.
            // TODO 4: let the count stop at MOST.
        }
    }
}

control MyEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply { }
}

control MyComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid(),
            { hdr.ipv4.version, hdr.ipv4.header_length, hdr.ipv4.tos, hdr.ipv4.total_length,
              hdr.ipv4.identification, hdr.ipv4.flags, hdr.ipv4.fragment_offset, hdr.ipv4.ttl,
              hdr.ipv4.protocol, hdr.ipv4.source, hdr.ipv4.destination },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control MyDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
    }
}

V1Switch(MyParser(), MyVerifyChecksum(), MyIngress(), MyEgress(), MyComputeChecksum(), MyDeparser()) main;
