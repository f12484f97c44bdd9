// THC (Li et al., NSDI 2024): workers send four bits for each element, an index of a table, and a switch adds the table's values.
//
// Elements are stored bit by bit, as in protocols/majority: plane i has bit i of 512 elements. The table is then a Boolean
// function of four planes, and adding a ripple-carry addition of eight. Before that, workers agree on the largest norm.

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
#define ELEMENTS 512
typedef bit<ELEMENTS> plane_t;

// From the UDP header on: 8 bytes of UDP, 8 of switchml_t, and a norm, four planes of indices, or eight of sums.
#define UDP_LENGTH_NORM 20
#define UDP_LENGTH_INDICES 272
#define UDP_LENGTH_SUMS 528

header norm_h {
    bit<32> bits; // of a float32 that is not negative: such floats have the order of their bits
}

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
    norm_h norm;
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
            (AGGREGATION_PORTS, UDP_LENGTH_NORM): norm;
            (AGGREGATION_PORTS, UDP_LENGTH_INDICES): indices;
            (AGGREGATION_PORTS, UDP_LENGTH_SUMS): sums;
            default: accept;
        }
    }

    state norm {
        packet.extract(hdr.switchml);
        packet.extract(hdr.norm);
        transition accept;
    }

    state indices {
        packet.extract(hdr.switchml);
        packet.extract(hdr.p0);
        packet.extract(hdr.p1);
        packet.extract(hdr.p2);
        packet.extract(hdr.p3);
        transition accept;
    }

    state sums {
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
#define HEADER_FIELDS hdr.ipv4.source, hdr.ipv4.destination, 8w0, hdr.ipv4.protocol, hdr.udp.length, \
                      hdr.udp.source_port, hdr.udp.destination_port, hdr.udp.length, \
                      hdr.switchml.msg_type, hdr.switchml.saturated, hdr.switchml.size, hdr.switchml.lease, \
                      hdr.switchml.chunk, hdr.switchml.version, hdr.switchml.slot
#define NORM_FIELDS HEADER_FIELDS, hdr.norm.bits
#define INDEX_FIELDS HEADER_FIELDS, hdr.p0.bits, hdr.p1.bits, hdr.p2.bits, hdr.p3.bits
#define SUM_FIELDS INDEX_FIELDS, hdr.p4.bits, hdr.p5.bits, hdr.p6.bits, hdr.p7.bits
#define HAS_NORM (hdr.norm.isValid())
#define HAS_INDICES (hdr.p0.isValid() && !hdr.p4.isValid())
#define HAS_SUMS (hdr.p4.isValid())

control verify_checksums(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.ipv4.isValid(), IPV4_FIELDS, hdr.ipv4.checksum, HashAlgorithm.csum16);
        verify_checksum(HAS_NORM && hdr.udp.checksum != 0, { NORM_FIELDS, hdr.udp.checksum }, meta.zero,
                        HashAlgorithm.csum16);
        verify_checksum(HAS_INDICES && hdr.udp.checksum != 0, { INDEX_FIELDS, hdr.udp.checksum }, meta.zero,
                        HashAlgorithm.csum16);
        verify_checksum(HAS_SUMS && hdr.udp.checksum != 0, { SUM_FIELDS, hdr.udp.checksum }, meta.zero,
                        HashAlgorithm.csum16);
    }
}

control update_checksums(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid(), IPV4_FIELDS, hdr.ipv4.checksum, HashAlgorithm.csum16);
        update_checksum(meta.checksummed == 1 && HAS_NORM, { NORM_FIELDS }, hdr.udp.checksum, HashAlgorithm.csum16);
        update_checksum(meta.checksummed == 1 && HAS_SUMS, { SUM_FIELDS }, hdr.udp.checksum, HashAlgorithm.csum16);
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
        packet.emit(hdr.norm);
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

// The elements whose index is i, and what they add to the planes of values: bit i of job_table_j is bit j of value i.
#define PLANE_OF(i, j) (4w##i[j:j] == 1 ? index_##j : ~index_##j)
#define LOOK_UP(i) \
    chosen = PLANE_OF(i, 0) & PLANE_OF(i, 1) & PLANE_OF(i, 2) & PLANE_OF(i, 3); \
    if (job_table_0[i:i] == 1) { \
        hdr.p0.bits = hdr.p0.bits | chosen; \
    } \
    if (job_table_1[i:i] == 1) { \
        hdr.p1.bits = hdr.p1.bits | chosen; \
    } \
    if (job_table_2[i:i] == 1) { \
        hdr.p2.bits = hdr.p2.bits | chosen; \
    } \
    if (job_table_3[i:i] == 1) { \
        hdr.p3.bits = hdr.p3.bits | chosen; \
    } \
    if (job_table_4[i:i] == 1) { \
        hdr.p4.bits = hdr.p4.bits | chosen; \
    }

// One bit of every sum: stored bit, added bit, carry.
#define PLANE(i) \
    stored = 0; \
    if (fresh == 0) { \
        plane_##i.read(stored, cell); \
    } \
    added = hdr.p##i.bits; \
    hdr.p##i.bits = stored ^ added ^ carry; \
    carry = (stored & added) | (carry & (stored ^ added)); \
    plane_##i.write(cell, hdr.p##i.bits);
#define LOAD(i) hdr.p##i.setValid(); plane_##i.read(hdr.p##i.bits, cell);
#define STORE(i) plane_##i.write(cell, hdr.p##i.bits);

