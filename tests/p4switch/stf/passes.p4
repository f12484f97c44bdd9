/* Clones of both kinds, resubmission, recirculation, multicast and truncation: who sees what, with which metadata. */

#include <core.p4>
#include <v1model.p4>

header work_t {
    bit<8> what;
    bit<8> passes;
    bit<8> kept;
}
header report_t {
    bit<8> instance_type;
    bit<8> ingress_port;
    bit<8> egress_port;
    bit<8> egress_rid;
    bit<8> packet_length;
    bit<8> kept;
    bit<8> lost;
}
struct headers_t {
    report_t report;
    work_t work;
}
struct pass_t {
    @field_list(1)
    bit<8> kept;
    bit<8> lost;
}
struct metadata_t {
    pass_t pass;
}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.work);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control Receive(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        standard_metadata.egress_spec = 2;
        hdr.work.passes = hdr.work.passes + 1;
        if (standard_metadata.instance_type == 0) {
            meta.pass.kept = 0x11;
            meta.pass.lost = 0x22;
            if (hdr.work.what == 1) {
                resubmit_preserving_field_list(1);
            } else if (hdr.work.what == 2) {
                clone_preserving_field_list(CloneType.I2E, 5, 1);
            } else if (hdr.work.what == 3) {
                clone(CloneType.I2E, 5);
            } else if (hdr.work.what == 6) {
                clone(CloneType.I2E, 6);
                standard_metadata.mcast_grp = 7;
            } else if (hdr.work.what == 7) {
                clone(CloneType.I2E, 99);
                mark_to_drop(standard_metadata);
            }
        } else {
            hdr.work.kept = meta.pass.kept + meta.pass.lost;
        }
    }
}

control Send(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        if (hdr.work.what == 4 && hdr.work.passes < 3) {
            recirculate_preserving_field_list(1);
        } else {
            if (hdr.work.what == 5 && standard_metadata.instance_type == 0) {
                clone_preserving_field_list(CloneType.E2E, 5, 1);
            } else if (hdr.work.what == 8) {
                truncate(12);
            }
            hdr.report.setValid();
            hdr.report.instance_type = (bit<8>)standard_metadata.instance_type;
            hdr.report.ingress_port = (bit<8>)standard_metadata.ingress_port;
            hdr.report.egress_port = (bit<8>)standard_metadata.egress_port;
            hdr.report.egress_rid = (bit<8>)standard_metadata.egress_rid;
            hdr.report.packet_length = (bit<8>)standard_metadata.packet_length;
            hdr.report.kept = meta.pass.kept;
            hdr.report.lost = meta.pass.lost;
        }
    }
}

control Compute(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control D(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.report);
        packet.emit(hdr.work);
    }
}

V1Switch(P(), Verify(), Receive(), Send(), Compute(), D()) main;
