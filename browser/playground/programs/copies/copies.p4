/* Copies of packets: what clone, multicast and resubmit do with a packet, and what each copy finds in its headers. */

#include <core.p4>
#include <v1model.p4>

const bit<8> CLONE = 1;
const bit<8> MULTICAST = 2;
const bit<8> RESUBMIT = 3;

header request_t {
    bit<8> what;
    bit<8> value;
}
header count_t {
    bit<16> packets;
}
struct headers_t {
    request_t request;
    count_t count;
    request_t copy;
}
struct metadata_t {
    @field_list(1) bit<8> passes;
}

parser parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.request);
        transition accept;
    }
}

control check(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control ingress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    register<bit<16>>(4) seen;  // packets of each kind

    apply {
        bit<16> packets;
        seen.read(packets, (bit<32>) hdr.request.what[1:0]);
        packets = packets + 1;
        seen.write((bit<32>) hdr.request.what[1:0], packets);
        hdr.count.setValid();
        hdr.count.packets = packets;
        hdr.copy = hdr.request;

        standard.egress_spec = 3;
        if (hdr.request.what == CLONE) {
            clone(CloneType.I2E, 5);
        } else if (hdr.request.what == MULTICAST) {
            standard.mcast_grp = 1;
        } else if (hdr.request.what == RESUBMIT && meta.passes == 0) {
            meta.passes = 1;
            resubmit_preserving_field_list(1);
        }
    }
}

control egress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        if (standard.egress_rid == 1) {
            hdr.request.setInvalid();
        }
    }
}

control compute(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.request);
        packet.emit(hdr.count);
        packet.emit(hdr.copy);
    }
}

V1Switch(parse(), check(), ingress(), egress(), compute(), deparse()) main;