control Aggregation(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    // Whose cell it is. A lease of 0 is never granted, so a fresh register belongs to nobody.
    @name("lease") register<bit<8>>(CELLS) lease_register;
    @name("chunk") register<bit<32>>(CELLS) chunk_register;
    @name("seen") register<bit<32>>(CELLS) seen_register;
    @name("done") register<bit<1>>(CELLS) done_register; // the result is stored, not only this switch's part
    @name("norm") register<bit<32>>(CELLS) norm_register;
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
    bit<16> job_table_0 = 0;
    bit<16> job_table_1 = 0;
    bit<16> job_table_2 = 0;
    bit<16> job_table_3 = 0;
    bit<16> job_table_4 = 0;
    bit<1> job_root = 0;
    bit<16> job_group = 0;
    bit<9> job_uplink = 0;

    bit<32> cell = 0;
    bit<8> stored_lease = 0;
    bit<32> stored_chunk = 0;
    bit<32> seen = 0;
    bit<1> done = 0;
    bit<1> fresh = 0;
    bit<32> norm = 0;
    plane_t index_0 = 0;
    plane_t index_1 = 0;
    plane_t index_2 = 0;
    plane_t index_3 = 0;
    plane_t chosen = 0;
    plane_t stored = 0;
    plane_t added = 0;
    plane_t carry = 0;

    action admit_child(bit<16> member, bit<32> member_bit, bit<32> full, bit<16> base, bit<16> slots,
                       bit<32> first_chunk, bit<32> last_chunk, bit<1> checksums, bit<1> root, bit<16> group,
                       bit<9> uplink, bit<16> table_0, bit<16> table_1, bit<16> table_2, bit<16> table_3,
                       bit<16> table_4) {
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
        job_table_0 = table_0;
        job_table_1 = table_1;
        job_table_2 = table_2;
        job_table_3 = table_3;
        job_table_4 = table_4;
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

    // What a worker sent becomes the values of the table.
    action look_up() {
        index_0 = hdr.p0.bits;
        index_1 = hdr.p1.bits;
        index_2 = hdr.p2.bits;
        index_3 = hdr.p3.bits;
        hdr.p0.bits = 0;
        hdr.p1.bits = 0;
        hdr.p2.bits = 0;
        hdr.p3.bits = 0;
        hdr.p4.setValid();
        hdr.p4.bits = 0;
        hdr.p5.setValid();
        hdr.p5.bits = 0;
        hdr.p6.setValid();
        hdr.p6.bits = 0;
        hdr.p7.setValid();
        hdr.p7.bits = 0;
        hdr.udp.length = UDP_LENGTH_SUMS;
        hdr.ipv4.total_length = UDP_LENGTH_SUMS + 20;
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
            bool load = false;
            norm_register.read(norm, cell);
            if (HAS_INDICES) {
                look_up();
                LOOK_UP(0)
                LOOK_UP(1)
                LOOK_UP(2)
                LOOK_UP(3)
                LOOK_UP(4)
                LOOK_UP(5)
                LOOK_UP(6)
                LOOK_UP(7)
                LOOK_UP(8)
                LOOK_UP(9)
                LOOK_UP(10)
                LOOK_UP(11)
                LOOK_UP(12)
                LOOK_UP(13)
                LOOK_UP(14)
                LOOK_UP(15)
            }
            if (from_parent == 1) {
                if (new_chunk || stored_chunk != hdr.switchml.chunk || done == 1) {
                    meta.reason = REASON_STALE_RESULT;
                } else {
                    done = 1;
                    write = true;
                    if (HAS_NORM) {
                        norm = hdr.norm.bits;
                    } else {
                        STORE(0)
                        STORE(1)
                        STORE(2)
                        STORE(3)
                        STORE(4)
                        STORE(5)
                        STORE(6)
                        STORE(7)
                    }
                    multicast_result();
                    events.count(EVENT_RESULT_DOWN);
                }
            } else if (!new_chunk && stored_chunk > hdr.switchml.chunk) {
                meta.reason = REASON_OLD_CHUNK;
            } else if (!new_chunk && done == 1) {
                load = true;
                serve_result();
                events.count(EVENT_SERVED_AGAIN);
            } else if (new_chunk || (seen & sender_bit) == 0) {
                if (new_chunk) {
                    fresh = 1;
                    seen = 0;
                    done = 0;
                    norm = 0;
                    events.count(EVENT_NEW_CHUNK);
                } else {
                    events.count(EVENT_ADDED);
                }
                seen = seen | sender_bit;
                write = true;
                if (HAS_NORM) {
                    if (hdr.norm.bits > norm) {
                        norm = hdr.norm.bits;
                    }
                    hdr.norm.bits = norm;
                } else {
                    PLANE(0)
                    PLANE(1)
                    PLANE(2)
                    PLANE(3)
                    PLANE(4)
                    PLANE(5)
                    PLANE(6)
                    PLANE(7)
                }
                if (seen != job_full) {
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
                load = true;
                send_up();
                events.count(EVENT_SENT_UP_AGAIN);
            } else {
                meta.reason = REASON_DUPLICATE;
            }
            if (load) {
                if (HAS_NORM) {
                    hdr.norm.bits = norm;
                } else {
                    LOAD(0)
                    LOAD(1)
                    LOAD(2)
                    LOAD(3)
                    LOAD(4)
                    LOAD(5)
                    LOAD(6)
                    LOAD(7)
                }
            }
            if (write) {
                lease_register.write(cell, hdr.switchml.lease);
                chunk_register.write(cell, hdr.switchml.chunk);
                seen_register.write(cell, seen);
                done_register.write(cell, done);
                norm_register.write(cell, norm);
            }
        }
    }
}

#include "../../p4src/fanin.p4"
