/* Adding up: the switch adds four values of two workers, and sends the sum to both.

   Each worker sends one packet with its four values. The first packet to arrive is stored in registers and dropped. The
   second one is added to what is stored, and the sum leaves to both workers. This is all-reduce in the network, as
   small as it gets: one slot, that is, room for one sum at a time. */

#include <core.p4>
#include <v1model.p4>

const bit<8> ALL_WORKERS = 0b11; // one bit for each of the two workers
const bit<16> TO_WORKERS = 1;    // the multicast group of both workers' ports

header chunk_t {
    bit<8> worker; // the bit of the worker that sends it: 0b01 or 0b10
    bit<32> v0;
    bit<32> v1;
    bit<32> v2;
    bit<32> v3;
}
struct headers_t {
    chunk_t chunk;
}
struct metadata_t { }

parser parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.chunk);
        transition accept;
    }
}

control check(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control ingress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    // Registers keep their values from packet to packet. Each of these has one cell: cell 0 is the slot.
    register<bit<8>>(1) seen; // the workers that have been added
    register<bit<32>>(1) sum0;
    register<bit<32>>(1) sum1;
    register<bit<32>>(1) sum2;
    register<bit<32>>(1) sum3;

    bit<32> stored;

    action store() {
        sum0.write(0, hdr.chunk.v0);
        sum1.write(0, hdr.chunk.v1);
        sum2.write(0, hdr.chunk.v2);
        sum3.write(0, hdr.chunk.v3);
    }

    // Puts the sum into the packet, which carries it to the workers.
    action add() {
        sum0.read(stored, 0);
        hdr.chunk.v0 = hdr.chunk.v0 + stored;
        sum1.read(stored, 0);
        hdr.chunk.v1 = hdr.chunk.v1 + stored;
        sum2.read(stored, 0);
        hdr.chunk.v2 = hdr.chunk.v2 + stored;
        sum3.read(stored, 0);
        hdr.chunk.v3 = hdr.chunk.v3 + stored;
    }

    apply {
        bit<8> workers;
        seen.read(workers, 0);
        if ((workers & hdr.chunk.worker) != 0) {
            mark_to_drop(standard); // a retransmission: nothing is added twice
        } else if (workers == 0) {
            store();
            seen.write(0, hdr.chunk.worker);
            mark_to_drop(standard); // the other worker's values are missing
        } else {
            add();
            seen.write(0, 0); // the slot is free for the next sum
            hdr.chunk.worker = ALL_WORKERS;
            standard.mcast_grp = TO_WORKERS;
        }
    }
}

control egress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply { }
}

control compute(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.chunk);
    }
}

V1Switch(parse(), check(), ingress(), egress(), compute(), deparse()) main;
