/* Uses an extern that rotate.py adds to the compiler and the switch. */

#include <core.p4>
#include <v1model.p4>

extern void rotate(inout bit<32> x, in bit<32> n);

header word_t {
    bit<32> x;
    bit<32> n;
}
struct headers_t {
    word_t word;
}
struct metadata_t {}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.word);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control Receive(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    action turn(bit<32> primitive_rotate) { // a name that the C function of the primitive has, too
        rotate(hdr.word.x, hdr.word.n + primitive_rotate);
    }
    apply {
        turn(0);
        standard_metadata.egress_spec = standard_metadata.ingress_port;
    }
}

control Send(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {}
}

control Update(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control D(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.word);
    }
}

V1Switch(P(), Verify(), Receive(), Send(), Update(), D()) main;
