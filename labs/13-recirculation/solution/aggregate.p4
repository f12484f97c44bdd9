// A switch that adds up chunks of 16 values, four in each pass.

#include <core.p4>
#include <v1model.p4>

const bit<16> TYPE_CHUNK = 0x88b7; // next to the type for local experiments (IEEE 802)
const bit<2> LAST_PASS = 3;

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> type;
}

header chunk_t {
    bit<8> workers; // of the job
    bit<8> rank;    // of the worker that sends it
    bit<16> slot;   // where the switch keeps the sum
}

header quad_t {
    bit<32> value0;
    bit<32> value1;
    bit<32> value2;
    bit<32> value3;
}

struct headers_t {
    ethernet_t ethernet;
    chunk_t chunk;
    quad_t first;
    quad_t second;
    quad_t third;
    quad_t fourth;
}

struct metadata_t {
    @field_list(1)
    bit<2> pass;  // of the packet, from 0
    @field_list(1)
    bit<8> count; // workers that have sent the chunk, with this one
    @field_list(1)
    bit<9> port;  // at which the packet arrived
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
        packet.extract(hdr.first);
        packet.extract(hdr.second);
        packet.extract(hdr.third);
        packet.extract(hdr.fourth);
        transition accept;
    }
}

control MyVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

// Adds a value to the sum in a cell. The first worker of a round overwrites what the round before has left.
control Adder(inout bit<32> value, in bit<32> cell, in bit<8> count) {
    register<bit<32>>(64) sums;

    apply {
        bit<32> sum;
        sums.read(sum, cell);
        if (count == 1) {
            sum = value;
        } else {
            sum = sum + value;
        }
        sums.write(cell, sum);
        value = sum;
    }
}

control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    register<bit<8>>(16) counts;
    counter(4, CounterType.packets) passes;
    Adder() adder0;
    Adder() adder1;
    Adder() adder2;
    Adder() adder3;

    // Let the quad that was added go to the end, and the next one to the front.
    action rotate() {
        quad_t added = hdr.first;
        hdr.first = hdr.second;
        hdr.second = hdr.third;
        hdr.third = hdr.fourth;
        hdr.fourth = added;
    }

    apply {
        if (hdr.chunk.isValid()) {
            passes.count((bit<32>)meta.pass);
            if (meta.pass == 0) {
                bit<32> slot = (bit<32>)hdr.chunk.slot;
                counts.read(meta.count, slot);
                meta.count = meta.count + 1;
                counts.write(slot, meta.count == hdr.chunk.workers ? 8w0 : meta.count);
                meta.port = standard.ingress_port;
            }

            bit<32> cell = (bit<32>)(hdr.chunk.slot[3:0] ++ meta.pass);
            adder0.apply(hdr.first.value0, cell, meta.count);
            adder1.apply(hdr.first.value1, cell, meta.count);
            adder2.apply(hdr.first.value2, cell, meta.count);
            adder3.apply(hdr.first.value3, cell, meta.count);
            rotate();

            standard.egress_spec = meta.port;
            if (meta.pass == LAST_PASS) {
                if (meta.count == hdr.chunk.workers) {
                    hdr.ethernet.destination = hdr.ethernet.source;
                } else {
                    mark_to_drop(standard);
                }
            }
        } else {
            // Other traffic: what comes in at port 1 leaves at port 2, and the other way round.
            standard.egress_spec = standard.ingress_port == 1 ? 9w2 : 9w1;
        }
    }
}

control MyEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        if (hdr.chunk.isValid() && meta.pass != LAST_PASS) {
            meta.pass = meta.pass + 1;
            recirculate_preserving_field_list(1);
        }
    }
}

control MyComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control MyDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.chunk);
        packet.emit(hdr.first);
        packet.emit(hdr.second);
        packet.emit(hdr.third);
        packet.emit(hdr.fourth);
    }
}

V1Switch(MyParser(), MyVerifyChecksum(), MyIngress(), MyEgress(), MyComputeChecksum(), MyDeparser()) main;
