// PSA on v1model: a packet passes twice through the six blocks of v1model, once for each pipeline of PSA.
//
//   first pass:   parser = ingress parser, ingress = ingress and the computations of its deparser, deparser = its emits.
//                 V1model's traffic manager replicates, and its egress only sends the packet on its second pass
//   second pass:  parser = egress parser, egress = egress and the computations of its deparser, deparser = its emits
//
// Between the passes the packet is bytes, as PSA demands. What PSA hands over is preserved in field lists. expand.py
// declares the program's own types (psa_frame_ih_t, ...), replaces psa_frame_ip_t etc. by its blocks, and divides the
// deparsers. `emitted` leads nowhere, and the last block keeps nothing but emits.

struct psa_frame_headers_t {
    psa_frame_ih_t ingress;
    psa_frame_eh_t egress;
}

struct psa_frame_metadata_t {
    // Field list 1: to the second pass; 2: resubmission; 3: recirculation.
    @field_list(1) bit<1> second_pass;
    @field_list(1, 2, 3) PSA_PacketPath_t path;
    @field_list(1) PortIdUint_t port;
    @field_list(1) EgressInstanceUint_t instance;
    @field_list(1) ClassOfServiceUint_t class_of_service;
    @field_list(1) psa_frame_nm_t normal;
    @field_list(1) psa_frame_ci2em_t clone_i2e;
    @field_list(1) psa_frame_ce2em_t clone_e2e;
    @field_list(2) psa_frame_resubm_t resubmit;
    @field_list(3) psa_frame_recircm_t recirculate;
    psa_frame_im_t ingress;
    psa_frame_em_t egress;
    psa_ingress_parser_input_metadata_t ip_in;
    psa_ingress_input_metadata_t ig_in;
    psa_ingress_output_metadata_t ig_out;
    psa_egress_parser_input_metadata_t ep_in;
    psa_egress_input_metadata_t eg_in;
    psa_egress_output_metadata_t eg_out;
    psa_egress_deparser_input_metadata_t ed_in;
}

// An alias is the name by which the target knows a field.
@metadata @name("standard_metadata")
struct psa_frame_standard_metadata_t {
    bit<9> ingress_port;
    bit<9> egress_spec;
    bit<9> egress_port;
    bit<32> instance_type;
    bit<32> packet_length;
    @alias("intrinsic_metadata.ingress_global_timestamp") bit<48> ingress_global_timestamp;
    @alias("intrinsic_metadata.egress_global_timestamp") bit<48> egress_global_timestamp;
    @alias("intrinsic_metadata.mcast_grp") bit<16> mcast_grp;
    @alias("intrinsic_metadata.egress_rid") bit<16> egress_rid;
    error parser_error;
}

enum psa_frame_clone_t {
    I2E,
    E2E
}

extern void mark_to_drop(inout psa_frame_standard_metadata_t standard_metadata);
extern void clone_preserving_field_list(in psa_frame_clone_t type, in bit<32> session, bit<8> index);
extern void resubmit_preserving_field_list(bit<8> index);
extern void recirculate_preserving_field_list(bit<8> index);

const bit<32> PSA_FRAME_I2E = 1;
const bit<32> PSA_FRAME_E2E = 2;
const bit<32> PSA_FRAME_REPLICATED = 5;

@noWarn("uninitialized-out-param") // the program's own blocks are warned about
parser psa_frame_parser(
    packet_in packet, out psa_frame_headers_t hdr, inout psa_frame_metadata_t m,
    inout psa_frame_standard_metadata_t s
) {
    @name(".psa_frame_ip_t") psa_frame_ip_t() ip;
    @name(".psa_frame_ep_t") psa_frame_ep_t() ep;

    state start {
        transition select(m.second_pass) {
            0: first;
            default: second;
        }
    }
    state first {
        m.ip_in.ingress_port = (PortId_t)(PortIdUint_t)s.ingress_port;
        m.ip_in.packet_path = m.path;
        transition select(m.path) {
            PSA_PacketPath_t.RECIRCULATE: recirculated;
            default: ingress;
        }
    }
    state recirculated {
        m.ip_in.ingress_port = PSA_PORT_RECIRCULATE;
        transition ingress;
    }
    state ingress {
        ip.apply(packet, hdr.ingress, m.ingress, m.ip_in, m.resubmit, m.recirculate);
        transition accept;
    }
    state second {
        m.ep_in.egress_port = (PortId_t)m.port;
        m.ep_in.packet_path = m.path;
        ep.apply(packet, hdr.egress, m.egress, m.ep_in, m.normal, m.clone_i2e, m.clone_e2e);
        transition accept;
    }
}

control psa_frame_none(inout psa_frame_headers_t hdr, inout psa_frame_metadata_t m) {
    apply { }
}

