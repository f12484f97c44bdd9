// Everything that is not aggregation: IPv4 routing with equal-cost paths, and ARP.

#ifndef FANIN_FORWARDING_P4
#define FANIN_FORWARDING_P4

#include "headers.p4"
#include "reasons.p4"

const bit<16> ARP_REQUEST = 1;
const bit<16> ARP_REPLY = 2;

control Forwarding(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    action no_route() {
        meta.reason = REASON_NO_ROUTE;
    }
    action forward(mac_t mac, bit<9> port) {
        hdr.ethernet.source = hdr.ethernet.destination;
        hdr.ethernet.destination = mac;
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
        standard_metadata.egress_spec = port;
    }
    // Switches speak to their neighbours in the tree only: what is to be passed on in their name is forged, and a worker
    // would take it for a result.
    action forged() {
        meta.reason = REASON_FORGED;
    }
    action from_host() {}
    table switches {
        key = { hdr.ipv4.source: exact; }
        actions = { forged; from_host; }
        const default_action = from_host();
        size = 1024;
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
    table ipv4_lpm {
        key = { hdr.ipv4.destination: lpm; }
        actions = { forward; ecmp; own_address; no_route; }
        const default_action = no_route();
        size = 4096;
    }
    table ecmp_nexthop {
        key = { meta.nexthop: exact; }
        actions = { forward; no_route; }
        const default_action = no_route();
        size = 1024;
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
                switch (ipv4_lpm.apply().action_run) {
                    ecmp: { ecmp_nexthop.apply(); }
                    own_address: {
                        if (hdr.udp.isValid() && !hdr.switchml.isValid() &&
                            (hdr.udp.destination_port & 0xFFF0) == 0xBEE0) {
                            meta.reason = REASON_BAD_SIZE;
                        }
                    }
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
