// A majority vote of one bit per element (sign voting, Bernstein et al., ICLR 2019), next to the routing of fanin.p4.
//
// A cell counts the votes for 512 elements. The counts are stored bit by bit: plane i has bit i of every count. Adding
// a packet of votes is then a ripple-carry addition of planes, in a few ANDs and XORs for all elements at once. No
// multiplication or comparison is needed: the root adds `bias` to every count, such that bit 7 is the majority.

#define FANIN_PACKET
#define FANIN_PARSER_P4
#define FANIN_AGGREGATION_P4
#include <core.p4>
#include <v1model.p4>
#include "../../p4src/headers.p4"
#include "../../p4src/network.p4"
#include "../../p4src/reasons.p4"

#define SLOTS 1024
#define CELLS 2048
#define VOTES 512
typedef bit<VOTES> plane_t;

// From the UDP header on: 8 bytes of UDP, 8 of switchml_t, and one plane (votes, results) or eight (partial sums).
#define UDP_LENGTH_VOTES 80
#define UDP_LENGTH_COUNTS 528

header plane_h {
    plane_t bits;
}

struct headers_t {
    ethernet_t ethernet;
    arp_t arp;
    ipv4_header_t ipv4;
    tcp_ports_t tcp;
    udp_t udp;
    switchml_t switchml;
    plane_h p0;
    plane_h p1;
    plane_h p2;
    plane_h p3;
    plane_h p4;
    plane_h p5;
    plane_h p6;
    plane_h p7;
}

parser parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
#include "../../p4src/network_states.p4"

    state udp {
        packet.extract(hdr.udp);
        meta.source_port = hdr.udp.source_port;
        meta.destination_port = hdr.udp.destination_port;
        transition select(hdr.udp.destination_port, hdr.udp.length) {
            (AGGREGATION_PORTS, UDP_LENGTH_VOTES): votes;
            (AGGREGATION_PORTS, UDP_LENGTH_COUNTS): counts;
            default: accept;
        }
    }

    state votes {
        packet.extract(hdr.switchml);
        packet.extract(hdr.p0);
        transition accept;
    }

    state counts {
        packet.extract(hdr.switchml);
        packet.extract(hdr.p0);
        packet.extract(hdr.p1);
        packet.extract(hdr.p2);
        packet.extract(hdr.p3);
        packet.extract(hdr.p4);
        packet.extract(hdr.p5);
        packet.extract(hdr.p6);
        packet.extract(hdr.p7);
        transition accept;
    }
}

// RFC 768: the pseudo-header, the header without its checksum, and the payload.
#define VOTE_FIELDS hdr.ipv4.source, hdr.ipv4.destination, 8w0, hdr.ipv4.protocol, hdr.udp.length, \
                    hdr.udp.source_port, hdr.udp.destination_port, hdr.udp.length, \
                    hdr.switchml.msg_type, hdr.switchml.saturated, hdr.switchml.size, hdr.switchml.lease, \
                    hdr.switchml.chunk, hdr.switchml.version, hdr.switchml.slot, hdr.p0.bits
#define COUNT_FIELDS VOTE_FIELDS, hdr.p1.bits, hdr.p2.bits, hdr.p3.bits, hdr.p4.bits, hdr.p5.bits, hdr.p6.bits, \
                     hdr.p7.bits
#define HAS_VOTES (hdr.p0.isValid() && !hdr.p1.isValid())
#define HAS_COUNTS (hdr.p1.isValid())

control verify_checksums(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.ipv4.isValid(), IPV4_FIELDS, hdr.ipv4.checksum, HashAlgorithm.csum16);
        verify_checksum(HAS_VOTES && hdr.udp.checksum != 0, { VOTE_FIELDS, hdr.udp.checksum }, meta.zero,
                        HashAlgorithm.csum16);
        verify_checksum(HAS_COUNTS && hdr.udp.checksum != 0, { COUNT_FIELDS, hdr.udp.checksum }, meta.zero,
                        HashAlgorithm.csum16);
    }
}

control update_checksums(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid(), IPV4_FIELDS, hdr.ipv4.checksum, HashAlgorithm.csum16);
        update_checksum(meta.checksummed == 1 && HAS_VOTES, { VOTE_FIELDS }, hdr.udp.checksum, HashAlgorithm.csum16);
        update_checksum(meta.checksummed == 1 && HAS_COUNTS, { COUNT_FIELDS }, hdr.udp.checksum, HashAlgorithm.csum16);
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
        packet.emit(hdr.p0);
        packet.emit(hdr.p1);
        packet.emit(hdr.p2);
        packet.emit(hdr.p3);
        packet.emit(hdr.p4);
        packet.emit(hdr.p5);
        packet.emit(hdr.p6);
        packet.emit(hdr.p7);
    }
}

// One bit of every count: stored bit, added bit (if the packet has this plane), carry.
#define PLANE(i) \
    stored = 0; \
    if (fresh == 0) { \
        plane_##i.read(stored, cell); \
    } else if (job_bias[i:i] == 1) { \
        stored = ~(plane_t)0; \
    } \
    added = 0; \
    if (hdr.p##i.isValid()) { \
        added = hdr.p##i.bits; \
    } \
    hdr.p##i.setValid(); \
    hdr.p##i.bits = stored ^ added ^ carry; \
    carry = (stored & added) | (carry & (stored ^ added)); \
    plane_##i.write(cell, hdr.p##i.bits);
#define LOAD(i) hdr.p##i.setValid(); plane_##i.read(hdr.p##i.bits, cell);

