// Trio-ML (Yang et al., SIGCOMM 2022): a switch gives up a block after a while, and passes on the sum of those who came.
//
// The packets are fanin's, and some of their fields mean something else here. A switch of v1model has a clock but no timers:
// it looks how old a block is when a packet for it arrives, and workers that wait retransmit.

#define FANIN_AGGREGATION_P4
#include <core.p4>
#include <v1model.p4>
#include "../../p4src/headers.p4"
#include "../../p4src/reasons.p4"
#include "../../p4src/values.p4"

#define RANKS hdr.call.call // a bit for each worker whose values the packet has
// How long the workers wait for late ones at each level of the tree, in steps of 32 microseconds.
#define PATIENCE (17w0 ++ (bit<8>)hdr.exponents.e0 ++ hdr.exponents.unused)
#define STEP 5

control Aggregation(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    // What a cell holds. A lease of 0 is never granted, so a fresh register belongs to nobody.
    @name("lease") register<bit<8>>(CELLS) lease_register;
    @name("chunk") register<bit<32>>(CELLS) chunk_register;
    @name("seen") register<bit<32>>(CELLS) seen_register;    // children whose values are in the sum
    @name("asked") register<bit<32>>(CELLS) asked_register;  // children that asked for the chunk or a later one
    @name("ranks") register<bit<32>>(CELLS) ranks_register;  // workers whose values are in the sum
    @name("born") register<bit<32>>(CELLS) born_register;    // when the first packet came, in microseconds
    @name("closed") register<bit<1>>(CELLS) closed_register; // nothing more is added
    @name("done") register<bit<1>>(CELLS) done_register;     // the result is stored, not only this switch's part
    ValueBlock() block_0;
    ValueBlock() block_1;
    ValueBlock() block_2;
    ValueBlock() block_3;

    counter(EVENTS, CounterType.packets_and_bytes) events;

    bit<1> from_parent = 0;
    bit<16> sender = 0;
    bit<32> sender_bit = 0;
    bit<32> sender_ranks = 0; // the workers below the sender
    bit<32> job_full = 0;
    bit<16> job_base = 0;
    bit<16> job_slots = 0;
    bit<32> job_first_chunk = 0;
    bit<32> job_last_chunk = 0;
    bit<1> job_root = 0;
    bit<16> job_group = 0;
    bit<9> job_uplink = 0;
    bit<32> height = 0;       // levels of switches from the workers up to this one

    bit<32> cell = 0;
    bit<8> stored_lease = 0;
    bit<32> stored_chunk = 0;
    bit<32> seen = 0;
    bit<32> asked = 0;
    bit<32> ranks = 0;
    bit<32> born = 0;
    bit<1> closed = 0;
    bit<1> done = 0;
    bit<32> overflow = 0;
    bit<2> operation = OPERATION_LOAD;

    action admit_child(bit<16> member, bit<32> member_bit, bit<32> full, bit<16> base, bit<16> slots,
                       bit<32> first_chunk, bit<32> last_chunk, bit<1> checksums, bit<1> root, bit<16> group,
                       bit<9> uplink, bit<32> below, bit<32> level) {
        meta.admitted = 1;
        meta.checksummed = checksums;
        sender = member;
        sender_bit = member_bit;
        sender_ranks = below;
        job_full = full;
        job_base = base;
        job_slots = slots;
        job_first_chunk = first_chunk;
        job_last_chunk = last_chunk;
        job_root = root;
        job_group = group;
        job_uplink = uplink;
        height = level;
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
            } else if (!(hdr.switchml.size == SIZE_64 && hdr.udp.length == UDP_LENGTH_64) &&
                       !(hdr.switchml.size == SIZE_256 && hdr.udp.length == UDP_LENGTH_256)) {
                meta.reason = REASON_BAD_SIZE;
            } else if (from_parent == 0 && (RANKS == 0 || (RANKS & ~sender_ranks) != 0)) {
                meta.reason = REASON_MISMATCH;
            }
        }

        if (meta.admitted == 1 && meta.reason == REASON_NONE) {
            bit<32> now = (bit<32>)standard_metadata.ingress_global_timestamp;
            lease_register.read(stored_lease, cell);
            chunk_register.read(stored_chunk, cell);
            seen_register.read(seen, cell);
            asked_register.read(asked, cell);
            ranks_register.read(ranks, cell);
            born_register.read(born, cell);
            closed_register.read(closed, cell);
            done_register.read(done, cell);
            bool ours = stored_lease == hdr.switchml.lease && stored_chunk >= job_first_chunk &&
                stored_chunk <= job_last_chunk;
            bool same = ours && stored_chunk == hdr.switchml.chunk;
            if (from_parent == 1) {
                if (!same || done == 1) {
                    meta.reason = REASON_STALE_RESULT;
                } else {
                    closed = 1;
                    done = 1;
                    ranks = RANKS;
                    operation = OPERATION_STORE;
                    multicast_result();
                    events.count(EVENT_RESULT_DOWN);
                }
            } else if (ours && stored_chunk > hdr.switchml.chunk) {
                meta.reason = REASON_OLD_CHUNK;
            } else if (!same) {
                bool vacant = true;
                if (ours) {
                    // Late workers may still need the result. A child has it if it asked for the slot's next chunk, or for
                    // this one, which comes after that.
                    bit<8> next_lease;
                    bit<32> next_chunk;
                    bit<32> next_asked;
                    lease_register.read(next_lease, cell ^ 1);
                    chunk_register.read(next_chunk, cell ^ 1);
                    asked_register.read(next_asked, cell ^ 1);
                    vacant = false;
                    if (next_lease == hdr.switchml.lease && next_chunk + (bit<32>)job_slots == hdr.switchml.chunk) {
                        next_asked = next_asked | sender_bit;
                        asked_register.write(cell ^ 1, next_asked);
                        vacant = next_asked == job_full;
                    }
                }
                if (!vacant) {
                    meta.reason = REASON_BAD_SLOT;
                } else {
                    seen = sender_bit;
                    asked = sender_bit;
                    ranks = RANKS;
                    born = now;
                    closed = 0;
                    done = 0;
                    operation = OPERATION_STORE;
                    events.count(EVENT_NEW_CHUNK);
                }
            } else {
                asked = asked | sender_bit;
                if (done == 1) {
                    serve_result();
                    events.count(EVENT_SERVED_AGAIN);
                } else if (closed == 1) {
                    send_up();
                    events.count(EVENT_SENT_UP_AGAIN);
                } else if ((seen & sender_bit) == 0) {
                    seen = seen | sender_bit;
                    ranks = ranks | RANKS;
                    operation = OPERATION_ADD;
                    events.count(EVENT_ADDED);
                }
            }

            if (meta.reason == REASON_NONE && closed == 0) {
                if (seen == job_full || now - born >= (PATIENCE << STEP) * height) {
                    closed = 1;
                    events.count(EVENT_COMPLETED);
                    if (job_root == 1) {
                        done = 1;
                        multicast_result();
                    } else {
                        send_up();
                    }
                } else if (operation == OPERATION_LOAD) {
                    meta.reason = REASON_DUPLICATE;
                } else {
                    mark_to_drop(standard_metadata);
                }
            }
            if (meta.reason == REASON_NONE) {
                lease_register.write(cell, hdr.switchml.lease);
                chunk_register.write(cell, hdr.switchml.chunk);
                seen_register.write(cell, seen);
                asked_register.write(cell, asked);
                ranks_register.write(cell, ranks);
                born_register.write(cell, born);
                closed_register.write(cell, closed);
                done_register.write(cell, done);
                RANKS = ranks;
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
