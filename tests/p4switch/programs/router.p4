// An IPv4 router with checksums verified and computed anew, a tunnel header that comes and goes, and UDP checksums.
#include <core.p4>
#include <v1model.p4>

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> ethertype;
}
header tunnel_t {
    bit<16> id;
    bit<16> ethertype;
}
header ipv4_t {
    bit<4> version;
    bit<4> ihl;
    bit<8> tos;
    bit<16> length;
    bit<16> identification;
    bit<3> flags;
    bit<13> fragment;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    bit<32> source;
    bit<32> destination;
}
header udp_t {
    bit<16> source;
    bit<16> destination;
    bit<16> length;
    bit<16> checksum;
}
struct headers_t {
    ethernet_t ethernet;
    tunnel_t tunnel;
    ipv4_t ipv4;
    udp_t udp;
}
struct metadata_t {
    bit<1> rewrite_udp;
    bit<16> zero; // never written
}

error { BadVersion }

parser parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ethertype) {
            0x1212: tunnel;
            0x0800: ipv4;
            default: accept;
        }
    }
    state tunnel {
        packet.extract(hdr.tunnel);
        transition select(hdr.tunnel.ethertype) {
            0x0800: ipv4;
            default: accept;
        }
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        verify(hdr.ipv4.version == 4, error.BadVersion);
        transition select(hdr.ipv4.protocol, hdr.ipv4.fragment) {
            (17, 0): udp;
            default: accept;
        }
    }
    state udp {
        packet.extract(hdr.udp);
        transition accept;
    }
}

control verify_checksums(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.ipv4.isValid(),
            { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.length, hdr.ipv4.identification, hdr.ipv4.flags,
              hdr.ipv4.fragment, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.source, hdr.ipv4.destination },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
        // The sum of all that was sent is 0 even where a checksum of 0 was sent as 0xFFFF (RFC 768).
        verify_checksum_with_payload(hdr.udp.isValid() && hdr.udp.checksum != 0,
            { hdr.ipv4.source, hdr.ipv4.destination, 8w0, hdr.ipv4.protocol, hdr.udp.length,
              hdr.udp.source, hdr.udp.destination, hdr.udp.length, hdr.udp.checksum },
            meta.zero, HashAlgorithm.csum16);
    }
}

control ingress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    counter(4, CounterType.packets_and_bytes) errors;

    action drop() { mark_to_drop(standard_metadata); }
    action forward(bit<48> mac, bit<9> port) {
        hdr.ethernet.source = hdr.ethernet.destination;
        hdr.ethernet.destination = mac;
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
        standard_metadata.egress_spec = port;
    }
    action replicate(bit<16> group) {
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
        standard_metadata.mcast_grp = group;
    }
    action encapsulate(bit<16> id, bit<9> port) {
        hdr.tunnel.setValid();
        hdr.tunnel.id = id;
        hdr.tunnel.ethertype = hdr.ethernet.ethertype;
        hdr.ethernet.ethertype = 0x1212;
        standard_metadata.egress_spec = port;
    }
    action decapsulate(bit<9> port) {
        hdr.ethernet.ethertype = hdr.tunnel.ethertype;
        hdr.tunnel.setInvalid();
        standard_metadata.egress_spec = port;
    }
    action translate(bit<32> source, bit<16> source_port, bit<9> port) {
        hdr.ipv4.source = source;
        hdr.udp.source = source_port;
        meta.rewrite_udp = 1;
        standard_metadata.egress_spec = port;
    }
    table routes {
        key = { hdr.ipv4.destination: lpm; }
        actions = { forward; replicate; encapsulate; decapsulate; translate; drop; }
        default_action = drop();
        size = 200000;
    }
    apply {
        if (standard_metadata.parser_error == error.PacketTooShort) {
            errors.count(0);
            drop();
        } else if (standard_metadata.parser_error == error.BadVersion) {
            errors.count(1);
            drop();
        } else if (standard_metadata.checksum_error == 1) {
            errors.count(2);
            drop();
        } else if (!hdr.ipv4.isValid()) {
            standard_metadata.egress_spec = standard_metadata.ingress_port;
        } else if (hdr.ipv4.ttl <= 1) {
            errors.count(3);
            drop();
        } else {
            routes.apply();
        }
    }
}

control egress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        if (standard_metadata.egress_rid != 0) {
            hdr.ipv4.tos = (bit<8>)standard_metadata.egress_rid;
            if (standard_metadata.egress_rid == 99) {
                mark_to_drop(standard_metadata);
            }
        }
    }
}

control update_checksums(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid(),
            { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.length, hdr.ipv4.identification, hdr.ipv4.flags,
              hdr.ipv4.fragment, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.source, hdr.ipv4.destination },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
        update_checksum_with_payload(hdr.udp.isValid() && meta.rewrite_udp == 1,
            { hdr.ipv4.source, hdr.ipv4.destination, 8w0, hdr.ipv4.protocol, hdr.udp.length,
              hdr.udp.source, hdr.udp.destination, hdr.udp.length },
            hdr.udp.checksum, HashAlgorithm.csum16);
    }
}

control deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.tunnel);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
    }
}

V1Switch(parse(), verify_checksums(), ingress(), egress(), update_checksums(), deparse()) main;
