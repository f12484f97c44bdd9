// OmniReduce (Fei et al., SIGCOMM 2021): sums of vectors of which only the blocks that are not zero are sent.
//
// A slot goes through the blocks of its column of the vector. In a round, each child sends one packet for the slot's current
// block: with values if it has some there, and always with the number of its next block that is not zero. A switch
// adds the values and keeps the smallest of these numbers, which is the slot's block in the next round.

#define FANIN_PACKET
#define FANIN_PARSER_P4
#define FANIN_AGGREGATION_P4
#include <core.p4>
#include <v1model.p4>
#include "../../p4src/headers.p4"
#include "../../p4src/network.p4"
#include "../../p4src/reasons.p4"

// From the UDP header on: 8 bytes of UDP, 8 of switchml_t, 4 of next_t, and 128 values.
#define UDP_LENGTH_EMPTY 20
#define UDP_LENGTH_BLOCK 532

header next_t {
    bit<32> block; // the sender's next block that is not zero, or 0xFFFFFFFF; in a result, the smallest of all workers
}

#define VALUE(i) int<32> v##i;
header values_t {
    REPEAT_64(VALUE)
}

struct headers_t {
    ethernet_t ethernet;
    arp_t arp;
    ipv4_header_t ipv4;
    tcp_ports_t tcp;
    udp_t udp;
    switchml_t switchml;
    next_t next;
    values_t values_0;
    values_t values_1;
}

#include "../../p4src/values.p4"

parser parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
#include "../../p4src/network_states.p4"

    state udp {
        packet.extract(hdr.udp);
        meta.source_port = hdr.udp.source_port;
        meta.destination_port = hdr.udp.destination_port;
        transition select(hdr.udp.destination_port, hdr.udp.length) {
            (AGGREGATION_PORTS, UDP_LENGTH_EMPTY): empty;
            (AGGREGATION_PORTS, UDP_LENGTH_BLOCK): block;
            default: accept;
        }
    }

    state empty {
        packet.extract(hdr.switchml);
        packet.extract(hdr.next);
        transition accept;
    }

    state block {
        packet.extract(hdr.switchml);
        packet.extract(hdr.next);
        packet.extract(hdr.values_0);
        packet.extract(hdr.values_1);
        transition accept;
    }
}

// RFC 768: the pseudo-header, the header without its checksum, and the payload.
#define EMPTY_FIELDS hdr.ipv4.source, hdr.ipv4.destination, 8w0, hdr.ipv4.protocol, hdr.udp.length, \
                     hdr.udp.source_port, hdr.udp.destination_port, hdr.udp.length, \
                     hdr.switchml.msg_type, hdr.switchml.saturated, hdr.switchml.size, hdr.switchml.lease, \
                     hdr.switchml.chunk, hdr.switchml.version, hdr.switchml.slot, hdr.next.block
#define VALUE_0(i) , hdr.values_0.v##i
#define VALUE_1(i) , hdr.values_1.v##i
#define BLOCK_FIELDS EMPTY_FIELDS REPEAT_64(VALUE_0) REPEAT_64(VALUE_1)
#define IS_EMPTY (hdr.next.isValid() && !hdr.values_0.isValid())
#define HAS_BLOCK (hdr.values_0.isValid())

control verify_checksums(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.ipv4.isValid(), IPV4_FIELDS, hdr.ipv4.checksum, HashAlgorithm.csum16);
        verify_checksum(IS_EMPTY && hdr.udp.checksum != 0, { EMPTY_FIELDS, hdr.udp.checksum }, meta.zero,
                        HashAlgorithm.csum16);
        verify_checksum(HAS_BLOCK && hdr.udp.checksum != 0, { BLOCK_FIELDS, hdr.udp.checksum }, meta.zero,
                        HashAlgorithm.csum16);
    }
}

control update_checksums(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid(), IPV4_FIELDS, hdr.ipv4.checksum, HashAlgorithm.csum16);
        update_checksum(meta.checksummed == 1 && IS_EMPTY, { EMPTY_FIELDS }, hdr.udp.checksum, HashAlgorithm.csum16);
        update_checksum(meta.checksummed == 1 && HAS_BLOCK, { BLOCK_FIELDS }, hdr.udp.checksum, HashAlgorithm.csum16);
        update_checksum(meta.checksummed == 1 && hdr.udp.checksum == 0, { 16w0 }, hdr.udp.checksum,
                        HashAlgorithm.csum16);
    }
}

control deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.arp);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.tcp);
        packet.emit(hdr.udp);
        packet.emit(hdr.switchml);
        packet.emit(hdr.next);
        packet.emit(hdr.values_0);
        packet.emit(hdr.values_1);
    }
}

control Aggregation(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    // Whose cell it is. A lease of 0 is never granted, so a fresh register belongs to nobody.
    @name("lease") register<bit<8>>(CELLS) lease_register;
    @name("chunk") register<bit<32>>(CELLS) chunk_register;
    @name("seen") register<bit<32>>(CELLS) seen_register;
    @name("done") register<bit<1>>(CELLS) done_register;     // the result is stored, not only this switch's part
    @name("filled") register<bit<1>>(CELLS) filled_register; // some packet of the round had values
    @name("next") register<bit<32>>(CELLS) next_register;
    ValueBlock() block_0;
    ValueBlock() block_1;

    counter(EVENTS, CounterType.packets_and_bytes) events;

    bit<1> from_parent = 0;
    bit<16> sender = 0;
    bit<32> sender_bit = 0;
    bit<32> job_full = 0;
    bit<16> job_base = 0;
    bit<16> job_slots = 0;
    bit<32> job_first_chunk = 0;
    bit<32> job_last_chunk = 0;
    bit<1> job_root = 0;
    bit<16> job_group = 0;
    bit<9> job_uplink = 0;

    bit<32> cell = 0;
    bit<8> stored_lease = 0;
    bit<32> stored_chunk = 0;
    bit<32> seen = 0;
    bit<1> done = 0;
    bit<1> filled = 0;
    bit<32> next = 0;
    bit<32> overflow = 0;
    bit<2> operation = OPERATION_LOAD;

    action admit_child(bit<16> member, bit<32> member_bit, bit<32> full, bit<16> base, bit<16> slots,
                       bit<32> first_chunk, bit<32> last_chunk, bit<1> checksums, bit<1> root, bit<16> group,
                       bit<9> uplink) {
        meta.admitted = 1;
        meta.checksummed = checksums;
        sender = member;
        sender_bit = member_bit;
        job_full = full;
        job_base = base;
        job_slots = slots;
        job_first_chunk = first_chunk;
        job_last_chunk = last_chunk;
        job_root = root;
        job_group = group;
        job_uplink = uplink;
    }
    action admit_parent(bit<16> base, bit<16> slots, bit<32> first_chunk, bit<32> last_chunk, bit<1> checksums,
                        bit<16> group) {
        meta.admitted = 1;
        meta.checksummed = checksums;
        from_parent = 1;
        job_base = base;
        job_slots = slots;
        job_first_chunk = first_chunk;
        job_last_chunk = last_chunk;
        job_group = group;
    }
    action not_admitted() { }
    table admission {
        key = {
            standard_metadata.ingress_port: exact;
            hdr.ipv4.source: exact;
            hdr.ipv4.destination: exact;
            hdr.udp.source_port: exact;
            hdr.switchml.lease: exact;
        }
        actions = { admit_child; admit_parent; not_admitted; }
        const default_action = not_admitted();
        size = 1024;
    }

    action multicast_result() {
        hdr.switchml.msg_type = MSG_RESULT;
        meta.aggregated = 1;
        standard_metadata.mcast_grp = job_group;
    }
    action serve_result() {
        hdr.switchml.msg_type = MSG_RESULT;
        meta.aggregated = 1;
        meta.member = sender;
        standard_metadata.egress_spec = standard_metadata.ingress_port;
    }
    action send_up() {
        meta.aggregated = 1;
        meta.member = 0;
        standard_metadata.egress_spec = job_uplink;
    }
    // What leaves has the values of the cell if it has some, whatever the packet that arrived last had.
    action leave_with_values() {
        hdr.values_0.setValid();
        hdr.values_1.setValid();
        hdr.udp.length = UDP_LENGTH_BLOCK;
        hdr.ipv4.total_length = UDP_LENGTH_BLOCK + 20;
    }
    action leave_empty() {
        hdr.values_0.setInvalid();
        hdr.values_1.setInvalid();
        hdr.udp.length = UDP_LENGTH_EMPTY;
        hdr.ipv4.total_length = UDP_LENGTH_EMPTY + 20;
    }

    apply {
        admission.apply();
        if (meta.admitted == 1) {
            bit<16> slot = 1w0 ++ hdr.switchml.slot;
            cell = 15w0 ++ slot ++ hdr.switchml.version;
            if (meta.checksummed == 1 && hdr.udp.checksum == 0) {
                meta.reason = REASON_NO_CHECKSUM;
            } else if ((from_parent == 0 && hdr.switchml.msg_type != MSG_UPDATE) ||
                (from_parent == 1 && hdr.switchml.msg_type != MSG_RESULT)) {
                meta.reason = REASON_BAD_TYPE;
            } else if (slot < job_base || slot - job_base >= job_slots || slot >= SLOTS) {
                meta.reason = REASON_BAD_SLOT;
            } else if (hdr.switchml.chunk < job_first_chunk || hdr.switchml.chunk > job_last_chunk) {
                meta.reason = REASON_BAD_CHUNK;
            }
        }

        if (meta.admitted == 1 && meta.reason == REASON_NONE) {
            lease_register.read(stored_lease, cell);
            chunk_register.read(stored_chunk, cell);
            seen_register.read(seen, cell);
            done_register.read(done, cell);
            filled_register.read(filled, cell);
            next_register.read(next, cell);
            bool new_chunk = stored_lease != hdr.switchml.lease || stored_chunk < hdr.switchml.chunk ||
                stored_chunk > job_last_chunk;
            bool write = false;
            bool leaves = true;
            if (from_parent == 1) {
                if (new_chunk || stored_chunk != hdr.switchml.chunk || done == 1) {
                    meta.reason = REASON_STALE_RESULT;
                } else {
                    done = 1;
                    next = hdr.next.block;
                    filled = 0;
                    if (hdr.values_0.isValid()) {
                        filled = 1;
                        operation = OPERATION_STORE;
                    }
                    write = true;
                    multicast_result();
                    events.count(EVENT_RESULT_DOWN);
                }
            } else if (!new_chunk && stored_chunk > hdr.switchml.chunk) {
                meta.reason = REASON_OLD_CHUNK;
            } else if (!new_chunk && done == 1) {
                serve_result();
                events.count(EVENT_SERVED_AGAIN);
            } else if (new_chunk || (seen & sender_bit) == 0) {
                if (new_chunk) {
                    seen = 0;
                    done = 0;
                    filled = 0;
                    next = hdr.next.block;
                    events.count(EVENT_NEW_CHUNK);
                } else {
                    events.count(EVENT_ADDED);
                }
                if (hdr.next.block < next) {
                    next = hdr.next.block;
                }
                if (hdr.values_0.isValid()) {
                    operation = filled == 1 ? OPERATION_ADD : OPERATION_STORE;
                    filled = 1;
                }
                seen = seen | sender_bit;
                write = true;
                if (seen != job_full) {
                    leaves = false;
                    mark_to_drop(standard_metadata);
                } else {
                    events.count(EVENT_COMPLETED);
                    if (job_root == 1) {
                        done = 1;
                        multicast_result();
                    } else {
                        send_up();
                    }
                }
            } else if (job_root == 0 && seen == job_full) {
                send_up();
                events.count(EVENT_SENT_UP_AGAIN);
            } else {
                meta.reason = REASON_DUPLICATE;
            }

            if (meta.reason == REASON_NONE) {
                if (write) {
                    lease_register.write(cell, hdr.switchml.lease);
                    chunk_register.write(cell, hdr.switchml.chunk);
                    seen_register.write(cell, seen);
                    done_register.write(cell, done);
                    filled_register.write(cell, filled);
                    next_register.write(cell, next);
                }
                if (leaves) {
                    hdr.next.block = next;
                    if (filled == 1) {
                        leave_with_values();
                    } else {
                        leave_empty();
                    }
                }
                if (hdr.values_0.isValid()) {
                    block_0.apply(hdr.values_0, operation, cell, overflow);
                    block_1.apply(hdr.values_1, operation, cell, overflow);
                    if (overflow != 0) {
                        events.count(EVENT_SATURATED);
                    }
                }
            }
        }
    }
}

#include "../../p4src/fanin.p4"
