// Everything that PSA's switch does with a packet, chosen by its first byte; the packets say what happened to them.

#include <core.p4>
#include <psa.p4>

header cmd_t {
    bit<8> what;
    bit<8> to;
    bit<16> sum;
}

header report_t {
    bit<8> path_in;
    bit<8> path_out;
    bit<16> port;
    bit<16> instance;
    bit<16> value;
}

struct none_t {}

struct headers_t {
    cmd_t cmd;
    report_t report;
}

struct meta_t {
    bit<16> value;
}

// What PSA hands over: the values prove that it comes from the right deparser.
struct handed_t {
    bit<16> value;
}

parser IngressParserImpl(packet_in packet, out headers_t hdr, inout meta_t meta,
    in psa_ingress_parser_input_metadata_t istd, in handed_t resubmit_meta, in handed_t recirculate_meta) {
    state start {
        meta.value = 0;
        packet.extract(hdr.cmd);
        packet.extract(hdr.report);
        transition select(istd.packet_path) {
            PSA_PacketPath_t.RESUBMIT: resubmitted;
            PSA_PacketPath_t.RECIRCULATE: recirculated;
            default: accept;
        }
    }
    state resubmitted {
        meta.value = resubmit_meta.value;
        transition accept;
    }
    state recirculated {
        meta.value = recirculate_meta.value;
        transition accept;
    }
}

control path_number(in PSA_PacketPath_t path, out bit<8> number) {
    apply {
        number = 0;
        if (path == PSA_PacketPath_t.NORMAL_UNICAST) {
            number = 1;
        } else if (path == PSA_PacketPath_t.NORMAL_MULTICAST) {
            number = 2;
        } else if (path == PSA_PacketPath_t.CLONE_I2E) {
            number = 3;
        } else if (path == PSA_PacketPath_t.CLONE_E2E) {
            number = 4;
        } else if (path == PSA_PacketPath_t.RESUBMIT) {
            number = 5;
        } else if (path == PSA_PacketPath_t.RECIRCULATE) {
            number = 6;
        }
    }
}

control IngressImpl(inout headers_t hdr, inout meta_t meta, in psa_ingress_input_metadata_t istd,
    inout psa_ingress_output_metadata_t ostd) {
    Register<bit<16>, bit<8>>(8) seen;
    Counter<bit<32>, bit<8>>(4, PSA_CounterType_t.PACKETS_AND_BYTES) counted;
    DirectCounter<bit<32>>(PSA_CounterType_t.PACKETS) hits;
    Meter<bit<8>>(2, PSA_MeterType_t.PACKETS) limit;
    Hash<bit<16>>(PSA_HashAlgorithm_t.CRC16) crc;
    Random<bit<16>>(7, 7) seven;
    ActionProfile(8) profile;

    action to_port() {
        send_to_port(ostd, (PortId_t)(PortIdUint_t)hdr.cmd.to);
    }
    action set_value(bit<16> value) {
        hits.count();
        meta.value = value;
    }
    table values {
        key = { hdr.cmd.to: exact; }
        actions = { set_value; NoAction; }
        const default_action = NoAction();
        psa_direct_counter = hits;
    }
    action set_one() { }
    table profiled {
        key = { hdr.cmd.to: exact; }
        actions = { set_one; NoAction; }
        psa_implementation = profile;
    }
    apply {
        counted.count(1);
        path_number.apply(istd.packet_path, hdr.report.path_in);
        to_port();
        if (hdr.cmd.what == 1) {
            multicast(ostd, (MulticastGroup_t)(MulticastGroupUint_t)hdr.cmd.to);
        } else if (hdr.cmd.what == 2 && istd.packet_path == PSA_PacketPath_t.NORMAL) {
            hdr.cmd.sum = 0xdead; // resubmission takes the packet as it arrived
            ostd.resubmit = true;
        } else if (hdr.cmd.what == 3 && istd.packet_path == PSA_PacketPath_t.NORMAL) {
            send_to_port(ostd, PSA_PORT_RECIRCULATE);
        } else if (hdr.cmd.what == 4) {
            ostd.clone = true;
            ostd.clone_session_id = (CloneSessionId_t)5;
            hdr.cmd.sum = 0xbeef; // the clone is the packet as it arrived
        } else if (hdr.cmd.what == 5) {
            ingress_drop(ostd);
        } else if (hdr.cmd.what == 6) {
            seen.write(3, seen.read(3) + hdr.cmd.sum);
            meta.value = seen.read(3);
        } else if (hdr.cmd.what == 7) {
            meta.value = crc.get_hash({ hdr.cmd.to, hdr.cmd.sum });
        } else if (hdr.cmd.what == 8) {
            meta.value = crc.get_hash(16w100, { hdr.cmd.to, hdr.cmd.sum }, 16w10);
        } else if (hdr.cmd.what == 9) {
            values.apply();
            profiled.apply();
        } else if (hdr.cmd.what == 10) {
            meta.value = limit.execute(1) == PSA_MeterColor_t.RED ? 16w1 : 2;
        } else if (hdr.cmd.what == 11) {
            meta.value = seven.read();
        } else if (hdr.cmd.what == 12) {
            ostd.egress_port = (PortId_t)0x10003; // there is no such port
        }
        if (istd.packet_path != PSA_PacketPath_t.NORMAL) {
            hdr.cmd.sum = meta.value;
        }
        if (hdr.cmd.what > 5) {
            hdr.report.value = meta.value;
        }
    }
}

