// fanin: in-network aggregation in the manner of SwitchML (NSDI'21) next to ordinary IPv4 routing, for v1model.
//
// One program serves every switch of the tree; what a switch is (its tier, root or not) is in its tables:
//
// - ingress.loss_in.links             port                           -> draw(seed, threshold)
// - ingress.aggregation.admission     ingress port, source address,  -> admit_child(member, member_bit, full, base, slots,
//                                     destination address (its own),                first_chunk, last_chunk, checksums, root, group,
//                                                                                   uplink)
//                                     source UDP port, lease         -> admit_parent(base, slots, first_chunk, last_chunk, checksums, group)
// - ingress.forwarding.switches       source address                 -> forged()
// - ingress.forwarding.ipv4_lpm       destination address            -> forward(mac, port), own_address(),
//                                                                       ecmp(base, count), or spray or adaptive alike
// - ingress.forwarding.ecmp_nexthop   index                          -> forward(mac, port),
//                                                                       forward_and_count(mac, port, byte time)
// - ingress.forwarding.arp_responder  address asked for              -> answer(mac)
// - egress.receivers                  lease, member                  -> send_to(source mac, address and UDP port, then the receiver's)
// - egress.loss_out.links             port                           -> draw(seed, threshold)
//
// Where to read on: headers.p4 (the packet), aggregation.p4 (the state machine), values.p4 (the sums).

#include <core.p4>
#include <v1model.p4>

#include "headers.p4"
#include "parser.p4"
#include "reasons.p4"
#include "loss.p4"
#include "forwarding.p4"
#include "aggregation.p4"

control ingress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    Loss() loss_in;
    Aggregation() aggregation;
    Forwarding() forwarding;

    counter(PORTS, CounterType.packets_and_bytes) port_in;
    counter(REASONS, CounterType.packets_and_bytes) drops;

    apply {
        port_in.count((bit<32>)standard_metadata.ingress_port);
        loss_in.apply(standard_metadata.ingress_port, meta.lost);

        if (meta.lost == 1) {
            meta.reason = REASON_LOST;
        } else if (standard_metadata.parser_error == error.PacketTooShort) {
            meta.reason = REASON_TRUNCATED;
        } else if (standard_metadata.parser_error != error.NoError) {
            meta.reason = REASON_MALFORMED;
        } else if (standard_metadata.checksum_error == 1) {
            meta.reason = REASON_BAD_CHECKSUM;
        } else {
            if (hdr.switchml.isValid()) {
                aggregation.apply(hdr, meta, standard_metadata);
            }
            if (meta.admitted == 0) {
                forwarding.apply(hdr, meta, standard_metadata);
            }
        }

        if (meta.reason != REASON_NONE) {
            drops.count((bit<32>)meta.reason);
            mark_to_drop(standard_metadata);
        }
    }
}

control egress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    Loss() loss_out;
#ifdef FANIN_LEAVING_P4
    Leaving() leaving;
#endif
#ifdef FANIN_WITHOUT_VALUES
    Acknowledge() acknowledge;
#endif

    counter(PORTS, CounterType.packets_and_bytes) port_out;

    // The switch speaks for itself: results and partial sums carry its own address, never a worker's.
    action send_to(mac_t source_mac, ipv4_t source, bit<16> source_port,
                   mac_t destination_mac, ipv4_t destination, bit<16> destination_port) {
        hdr.ethernet.source = source_mac;
        hdr.ethernet.destination = destination_mac;
        hdr.ipv4.source = source;
        hdr.ipv4.destination = destination;
        hdr.ipv4.ttl = 64;
        hdr.udp.source_port = source_port;
        hdr.udp.destination_port = destination_port;
    }
    action no_receiver() {
        mark_to_drop(standard_metadata);
    }
    table receivers {
        key = {
            hdr.switchml.lease: exact;
            meta.member: exact;
        }
        actions = { send_to; no_receiver; }
        const default_action = no_receiver();
        size = 1024;
    }

    apply {
#ifdef FANIN_LEAVING_P4
        leaving.apply(hdr, meta, standard_metadata);
#endif
        if (meta.aggregated == 1) {
            if (standard_metadata.egress_rid != 0) {
                meta.member = standard_metadata.egress_rid;
            }
#ifdef FANIN_WITHOUT_VALUES
            acknowledge.apply(hdr, meta);
#endif
            receivers.apply();
            if (meta.checksummed == 0) {
                hdr.udp.checksum = 0; // even where the update came with one
            }
        }
        port_out.count((bit<32>)standard_metadata.egress_port);
        // Drawn here, after replication: each copy of a result is lost or not on its own.
        loss_out.apply(standard_metadata.egress_port, meta.lost);
        if (meta.lost == 1) {
            mark_to_drop(standard_metadata);
        }
    }
}

V1Switch(parse(), verify_checksums(), ingress(), egress(), update_checksums(), deparse()) main;
