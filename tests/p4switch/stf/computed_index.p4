/* Elements of a header stack at a computed index: read, written, made valid and invalid, assigned whole. */

#include <core.p4>
#include <v1model.p4>

header what_t {
    bit<8> what;
    bit<8> index;
}
header cell_t {
    bit<8> a;
    bit<8> b;
}
struct headers_t {
    what_t h;
    cell_t[4] cells;
}
struct metadata_t {}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.h);
        packet.extract(hdr.cells.next);
        packet.extract(hdr.cells.next);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control Receive(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        standard_metadata.egress_spec = 1;
        if (hdr.h.what == 1) {
            hdr.cells[hdr.h.index].a = hdr.cells[hdr.h.index].b + 1;
        } else if (hdr.h.what == 2) {
            hdr.cells[hdr.h.index].setInvalid();
        } else if (hdr.h.what == 3) {
            hdr.cells[hdr.h.index].setValid();
            hdr.cells[hdr.h.index].b = 0xbb;
        } else if (hdr.h.what == 4) {
            hdr.cells[hdr.h.index] = hdr.cells[0];
        } else if (hdr.h.what == 5) {
            hdr.cells[0] = hdr.cells[hdr.h.index];
        } else if (hdr.h.what == 6) {
            hdr.cells[hdr.cells[hdr.h.index].a].b = 0x77;
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