control IngressDeparserImpl(packet_out packet, out handed_t clone_i2e_meta, out handed_t resubmit_meta,
    out handed_t normal_meta, inout headers_t hdr, in meta_t meta, in psa_ingress_output_metadata_t istd) {
    apply {
        clone_i2e_meta.value = 0x3333;
        resubmit_meta.value = 0x5555;
        normal_meta.value = 0x1111;
        if (psa_resubmit(istd)) {
            resubmit_meta.value = 0x5556;
        }
        packet.emit(hdr);
    }
}

parser EgressParserImpl(packet_in packet, out headers_t hdr, inout meta_t meta,
    in psa_egress_parser_input_metadata_t istd, in handed_t normal_meta, in handed_t clone_i2e_meta,
    in handed_t clone_e2e_meta) {
    state start {
        packet.extract(hdr.cmd);
        packet.extract(hdr.report);
        transition select(istd.packet_path) {
            PSA_PacketPath_t.CLONE_I2E: from_ingress;
            PSA_PacketPath_t.CLONE_E2E: from_egress;
            default: normal;
        }
    }
    state normal {
        meta.value = normal_meta.value;
        transition accept;
    }
    state from_ingress {
        meta.value = clone_i2e_meta.value;
        transition accept;
    }
    state from_egress {
        meta.value = clone_e2e_meta.value;
        transition accept;
    }
}

control EgressImpl(inout headers_t hdr, inout meta_t meta, in psa_egress_input_metadata_t istd,
    inout psa_egress_output_metadata_t ostd) {
    apply {
        path_number.apply(istd.packet_path, hdr.report.path_out);
        hdr.report.port = (bit<16>)(PortIdUint_t)istd.egress_port;
        hdr.report.instance = (EgressInstanceUint_t)istd.instance;
        if (hdr.cmd.what <= 5 || hdr.cmd.what >= 13) {
            hdr.report.value = meta.value;
        }
        if (hdr.cmd.what == 13 && istd.packet_path != PSA_PacketPath_t.CLONE_E2E) {
            ostd.clone = true;
            ostd.clone_session_id = (CloneSessionId_t)5;
            hdr.cmd.to = 0xee; // the clone is the packet as it leaves
        } else if (hdr.cmd.what == 14) {
            egress_drop(ostd);
        }
    }
}

control EgressDeparserImpl(packet_out packet, out handed_t clone_e2e_meta, out handed_t recirculate_meta,
    inout headers_t hdr, in meta_t meta, in psa_egress_output_metadata_t istd,
    in psa_egress_deparser_input_metadata_t edstd) {
    InternetChecksum() checksum;

    apply {
        clone_e2e_meta.value = 0x4444;
        recirculate_meta.value = 0;
        if (psa_recirculate(istd, edstd)) {
            recirculate_meta.value = 0x6666;
        }
        if (hdr.cmd.what == 15) {
            checksum.add({ hdr.cmd.what, hdr.cmd.to, hdr.report });
            checksum.subtract(hdr.report.value);
            hdr.cmd.sum = checksum.get();
        }
        packet.emit(hdr.cmd);
        packet.emit(hdr.report);
    }
}

IngressPipeline(IngressParserImpl(), IngressImpl(), IngressDeparserImpl()) ip;
EgressPipeline(EgressParserImpl(), EgressImpl(), EgressDeparserImpl()) ep;
PSA_Switch(ip, PacketReplicationEngine(), ep, BufferingQueueingEngine()) main;
