// A switch that adds up chunks although packets are lost and retransmitted.

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
    bit<16> slot;
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

// Adds a value to the sum of a slot, unless it is in the sum already, and returns the sum.
control Adder(inout bit<32> value, in bit<32> slot, in bit<1> seen) {
    register<bit<32>>(64) sums;

    apply {
        bit<32> sum;
        sums.read(sum, slot);
        sum = sum + value; // TODO 2: only if it is not in the sum already
        sums.write(slot, sum);
        value = sum;
    }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    register<bit<32>>(64) bitmaps; // bit r: worker r has sent the chunk of this slot
    register<bit<8>>(64) counts;
    Adder() adder0;
    Adder() adder1;
    Adder() adder2;
    Adder() adder3;

    apply {
        if (hdr.chunk.isValid()) {
            bit<32> slot = (bit<32>)hdr.chunk.slot;

            meta.seen = 0; // TODO 1: 1 if the bitmap shows that this worker has sent the chunk before

            counts.read(meta.count, slot);
            meta.count = meta.count + 1; // TODO 2: only if it was not counted already
            counts.write(slot, meta.count);

            adder0.apply(hdr.chunk.value0, slot, meta.seen);
            adder1.apply(hdr.chunk.value1, slot, meta.seen);
            adder2.apply(hdr.chunk.value2, slot, meta.seen);
            adder3.apply(hdr.chunk.value3, slot, meta.seen);

            mark_to_drop(standard); // TODO 3: drop, multicast or serve again
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
