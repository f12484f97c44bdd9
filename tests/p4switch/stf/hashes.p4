/* All hash algorithms of v1model, over fields that are no whole bytes, over a list with constants and over an action's data. */

#include <core.p4>
#include <v1model.p4>

header data_t {
    bit<8> what;
    bit<72> text;
    bit<3> a;
    bit<13> b;
    bit<32> result;
}
struct headers_t {
    data_t h;
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
    action salted(bit<16> salt) {
        hash(hdr.h.result, HashAlgorithm.crc32, 32w0, { hdr.h.text, salt, (bit<24>)salt }, 64w0x100000000);
    }
    table salts {
        key = { hdr.h.what: exact; }
        actions = { salted; }
        default_action = salted(0x5a17);
    }

    apply {
        standard_metadata.egress_spec = 1;
        if (hdr.h.what == 0) { hash(hdr.h.result, HashAlgorithm.crc32, 32w0, { hdr.h.text }, 64w0x100000000); }
        else if (hdr.h.what == 1) { hash(hdr.h.result, HashAlgorithm.crc16, 32w0, { hdr.h.text }, 32w0x10000); }
        else if (hdr.h.what == 2) { hash(hdr.h.result, HashAlgorithm.csum16, 32w0, { hdr.h.text }, 32w0x10000); }
        else if (hdr.h.what == 3) { hash(hdr.h.result, HashAlgorithm.xor16, 32w0, { hdr.h.text }, 32w0x10000); }
        else if (hdr.h.what == 4) { hash(hdr.h.result, HashAlgorithm.identity, 32w0, { hdr.h.text }, 64w0x100000000); }
        else if (hdr.h.what == 5) {
            hash(hdr.h.result, HashAlgorithm.crc32_custom, 32w0, { hdr.h.text }, 64w0x100000000);
        }
        else if (hdr.h.what == 6) { hash(hdr.h.result, HashAlgorithm.crc16_custom, 32w0, { hdr.h.text }, 32w0x10000); }
        else if (hdr.h.what == 7) { hash(hdr.h.result, HashAlgorithm.crc32, 32w7, { hdr.h.a, hdr.h.b, 5w9 }, 32w1000); }
        else if (hdr.h.what == 8) {
            hash(hdr.h.result, HashAlgorithm.crc16, 32w1, { hdr.h.a, 16w0x1234, hdr.h.b }, 32w0);
        }
        else if (hdr.h.what == 9) {
            hash(hdr.h.result, HashAlgorithm.xor16, 32w0, { hdr.h.a, hdr.h.text, hdr.h.b }, 32w0x10000);
        }
        else if (hdr.h.what == 11) { salts.apply(); }
        else { hash(hdr.h.result, HashAlgorithm.csum16, 32w0, { hdr.h.a, hdr.h.b, hdr.h.what }, 32w0x10000); }
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
