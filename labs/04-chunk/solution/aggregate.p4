// A switch that adds up one chunk of each worker, and answers with the sum.

#include <core.p4>
#include <v1model.p4>

const bit<16> TYPE_CHUNK = 0x88b6; // for local experiments (IEEE 802)

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> type;
}

header chunk_t {
    bit<8> workers; // of the job
    bit<8> rank;    // of the worker that sends it
    bit<16> slot;   // where the switch keeps the sum
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
    bit<8> count; // workers that have sent the chunk, with this one
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

// Adds a value to the sum of a slot. The first worker of a round overwrites what the round before has left.
control Adder(inout bit<32> value, in bit<32> slot, in bit<8> count) {
    register<bit<32>>(16) sums;

    apply {
        bit<32> sum;
        sums.read(sum, slot);
        if (count == 1) {
            sum = value;
        } else {
            sum = sum + value;
        }
        sums.write(slot, sum);
        value = sum;
    }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    register<bit<8>>(16) counts;
    Adder() adder0;
    Adder() adder1;
    Adder() adder2;
    Adder() adder3;

    apply {
        if (hdr.chunk.isValid()) {
            bit<32> slot = (bit<32>)hdr.chunk.slot;

            counts.read(meta.count, slot);
            meta.count = meta.count + 1;
            counts.write(slot, meta.count == hdr.chunk.workers ? 8w0 : meta.count);

            adder0.apply(hdr.chunk.value0, slot, meta.count);
            adder1.apply(hdr.chunk.value1, slot, meta.count);
            adder2.apply(hdr.chunk.value2, slot, meta.count);
            adder3.apply(hdr.chunk.value3, slot, meta.count);

            if (meta.count == hdr.chunk.workers) {
                standard.egress_spec = standard.ingress_port;
                hdr.ethernet.destination = hdr.ethernet.source;
            } else {
                mark_to_drop(standard);
            }
        } else {
            // Other traffic: what comes in at port 1 leaves at port 2, and the other way round.
            standard.egress_spec = standard.ingress_port == 1 ? 9w2 : 9w1;
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
