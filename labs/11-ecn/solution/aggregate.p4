// A switch that adds up chunks, and tells the workers when an update was marked by a congested link.

#include <core.p4>
#include <v1model.p4>

const bit<16> TYPE_IPV4 = 0x0800;
const bit<8> PROTOCOL_UDP = 17;
const bit<16> UDP_PORT = 5005;
const bit<16> GROUP = 1; // on a leaf, the multicast group of its workers

const bit<2> NOT_CAPABLE = 0; // RFC 3168: the sender does not react to marks
const bit<2> CONGESTED = 3;   // a link has marked the packet

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> type;
}

header ipv4_t {
    bit<4> version;
    bit<4> header_length;
    bit<6> dscp;
    bit<2> ecn;
    bit<16> total_length;
    bit<16> identification;
    bit<3> flags;
    bit<13> fragment_offset;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    bit<32> source;
    bit<32> destination;
}

header udp_t {
    bit<16> source;
    bit<16> destination;
    bit<16> length;
    bit<16> checksum;
}

header chunk_t {
    bit<8> workers;
    bit<8> rank;
    bit<8> slot;    // from 0 to 31
    bit<8> version; // 0 or 1
    bit<32> chunk;  // number of the chunk
    bit<32> value0;
    bit<32> value1;
    bit<32> value2;
    bit<32> value3;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t ipv4;
    udp_t udp;
    chunk_t chunk;
}

struct metadata_t {
    bit<1> skip;  // the packet is not added: it is late, or the sum has this worker's chunk
    bit<8> count; // workers whose chunks are in the sum, with this one
}

parser MyParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            TYPE_IPV4: parse_ipv4;
            default: accept;
        }
    }
    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.protocol) {
            PROTOCOL_UDP: parse_udp;
            default: accept;
        }
    }
    state parse_udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.destination) {
            UDP_PORT: parse_chunk;
            default: accept;
        }
    }
    state parse_chunk {
        packet.extract(hdr.chunk);
        transition accept;
    }
}

control MyVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

// Adds a value to the sum of a cell. The first worker of a round overwrites it.
control Adder(inout bit<32> value, in bit<32> cell, in bit<8> count, in bit<1> skip) {
    register<bit<32>>(64) sums;

    apply {
        bit<32> sum;
        sums.read(sum, cell);
        if (skip == 0) {
            sum = count == 1 ? value : sum + value;
        }
        sums.write(cell, sum);
        value = sum;
    }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    // Of each cell, which is a slot and a version:
    register<bit<32>>(64) chunks;  // the number of the chunk that it holds
    register<bit<32>>(64) bitmaps; // a bit for each worker that is in the sum
    register<bit<8>>(64) counts;
    register<bit<1>>(64) marks;    // whether one of these workers' updates was marked
    Adder() adder0;
    Adder() adder1;
    Adder() adder2;
    Adder() adder3;

    action up(bit<9> port) {
        standard.egress_spec = port;
    }

    action down() {
        standard.mcast_grp = GROUP;
    }

    // A leaf only forwards: updates to the spine, results to its workers. On the spine the table is empty.
    table leaf {
        key = { standard.ingress_port: exact; }
        actions = { up; down; NoAction; }
        default_action = NoAction();
    }

    apply {
        if (!hdr.chunk.isValid()) {
            mark_to_drop(standard);
        } else if (!leaf.apply().hit) {
            bit<32> cell = (bit<32>)(hdr.chunk.slot[4:0] ++ hdr.chunk.version[0:0]);

            bit<32> held;
            chunks.read(held, cell);
            bool late = hdr.chunk.chunk < held;
            bool newer = hdr.chunk.chunk > held;
            chunks.write(cell, late ? held : hdr.chunk.chunk);

            bit<32> bitmap;
            bit<32> mine = 32w1 << hdr.chunk.rank;
            bitmaps.read(bitmap, cell);
            if (newer) {
                bitmap = 0;
            }
            meta.skip = late || (bitmap & mine) != 0 ? 1w1 : 1w0;
            bitmaps.write(cell, late ? bitmap : bitmap | mine);

            counts.read(meta.count, cell);
            if (newer) {
                meta.count = 1;
            } else if (meta.skip == 0) {
                meta.count = meta.count + 1;
            }
            counts.write(cell, meta.count);

            bit<1> mark;
            marks.read(mark, cell);
            if (newer) {
                mark = 0;
            }
            if (!late && hdr.ipv4.ecn == CONGESTED) {
                mark = 1;
            }
            marks.write(cell, mark);

            adder0.apply(hdr.chunk.value0, cell, meta.count, meta.skip);
            adder1.apply(hdr.chunk.value1, cell, meta.count, meta.skip);
            adder2.apply(hdr.chunk.value2, cell, meta.count, meta.skip);
            adder3.apply(hdr.chunk.value3, cell, meta.count, meta.skip);

            if (late || meta.count != hdr.chunk.workers) {
                mark_to_drop(standard);
            } else {
                // The result goes back to the leaf, which multicasts it.
                standard.egress_spec = standard.ingress_port;
                if (mark == 1 && hdr.ipv4.ecn != NOT_CAPABLE) {
                    hdr.ipv4.ecn = CONGESTED;
                }
            }
        }
    }
}

control MyEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply { }
}

control MyComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid(),
            { hdr.ipv4.version, hdr.ipv4.header_length, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.total_length,
              hdr.ipv4.identification, hdr.ipv4.flags, hdr.ipv4.fragment_offset, hdr.ipv4.ttl,
              hdr.ipv4.protocol, hdr.ipv4.source, hdr.ipv4.destination },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control MyDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
        packet.emit(hdr.chunk);
    }
}

V1Switch(MyParser(), MyVerifyChecksum(), MyIngress(), MyEgress(), MyComputeChecksum(), MyDeparser()) main;
