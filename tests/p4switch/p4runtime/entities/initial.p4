/* Entries that the program declares and lets be changed, and a value set whose members hold ranges. */

#include <core.p4>
#include <v1model.p4>

header flow_t {
    bit<16> port;
    bit<8> kind;
}
struct headers_t {
    flow_t flow;
}
struct metadata_t {
    bit<1> known;
}
struct service_t {
    @match(range) bit<16> port;
    @match(ternary) bit<8> kind;
}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    value_set<service_t>(2) services;
    state start {
        packet.extract(hdr.flow);
        transition select(hdr.flow.port, hdr.flow.kind) {
            services: known;
            default: accept;
        }
    }
    state known {
        meta.known = 1;
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control Receive(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    action forward(bit<9> port) {
        standard_metadata.egress_spec = port;
    }
    table kinds {
        key = { hdr.flow.kind: exact; }
        actions = { forward; }
        entries = {
            1: forward(1);
            2: forward(2);
        }
        default_action = forward(3);
        size = 16;
    }
    table fixed {
        key = { hdr.flow.kind: exact; }
        actions = { forward; NoAction; }
        const entries = {
            1: NoAction();
        }
        default_action = NoAction();
        support_timeout = true;
    }
    apply {
        kinds.apply();
        fixed.apply();
        if (meta.known == 1) {
            standard_metadata.egress_spec = 7;
        }
    }
}

control Send(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {}
}

control Compute(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control D(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.flow);
    }
}

V1Switch(P(), Verify(), Receive(), Send(), Compute(), D()) main;
