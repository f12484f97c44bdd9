// Messages from every place that may have them, with values of all kinds.

#include <core.p4>
#include <v1model.p4>

header h_t {
    bit<8> what;
    bit<8> b;
    bit<16> c;
    int<8> i;
    bit<128> w;
}

struct headers {
    h_t h;
}

struct meta {
    int<32> s;
}

parser P(packet_in p, out headers hdr, inout meta m, inout standard_metadata_t s) {
    state start {
        p.extract(hdr.h);
        log_msg("in parser {}", { hdr.h.what });
        transition accept;
    }
}

control V(inout headers hdr, inout meta m) {
    apply { }
}

control I(inout headers hdr, inout meta m, inout standard_metadata_t s) {
    action a(bit<9> port) {
        log_msg("before");
        s.egress_spec = port;
        log_msg("port {} and {}", { port, hdr.h.c });
    }
    table t {
        key = {
            hdr.h.b: exact;
        }
        actions = {
            a;
        }
        default_action = a(2);
    }

    apply {
        log_msg("what={} i={} w={}", { hdr.h.what, hdr.h.i, hdr.h.w });
        m.s = -5;
        log_msg("signed {} bool {} pct 100% ", { m.s, hdr.h.isValid() });
        log_msg("const {}", { 16w7 });
        t.apply();
        if (hdr.h.what == 9) {
            assert(hdr.h.c == 0);
        }
    }
}

control E(inout headers hdr, inout meta m, inout standard_metadata_t s) {
    apply {
        log_msg("egress {}", { s.egress_port });
    }
}

control C(inout headers hdr, inout meta m) {
    apply { }
}

control D(packet_out p, in headers hdr) {
    apply {
        p.emit(hdr.h);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;
