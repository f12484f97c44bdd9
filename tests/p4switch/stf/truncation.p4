/* truncate() in ingress and egress: it shortens the packet that calls it, not its copies and not its next pass. */

#include <core.p4>
#include <v1model.p4>

const bit<8> MULTICAST = 1;
const bit<8> CLONE = 2;
const bit<8> CLONE_TO_GROUP = 3;
const bit<8> RESUBMIT = 4;
const bit<8> RECIRCULATE = 5;
const bit<8> CLONE_AND_RECIRCULATE = 6; /* the packet and its clone */

header order_t {
    bit<8> ingress;     /* length that ingress truncates to; 0xff: it does not */
    bit<8> egress;      /* the same for egress */
    bit<8> then;        /* what else is done to the packet */
    bit<8> passes;
}
struct headers_t {
    order_t order;
}
struct metadata_t {}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.order);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control Receive(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        standard_metadata.egress_spec = 2;
        if (standard_metadata.instance_type == 0) {
            if (hdr.order.ingress != 0xff) {
                truncate((bit<32>)hdr.order.ingress);
            }
            if (hdr.order.then == MULTICAST) {
                standard_metadata.mcast_grp = 7;
            } else if (hdr.order.then == CLONE || hdr.order.then == CLONE_AND_RECIRCULATE) {
                clone(CloneType.I2E, 5);
            } else if (hdr.order.then == CLONE_TO_GROUP) {
                clone(CloneType.I2E, 6);
            } else if (hdr.order.then == RESUBMIT) {
                resubmit_preserving_field_list(0);
            }
        }
    }
}

control Send(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        if (hdr.order.passes == 0 && hdr.order.then >= RECIRCULATE) {
            recirculate_preserving_field_list(0);
        }
        bool first_pass = hdr.order.passes == 0 && standard_metadata.instance_type != 1;
        hdr.order.passes = hdr.order.passes + 1;
        if (first_pass && hdr.order.egress != 0xff) {
            truncate((bit<32>)hdr.order.egress);
            truncate(100); /* the smallest length holds */
            if (hdr.order.then == CLONE) {
                clone(CloneType.E2E, 5);
            } else if (hdr.order.then == CLONE_TO_GROUP) {
                clone(CloneType.E2E, 6);
            }
        }
    }
}

control Compute(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control D(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.order);
    }
}

V1Switch(P(), Verify(), Receive(), Send(), Compute(), D()) main;
