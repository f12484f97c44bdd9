// What BMv2 logs about packets that this program processes is in trace/bmv2_log.txt.

#include <core.p4>
#include <v1model.p4>

header request_t {
    bit<8> what;
    bit<8> seen;
}

header sum_t {
    bit<16> value;
}

header text_t {
    bit<8> number;
    varbit<64> text;
}

header long_t {
    bit<256> value;
}

struct headers {
    request_t request;
    sum_t sum;
    text_t text;
    long_t long;
}

struct metadata {
    @field_list(1)
    bit<8> passes;
}

parser P(packet_in packet, out headers hdr, inout metadata m, inout standard_metadata_t s) {
    state start {
        packet.extract(hdr.request);
        transition select(hdr.request.what, s.ingress_port) {
            (8, _): parse_long;
            (9, _): parse_text;
            default: accept;
        }
    }

    state parse_long {
        packet.extract(hdr.long);
        transition accept;
    }

    state parse_text {
        packet.extract(hdr.sum);
        packet.extract(hdr.text, 16);
        transition accept;
    }
}

control V(inout headers hdr, inout metadata m) {
    apply {
        verify_checksum(hdr.text.isValid(), { hdr.request.what }, hdr.sum.value, HashAlgorithm.csum16);
    }
}

control I(inout headers hdr, inout metadata m, inout standard_metadata_t s) {
    action send(bit<9> port) {
        s.egress_spec = port;
    }

    action flood() {
        s.mcast_grp = 1;
    }

    action copy() {
        clone_preserving_field_list(CloneType.I2E, 5, 1);
        s.egress_spec = 2;
    }

    action again() {
        m.passes = 1;
        resubmit_preserving_field_list(1);
    }

    action drop() {
        mark_to_drop(s);
    }

    table t {
        key = {
            hdr.request.what: exact;
            s.ingress_port: ternary;
        }
        actions = {
            send;
            flood;
            copy;
            again;
            drop;
        }
        default_action = drop();
        const entries = {
            (2, _): flood();
            (3, _): copy();
            (4, _): again();
            (9, _): send(3);
        }
    }

    apply {
        if (m.passes == 0) {
            t.apply();
        } else {
            s.egress_spec = 3;
        }
    }
}

control E(inout headers hdr, inout metadata m, inout standard_metadata_t s) {
    apply {
        if (s.instance_type == 1) {
            hdr.request.seen = 7;
        }
    }
}

control C(inout headers hdr, inout metadata m) {
    apply {
        update_checksum(hdr.text.isValid(), { hdr.request.what }, hdr.sum.value, HashAlgorithm.csum16);
    }
}

control D(packet_out packet, in headers hdr) {
    apply {
        packet.emit(hdr.request);
        packet.emit(hdr.sum);
        packet.emit(hdr.text);
        packet.emit(hdr.long);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;