control psa_frame_ingress(
    packet_out emitted, inout psa_frame_headers_t hdr, inout psa_frame_metadata_t m,
    inout psa_frame_standard_metadata_t s
) {
    @name(".psa_frame_ig_t") psa_frame_ig_t() ig;
    @name(".psa_frame_id_t") psa_frame_id_t() id;

    apply {
        if (m.second_pass == 1) {
            s.egress_spec = (bit<9>)m.port; // where the first pass has sent it
        } else {
            m.ig_in.ingress_port = m.ip_in.ingress_port;
            m.ig_in.packet_path = m.path;
            m.ig_in.ingress_timestamp = (Timestamp_t)(TimestampUint_t)s.ingress_global_timestamp;
            m.ig_in.parser_error = s.parser_error;
            m.ig_out.drop = true;
            ig.apply(hdr.ingress, m.ingress, m.ig_in, m.ig_out);
            id.apply(emitted, m.clone_i2e, m.resubmit, m.normal, hdr.ingress, m.ingress, m.ig_out);

            m.class_of_service = (ClassOfServiceUint_t)m.ig_out.class_of_service;
            m.port = (PortIdUint_t)m.ig_out.egress_port;
            if (m.ig_out.clone) {
                clone_preserving_field_list(
                    psa_frame_clone_t.I2E, (bit<32>)(CloneSessionIdUint_t)m.ig_out.clone_session_id, 1);
            }
            if (m.ig_out.drop) {
                mark_to_drop(s);
            } else if (m.ig_out.resubmit) {
                m.path = PSA_PacketPath_t.RESUBMIT;
                resubmit_preserving_field_list(2);
            } else if ((MulticastGroupUint_t)m.ig_out.multicast_group != 0) {
                if ((MulticastGroupUint_t)m.ig_out.multicast_group > 0xffff) {
                    mark_to_drop(s);
                } else {
                    s.mcast_grp = (bit<16>)(MulticastGroupUint_t)m.ig_out.multicast_group;
                }
            } else if (
                m.port < 511 || m.port == (PortIdUint_t)PSA_PORT_RECIRCULATE || m.port == (PortIdUint_t)PSA_PORT_CPU
            ) {
                s.egress_spec = (bit<9>)m.port;
            } else {
                mark_to_drop(s); // no such port
            }
        }
    }
}

control psa_frame_egress(
    packet_out emitted, inout psa_frame_headers_t hdr, inout psa_frame_metadata_t m,
    inout psa_frame_standard_metadata_t s
) {
    @name(".psa_frame_eg_t") psa_frame_eg_t() eg;
    @name(".psa_frame_ed_t") psa_frame_ed_t() ed;

    apply {
        if (m.second_pass == 0 || s.instance_type == PSA_FRAME_I2E || s.instance_type == PSA_FRAME_E2E) {
            if (s.instance_type == PSA_FRAME_I2E) {
                m.path = PSA_PacketPath_t.CLONE_I2E;
                m.port = (PortIdUint_t)s.egress_port;
            } else if (s.instance_type == PSA_FRAME_E2E) {
                m.path = PSA_PacketPath_t.CLONE_E2E;
                m.port = (PortIdUint_t)s.egress_port;
            } else if (s.instance_type == PSA_FRAME_REPLICATED) {
                m.path = PSA_PacketPath_t.NORMAL_MULTICAST;
                m.port = (PortIdUint_t)s.egress_port;
            } else {
                m.path = PSA_PacketPath_t.NORMAL_UNICAST;
            }
            m.instance = s.egress_rid;
            m.second_pass = 1;
            recirculate_preserving_field_list(1);
        } else {
            m.eg_in.class_of_service = (ClassOfService_t)m.class_of_service;
            m.eg_in.egress_port = (PortId_t)m.port;
            m.eg_in.packet_path = m.path;
            m.eg_in.instance = (EgressInstance_t)m.instance;
            m.eg_in.egress_timestamp = (Timestamp_t)(TimestampUint_t)s.egress_global_timestamp;
            m.eg_in.parser_error = s.parser_error;
            m.ed_in.egress_port = (PortId_t)m.port;
            eg.apply(hdr.egress, m.egress, m.eg_in, m.eg_out);
            ed.apply(emitted, m.clone_e2e, m.recirculate, hdr.egress, m.egress, m.eg_out, m.ed_in);
            if (m.eg_out.clone) {
                clone_preserving_field_list(
                    psa_frame_clone_t.E2E, (bit<32>)(CloneSessionIdUint_t)m.eg_out.clone_session_id, 1);
            }
            if (m.eg_out.drop) {
                mark_to_drop(s);
            } else if (m.port == (PortIdUint_t)PSA_PORT_RECIRCULATE) {
                m.path = PSA_PacketPath_t.RECIRCULATE;
                recirculate_preserving_field_list(3);
            }
        }
    }
}

control psa_frame_deparser(packet_out packet, inout psa_frame_headers_t hdr) {
    psa_frame_metadata_t m = { ... };
    psa_frame_id_t() id;
    psa_frame_ed_t() ed;

    apply {
        id.apply(packet, m.clone_i2e, m.resubmit, m.normal, hdr.ingress, m.ingress, m.ig_out);
        ed.apply(packet, m.clone_e2e, m.recirculate, hdr.egress, m.egress, m.eg_out, m.ed_in);
    }
}

parser psa_frame_parser_t<H, M>(
    packet_in b, out H parsedHdr, inout M meta, inout psa_frame_standard_metadata_t standard_metadata);
control psa_frame_checksum_t<H, M>(inout H hdr, inout M meta);
control psa_frame_pipeline_t<H, M>(
    packet_out emitted, inout H hdr, inout M meta, inout psa_frame_standard_metadata_t standard_metadata);
control psa_frame_deparser_t<H>(packet_out b, inout H hdr);

package psa_frame_t<H, M>(
    psa_frame_parser_t<H, M> p,
    psa_frame_checksum_t<H, M> vr,
    psa_frame_pipeline_t<H, M> ig,
    psa_frame_pipeline_t<H, M> eg,
    psa_frame_checksum_t<H, M> ck,
    psa_frame_deparser_t<H> dep);

psa_frame_t(
    psa_frame_parser(), psa_frame_none(), psa_frame_ingress(), psa_frame_egress(), psa_frame_none(), psa_frame_deparser()
) psa_frame_main;