control Aggregation(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    // Whose cell it is. A lease of 0 is never granted, so a fresh register belongs to nobody.
    @name("lease") register<bit<8>>(CELLS) lease_register;
    @name("chunk") register<bit<32>>(CELLS) chunk_register;
    @name("seen") register<bit<32>>(CELLS) seen_register;
    @name("done") register<bit<1>>(CELLS) done_register; // plane 0 has the result, not counts
    register<plane_t>(CELLS) plane_0;
    register<plane_t>(CELLS) plane_1;
    register<plane_t>(CELLS) plane_2;
    register<plane_t>(CELLS) plane_3;
    register<plane_t>(CELLS) plane_4;
    register<plane_t>(CELLS) plane_5;
    register<plane_t>(CELLS) plane_6;
    register<plane_t>(CELLS) plane_7;

    counter(EVENTS, CounterType.packets_and_bytes) events;

    bit<1> from_parent = 0;
    bit<16> sender = 0;
    bit<32> sender_bit = 0;
    bit<32> job_full = 0;
    bit<16> job_base = 0;
    bit<16> job_slots = 0;
    bit<32> job_first_chunk = 0;
    bit<32> job_last_chunk = 0;
    bit<8> job_bias = 0;
    bit<1> job_root = 0;
    bit<16> job_group = 0;
    bit<9> job_uplink = 0;

    bit<32> cell = 0;
    bit<8> stored_lease = 0;
    bit<32> stored_chunk = 0;
    bit<32> seen = 0;
    bit<1> done = 0;
    bit<1> fresh = 0;
    plane_t stored = 0;
    plane_t added = 0;
    plane_t carry = 0;

    action admit_child(bit<16> member, bit<32> member_bit, bit<32> full, bit<16> base, bit<16> slots,
                       bit<32> first_chunk, bit<32> last_chunk, bit<1> checksums, bit<1> root, bit<16> group,
                       bit<9> uplink, bit<8> bias) {
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
        job_bias = bias;
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

    action keep_one_plane() {
        hdr.p1.setInvalid();
        hdr.p2.setInvalid();
        hdr.p3.setInvalid();
        hdr.p4.setInvalid();
        hdr.p5.setInvalid();
        hdr.p6.setInvalid();
        hdr.p7.setInvalid();
        hdr.udp.length = UDP_LENGTH_VOTES;
        hdr.ipv4.total_length = UDP_LENGTH_VOTES + 20;
        hdr.switchml.msg_type = MSG_RESULT;
        meta.aggregated = 1;
    }
    action multicast_result() {
        keep_one_plane();
        standard_metadata.mcast_grp = job_group;
    }
    action serve_result() {
        keep_one_plane();
        plane_0.read(hdr.p0.bits, cell);
        meta.member = sender;
        standard_metadata.egress_spec = standard_metadata.ingress_port;
    }
    action send_up() {
        hdr.udp.length = UDP_LENGTH_COUNTS;
        hdr.ipv4.total_length = UDP_LENGTH_COUNTS + 20;
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
            }
        }

        if (meta.admitted == 1 && meta.reason == REASON_NONE) {
            lease_register.read(stored_lease, cell);
            chunk_register.read(stored_chunk, cell);
            seen_register.read(seen, cell);
            done_register.read(done, cell);
            bool new_chunk = stored_lease != hdr.switchml.lease || stored_chunk < hdr.switchml.chunk ||
                stored_chunk > job_last_chunk;
            bool write = false;
            if (from_parent == 1) {
                if (new_chunk || stored_chunk != hdr.switchml.chunk || done == 1) {
                    meta.reason = REASON_STALE_RESULT;
                } else {
                    done = 1;
                    plane_0.write(cell, hdr.p0.bits);
                    multicast_result();
                    events.count(EVENT_RESULT_DOWN);
                    write = true;
                }
            } else if (!new_chunk && stored_chunk > hdr.switchml.chunk) {
                meta.reason = REASON_OLD_CHUNK;
            } else if (!new_chunk && done == 1) {
                serve_result();
                events.count(EVENT_SERVED_AGAIN);
            } else if (new_chunk || (seen & sender_bit) == 0) {
                if (new_chunk) {
                    fresh = 1;
                    seen = 0;
                    done = 0;
                    events.count(EVENT_NEW_CHUNK);
                } else {
                    events.count(EVENT_ADDED);
                }
                seen = seen | sender_bit;
                write = true;
                PLANE(0)
                PLANE(1)
                PLANE(2)
                PLANE(3)
                PLANE(4)
                PLANE(5)
                PLANE(6)
                PLANE(7)
                if (seen != job_full) {
                    mark_to_drop(standard_metadata);
                } else {
                    events.count(EVENT_COMPLETED);
                    if (job_root == 1) {
                        done = 1;
                        hdr.p0.bits = hdr.p7.bits;
                        plane_0.write(cell, hdr.p0.bits);
                        multicast_result();
                    } else {
                        send_up();
                    }
                }
            } else if (job_root == 0 && seen == job_full) {
                LOAD(0)
                LOAD(1)
                LOAD(2)
                LOAD(3)
                LOAD(4)
                LOAD(5)
                LOAD(6)
                LOAD(7)
                send_up();
                events.count(EVENT_SENT_UP_AGAIN);
            } else {
                meta.reason = REASON_DUPLICATE;
            }
            if (write) {
                lease_register.write(cell, hdr.switchml.lease);
                chunk_register.write(cell, hdr.switchml.chunk);
                seen_register.write(cell, seen);
                done_register.write(cell, done);
            }
        }
    }
}

#include "../../p4src/fanin.p4"
