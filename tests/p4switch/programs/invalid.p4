/* Fields of headers that a packet does not have: read in both pipelines, then written in every way. */

#include <core.p4>
#include <v1model.p4>

header request_t {
    bit<8> present; // which of the headers behind it the packet has: 1: a, 2: b, 4: an element of the stack
    bit<8> operation;
    bit<8> group;
    bit<32> value;
    bit<32> a;
    bit<32> b;
    bit<32> first;
    bit<32> second;
    bit<32> at_egress;
}
header number_t {
    bit<32> number;
}
struct headers_t {
    request_t request;
    number_t a;
    number_t b;
    number_t[2] stack;
}
struct metadata_t {
    bit<32> more;
}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.request);
        transition select(hdr.request.present[0:0]) {
            1: a;
            default: after_a;
        }
    }
    state a {
        packet.extract(hdr.a);
        transition after_a;
    }
    state after_a {
        transition select(hdr.request.present[1:1]) {
            1: b;
            default: after_b;
        }
    }
    state b {
        packet.extract(hdr.b);
        transition after_b;
    }
    state after_b {
        transition select(hdr.request.present[2:2]) {
            1: stack;
            default: accept;
        }
    }
    state stack {
        packet.extract(hdr.stack.next);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control Receive(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    register<bit<32>>(1) last;

    apply {
        hdr.request.a = hdr.a.number;
        hdr.request.b = hdr.b.number;
        hdr.request.first = hdr.stack[0].number;
        hdr.request.second = hdr.stack[1].number;
        if (hdr.request.operation == 1) {
            hdr.a.number = hdr.request.value;
        } else if (hdr.request.operation == 2) {
            hdr.a.setValid();
            hdr.a.number = hdr.request.value;
        } else if (hdr.request.operation == 3) {
            hdr.a.setInvalid();
            hdr.a.number = hdr.request.value;
        } else if (hdr.request.operation == 4) {
            hdr.b = hdr.a;
        } else if (hdr.request.operation == 5) {
            hdr.stack.push_front(1);
            hdr.stack[0].setValid();
            hdr.stack[0].number = hdr.request.value;
        } else if (hdr.request.operation == 6) {
            hdr.stack[(bit<1>)hdr.request.value].number = hdr.request.value;
        } else if (hdr.request.operation == 7) {
            last.write(0, hdr.request.value);
            last.read(hdr.b.number, 0);
        } else if (hdr.request.operation == 8) {
            hash(hdr.b.number, HashAlgorithm.identity, 32w1, { hdr.request.value }, 32w0xffffffff);
        } else if (hdr.request.operation == 9) {
            hdr.a.number = 1;
            hdr.a.setInvalid();
            hdr.a.number = hdr.request.value;
        }
        meta.more = hdr.request.value;
        standard_metadata.egress_spec = 1;
        standard_metadata.mcast_grp = (bit<16>)hdr.request.group;
    }
}

control Send(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        hdr.request.at_egress = hdr.a.number + meta.more;
        meta.more = 0;
        if (hdr.request.operation == 10) {
            hdr.a.number = hdr.request.value;
        }
#ifdef CLONES
        if (standard_metadata.instance_type == 0) {
            clone(CloneType.E2E, 1);
        }
#endif
    }
}

control Update(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control D(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.request);
        packet.emit(hdr.a);
        packet.emit(hdr.b);
        packet.emit(hdr.stack);
    }
}

V1Switch(P(), Verify(), Receive(), Send(), Update(), D()) main;
