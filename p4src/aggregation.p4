// The aggregation protocol of one switch: rules 1 to 8 of docs/reference/protocol.md, in their order.
//
// All of a chunk's state is read and written in ingress, which BMv2 runs in one thread: a packet's read-modify-write is
// atomic there as it is in a hardware pipeline.

#ifndef FANIN_AGGREGATION_P4
#define FANIN_AGGREGATION_P4

#include "headers.p4"
#include "reasons.p4"
#include "values.p4"

#define FANIN_WITHOUT_VALUES // packets may leave without values
#define OF_SCATTER hdr.exponents.unused[6:6] // tells gives, takes and their answers from those of a gather
#define SET_LENGTH(udp_length) \
    hdr.udp.length = udp_length; \
    hdr.ipv4.total_length = udp_length + IPV4_LENGTH;
#define LEAVE_VALUES_OUT \
    SET_LENGTH(UDP_LENGTH_WITHOUT_VALUES) \
    hdr.values_0.setInvalid(); \
    hdr.values_1.setInvalid(); \
    hdr.values_2.setInvalid(); \
    hdr.values_3.setInvalid();
#define ZERO_0(i) hdr.values_0.v##i = 0;
#define ZERO_1(i) hdr.values_1.v##i = 0;
#define ZERO_2(i) hdr.values_2.v##i = 0;
#define ZERO_3(i) hdr.values_3.v##i = 0;

// In egress: those who gave get an acknowledgement, which is the result cut off before its values.
control Acknowledge(inout headers_t hdr, inout metadata_t meta) {
    action acknowledge() {
        hdr.switchml.msg_type = MSG_ACKNOWLEDGEMENT;
        SET_LENGTH(UDP_LENGTH_WITHOUT_VALUES)
        truncate(ETHERNET_LENGTH + IPV4_LENGTH + UDP_LENGTH_WITHOUT_VALUES);
    }
    apply {
        if (meta.givers != 0 && ((meta.givers >> (bit<8>)(meta.member - 1)) & 1) == 1) {
            acknowledge();
        }
    }
}

