// SwitchML's aggregation as published (Sapio et al., NSDI 2021), in the packets and next to the routing of
// fanin.p4. Differences from aggregation.p4: a cell has no chunk number. A worker's contribution to one version of a
// slot clears its bit in the other version, which is then free for its next chunk, whichever chunk a packet was sent for.

#define FANIN_AGGREGATION_P4
#include <core.p4>
#include <v1model.p4>
#include "../../p4src/headers.p4"
#include "../../p4src/reasons.p4"
#include "../../p4src/values.p4"

control Aggregation(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    // The pool must be clear before a job: a cell of another lease is empty.
    @name("lease") register<bit<8>>(CELLS) lease_register;
    @name("seen") register<bit<32>>(CELLS) seen_register;
    @name("count") register<bit<16>>(CELLS) count_register; // contributions so far, modulo the children
    @name("done") register<bit<1>>(CELLS) done_register;    // the result is stored, not only this switch's part
    ValueBlock() block_0;
    ValueBlock() block_1;
    ValueBlock() block_2;
    ValueBlock() block_3;

    counter(EVENTS, CounterType.packets_and_bytes) events;

    bit<1> from_parent = 0;
    bit<16> sender = 0;
    bit<32> sender_bit = 0;
    bit<16> job_children = 0;
    bit<16> job_base = 0;
    bit<16> job_slots = 0;
    bit<1> job_root = 0;
    bit<16> job_group = 0;
    bit<9> job_uplink = 0;

    bit<32> cell = 0;
    bit<32> other = 0; // the slot's other version
    bit<8> stored_lease = 0;
    bit<32> seen = 0;
    bit<16> count = 0;
    bit<1> done = 0;
    bit<32> overflow = 0;
    bit<2> operation = OPERATION_LOAD;

    action admit_child(bit<16> member, bit<32> member_bit, bit<16> children, bit<16> base, bit<16> slots,
                       bit<1> checksums, bit<1> root, bit<16> group, bit<9> uplink) {
        meta.admitted = 1;
        meta.checksummed = checksums;
        sender = member;
        sender_bit = member_bit;
        job_children = children;
        job_base = base;
        job_slots = slots;
        job_root = root;
        job_group = group;
        job_uplink = uplink;
    }
    action admit_parent(bit<16> base, bit<16> slots, bit<1> checksums, bit<16> group) {
        meta.admitted = 1;
        meta.checksummed = checksums;
        from_parent = 1;
        job_base = base;
        job_slots = slots;
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

    apply {
        admission.apply();
        if (meta.admitted == 1) {
            bit<16> slot = 1w0 ++ hdr.switchml.slot;
            cell = 15w0 ++ slot ++ hdr.switchml.version;
            other = cell ^ 1;
            if (meta.checksummed == 1 && hdr.udp.checksum == 0) {
                meta.reason = REASON_NO_CHECKSUM;
            } else if ((from_parent == 0 && hdr.switchml.msg_type != MSG_UPDATE) ||
                (from_parent == 1 && hdr.switchml.msg_type != MSG_RESULT)) {
                meta.reason = REASON_BAD_TYPE;
            } else if (slot < job_base || slot - job_base >= job_slots || slot >= SLOTS) {
                meta.reason = REASON_BAD_SLOT;
            } else if (!(hdr.switchml.size == SIZE_64 && hdr.udp.length == UDP_LENGTH_64) &&
                       !(hdr.switchml.size == SIZE_256 && hdr.udp.length == UDP_LENGTH_256)) {
                meta.reason = REASON_BAD_SIZE;
            }
        }

        if (meta.admitted == 1 && meta.reason == REASON_NONE) {
            lease_register.read(stored_lease, cell);
            if (stored_lease == hdr.switchml.lease) {
                seen_register.read(seen, cell);
                count_register.read(count, cell);
                done_register.read(done, cell);
            }
            if (from_parent == 1) {
                if (done == 1 || count != 0 || stored_lease != hdr.switchml.lease) {
                    meta.reason = REASON_STALE_RESULT;
                } else {
                    operation = OPERATION_STORE;
                    done = 1;
                    multicast_result();
                    events.count(EVENT_RESULT_DOWN);
                }
            } else if ((seen & sender_bit) == 0) {
                // A contribution to one version gives the sender's bit in the other version back.
                bit<32> of_other = 0;
                seen_register.read(of_other, other);
                seen_register.write(other, of_other & ~sender_bit);
                if (count == 0) {
                    operation = OPERATION_STORE;
                    done = 0;
                    events.count(EVENT_NEW_CHUNK);
                } else {
                    operation = OPERATION_ADD;
                    events.count(EVENT_ADDED);
                }
                seen = seen | sender_bit;
                count = count + 1;
                if (count != job_children) {
                    mark_to_drop(standard_metadata);
                } else {
                    count = 0;
                    events.count(EVENT_COMPLETED);
                    if (job_root == 1) {
                        done = 1;
                        multicast_result();
                    } else {
                        send_up();
                    }
                }
            } else if (count == 0 && done == 1) {
                serve_result();
                events.count(EVENT_SERVED_AGAIN);
            } else if (job_root == 0 && count == 0) {
                send_up();
                events.count(EVENT_SENT_UP_AGAIN);
            } else {
                meta.reason = REASON_DUPLICATE;
            }

            if (meta.reason == REASON_NONE) {
                lease_register.write(cell, hdr.switchml.lease);
                seen_register.write(cell, seen);
                count_register.write(cell, count);
                done_register.write(cell, done);
                block_0.apply(hdr.values_0, operation, cell, overflow);
                if (hdr.switchml.size == SIZE_256) {
                    block_1.apply(hdr.values_1, operation, cell, overflow);
                    block_2.apply(hdr.values_2, operation, cell, overflow);
                    block_3.apply(hdr.values_3, operation, cell, overflow);
                }
                if (overflow != 0) {
                    events.count(EVENT_SATURATED);
                }
            }
        }
    }
}

#include "../../p4src/fanin.p4"
