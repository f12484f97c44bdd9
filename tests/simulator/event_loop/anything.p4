/* A switch that does to a packet what its first bytes say: any port, any group, again from the start, copied, cut, longer. */

#include <core.p4>
#include <v1model.p4>

header order_t {
    bit<4> ingress;
    bit<4> egress;
    bit<8> to;
    bit<8> passes;
}
header more_t {
    bit<800> filling;
}
struct headers_t {
    more_t more;
    order_t order;
}
struct metadata_t {
    @field_list(1)
    bit<8> kept;
}

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
        hdr.order.passes = hdr.order.passes + 1;
        standard_metadata.egress_spec = 1 + (bit<9>)(hdr.order.to & 7);
        if (hdr.order.ingress < 4) {
            standard_metadata.mcast_grp = 1 + (bit<16>)(hdr.order.to & 3);
        } else if (hdr.order.ingress == 4) {
            standard_metadata.egress_spec = 1 + (bit<9>)hdr.order.to;
        } else if (hdr.order.ingress == 5) {
            clone(CloneType.I2E, (bit<32>)(hdr.order.to & 3));
        } else if (hdr.order.ingress == 6 && standard_metadata.instance_type == 0) {
            resubmit_preserving_field_list(1);
        } else if (hdr.order.ingress == 7) {
            mark_to_drop(standard_metadata);
        }
    }
}

control Send(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        if (hdr.order.egress < 3) {
            hdr.order.egress = hdr.order.egress + (bit<4>)standard_metadata.egress_rid;
        } else if (hdr.order.egress == 3 && hdr.order.passes < 40) {
            recirculate_preserving_field_list(1);
        } else if (hdr.order.egress == 4 && standard_metadata.instance_type == 0) {
            clone(CloneType.E2E, (bit<32>)(hdr.order.to & 3));
        } else if (hdr.order.egress == 5) {
            truncate((bit<32>)hdr.order.to & 63);
        } else if (hdr.order.egress == 6) {
            hdr.more.setValid();
            hdr.more.filling = 5;
        } else if (hdr.order.egress == 7) {
            truncate(0);
        }
    }
}

control Compute(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control D(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.more);
        packet.emit(hdr.order);
    }
}

V1Switch(P(), Verify(), Receive(), Send(), Compute(), D()) main;
