/* Transitions over masks, ranges and several keys, lookahead, advance, verify, and each parser error. */

#include <core.p4>
#include <v1model.p4>

error { Unwanted }
header tag_t {
    bit<4> kind;
    bit<4> size;
    bit<8> value;
}
header found_t {
    bit<8> state;
    bit<8> failed;
    bit<8> ahead;
}
struct pair_t {
    tag_t first;
    tag_t[2] others;
}
struct headers_t {
    found_t found;
    tag_t tag;
    tag_t second;
}
struct metadata_t {
    bit<8> state;
    bit<8> ahead;
}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        meta.state = 1;
        packet.extract(hdr.tag);
        transition select(hdr.tag.kind, hdr.tag.value) {
            (0, _): look;
            (1, 0x10 &&& 0xf0): masked;
            (1, 5 .. 9): range;
            (2, _): skip;
            (3, _): checked;
            (4, _): refused;
            (5, _): twice;
            (6, 1 .. 200): accept;
            (8, _): far;
            default: none;
        }
    }

    state look {
        meta.ahead = packet.lookahead<tag_t>().value;
        meta.state = 2;
        transition select(packet.lookahead<bit<4>>()) {
            0xf: twice;
            default: accept;
        }
    }

    state far {
        pair_t ahead = packet.lookahead<pair_t>();
        meta.ahead = ahead.others[1].value;
        transition select(ahead.first.value, ahead.others[0].kind) {
            (1, 2): twice;
            default: accept;
        }
    }

    state masked {
        meta.state = 3;
        transition accept;
    }

    state range {
        meta.state = 4;
        transition accept;
    }

    state skip {
        meta.state = 5;
        packet.advance((bit<32>)hdr.tag.size * 4);
        transition twice;
    }

    state checked {
        meta.state = 7;
        verify(hdr.tag.value != 0, error.Unwanted);
        verify(hdr.tag.value < 0x80, error.HeaderTooShort);
        transition accept;
    }

    state refused {
        meta.state = 9;
        transition reject;
    }

    state twice {
        packet.extract(hdr.second);
        transition accept;
    }

    state none {
        meta.state = 10;
        transition select(hdr.tag.value) {
            0: accept;
        }
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control Receive(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        standard_metadata.egress_spec = 1;
        hdr.found.setValid();
        hdr.found.state = meta.state;
        hdr.found.ahead = meta.ahead;
        if (standard_metadata.parser_error == error.NoError) { hdr.found.failed = 0; }
        else if (standard_metadata.parser_error == error.PacketTooShort) { hdr.found.failed = 1; }
        else if (standard_metadata.parser_error == error.NoMatch) { hdr.found.failed = 2; }
        else if (standard_metadata.parser_error == error.HeaderTooShort) { hdr.found.failed = 4; }
        else if (standard_metadata.parser_error == error.ParserInvalidArgument) { hdr.found.failed = 6; }
        else if (standard_metadata.parser_error == error.Unwanted) { hdr.found.failed = 7; }
        else { hdr.found.failed = 0xff; }
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
