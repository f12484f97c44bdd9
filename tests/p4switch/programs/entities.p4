/* What the control plane can fill beside tables: a selector, a profile, a value set, digests, direct meters, ageing. */

#include <core.p4>
#include <v1model.p4>

header flow_t {
    bit<16> type;
    bit<8> source;
    bit<8> destination;
    bit<8> label;
    bit<8> color;
}
struct headers_t {
    flow_t flow;
}
struct learnt_t {
    bit<8> source;
    bit<9> port;
}
struct metadata_t {
    bit<2> color;
    bit<1> known;
}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    value_set<bit<16>>(4) types;
    state start {
        packet.extract(hdr.flow);
        transition select(hdr.flow.type) {
            types: known;
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
    direct_meter<bit<2>>(MeterType.packets) rate;
    action_selector(HashAlgorithm.identity, 32w64, 32w8) path_choice;
    action_profile(32w16) mark_choice;

    action forward(bit<9> port) {
        standard_metadata.egress_spec = port;
    }
    action mark(bit<8> label) {
        hdr.flow.label = label;
    }
    action metered() {
        rate.read(meta.color);
    }
    action unmetered() {
    }
    table paths {
        key = {
            hdr.flow.destination: exact;
            hdr.flow.source: selector;
        }
        actions = { forward; NoAction; }
        implementation = path_choice;
        size = 64;
    }
    table marks {
        key = { hdr.flow.destination: exact; }
        actions = { mark; NoAction; }
        implementation = mark_choice;
        size = 64;
    }
    table rates {
        key = { hdr.flow.source: exact; }
        actions = { metered; unmetered; }
        default_action = unmetered();
        meters = rate;
        support_timeout = true;
        size = 64;
    }
    apply {
        hdr.flow.label = 0;
        paths.apply();
        marks.apply();
        rates.apply();
        hdr.flow.color = (bit<8>)meta.color;
        if (meta.known == 1) {
            digest<learnt_t>(1, { hdr.flow.source, standard_metadata.ingress_port });
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
