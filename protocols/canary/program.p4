// Canary (De Sensi et al., 2024): each packet chooses its way by load, and a switch holds a block until a timer ends.
//
// The packets are fanin's, and some of their fields mean something else here. A switch has no timers: the first packet of
// a block goes through the loopback port, and the block is sent up when it comes back. Everything that leaves a port is
// counted, so that a switch knows which of its ports are busy.

#define FANIN_AGGREGATION_P4
#define FANIN_LEAVING_P4
#include <core.p4>
#include <v1model.p4>
#include "../../p4src/headers.p4"
#include "../../p4src/reasons.p4"
#include "../../p4src/values.p4"

#define RANKS hdr.call.call            // a bit for each worker whose values an update has
#define RECEIVERS hdr.call.call        // in a result: a bit for each port to which this switch copies it
#define LEADER hdr.exponents.unused    // the rank that completes the block
#define RESENT (hdr.exponents.e0 != 0) // a worker waits for the result: nothing is held back
#define PASSES hdr.exponents.e0        // in the loopback port: how often the packet still passes through it

#define NEIGHBOURS 32         // ports of a switch that may lead to the job: 1 to 32
#define CANDIDATES 1024       // paths of all leaders

// What is sent to this port comes back after a while, from port 253.
const bit<9> LOOPBACK = 254;

const bit<2> OPEN = 0;   // the sum is held
const bit<2> CLOSED = 1; // it has been sent up, and what comes after it is passed on
const bit<2> DONE = 2;   // the cell has the result

// When a port's link has sent all that it was given, in 2^-16 us.
register<bit<64>>(PORTS) port_free_at;

#define REPEAT_32(X) \
    X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) X(16) \
    X(17) X(18) X(19) X(20) X(21) X(22) X(23) X(24) X(25) X(26) X(27) X(28) X(29) X(30) X(31) X(32)
#define TRY(port) \
    if (candidates & (32w1 << (port - 1)) != 0) { \
        port_free_at.read(free_at, port); \
        if (free_at < least) { \
            least = free_at; \
            chosen = port; \
        } \
    }

// Takes the least busy port instead of the usual one, which egress_spec has, if that is more than `slack` busier.
control Choice(inout standard_metadata_t standard_metadata, in bit<32> candidates, in bit<64> slack) {
    bit<64> free_at = 0;
    bit<64> least = 0;

    apply {
        bit<64> now = (bit<64>)standard_metadata.ingress_global_timestamp << 16;
        bit<9> chosen = standard_metadata.egress_spec;
        port_free_at.read(free_at, (bit<32>)chosen);
        if (free_at > now + slack) {
            least = free_at - slack;
            REPEAT_32(TRY)
            standard_metadata.egress_spec = chosen;
        }
    }
}

