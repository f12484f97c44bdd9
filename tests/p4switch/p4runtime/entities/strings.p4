/* Values that the control plane knows as strings, or as numbers of another width, wherever it meets them. */

#include <core.p4>
#include <v1model.p4>

@p4runtime_translation("example.org/port", string)
type bit<9> port_t;
@p4runtime_translation("example.org/vrf", string)
@p4runtime_translation_mappings({ {"default", 0}, {"\"quoted\"", 0x11} })
type bit<8> vrf_t;
@p4runtime_translation("example.org/wide_port", bit<32>)
type bit<9> wide_port_t;

@controller_header("packet_in")
header packet_in_t {
    wide_port_t ingress_port;
    vrf_t vrf;
    @hidden bit<7> pad;
}
@controller_header("packet_out")
header packet_out_t {
    port_t egress_port;
    bit<7> pad;
}
header flow_t {
    bit<8> vrf;
    bit<8> mark;
}
struct headers_t {
    packet_in_t packet_in;
    packet_out_t packet_out;
    flow_t flow;
}
struct learnt_t {
    vrf_t vrf;
}
struct metadata_t {
    vrf_t vrf;
    bit<1> known;
}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    value_set<bit<8>>(4) vrfs;
    state start {
        transition select(standard_metadata.ingress_port) {
            255: from_controller;
            default: flow;
        }
    }
    state from_controller {
        packet.extract(hdr.packet_out);
        transition flow;
    }
    state flow {
        packet.extract(hdr.flow);
        meta.vrf = (vrf_t)hdr.flow.vrf;
        transition select(hdr.flow.vrf) {
            vrfs: known;
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
    register<vrf_t>(2) last;

    action forward(port_t port) {
        standard_metadata.egress_spec = (bit<9>)port;
    }
    action punt() {
        hdr.packet_in.setValid();
        hdr.packet_in.ingress_port = (wide_port_t)standard_metadata.ingress_port;
        hdr.packet_in.vrf = meta.vrf;
        standard_metadata.egress_spec = 255;
    }
    action mark(bit<8> label) {
        hdr.flow.mark = label;
    }
    table routes {
        key = { meta.vrf: exact; }
        actions = { forward; punt; NoAction; }
        size = 64;
    }
    table marks {
        key = { meta.vrf: optional; }
        actions = { mark; NoAction; }
        size = 64;
    }
    apply {
        if (hdr.packet_out.isValid()) {
            standard_metadata.egress_spec = (bit<9>)hdr.packet_out.egress_port;
            hdr.packet_out.setInvalid();
        } else {
            last.write(0, meta.vrf);
            marks.apply();
            routes.apply();
            if (meta.known == 1) {
                digest<learnt_t>(1, { meta.vrf });
            }
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
        packet.emit(hdr.packet_in);
        packet.emit(hdr.flow);
    }
}

V1Switch(P(), Verify(), Receive(), Send(), Compute(), D()) main;
