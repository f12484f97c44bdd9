// Loops and assignments with an operator. A packet says which loop runs (`kind`) and how often (`count`).
#include <core.p4>
#include <v1model.p4>

header request_t {
    bit<8> kind;
    bit<8> count;
    bit<16> result;
}
header byte_t {
    bit<8> value;
}
struct headers_t {
    request_t request;
    byte_t[4] bytes;
}
struct metadata_t {
    bit<16> seen;
}

parser parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.request);
        packet.extract(hdr.bytes.next);
        packet.extract(hdr.bytes.next);
        packet.extract(hdr.bytes.next);
        packet.extract(hdr.bytes.next);
        transition accept;
    }
}

control check(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

bit<16> triangle(in bit<8> count) {
    bit<16> sum = 0;
    for (bit<8> i = 1; i <= count; i += 1) {
        if (i == 100) {
            return 0xffff;
        }
        sum += (bit<16>)i;
    }
    return sum;
}

bit<32> next(inout bit<32> index) {
    index += 1;
    return index - 1;
}

control ingress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    bit<32> at = 0;

    action add(in bit<16> value) {
        hdr.request.result = hdr.request.result + value;
    }
    action product() {
        for (bit<8> i = 0; i < hdr.request.count; i = i + 1) {
            for (bit<8> j = 0, bit<8> k = 1; j < hdr.request.count; j = j + 1, k = k + 2) {
                if (j == 3) {
                    break;
                }
                add((bit<16>)k);
            }
        }
    }
    action odd() {
        for (bit<8> i = 0; i < hdr.request.count; i += 1) {
            if (i[0:0] == 0) {
                continue;
            }
            add((bit<16>)i);
        }
    }
    table by_kind {
        key = {
            hdr.request.kind: exact;
        }
        actions = {
            product;
            odd;
            NoAction;
        }
        const entries = {
            1: product();
            2: odd();
        }
    }
    apply {
        by_kind.apply();
        if (hdr.request.kind == 3) {
            hdr.request.result = triangle(hdr.request.count);
        } else if (hdr.request.kind == 4) {
            for (bit<8> i = hdr.request.count; i != 0; i += 1) {
                hdr.request.result += (bit<16>)i;
            }
        } else if (hdr.request.kind == 5) {
            for (bit<32> i = 0; i < 4; i += 1) {
                if (hdr.bytes[i].value == hdr.request.count) {
                    meta.seen |= 1;
                    break;
                }
                meta.seen += 2;
                hdr.bytes[i].value ^= 0xff;
            }
            hdr.request.result = meta.seen;
        } else if (hdr.request.kind == 6) {
            for (bit<8> i = 1; true; i += 1) {
                hdr.request.result += 1;
                if (i == hdr.request.count) {
                    exit;
                }
            }
        } else if (hdr.request.kind == 7) {
            hdr.bytes[next(at)].value += 1;
            hdr.bytes[next(at)].value -= 1;
            hdr.bytes[next(at)].value <<= 1;
            hdr.bytes[next(at)].value >>= 1;
            hdr.request.result |+|= 0xffff;
            hdr.request.result |-|= 1;
            hdr.request.result &= 0xf0f0;
            hdr.request.result *= 2;
            hdr.request.result /= 4;
            hdr.request.result %= 0x1000;
        }
        standard.egress_spec = 1;
    }
}

control egress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {}
}

control deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(parse(), check(), ingress(), egress(), check(), deparse()) main;
