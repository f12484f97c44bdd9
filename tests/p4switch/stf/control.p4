/* Control flow: hit and miss, switch over actions, exit in an action, return, nested conditions, drops in egress. */

#include <core.p4>
#include <v1model.p4>

header h_t {
    bit<8> key;
    bit<8> path;
}
struct headers_t {
    h_t h;
}
struct metadata_t {}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.h);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control Receive(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    action stop() {
        hdr.h.path = hdr.h.path | 0x80;
        exit;
    }
    action go(bit<9> port) {
        standard_metadata.egress_spec = port;
    }
    action nothing() {}
    table first {
        key = { hdr.h.key: exact; }
        actions = { stop; go; nothing; }
        default_action = nothing();
        const entries = {
            1: go(2);
            2: stop();
            3: go(511);
            4: nothing();
            8: go(3);
        }
    }
    action mark(bit<8> with) {
        hdr.h.path = hdr.h.path | with;
    }
    table second {
        key = { hdr.h.key: ternary; }
        actions = { mark; stop; }
        default_action = mark(4);
        const entries = {
            0x10 &&& 0xf0: mark(8);
            4: stop();
        }
    }

    apply {
        standard_metadata.egress_spec = 1;
        switch (first.apply().action_run) {
            go: { hdr.h.path = hdr.h.path | 1; }
            nothing: {
                if (second.apply().miss) {
                    hdr.h.path = hdr.h.path | 0x40;
                    if (hdr.h.key == 9) {
                        return;
                    }
                }
            }
        }
        if (hdr.h.key > 7) {
            hdr.h.path = hdr.h.path | 2;
        }
    }
}

control Send(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        hdr.h.path = hdr.h.path | 0x20;
        if (hdr.h.key == 8) {
            mark_to_drop(standard_metadata);
        }
    }
}

control Update(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control Emit(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(P(), Verify(), Receive(), Send(), Update(), Emit()) main;
