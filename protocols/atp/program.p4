// ATP (Lao et al., NSDI 2021): jobs share all slots, and a parameter server completes what switches cannot sum.
//
// The packets are fanin's, and some of their fields mean something else here. A packet names the workers whose values it
// has, so that a switch or the server can tell a new contribution from one that it has already.
//
// A program that defines PREEMPTION (protocols/esa) lets chunks take the cells of less urgent ones.

#define FANIN_AGGREGATION_P4
#include <core.p4>
#include <v1model.p4>
#include "../../p4src/headers.p4"
#include "../../p4src/reasons.p4"
#include "../../p4src/values.p4"

#define RANKS hdr.call.call                   // a bit for each worker whose values the packet has
#define RESENT hdr.exponents.unused[0:0]      // a worker waits for the result: nothing is held back
#define COLLIDED hdr.exponents.unused[1:1]    // a cell on the way was in use
#define CONGESTED hdr.exponents.unused[2:2]   // a queue on the way was long
#define PRIORITY hdr.exponents.unused[6:3]    // how urgent the chunk is, with PREEMPTION

control Aggregation(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    // A slot is one cell, without versions. A cell without ranks is free.
    @name("lease") register<bit<8>>(SLOTS) lease_register;
    @name("chunk") register<bit<32>>(SLOTS) chunk_register;
    @name("ranks") register<bit<32>>(SLOTS) ranks_register;
    @name("marks") register<bit<3>>(SLOTS) marks_register; // the flags of all contributions
#ifdef PREEMPTION
    @name("attempts") register<bit<8>>(SLOTS) attempts_register; // e0
    @name("size") register<bit<3>>(SLOTS) size_register;
    @name("priority") register<bit<4>>(SLOTS) priority_register;
    @name("passed") register<bit<40>>(SLOTS) passed_register;    // lease and chunk that were sent up incomplete last
#endif
    ValueBlock() block_0;
    ValueBlock() block_1;
    ValueBlock() block_2;
    ValueBlock() block_3;

    counter(EVENTS, CounterType.packets_and_bytes) events;

    bit<1> from_parent = 0;
    bit<32> sender_ranks = 0; // the workers below the sender
    bit<32> job_ranks = 0;    // the workers below this switch
    bit<16> job_base = 0;
    bit<16> job_slots = 0;
    bit<32> job_window = 0;
    bit<32> job_first_chunk = 0;
    bit<32> job_last_chunk = 0;
    bit<16> job_group = 0;
    bit<9> job_uplink = 0;

    bit<32> cell = 0;
    bit<8> stored_lease = 0;
    bit<32> stored_chunk = 0;
    bit<32> ranks = 0;
    bit<3> marks = 0;
    bit<1> held = 0; // the cell belongs to a chunk of a lease in force
#ifdef PREEMPTION
    bit<8> attempts = 0;
    bit<3> size = 0;
    bit<4> priority = 0;
    bit<40> passed = 0;
    bit<32> holder_ranks = 0; // the workers of the chunk's job below this switch
    bit<1> holder_checksums = 0;
    bit<9> holder_uplink = 0;
#endif
    bit<32> overflow = 0;
    bit<2> operation = OPERATION_LOAD;

    action admit_child(bit<32> below, bit<32> all, bit<16> base, bit<16> slots, bit<32> window, bit<32> first_chunk,
                       bit<32> last_chunk, bit<1> checksums, bit<9> uplink) {
        meta.admitted = 1;
        meta.checksummed = checksums;
        sender_ranks = below;
        job_ranks = all;
        job_base = base;
        job_slots = slots;
        job_window = window;
        job_first_chunk = first_chunk;
        job_last_chunk = last_chunk;
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

    // Any job may find the cell of another one. A job that has ended frees its cells by leaving this table.
#ifdef PREEMPTION
    action in_force(bit<32> first_chunk, bit<32> last_chunk, bit<32> all, bit<1> checksums, bit<9> uplink) {
        held = (bit<1>)(ranks != 0 && stored_chunk >= first_chunk && stored_chunk <= last_chunk);
        holder_ranks = all;
        holder_checksums = checksums;
        holder_uplink = uplink;
    }
    // The packet and the cell change places.
    action evict() {
        bit<8> new_lease = hdr.switchml.lease;
        bit<32> new_chunk = hdr.switchml.chunk;
        bit<32> new_ranks = RANKS;
        bit<3> new_marks = hdr.exponents.unused[2:0];
        bit<8> new_attempts = (bit<8>)hdr.exponents.e0;
        bit<4> new_priority = PRIORITY;
        passed = stored_lease ++ stored_chunk;
        hdr.switchml.lease = stored_lease;
        hdr.switchml.chunk = stored_chunk;
        RANKS = ranks;
        hdr.exponents.unused[2:0] = marks;
        COLLIDED = 1;
        hdr.exponents.e0 = (int<8>)attempts;
        PRIORITY = priority;
        hdr.ipv4.dscp_ecn[1:0] = ECN_CAPABLE; // its marks are in the flags
        meta.checksummed = holder_checksums;
        job_uplink = holder_uplink;
        stored_lease = new_lease;
        stored_chunk = new_chunk;
        ranks = new_ranks;
        marks = new_marks;
        attempts = new_attempts;
        priority = new_priority;
    }
#else
    action in_force(bit<32> first_chunk, bit<32> last_chunk) {
        held = (bit<1>)(ranks != 0 && stored_chunk >= first_chunk && stored_chunk <= last_chunk);
    }
#endif
    action ended() { }
    table holders {
        key = { stored_lease: exact; }
        actions = { in_force; ended; }
        const default_action = ended();
        size = 256;
    }

    action multicast_result() {
        meta.aggregated = 1;
        standard_metadata.mcast_grp = job_group;
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
            cell = 16w0 ++ slot;
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
            bool compute = false;
            bool absorbed = false;
            lease_register.read(stored_lease, cell);
            chunk_register.read(stored_chunk, cell);
            ranks_register.read(ranks, cell);
            marks_register.read(marks, cell);
            holders.apply();
            bool ours = held == 1 && stored_lease == hdr.switchml.lease && stored_chunk == hdr.switchml.chunk;
            // A worker sends a chunk one window further on once it has the result of this one.
            bool over = held == 1 && stored_lease == hdr.switchml.lease && stored_chunk < hdr.switchml.chunk &&
                hdr.switchml.chunk - stored_chunk >= job_window;
            if (hdr.ipv4.dscp_ecn[1:0] == ECN_CONGESTED) {
                CONGESTED = 1;
            }
#ifdef PREEMPTION
            attempts_register.read(attempts, cell);
            size_register.read(size, cell);
            priority_register.read(priority, cell);
            passed_register.read(passed, cell);
            over = over || (held == 1 && ranks == holder_ranks); // its sum has been sent up
            // A chunk of which something has been sent up would wait in the cell for what never comes.
            bool passing = passed == hdr.switchml.lease ++ hdr.switchml.chunk || RESENT == 1;
            if (passing && from_parent == 0) {
                passed = hdr.switchml.lease ++ hdr.switchml.chunk;
            }
#else
            const bool passing = false;
#endif

            if (from_parent == 1) {
                // The server has everything: the cell is free, and workers get the result.
                if (ours) {
                    ranks = 0;
                }
                multicast_result();
                events.count(EVENT_RESULT_DOWN);
            } else if (ours) {
                if ((ranks & RANKS) == 0) {
                    operation = OPERATION_ADD;
                    compute = true;
                    ranks = ranks | RANKS;
                    RANKS = ranks;
                    events.count(EVENT_ADDED);
                    if (ranks == job_ranks) {
                        events.count(EVENT_COMPLETED);
                    } else {
                        absorbed = RESENT == 0;
                    }
                } else if ((RANKS & ~ranks) == 0) {
                    // Nothing new. The worker asks again, or it is a copy of its packet.
                    if (RESENT == 0 && ranks != job_ranks) {
                        meta.reason = REASON_DUPLICATE;
                    } else {
                        compute = true;
                        RANKS = ranks;
                        events.count(EVENT_SENT_UP_AGAIN);
                    }
                }
                // Otherwise it has values of some workers twice and of others not at all, which only the server can tell.
                marks = marks | hdr.exponents.unused[2:0];
                if (compute) {
                    hdr.exponents.unused[2:0] = marks;
                }
                if (RESENT == 1) {
                    ranks = 0;
                }
            } else if (RESENT == 0 && RANKS != job_ranks) {
                if ((held == 0 || over) && !passing) {
                    operation = OPERATION_STORE;
                    compute = true;
                    ranks = RANKS;
                    marks = hdr.exponents.unused[2:0];
                    stored_lease = hdr.switchml.lease;
                    stored_chunk = hdr.switchml.chunk;
                    absorbed = true;
                    events.count(EVENT_NEW_CHUNK);
#ifdef PREEMPTION
                    attempts = (bit<8>)hdr.exponents.e0;
                    size = hdr.switchml.size;
                    priority = PRIORITY;
                } else if (!passing && stored_lease != hdr.switchml.lease && priority < PRIORITY &&
                           size == hdr.switchml.size) {
                    operation = OPERATION_SWAP;
                    compute = true;
                    evict();
                    events.count(EVENT_NEW_CHUNK);
                    events.count(EVENT_SENT_UP_AGAIN);
#endif
                } else {
                    COLLIDED = 1;
#ifdef PREEMPTION
                    passed = hdr.switchml.lease ++ hdr.switchml.chunk;
                    // A chunk that waits for a late worker does not keep its cell for long.
                    priority = priority >> 1;
#endif
                }
            }

            if (meta.reason == REASON_NONE) {
                lease_register.write(cell, stored_lease);
                chunk_register.write(cell, stored_chunk);
                ranks_register.write(cell, ranks);
                marks_register.write(cell, marks);
#ifdef PREEMPTION
                attempts_register.write(cell, attempts);
                size_register.write(cell, size);
                priority_register.write(cell, priority);
                passed_register.write(cell, passed);
#endif
                if (compute) {
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
                if (from_parent == 0) {
                    if (absorbed) {
                        mark_to_drop(standard_metadata);
                    } else {
                        send_up();
                    }
                }
            }
        }
    }
}

#include "../../p4src/fanin.p4"
