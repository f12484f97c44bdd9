/* Header stacks: next and last in the parser, a computed index, push and pop, overflow, lastIndex. */

#include <core.p4>
#include <v1model.p4>

header what_t {
    bit<8> what;
    bit<8> index;
}
header label_t {
    bit<7> value;
    bit<1> bottom;
}
struct headers_t {
    what_t h;
    label_t[4] labels;
}
struct metadata_t {}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.h);
        transition label;
    }

    state label {
        packet.extract(hdr.labels.next);
        transition select(hdr.labels.last.bottom) {
            0: label;
            1: accept;
        }
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control Receive(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        standard_metadata.egress_spec = 1;
        if (standard_metadata.parser_error != error.NoError) {
            standard_metadata.egress_spec = standard_metadata.parser_error == error.StackOutOfBounds ? 9w3 : 9w4;
        } else if (hdr.h.what == 1) {
            hdr.labels.push_front(1);
            hdr.labels[0].setValid();
            hdr.labels[0].value = 0x55;
        } else if (hdr.h.what == 2) {
            hdr.labels.pop_front(2);
        } else if (hdr.h.what == 3) {
            if (hdr.h.index < 2) {
                hdr.labels[hdr.h.index].value = hdr.labels[hdr.h.index].value + 1;
            }
        } else if (hdr.h.what == 4) {
            hdr.labels[1] = hdr.labels[0];
            hdr.labels[0].setInvalid();
        } else if (hdr.h.what == 5) {
            hdr.h.index = hdr.labels[2].isValid() ? hdr.labels[2].value ++ hdr.labels[2].bottom : 0xff;
        } else if (hdr.h.what == 6) {
            hdr.labels.push_front(3);
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
