// Everything that is not aggregation: IPv4 routing with equal-cost paths, and ARP.

#ifndef FANIN_FORWARDING_P4
#define FANIN_FORWARDING_P4

#include "headers.p4"
#include "reasons.p4"

const bit<16> ARP_REQUEST = 1;
const bit<16> ARP_REPLY = 2;

#define PATHS 1024
#define PLACE(path) (bit<32>)path[9:0] // v1model leaves a register beyond its end undefined; BMv2 dies of it

control Forwarding(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    register<bit<32>>(1) sprayed;        // packets so far
    register<bit<64>>(PATHS) busy_until; // when a path's link has sent all that it was given, in 2^-16 us
    register<bit<16>>(PATHS) last;       // of the paths of a group, by the first: the one taken last, + 1

    bit<32> number = 0;
    bit<16> group = 0;
    bit<16> second = 0;
    bit<16> third = 0;

    action no_route() {
        meta.reason = REASON_NO_ROUTE;
    }
    action forward(mac_t mac, bit<9> port) {
        hdr.ethernet.source = hdr.ethernet.destination;
        hdr.ethernet.destination = mac;
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
        standard_metadata.egress_spec = port;
    }
    // What a switch is to pass on in its own name is forged: its neighbours would take it for a sum or a result. In another
    // switch's name a packet does no harm, as nobody accepts it at a port that does not lead to that switch.
    action forged() {
        meta.reason = REASON_FORGED;
    }
    action from_host() { }
    table switches {
        key = { hdr.ipv4.source: exact; }
        actions = { forged; from_host; }
        const default_action = from_host();
        size = 64;
    }
    // For this switch itself: what aggregation did not take, it does not want.
    action own_address() {
        meta.reason = REASON_NOT_ADMITTED;
    }
    // By the five-tuple, so that a flow keeps its path.
    action ecmp(bit<16> base, bit<16> count) {
        hash(meta.nexthop, HashAlgorithm.crc32, base,
             { hdr.ipv4.source, hdr.ipv4.destination, hdr.ipv4.protocol, meta.source_port, meta.destination_port },
             count);
    }
    // Each packet by itself: by the five-tuple and how many were sprayed before. BMv2's random() cannot be seeded.
    action spray(bit<16> base, bit<16> count) {
        sprayed.read(number, 0);
        sprayed.write(0, number + 1);
        hash(meta.nexthop, HashAlgorithm.crc32, base,
             { hdr.ipv4.source, hdr.ipv4.destination, hdr.ipv4.protocol, meta.source_port, meta.destination_port,
               number },
             count);
    }
    // Each packet by itself, by the least busy of three paths: two drawn, and the one that was taken last (DRILL, SIGCOMM
    // 2017). v1model tells ingress no queue's length, so that a switch keeps an account of its own.
    action adaptive(bit<16> base, bit<16> count) {
        spray(base, count);
        hash(second, HashAlgorithm.crc16, base, { hdr.ipv4.source, meta.source_port, number }, count);
        group = base;
        last.read(third, PLACE(base));
    }
    table ipv4_lpm {
        key = { hdr.ipv4.destination: lpm; }
        actions = { forward; ecmp; spray; adaptive; own_address; no_route; }
        const default_action = no_route();
        size = 4096;
    }
    // On a link on which a byte takes byte_time, in 2^-32 us: busy until what was sent there before is out, and this packet.
    action forward_and_count(mac_t mac, bit<9> port, bit<48> byte_time) {
        forward(mac, port);
        bit<64> free_at = 0;
        busy_until.read(free_at, PLACE(meta.nexthop));
        bit<64> now = (bit<64>)standard_metadata.ingress_global_timestamp << 16;
        bit<64> begin = free_at > now ? free_at : now;
        busy_until.write(PLACE(meta.nexthop),
                         begin + (((bit<64>)standard_metadata.packet_length * (bit<64>)byte_time) >> 16));
    }
    table ecmp_nexthop {
        key = { meta.nexthop: exact; }
        actions = { forward; forward_and_count; no_route; }
        const default_action = no_route();
        size = PATHS;
    }

    // Instead of the one drawn first.
    action take_least_busy() {
        bit<64> least = 0;
        bit<64> other = 0;
        busy_until.read(least, PLACE(meta.nexthop));
        busy_until.read(other, PLACE(second));
        meta.nexthop = other < least ? second : meta.nexthop;
        least = other < least ? other : least;
        third = third == 0 ? meta.nexthop : third - 1;
        busy_until.read(other, PLACE(third));
        meta.nexthop = other < least ? third : meta.nexthop;
        last.write(PLACE(group), meta.nexthop + 1);
    }

    action answer(mac_t mac) {
        hdr.ethernet.destination = hdr.ethernet.source;
        hdr.ethernet.source = mac;
        hdr.arp.operation = ARP_REPLY;
        hdr.arp.target_mac = hdr.arp.sender_mac;
        hdr.arp.sender_mac = mac;
        ipv4_t asked = hdr.arp.target;
        hdr.arp.target = hdr.arp.sender;
        hdr.arp.sender = asked;
        standard_metadata.egress_spec = standard_metadata.ingress_port;
    }
    action not_ours() {
        meta.reason = REASON_NOT_IP;
    }
    table arp_responder {
        key = { hdr.arp.target: exact; }
        actions = { answer; not_ours; }
        const default_action = not_ours();
        size = 64;
    }

    apply {
        if (hdr.ipv4.isValid()) {
            if (hdr.ipv4.ttl <= 1) {
                meta.reason = REASON_TTL;
            } else {
                bool chosen = false;
                switch (ipv4_lpm.apply().action_run) {
                    ecmp:
                    spray: { chosen = true; }
                    adaptive: {
                        take_least_busy();
                        chosen = true;
                    }
                    own_address: {
                        if (hdr.udp.isValid() && !hdr.switchml.isValid() &&
                            (hdr.udp.destination_port & 0xFFF0) == 0xBEE0) {
                            meta.reason = REASON_BAD_SIZE;
                        }
                    }
                }
                if (chosen) {
                    ecmp_nexthop.apply();
                }
                if (meta.reason == REASON_NONE) {
                    switches.apply();
                }
            }
        } else if (hdr.arp.isValid() && hdr.arp.operation == ARP_REQUEST) {
            arp_responder.apply();
        } else {
            meta.reason = REASON_NOT_IP;
        }
    }
}

#endif
