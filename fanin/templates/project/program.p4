// NAME: fanin's program, and a table of yours, which marks what some hosts send (DSCP, RFC 2474).
//
// What is in p4src/ is as fanin has it; change that as well. These tables, actions, parameters and counters are what
// fanin's controller writes and reads. Leave one out, and it tells you; then bring a controller that does without.

#include <core.p4>
#include <v1model.p4>

#include "p4src/headers.p4"
#include "p4src/parser.p4"
#include "p4src/reasons.p4"
#include "p4src/loss.p4"
#include "p4src/forwarding.p4"
#include "p4src/aggregation.p4"

control ingress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    Loss() loss_in;
    Aggregation() aggregation;
    Forwarding() forwarding;

    counter(PORTS, CounterType.packets_and_bytes) port_in;
    counter(REASONS, CounterType.packets_and_bytes) drops;

    // Yours. control.py fills the table; program.stf tests it.
    action mark(bit<6> dscp) {
        hdr.ipv4.dscp_ecn = dscp ++ hdr.ipv4.dscp_ecn[1:0];
    }
    table marking {
        key = { hdr.ipv4.source: exact; }
        actions = { mark; NoAction; }
        const default_action = NoAction();
        size = 256;
    }

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
                if (hdr.ipv4.isValid()) {
                    marking.apply();
                }
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
        if (meta.aggregated == 1) {
            if (standard_metadata.egress_rid != 0) {
                meta.member = standard_metadata.egress_rid;
            }
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