control Aggregation(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    // What a cell holds. A lease of 0 is never granted, so a fresh register belongs to nobody.
    @name("lease") register<bit<8>>(CELLS) lease_register;
    @name("chunk") register<bit<32>>(CELLS) chunk_register;
    @name("seen") register<bit<32>>(CELLS) seen_register;         // workers whose values have passed
    @name("ranks") register<bit<32>>(CELLS) ranks_register;       // workers whose values are in the sum
    @name("children") register<bit<32>>(CELLS) children_register; // ports that get the result
    @name("state") register<bit<2>>(CELLS) state_register;
    ValueBlock() block_0;
    ValueBlock() block_1;
    ValueBlock() block_2;
    ValueBlock() block_3;

    Choice() choice;

    counter(EVENTS, CounterType.packets_and_bytes) events;

    bit<1> timer = 0;         // the packet came back through the loopback port
    bit<32> sender_bit = 0;
    bit<32> sender_ranks = 0; // workers whose values the sender may have
    bit<16> job_base = 0;
    bit<16> job_slots = 0;
    bit<32> job_first_chunk = 0;
    bit<32> job_last_chunk = 0;
    bit<16> job_group = 0;

    bit<1> led = 0;         // the leader is known
    bit<16> path_base = 0;  // its usual paths
    bit<16> path_count = 0;
    bit<32> candidates = 0; // ports that lead to it
    bit<64> slack = 0;      // how much busier the usual port may be than the least busy one
    bit<32> full = 0;       // workers whose values may come to this switch on their way to it
    bit<9> leader_port = 0; // 0 if it is not below this switch
    int<8> patience = 0;    // passes through the loopback port
    bit<16> path = 0;

    bit<32> cell = 0;
    bit<8> stored_lease = 0;
    bit<32> stored_chunk = 0;
    bit<32> seen = 0;
    bit<32> ranks = 0;
    bit<32> children = 0;
    bit<2> state = OPEN;
    bit<32> overflow = 0;
    bit<2> operation = OPERATION_LOAD;

    action admit(bit<32> member_bit, bit<32> below, bit<16> base, bit<16> slots, bit<32> first_chunk,
                 bit<32> last_chunk, bit<1> checksums, bit<16> group, bit<1> loopback) {
        meta.admitted = 1;
        meta.checksummed = checksums;
        timer = loopback;
        sender_bit = member_bit;
        sender_ranks = below;
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
        actions = { admit; not_admitted; }
        const default_action = not_admitted();
        size = 1024;
    }

    action towards(bit<16> base, bit<16> count, bit<32> ports, bit<64> tolerance, bit<32> workers, bit<9> port,
                   bit<8> passes) {
        led = 1;
        path_base = base;
        path_count = count;
        candidates = ports;
        slack = tolerance;
        full = workers;
        leader_port = port;
        patience = (int<8>)passes;
    }
    action no_leader() { }
    table leaders {
        key = {
            hdr.switchml.lease: exact;
            LEADER: exact;
        }
        actions = { towards; no_leader; }
        const default_action = no_leader();
        size = 1024;
    }

    // All switches of a tier choose alike for a block, so that its packets meet, unless a port is busy.
    action usual(bit<9> port) {
        standard_metadata.egress_spec = port;
    }
    action no_path() {
        meta.reason = REASON_NO_ROUTE;
    }
    table paths {
        key = {
            hdr.switchml.lease: exact;
            path: exact;
        }
        actions = { usual; no_path; }
        const default_action = no_path();
        size = CANDIDATES;
    }
    action send_up() {
        meta.aggregated = 1;
        hash(path, HashAlgorithm.crc32, path_base, { hdr.switchml.chunk }, path_count);
    }
    action wait() {
        meta.aggregated = 1;
        meta.member = 0;
        standard_metadata.egress_spec = LOOPBACK;
    }
    action multicast_result() {
        meta.aggregated = 1;
        RECEIVERS = children;
        standard_metadata.mcast_grp = job_group;
    }
    action serve_result() {
        hdr.switchml.msg_type = MSG_RESULT;
        meta.aggregated = 1;
        meta.member = 7w0 ++ standard_metadata.ingress_port;
        RECEIVERS = sender_bit;
        standard_metadata.egress_spec = standard_metadata.ingress_port;
    }

    apply {
        admission.apply();
        if (meta.admitted == 1) {
            leaders.apply();
            bit<16> slot = 1w0 ++ hdr.switchml.slot;
            cell = 15w0 ++ slot ++ hdr.switchml.version;
            if (meta.checksummed == 1 && hdr.udp.checksum == 0) {
                meta.reason = REASON_NO_CHECKSUM;
            } else if (hdr.switchml.msg_type > MSG_RESULT) {
                meta.reason = REASON_BAD_TYPE;
            } else if (slot < job_base || slot - job_base >= job_slots || slot >= SLOTS) {
                meta.reason = REASON_BAD_SLOT;
            } else if (hdr.switchml.chunk < job_first_chunk || hdr.switchml.chunk > job_last_chunk) {
                meta.reason = REASON_BAD_CHUNK;
            } else if (!(hdr.switchml.size == SIZE_64 && hdr.udp.length == UDP_LENGTH_64) &&
                       !(hdr.switchml.size == SIZE_256 && hdr.udp.length == UDP_LENGTH_256)) {
                meta.reason = REASON_BAD_SIZE;
            } else if (led == 0 || (hdr.switchml.msg_type == MSG_UPDATE &&
                                    (RANKS == 0 || (RANKS & ~(sender_ranks & full)) != 0))) {
                meta.reason = REASON_MISMATCH;
            } else if (hdr.switchml.msg_type == MSG_RESULT && timer == 0 && sender_ranks != 0xFFFFFFFF &&
                       leader_port != standard_metadata.ingress_port) {
                meta.reason = REASON_BAD_TYPE; // from a worker that does not lead the block
            }
        }

        if (meta.admitted == 1 && meta.reason == REASON_NONE) {
            lease_register.read(stored_lease, cell);
            chunk_register.read(stored_chunk, cell);
            seen_register.read(seen, cell);
            ranks_register.read(ranks, cell);
            children_register.read(children, cell);
            state_register.read(state, cell);
            bool ours = stored_lease == hdr.switchml.lease && stored_chunk >= job_first_chunk &&
                stored_chunk <= job_last_chunk;
            bool same = ours && stored_chunk == hdr.switchml.chunk;
            bool compute = false; // the packet takes the cell's values along, or the cell the packet's
            bool up = false;
            if (ours && stored_chunk > hdr.switchml.chunk) {
                meta.reason = REASON_OLD_CHUNK;
            } else if (timer == 1) {
                if (!same || state != OPEN) {
                    meta.reason = REASON_DUPLICATE; // the block was full before
                } else if (PASSES > 1) {
                    PASSES = PASSES - 1;
                    wait();
                } else {
                    state = CLOSED;
                    compute = true;
                    PASSES = 0;
                    RANKS = ranks;
                    up = true;
                    events.count(EVENT_COMPLETED);
                }
            } else {
                if (!same) {
                    seen = 0;
                    ranks = 0;
                    children = 0;
                    state = RESENT || hdr.switchml.msg_type == MSG_RESULT ? CLOSED : OPEN;
                }
                if (hdr.switchml.msg_type == MSG_RESULT) {
                    if (state != DONE) {
                        state = DONE;
                        compute = true;
                        operation = OPERATION_STORE;
                        if (leader_port == standard_metadata.ingress_port) {
                            children = children | sender_bit; // so that it knows that the result is here
                        } else {
                            children = children & ~sender_bit;
                        }
                        multicast_result();
                        events.count(EVENT_RESULT_DOWN);
                    } else if (leader_port == standard_metadata.ingress_port) {
                        compute = true;
                        serve_result();
                        events.count(EVENT_SERVED_AGAIN);
                    } else {
                        meta.reason = REASON_STALE_RESULT;
                    }
                } else if (state == DONE) {
                    if (RESENT) {
                        compute = true;
                        serve_result();
                        events.count(EVENT_SERVED_AGAIN);
                    } else {
                        meta.reason = REASON_DUPLICATE;
                    }
                } else if ((RANKS & ~seen) == 0 && !RESENT) {
                    meta.reason = REASON_DUPLICATE;
                } else if (RESENT || state == CLOSED || (RANKS & seen) != 0) {
                    seen = seen | RANKS;
                    children = children | sender_bit;
                    up = true;
                    events.count(EVENT_SENT_UP_AGAIN);
                } else {
                    compute = true;
                    operation = ranks == 0 ? OPERATION_STORE : OPERATION_ADD;
                    bool first = ranks == 0;
                    seen = seen | RANKS;
                    ranks = ranks | RANKS;
                    children = children | sender_bit;
                    if (leader_port != 0 && ranks == full) {
                        state = DONE; // all have met here, and the leader has nothing to do
                        hdr.switchml.msg_type = MSG_RESULT;
                        multicast_result();
                        events.count(EVENT_COMPLETED);
                    } else if (seen == full) {
                        state = CLOSED;
                        RANKS = ranks;
                        up = true;
                        events.count(EVENT_COMPLETED);
                    } else if (first) {
                        PASSES = patience;
                        wait();
                    } else {
                        mark_to_drop(standard_metadata);
                    }
                    if (first) {
                        events.count(EVENT_NEW_CHUNK);
                    } else {
                        events.count(EVENT_ADDED);
                    }
                }
            }

            if (meta.reason == REASON_NONE) {
                lease_register.write(cell, hdr.switchml.lease);
                chunk_register.write(cell, hdr.switchml.chunk);
                seen_register.write(cell, seen);
                ranks_register.write(cell, ranks);
                children_register.write(cell, children);
                state_register.write(cell, state);
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
                if (up) {
                    send_up();
                    paths.apply();
                    choice.apply(standard_metadata, candidates, slack);
                    meta.member = 7w0 ++ standard_metadata.egress_spec;
                }
            }
        }
    }
}

// What leaves a port, whatever it is, keeps its link busy. Only the wanted copies of a result leave.
control Leaving(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    bit<64> free_at = 0;

    // On a link on which a byte takes byte_time, in 2^-32 us.
    action occupy(bit<48> byte_time) {
        bit<64> now = (bit<64>)standard_metadata.ingress_global_timestamp << 16;
        port_free_at.read(free_at, (bit<32>)standard_metadata.egress_port);
        free_at = free_at > now ? free_at : now;
        port_free_at.write((bit<32>)standard_metadata.egress_port,
                           free_at + (((bit<64>)standard_metadata.packet_length * (bit<64>)byte_time) >> 16));
    }
    action unlimited() { }
    table rates {
        key = { standard_metadata.egress_port: exact; }
        actions = { occupy; unlimited; }
        const default_action = unlimited();
        size = PORTS;
    }

    apply {
        if (meta.aggregated == 1 && standard_metadata.egress_rid != 0 &&
            (RECEIVERS & (32w1 << (bit<8>)(standard_metadata.egress_rid - 1))) == 0) {
            mark_to_drop(standard_metadata);
            exit;
        }
        rates.apply();
    }
}

#include "../../p4src/fanin.p4"
