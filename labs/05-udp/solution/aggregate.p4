// A switch that adds up chunks in UDP datagrams, and sends each sum to all workers.

#include <core.p4>
#include <v1model.p4>

const bit<16> TYPE_IPV4 = 0x0800;
const bit<8> PROTOCOL_UDP = 17;
const bit<16> UDP_PORT = 5005;
const bit<16> GROUP = 1; // the multicast group of all workers

const bit<48> SWITCH_MAC = 0x0200000000fe;
const bit<32> SWITCH_IP = 0x0a0000fe; // 10.0.0.254

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> type;
}

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

header udp_t {
    bit<16> source;
    bit<16> destination;
    bit<16> length;
    bit<16> checksum;
}

header chunk_t {
    bit<8> workers;
    bit<8> rank;
    bit<16> slot;
    bit<32> value0;
    bit<32> value1;
    bit<32> value2;
    bit<32> value3;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t ipv4;
    udp_t udp;
    chunk_t chunk;
}

struct metadata_t {
    bit<8> count;
}

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
        transition select(hdr.ipv4.protocol) {
            PROTOCOL_UDP: parse_udp;
            default: accept;
        }
    }
    state parse_udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.destination, hdr.ipv4.destination) {
            (UDP_PORT, SWITCH_IP): parse_chunk;
            default: accept;
        }
    }
    state parse_chunk {
        packet.extract(hdr.chunk);
        transition accept;
    }
}

control MyVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

// Adds a value to the sum of a slot. The first worker of a round overwrites what the round before has left.
control Adder(inout bit<32> value, in bit<32> slot, in bit<8> count) {
    register<bit<32>>(16) sums;

    apply {
        bit<32> sum;
        sums.read(sum, slot);
        sum = count == 1 ? value : sum + value;
        sums.write(slot, sum);
        value = sum;
    }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    register<bit<8>>(16) counts;
    Adder() adder0;
    Adder() adder1;
    Adder() adder2;
    Adder() adder3;

    action drop() {
        mark_to_drop(standard);
    }

    action forward(bit<9> port) {
        standard.egress_spec = port;
    }

    table ipv4_host {
        key = { hdr.ipv4.destination: exact; }
        actions = { forward; drop; }
        default_action = drop();
    }

    apply {
        if (hdr.chunk.isValid()) {
            bit<32> slot = (bit<32>)hdr.chunk.slot;

            counts.read(meta.count, slot);
            meta.count = meta.count + 1;
            counts.write(slot, meta.count == hdr.chunk.workers ? 8w0 : meta.count);

            adder0.apply(hdr.chunk.value0, slot, meta.count);
            adder1.apply(hdr.chunk.value1, slot, meta.count);
            adder2.apply(hdr.chunk.value2, slot, meta.count);
            adder3.apply(hdr.chunk.value3, slot, meta.count);

            if (meta.count == hdr.chunk.workers) {
                standard.mcast_grp = GROUP;
            } else {
                drop();
            }
        } else if (hdr.ipv4.isValid()) {
            ipv4_host.apply();
        } else {
            drop();
        }
    }
}

control MyEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action address_to(bit<48> mac, bit<32> ip) {
        hdr.ethernet.source = SWITCH_MAC;
        hdr.ethernet.destination = mac;
        hdr.ipv4.source = SWITCH_IP;
        hdr.ipv4.destination = ip;
        hdr.udp.source = UDP_PORT;
        hdr.udp.destination = UDP_PORT;
        hdr.udp.checksum = 0;
    }

    action drop() {
        mark_to_drop(standard);
    }

    table worker_at {
        key = { standard.egress_port: exact; }
        actions = { address_to; drop; }
        default_action = drop();
    }

    apply {
        if (hdr.chunk.isValid()) {
            worker_at.apply();
        }
    }
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
        packet.emit(hdr.udp);
        packet.emit(hdr.chunk);
    }
}

V1Switch(MyParser(), MyVerifyChecksum(), MyIngress(), MyEgress(), MyComputeChecksum(), MyDeparser()) main;
