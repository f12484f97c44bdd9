// Entries that the program declares, also some that are there twice: the first one wins. (BMv2 dies of the second.)
#include <core.p4>
#include <v1model.p4>

header h_t {
    bit<8> key;
    bit<8> exactly;
    bit<8> prefix;
    bit<8> masked;
    bit<8> between;
}

struct headers { h_t h; }
struct metadata { }

parser P(packet_in packet, out headers hdr, inout metadata meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.h);
        transition accept;
    }
}

control V(inout headers hdr, inout metadata meta) { apply { } }

control I(inout headers hdr, inout metadata meta, inout standard_metadata_t standard_metadata) {
    action by_value(bit<8> number) { hdr.h.exactly = number; }
    action by_prefix(bit<8> number) { hdr.h.prefix = number; }
    action by_mask(bit<8> number) { hdr.h.masked = number; }
    action by_range(bit<8> number) { hdr.h.between = number; }

    table value_table {
        key = { hdr.h.key: exact; }
        actions = { by_value; }
        default_action = by_value(0xee);
        const entries = {
            0x10: by_value(1);
            0x20: by_value(2);
            0x10: by_value(3);
        }
    }
    table prefix_table {
        key = { hdr.h.key: lpm; }
        actions = { by_prefix; }
        default_action = by_prefix(0xee);
        const entries = {
            0x10 &&& 0xf0: by_prefix(1);
            0x18 &&& 0xf8: by_prefix(2);
            0x10 &&& 0xf0: by_prefix(3);
        }
    }
    table mask_table {
        key = { hdr.h.key: ternary; }
        actions = { by_mask; }
        default_action = by_mask(0xee);
        const entries = {
            0x10 &&& 0x10: by_mask(1);
            0x18 &&& 0xf8: by_mask(2);
            0x10 &&& 0x10: by_mask(3);
            0x20: by_mask(4);
            _: by_mask(5);
        }
    }
    table range_table {
        key = { hdr.h.key: range; }
        actions = { by_range; }
        default_action = by_range(0xee);
        const entries = {
            0x10 .. 0x1f: by_range(1);
            0x00 .. 0x2f: by_range(2);
            0x10 .. 0x1f: by_range(3);
            0x40: by_range(4);
            _: by_range(5);
        }
    }

    apply {
        standard_metadata.egress_spec = 1;
        value_table.apply();
        prefix_table.apply();
        mask_table.apply();
        range_table.apply();
    }
}

control E(inout headers hdr, inout metadata meta, inout standard_metadata_t standard_metadata) { apply { } }
control C(inout headers hdr, inout metadata meta) { apply { } }
control D(packet_out packet, in headers hdr) { apply { packet.emit(hdr.h); } }

V1Switch(P(), V(), I(), E(), C(), D()) main;
