// The switch of an aggregation tree: it adds up what its children send.

#include <core.p4>
#include <v1model.p4>

const bit<16> TYPE_CHUNK = 0x88b6; // for local experiments (IEEE 802)
const bit<16> GROUP = 1;           // the multicast group of all children
const bit<8> UPDATE = 0;           // on its way up
const bit<8> RESULT = 1;           // on its way down

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> type;
}

header chunk_t {
    bit<8> kind; // UPDATE or RESULT
    bit<8> slot;
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
    bit<8> count;    // children that have sent the chunk, with this one
    bit<8> children; // how many there are
    bit<1> root;     // whether this switch is the root
    bit<9> parent;   // the port towards the root, elsewhere
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

// Adds a value to the sum of a slot. The first child of a round overwrites what the round before has left.
control Adder(inout bit<32> value, in bit<32> slot, in bit<8> count) {
    register<bit<32>>(16) sums;

    apply {
        bit<32> sum;
        sums.read(sum, slot);
        sum = count == 1 ? value : sum + value;
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

    action drop() {
        mark_to_drop(standard);
    }

    action child_of_root(bit<8> children) {
        meta.children = children;
        meta.root = 1;
    }

    action child_of_leaf(bit<8> children, bit<9> parent) {
        meta.children = children;
        meta.root = 0;
        meta.parent = parent;
    }

    // Ports from which updates come.
    table child_at {
        key = { standard.ingress_port: exact; }
        actions = { child_of_root; child_of_leaf; drop; }
        default_action = drop();
    }

    apply {
        if (!hdr.chunk.isValid()) {
            drop();
        } else if (hdr.chunk.kind == RESULT) {
            standard.mcast_grp = GROUP;
        } else if (child_at.apply().hit) {
            bit<32> slot = (bit<32>)hdr.chunk.slot;

            counts.read(meta.count, slot);
            meta.count = meta.count + 1;
            counts.write(slot, meta.count == meta.children ? 8w0 : meta.count);

            adder0.apply(hdr.chunk.value0, slot, meta.count);
            adder1.apply(hdr.chunk.value1, slot, meta.count);
            adder2.apply(hdr.chunk.value2, slot, meta.count);
            adder3.apply(hdr.chunk.value3, slot, meta.count);

            if (meta.count != meta.children) {
                drop();
            } else if (meta.root == 1) {
                hdr.chunk.kind = RESULT;
                standard.mcast_grp = GROUP;
            } else {
                standard.egress_spec = meta.parent;
            }
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
