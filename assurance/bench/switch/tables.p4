// An IPv4 router whose table is matched by LPM, or exactly (HOSTS), or by five ternary fields (RULES).
#include <core.p4>
#include <v1model.p4>

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> type;
}
header ipv4_t {
    bit<4> version;
    bit<4> ihl;
    bit<8> tos;
    bit<16> length;
    bit<16> identification;
    bit<16> fragment;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    bit<32> source;
    bit<32> destination;
}
header ports_t {
    bit<16> source;
    bit<16> destination;
}
struct headers_t {
    ethernet_t ethernet;
    ipv4_t ipv4;
    ports_t ports;
}
struct metadata_t {}

#define FIELDS { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.length, hdr.ipv4.identification, \
                 hdr.ipv4.fragment, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.source, hdr.ipv4.destination }

parser parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            0x800: ipv4;
            default: accept;
        }
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        packet.extract(hdr.ports);
        transition accept;
    }
}
control verify_checksums(inout headers_t hdr, inout metadata_t meta) {
    apply { verify_checksum(hdr.ipv4.isValid(), FIELDS, hdr.ipv4.checksum, HashAlgorithm.csum16); }
}
control update_checksums(inout headers_t hdr, inout metadata_t meta) {
    apply { update_checksum(hdr.ipv4.isValid(), FIELDS, hdr.ipv4.checksum, HashAlgorithm.csum16); }
}
control ingress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    action forward(bit<48> mac, bit<9> port) {
        hdr.ethernet.source = hdr.ethernet.destination;
        hdr.ethernet.destination = mac;
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
        standard_metadata.egress_spec = port;
    }
    action drop() {
        mark_to_drop(standard_metadata);
    }
    table routes {
        key = {
#ifdef HOSTS
            hdr.ipv4.destination: exact;
#else
#ifdef RULES
            hdr.ipv4.source: ternary;
            hdr.ipv4.destination: ternary;
            hdr.ipv4.protocol: ternary;
            hdr.ports.source: ternary;
            hdr.ports.destination: ternary;
#else
            hdr.ipv4.destination: lpm;
#endif
#endif
        }
        actions = { forward; drop; }
        default_action = drop();
        size = 1048576;
    }
    apply {
        if (hdr.ipv4.isValid() && hdr.ipv4.ttl > 1) {
            routes.apply();
        } else {
            drop();
        }
    }
}
control egress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {}
}
control deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.ports);
    }
}

V1Switch(parse(), verify_checksums(), ingress(), egress(), update_checksums(), deparse()) main;
