/* Registers, counters of both kinds, random() of one value, and an index behind the end. */

#include <core.p4>
#include <v1model.p4>

header h_t {
    bit<8> what;
    bit<8> index;
    bit<16> value;
}
struct headers_t {
    h_t h;
}
struct metadata_t {
    bit<16> kept;
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

control Receive(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    register<bit<16>>(4) cells;
    register<int<5>>(2) small;
    counter(4, CounterType.packets_and_bytes) seen;
    direct_counter(CounterType.packets) hits;

    action count() {
        hits.count();
    }
    action missed() {}
    table counted {
        key = { hdr.h.index: exact; }
        actions = { count; missed; }
        default_action = missed;
        counters = hits;
        const entries = {
            1: count();
        }
    }

    apply {
        standard_metadata.egress_spec = 1;
        counted.apply();
        if (hdr.h.index < 4) {
            seen.count((bit<32>)hdr.h.index);
            cells.read(meta.kept, (bit<32>)hdr.h.index);
        }
        if (hdr.h.what == 0) {
            cells.write((bit<32>)hdr.h.index & 3, hdr.h.value);
        } else if (hdr.h.what == 1) {
            hdr.h.value = meta.kept;
        } else if (hdr.h.what == 2) {
            cells.write((bit<32>)hdr.h.index & 3, meta.kept + hdr.h.value);
            cells.read(hdr.h.value, (bit<32>)hdr.h.index & 3);
        } else if (hdr.h.what == 3) {
            random(hdr.h.value, 16w7, 16w7);
        }
    }
}

control Send(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {}
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
