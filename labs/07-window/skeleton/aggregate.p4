// A switch whose slots are used repeatedly, although packets are lost.

#include <core.p4>
#include <v1model.p4>

const bit<16> TYPE_CHUNK = 0x88b6; // for local experiments (IEEE 802)
const bit<16> GROUP = 1;           // the multicast group of all workers

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> type;
}

header chunk_t {
    bit<8> workers;
    bit<8> rank;
    bit<8> slot;    // from 0 to 3
    bit<8> version; // 0 or 1
    bit<32> chunk;  // number of the chunk, for the workers
    bit<32> value0;
    bit<32> value1;
    bit<32> value2;
    bit<32> value3;
}

struct headers_t {
    ethernet_t ethernet;
    chunk_t chunk;
}

struct metadata_t {
    bit<1> seen;  // the switch has added this worker's chunk already
    bit<8> count; // workers whose chunks are in the sum, with this one
}

parser MyParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            TYPE_CHUNK: parse_chunk;
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

// Adds a value to the sum of a cell. The first worker of a round overwrites it; what was seen is not added.
control Adder(inout bit<32> value, in bit<32> cell, in bit<8> count, in bit<1> seen) {
    register<bit<32>>(8) sums;

    apply {
        bit<32> sum;
        sums.read(sum, cell);
        sum = sum + value; // TODO 3: overwrite it if this is the first packet of a round; do not add what was seen
        sums.write(cell, sum);
        value = sum;
    }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    register<bit<32>>(4) bitmaps; // of each slot: 16 bits for version 0, and 16 for version 1 above them
    register<bit<8>>(8) counts;   // of each cell: a slot and a version
    Adder() adder0;
    Adder() adder1;
    Adder() adder2;
    Adder() adder3;

    apply {
        if (hdr.chunk.isValid()) {
            bit<32> slot = (bit<32>)hdr.chunk.slot[1:0];
            bit<32> cell = (bit<32>)(hdr.chunk.slot[1:0] ++ hdr.chunk.version[0:0]);

            bit<32> bitmap;
            bit<32> zero = 32w1 << hdr.chunk.rank;
            bit<32> one = 32w0x10000 << hdr.chunk.rank;
            bitmaps.read(bitmap, slot);
            meta.seen = 0; // TODO 1: 1 if the bit is set already; set it in one version, and clear it in the other
            bitmaps.write(slot, bitmap);

            counts.read(meta.count, cell);
            // TODO 2: count this worker, unless it was seen; a complete count begins again at 1
            counts.write(cell, meta.count);

            adder0.apply(hdr.chunk.value0, cell, meta.count, meta.seen);
            adder1.apply(hdr.chunk.value1, cell, meta.count, meta.seen);
            adder2.apply(hdr.chunk.value2, cell, meta.count, meta.seen);
            adder3.apply(hdr.chunk.value3, cell, meta.count, meta.seen);

            if (meta.count != hdr.chunk.workers) {
                mark_to_drop(standard);
            } else if (meta.seen == 1) {
                standard.egress_spec = standard.ingress_port;
            } else {
                standard.mcast_grp = GROUP;
            }
        } else {
            mark_to_drop(standard);
        }
    }
}

control MyEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply { }
}

control MyComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control MyDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.chunk);
    }
}

V1Switch(MyParser(), MyVerifyChecksum(), MyIngress(), MyEgress(), MyComputeChecksum(), MyDeparser()) main;
