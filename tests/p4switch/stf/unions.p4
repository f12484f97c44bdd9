/* Header unions: at most one member is valid, however it became so. */

#include <core.p4>
#include <v1model.p4>

header tag_t {
    bit<8> kind;
    bit<8> action_;
}
header short_t {
    bit<8> a;
}
header long_t {
    bit<16> b;
}
header_union body_t {
    short_t short_;
    long_t long_;
}
struct headers_t {
    tag_t tag;
    body_t body;
    body_t copy;
    short_t verdict;
}
struct metadata_t {
    bit<1> unused;
}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.tag);
        transition select(hdr.tag.kind) {
            1: parse_short;
            2: parse_long;
            3: parse_both;
            default: accept;
        }
    }
    state parse_short {
        packet.extract(hdr.body.short_);
        transition accept;
    }
    state parse_long {
        packet.extract(hdr.body.long_);
        transition accept;
    }
    state parse_both {
        packet.extract(hdr.body.short_);
        packet.extract(hdr.body.long_);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control Receive(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        standard_metadata.egress_spec = 1;
        hdr.verdict.setValid();
        hdr.verdict.a = 0;
        if (hdr.tag.action_ == 1) {
            hdr.body.long_.setValid();
            hdr.body.long_.b = 0x7777;
        } else if (hdr.tag.action_ == 2) {
            hdr.body.short_.setInvalid();
        } else if (hdr.tag.action_ == 3) {
            hdr.copy = hdr.body;
        } else if (hdr.tag.action_ == 4) {
            hdr.copy.short_.setValid();
            hdr.copy.short_.a = 9;
            hdr.copy = hdr.body;
        }
        if (hdr.body.isValid()) {
            hdr.verdict.a = hdr.verdict.a + 1;
        }
        if (hdr.body.short_.isValid()) {
            hdr.verdict.a = hdr.verdict.a + 2;
        }
        if (hdr.body.long_.isValid()) {
            hdr.verdict.a = hdr.verdict.a + 4;
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
        packet.emit(hdr.tag);
        packet.emit(hdr.body);
        packet.emit(hdr.copy);
        packet.emit(hdr.verdict);
    }
}

V1Switch(P(), Verify(), Receive(), Send(), Compute(), D()) main;
