/* A switch with one of everything that P4Runtime can write, read, send and receive. */

#include <core.p4>
#include <v1model.p4>

const bit<9> CPU_PORT = 255;
const bit<16> TYPE_ADDRESS = 0x1234;

@controller_header("packet_in")
header packet_in_t {
    bit<9> ingress_port;
    bit<7> reason;
}

@controller_header("packet_out")
header packet_out_t {
    bit<9> egress_port;
    bit<7> pad;
}

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> type;
}

header address_t {
    bit<32> address;
}

struct headers_t {
    packet_in_t  packet_in;
    packet_out_t packet_out;
    ethernet_t   ethernet;
    address_t    address;
}

struct metadata_t {}

parser PacketParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard_metadata) {
    state start {
        transition select(standard_metadata.ingress_port) {
            CPU_PORT: parse_packet_out;
            default: parse_ethernet;
        }
    }
    state parse_packet_out {
        packet.extract(hdr.packet_out);
        transition parse_ethernet;
    }
    state parse_ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            TYPE_ADDRESS: parse_address;
            default: accept;
        }
    }
    state parse_address {
        packet.extract(hdr.address);
        transition accept;
    }
}

control CheckSums(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control Forward(inout headers_t hdr, inout metadata_t meta,
                inout standard_metadata_t standard_metadata) {
    counter(16, CounterType.packets_and_bytes) arrivals;
    direct_counter(CounterType.packets_and_bytes) host_hits;
    register<bit<32>>(8) last_type;
    register<int<16>>(4) balance;

    action drop() {
        mark_to_drop(standard_metadata);
    }
    action forward(bit<9> port) {
        standard_metadata.egress_spec = port;
    }
    action multicast(bit<16> group) {
        standard_metadata.mcast_grp = group;
    }
    action to_controller(bit<7> reason) {
        hdr.packet_in.setValid();
        hdr.packet_in.ingress_port = standard_metadata.ingress_port;
        hdr.packet_in.reason = reason;
        standard_metadata.egress_spec = CPU_PORT;
    }

    table hosts {
        key = { hdr.ethernet.destination: exact; }
        actions = { forward; multicast; to_controller; drop; @defaultonly NoAction; }
        default_action = drop();
        counters = host_hits;
        size = 64;
    }
    table routes {
        key = { hdr.address.address: lpm; }
        actions = { forward; drop; NoAction; }
        default_action = NoAction();
        size = 65536;
    }
    table acl {
        key = {
            hdr.ethernet.source: ternary;
            hdr.ethernet.type: ternary;
        }
        actions = { drop; NoAction; }
        const default_action = NoAction();
        size = 128;
    }
    table well_known {
        key = { hdr.ethernet.type: exact; }
        actions = { forward; NoAction; }
        const entries = {
            0x88cc: forward(7);
        }
        default_action = NoAction();
    }

    apply {
        arrivals.count((bit<32>)(standard_metadata.ingress_port & 15));
        last_type.write((bit<32>)(standard_metadata.ingress_port & 7), (bit<32>)hdr.ethernet.type);
        balance.write((bit<32>)(standard_metadata.ingress_port & 3), -2);
        if (hdr.packet_out.isValid()) {
            standard_metadata.egress_spec = hdr.packet_out.egress_port;
            hdr.packet_out.setInvalid();
        } else {
            hosts.apply();
            if (hdr.address.isValid()) {
                routes.apply();
            }
            acl.apply();
            well_known.apply();
        }
    }
}

control Leave(inout headers_t hdr, inout metadata_t meta,
               inout standard_metadata_t standard_metadata) {
    apply {}
}

control Compute(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control PacketDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.packet_in);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.address);
    }
}

V1Switch(PacketParser(), CheckSums(), Forward(), Leave(), Compute(), PacketDeparser()) main;
