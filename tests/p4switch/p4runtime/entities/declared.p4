/* Entries of the program with priorities, some of them const; signed keys; and types that the control plane sees
 * narrower or wider than the field. */

#include <core.p4>
#include <v1model.p4>

@p4runtime_translation("fanin/narrow", bit<4>)
type bit<8> narrow_t;
@p4runtime_translation("fanin/wide", bit<32>)
type bit<8> wide_t;

header flow_t {
    bit<8> kind;
    int<8> small;
    int<12> large;
    bit<4> padding;
    narrow_t narrow;
    wide_t wide;
}
struct headers_t {
    flow_t flow;
}
struct metadata_t {
}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.flow);
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
    action label(narrow_t value) {
        hdr.flow.narrow = value;
    }
    table written {
        key = { hdr.flow.kind: ternary; }
        actions = { forward; }
        entries = {
            priority=10: 1: forward(1);
            const priority=20: 2: forward(2);
            priority=5: _: forward(3);
        }
        size = 16;
    }
    table ordered {
        key = { hdr.flow.kind: ternary; }
        actions = { forward; }
        const entries = {
            1: forward(1);
            2: forward(2);
            _: forward(3);
        }
    }
    table zero {
        key = { hdr.flow.kind: ternary; }
        actions = { forward; }
        entries = {
            priority=3: 1: forward(1);
            priority=0: _: forward(2);
        }
    }
    table signs {
        key = {
            hdr.flow.small: exact;
            hdr.flow.large: ternary;
        }
        actions = { forward; }
    }
    table types {
        key = {
            hdr.flow.narrow: lpm;
            hdr.flow.wide: exact;
        }
        actions = { forward; label; }
    }
    @hidden
    action add(int<8> value) {
        hdr.flow.small = hdr.flow.small + value;
    }
    table private {
        key = { hdr.flow.kind: exact; }
        actions = { forward; add; }
        entries = {
            1: forward(1);
            2: add(3);
        }
        default_action = add(4);
    }
    table spans {
        key = { hdr.flow.small: range; }
        actions = { forward; }
    }
    apply {
        written.apply();
        if (hdr.flow.kind == 7) {
            ordered.apply();
            zero.apply();
        }
        if (hdr.flow.kind == 8) {
            signs.apply();
            spans.apply();
        }
        if (hdr.flow.kind == 9) {
            types.apply();
            private.apply();
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
