/* Metadata that only ingress uses, also through an action that egress calls or that many tables call: 0 in each pass. */

#include <core.p4>
#include <v1model.p4>

header h_t {
    bit<8> passes;
    bit<8> own;
    bit<8> shared;
    bit<8> often;
    bit<128> wide;
}
struct headers_t {
    h_t h;
}
struct metadata_t {
    bit<8> own;
    bit<8> shared;
    bit<8> often;
    bit<128> wide;
    @field_list(1)
    bit<8> pass;
}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.h);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

action share(inout headers_t hdr, inout metadata_t meta) {
    meta.shared = meta.shared + 16;
    hdr.h.shared = hdr.h.shared + meta.shared;
}

control Receive(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    action add_own() {
        meta.own = meta.own + 1;
        meta.wide = meta.wide + ((bit<128>)meta.own << 100);
    }
    action add_often() {
        meta.often = meta.often + 1;
    }
    table t1 { key = { hdr.h.passes: exact; } actions = { add_often; } default_action = add_often; }
    table t2 { key = { hdr.h.passes: exact; } actions = { add_often; } default_action = add_often; }
    table t3 { key = { hdr.h.passes: exact; } actions = { add_often; } default_action = add_often; }
    table t4 { key = { hdr.h.passes: exact; } actions = { add_often; add_own; } default_action = add_own; }
    table t5 { key = { meta.often: exact; } actions = { add_often; } default_action = add_often; }
    table t6 { key = { meta.own: exact; } actions = { add_often; } default_action = add_often; }
    apply {
        standard_metadata.egress_spec = 1;
        t1.apply();
        t2.apply();
        t3.apply();
        t4.apply();
        t5.apply();
        t6.apply();
        add_own();
        share(hdr, meta);
        hdr.h.own = hdr.h.own + meta.own;
        hdr.h.often = hdr.h.often + meta.often;
        hdr.h.wide = hdr.h.wide + meta.wide;
        meta.pass = meta.pass + 1;
        if (meta.pass < hdr.h.passes) {
            resubmit_preserving_field_list(1);
        }
    }
}

control Send(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        share(hdr, meta);
    }
}

control Update(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control Emit(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.h);
    }
}

V1Switch(P(), Verify(), Receive(), Send(), Update(), Emit()) main;