control Aggregation(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    // What a cell holds. A lease of 0 is never granted, so a fresh register belongs to nobody.
    @name("lease") register<bit<8>>(CELLS) lease_register;
    @name("chunk") register<bit<32>>(CELLS) chunk_register;
    @name("seen") register<bit<32>>(CELLS) seen_register;
    @name("size") register<bit<3>>(CELLS) size_register;
    @name("done") register<bit<1>>(CELLS) done_register;         // the result itself is stored, not only this switch's part
    @name("saturated") register<bit<1>>(CELLS) saturated_register;
    @name("e0") register<bit<8>>(CELLS) e0_register;
    @name("not_quantizable") register<bit<1>>(CELLS) not_quantizable_register;
    @name("call") register<bit<32>>(CELLS) call_register;
    @name("congested") register<bit<1>>(CELLS) congested_register;
    @name("givers") register<bit<32>>(CELLS) givers_register;    // children that do not need the sum
    @name("complete") register<bit<1>>(CELLS) complete_register; // all children have contributed
    ValueBlock() block_0;
    ValueBlock() block_1;
    ValueBlock() block_2;
    ValueBlock() block_3;

    counter(EVENTS, CounterType.packets_and_bytes) events;

    // Of the sender and its job, from the admission table.
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

    // Of the cell.
    bit<32> cell = 0;
    bit<8> stored_lease = 0;
    bit<32> stored_chunk = 0;
    bit<32> seen = 0;
    bit<3> stored_size = 0;
    bit<1> done = 0;
    bit<1> stored_saturated = 0;
    bit<8> stored_e0 = 0;
    bit<1> stored_not_quantizable = 0;
    bit<32> stored_call = 0;
    bit<1> stored_congested = 0;
    bit<32> givers = 0;
    bit<1> complete = 0;
    bit<32> overflow = 0;
    bit<2> operation = OPERATION_LOAD;

    // A child's entry carries the job too: one look-up decides who it is, what it may touch and what this switch is.
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

    action read_cell() {
        lease_register.read(stored_lease, cell);
        chunk_register.read(stored_chunk, cell);
        seen_register.read(seen, cell);
        size_register.read(stored_size, cell);
        done_register.read(done, cell);
        saturated_register.read(stored_saturated, cell);
        e0_register.read(stored_e0, cell);
        not_quantizable_register.read(stored_not_quantizable, cell);
        call_register.read(stored_call, cell);
        congested_register.read(stored_congested, cell);
        givers_register.read(givers, cell);
        complete_register.read(complete, cell);
    }
    action write_cell() {
        lease_register.write(cell, hdr.switchml.lease);
        chunk_register.write(cell, hdr.switchml.chunk);
        seen_register.write(cell, seen);
        size_register.write(cell, hdr.switchml.size);
        done_register.write(cell, done);
        saturated_register.write(cell, hdr.switchml.saturated);
        e0_register.write(cell, (bit<8>)hdr.exponents.e0);
        not_quantizable_register.write(cell, hdr.exponents.not_quantizable);
        call_register.write(cell, hdr.call.call);
        congested_register.write(cell, (bit<1>)(hdr.ipv4.dscp_ecn[1:0] == ECN_CONGESTED));
        givers_register.write(cell, givers);
        complete_register.write(cell, complete);
    }

    // What one contribution has met on its way, all workers learn: the mark stays in the packet (RFC 3168).
    action keep_mark() {
        hdr.ipv4.dscp_ecn[1:0] = ECN_CONGESTED;
    }

    // The packet becomes what the cell holds: a chunk asked for again.
    action load_cell() {
        operation = OPERATION_LOAD;
        hdr.switchml.saturated = stored_saturated;
        hdr.exponents.e0 = (int<8>)stored_e0;
        hdr.exponents.not_quantizable = stored_not_quantizable;
    }

    // Those who gave get an acknowledgement in place of the result (egress of fanin.p4).
    action multicast_result() {
        hdr.switchml.msg_type = MSG_RESULT;
        meta.aggregated = 1;
        meta.givers = givers;
        standard_metadata.mcast_grp = job_group;
    }
    action serve(bit<4> msg_type) {
        hdr.switchml.msg_type = msg_type;
        meta.aggregated = 1;
        meta.member = sender;
        standard_metadata.egress_spec = standard_metadata.ingress_port;
    }
    action send_up(bit<4> msg_type) {
        hdr.switchml.msg_type = msg_type;
        meta.aggregated = 1;
        meta.member = 0;
        standard_metadata.egress_spec = job_uplink;
    }
    // The packet gets values, to be loaded or written, if it came without.
    action make_room_64() {
        SET_LENGTH(UDP_LENGTH_64)
        hdr.values_0.setValid();
    }
    action make_room_256() {
        SET_LENGTH(UDP_LENGTH_256)
        hdr.values_0.setValid();
        hdr.values_1.setValid();
        hdr.values_2.setValid();
        hdr.values_3.setValid();
    }
    action fill_with_zeros_64() {
        make_room_64();
        REPEAT_64(ZERO_0)
    }
    action fill_with_zeros_256() {
        make_room_256();
        REPEAT_64(ZERO_0)
        REPEAT_64(ZERO_1)
        REPEAT_64(ZERO_2)
        REPEAT_64(ZERO_3)
    }
    // Added, but others are still missing: the packet has done its work.
    action absorb() {
        mark_to_drop(standard_metadata);
    }

    apply {
        // Rule 1: who is it, and may it touch this slot?
        admission.apply();
        if (meta.admitted == 1) {
            bit<16> slot = 1w0 ++ hdr.switchml.slot;
            cell = 15w0 ++ slot ++ hdr.switchml.version;
            if (meta.checksummed == 1 && hdr.udp.checksum == 0) {
                // The packet must not decide this: a flipped bit may turn a checksum into 0, which means "none".
                meta.reason = REASON_NO_CHECKSUM;
            } else if ((from_parent == 0 && hdr.switchml.msg_type != MSG_UPDATE &&
                        hdr.switchml.msg_type != MSG_GIVE && hdr.switchml.msg_type != MSG_TAKE) ||
                       (from_parent == 1 && hdr.switchml.msg_type != MSG_RESULT &&
                        hdr.switchml.msg_type != MSG_ACKNOWLEDGEMENT)) {
                meta.reason = REASON_BAD_TYPE;
            } else if (slot < job_base || slot - job_base >= job_slots || slot >= SLOTS) {
                meta.reason = REASON_BAD_SLOT;
            } else if (hdr.switchml.chunk < job_first_chunk || hdr.switchml.chunk > job_last_chunk) {
                meta.reason = REASON_BAD_CHUNK;
            } else if (hdr.switchml.msg_type == MSG_TAKE || hdr.switchml.msg_type == MSG_ACKNOWLEDGEMENT) {
                // What follows a packet without values would follow the values that it gets.
                if (hdr.udp.length != UDP_LENGTH_WITHOUT_VALUES || hdr.switchml.size[0:0] == 0 ||
                    standard_metadata.packet_length > SHORTEST_FRAME) {
                    meta.reason = REASON_BAD_SIZE;
                }
            } else if (!(hdr.udp.length == UDP_LENGTH_64 &&
                         (hdr.switchml.size == SIZE_64 || hdr.switchml.size == SIZE_128_OF_16_BITS)) &&
                       !(hdr.udp.length == UDP_LENGTH_256 &&
                         (hdr.switchml.size == SIZE_256 || hdr.switchml.size == SIZE_512_OF_16_BITS))) {
                meta.reason = REASON_BAD_SIZE;
            }
        }

        if (meta.admitted == 1 && meta.reason == REASON_NONE) {
            bool compute = false;
            bool make_room = false; // for values, if the packet has none
            bool sends_up = false;
            read_cell();
#ifdef WITHOUT_CHUNK_TAGS  // scenarios/lessons/untagged.p4: what comes for a slot is taken for the chunk that is there
            if (stored_chunk > hdr.switchml.chunk) {
                hdr.switchml.chunk = stored_chunk;
            }
#endif
            if (from_parent == 1) {
                // The parent's result replaces this switch's part. A chunk's owner below needs both.
                if (stored_lease != hdr.switchml.lease || stored_chunk != hdr.switchml.chunk || done == 1) {
                    meta.reason = REASON_STALE_RESULT;
                } else if (stored_call != hdr.call.call) {
                    meta.reason = REASON_MISMATCH;
                } else if (stored_size != hdr.switchml.size) {
                    meta.reason = REASON_BAD_SIZE;
                } else if (complete == 0 && (hdr.switchml.msg_type == MSG_ACKNOWLEDGEMENT || OF_SCATTER == 1)) {
                    // This result lacks what the switch's children gave, and the registers with that are lost.
                    meta.reason = REASON_STALE_RESULT;
                } else {
                    if (hdr.switchml.msg_type == MSG_ACKNOWLEDGEMENT) {
                        make_room = OF_SCATTER == 0; // for what the owner gave; in a scatter, all children gave
                    } else if (OF_SCATTER == 1) {
                        operation = OPERATION_ADD;
                    } else {
                        operation = OPERATION_STORE;
                    }
                    done = 1;
                    compute = true;
                    multicast_result();
                    events.count(EVENT_RESULT_DOWN);
                }
            } else if (stored_lease != hdr.switchml.lease || stored_chunk < hdr.switchml.chunk ||
                       stored_chunk > job_last_chunk) {
                // Rule 2: a new chunk; what the cell held before is over, whether its sum was complete or not: no child
                // sends this one before all workers have that one's result. Beyond the lease's last chunk are those of
                // another holder of its id.
                operation = OPERATION_STORE;
                seen = sender_bit;
                givers = 0;
                complete = 0;
                if (hdr.switchml.msg_type == MSG_GIVE) {
                    givers = sender_bit;
                } else if (hdr.switchml.msg_type == MSG_TAKE) {
                    if (hdr.switchml.size[1:1] == 1) {
                        fill_with_zeros_256();
                    } else {
                        fill_with_zeros_64();
                    }
                }
                done = 0;
                compute = true;
                events.count(EVENT_NEW_CHUNK);
            } else if (stored_chunk > hdr.switchml.chunk) {
                // Rule 3. Without the chunk number this late duplicate would be added to another chunk's sum.
                meta.reason = REASON_OLD_CHUNK;
            } else if (stored_call != hdr.call.call) {
                // Rule 4.
                meta.reason = REASON_MISMATCH;
            } else if (stored_size != hdr.switchml.size) {
                meta.reason = REASON_BAD_SIZE;
            } else if (done == 1) {
                // Rule 5: a retransmission; the child missed the result. Whether its bit is seen means nothing here: a
                // switch that has lost its registers may have the result from its parent, and not the child's part.
                load_cell();
                if (hdr.switchml.msg_type == MSG_GIVE) {
                    LEAVE_VALUES_OUT
                    serve(MSG_ACKNOWLEDGEMENT);
                    events.count(EVENT_SERVED_AGAIN);
                } else if ((givers & sender_bit) != 0) {
                    meta.reason = REASON_MISMATCH; // it gave before
                } else {
                    make_room = true;
                    serve(MSG_RESULT);
                    events.count(EVENT_SERVED_AGAIN);
                }
            } else if ((seen & sender_bit) == 0) {
                // Rule 6: the same chunk, a new contribution. One without values changes no sum.
                seen = seen | sender_bit;
                compute = true;
                if (hdr.switchml.msg_type == MSG_TAKE) {
                    make_room = seen == job_full;
                } else {
                    operation = OPERATION_ADD;
                    if (hdr.switchml.msg_type == MSG_GIVE) {
                        givers = givers | sender_bit;
                    }
                }
                events.count(EVENT_ADDED);
            } else if (complete == 1) {
                // Rule 7: the partial sum, or the answer to it, was lost. The root's sum is done once it is complete.
                load_cell();
                make_room = true;
                sends_up = true;
                events.count(EVENT_SENT_UP_AGAIN);
            } else {
                meta.reason = REASON_DUPLICATE;
            }

            if (meta.reason == REASON_NONE) {
                if (operation != OPERATION_STORE && stored_congested == 1) {
                    keep_mark();
                }
                if (make_room && !hdr.values_0.isValid()) {
                    if (hdr.switchml.size[1:1] == 1) {
                        make_room_256();
                    } else {
                        make_room_64();
                    }
                }
                bit<2> block_operation = operation;
                if (operation == OPERATION_ADD && (hdr.switchml.size == SIZE_128_OF_16_BITS ||
                                                   hdr.switchml.size == SIZE_512_OF_16_BITS)) {
                    block_operation = OPERATION_ADD_16;
                }
                if (hdr.values_0.isValid()) {
                    block_0.apply(hdr.values_0, block_operation, cell, overflow);
                }
                if (hdr.values_1.isValid()) {
                    block_1.apply(hdr.values_1, block_operation, cell, overflow);
                    block_2.apply(hdr.values_2, block_operation, cell, overflow);
                    block_3.apply(hdr.values_3, block_operation, cell, overflow);
                }
            }

            if (compute) {
                if (operation != OPERATION_STORE) {
                    if ((int<8>)stored_e0 > hdr.exponents.e0) {
                        hdr.exponents.e0 = (int<8>)stored_e0;
                    }
                    hdr.exponents.not_quantizable = hdr.exponents.not_quantizable | stored_not_quantizable;
                    hdr.switchml.saturated = hdr.switchml.saturated | stored_saturated;
                    if (overflow != 0) {
                        hdr.switchml.saturated = 1;
                        events.count(EVENT_SATURATED);
                    }
                }
                // Rule 8.
                if (from_parent == 0) {
                    if (seen != job_full) {
                        absorb();
                    } else {
                        events.count(EVENT_COMPLETED);
                        complete = 1;
                        if (job_root == 1) {
                            done = 1;
                            multicast_result();
                        } else {
                            sends_up = true;
                        }
                    }
                }
                write_cell();
            }
            if (sends_up) {
                // The parent treats this switch as the switch treats its children. Where the owner is below, it does what the
                // owner does; where it is not, what all others do.
                if (hdr.switchml.msg_type == MSG_UPDATE) {
                    send_up(MSG_UPDATE);
                } else if ((OF_SCATTER == 1 && givers == job_full) || (OF_SCATTER == 0 && givers != 0)) {
                    send_up(MSG_GIVE);
                } else {
                    LEAVE_VALUES_OUT
                    send_up(MSG_TAKE);
                }
            }
        }
    }
}

#endif
