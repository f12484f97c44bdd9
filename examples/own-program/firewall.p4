/* A firewall for UDP: port 1 is inside, port 2 outside. From outside, only packets to allowed UDP ports pass. */

#include <core.p4>
#include <v1model.p4>

const bit<9> INSIDE = 1;
const bit<9> OUTSIDE = 2;

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> ethertype;
}
header ipv4_t {
    bit<72> before; // version to time to live, which this program does not use
    bit<8> protocol;
    bit<80> after;  // checksum and addresses
}
header udp_t {
    bit<16> source;
    bit<16> destination;
    bit<32> length_and_checksum;
}
struct headers_t {
    ethernet_t ethernet;
    ipv4_t ipv4;
    udp_t udp;
}
struct metadata_t { }

parser parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ethertype) {
            0x0800: ipv4;
            default: accept;
        }
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.protocol) {
            17: udp;
            default: accept;
        }
    }
    state udp {
        packet.extract(hdr.udp);
        transition accept;
    }
}

control check(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control ingress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    counter(1, CounterType.packets) blocked;

    action allow() {
        standard.egress_spec = INSIDE;
    }
    action block() {
        blocked.count(0);
        mark_to_drop(standard);
    }
    table allowed {
        key = { hdr.udp.destination: exact; }
        actions = { allow; block; }
        default_action = block();
    }

    apply {
        if (standard.ingress_port == INSIDE) {
            standard.egress_spec = OUTSIDE;
        } else if (hdr.udp.isValid()) {
            allowed.apply();
        } else {
            block();
        }
    }
}

control egress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply { }
}

control compute(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
    }
}

V1Switch(parse(), check(), ingress(), egress(), compute(), deparse()) main;
