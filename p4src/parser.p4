// Parser, checksums and deparser.

#ifndef FANIN_PARSER_P4
#define FANIN_PARSER_P4

#include "headers.p4"
#include "network.p4"

parser parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
#include "network_states.p4"

    state udp {
        packet.extract(hdr.udp);
        meta.source_port = hdr.udp.source_port;
        meta.destination_port = hdr.udp.destination_port;
        // The ports are in the range from which Linux takes ephemeral ones: whether such a packet is an update is for
        // the admission table to say, and anything else must leave as it came.
        transition select(hdr.udp.destination_port, hdr.udp.length) {
            (AGGREGATION_PORTS, UDP_LENGTH_WITHOUT_VALUES): without_values;
            (AGGREGATION_PORTS, UDP_LENGTH_64): values_64;
            (AGGREGATION_PORTS, UDP_LENGTH_256): values_256;
            default: accept;
        }
    }

    state without_values {
        packet.extract(hdr.switchml);
        packet.extract(hdr.exponents);
        packet.extract(hdr.call);
        transition accept;
    }

    state values_64 {
        packet.extract(hdr.switchml);
        packet.extract(hdr.exponents);
        packet.extract(hdr.call);
        packet.extract(hdr.values_0);
        transition accept;
    }

    state values_256 {
        packet.extract(hdr.switchml);
        packet.extract(hdr.exponents);
        packet.extract(hdr.call);
        packet.extract(hdr.values_0);
        packet.extract(hdr.values_1);
        packet.extract(hdr.values_2);
        packet.extract(hdr.values_3);
        transition accept;
    }
}

// RFC 768: the pseudo-header, the header without its checksum, and the payload.
#define UDP_FIELDS hdr.ipv4.source, hdr.ipv4.destination, 8w0, hdr.ipv4.protocol, hdr.udp.length, \
                   hdr.udp.source_port, hdr.udp.destination_port, hdr.udp.length, \
                   hdr.switchml.msg_type, hdr.switchml.saturated, hdr.switchml.size, hdr.switchml.lease, \
                   hdr.switchml.chunk, hdr.switchml.version, hdr.switchml.slot, \
                   hdr.exponents.e0, hdr.exponents.not_quantizable, hdr.exponents.unused, hdr.call.call
#define VALUE_0(i) , hdr.values_0.v##i
#define VALUE_1(i) , hdr.values_1.v##i
#define VALUE_2(i) , hdr.values_2.v##i
#define VALUE_3(i) , hdr.values_3.v##i
#define FIELDS_64 UDP_FIELDS REPEAT_64(VALUE_0)
#define FIELDS_256 FIELDS_64 REPEAT_64(VALUE_1) REPEAT_64(VALUE_2) REPEAT_64(VALUE_3)
#define WITHOUT_VALUES (hdr.call.isValid() && hdr.udp.length == UDP_LENGTH_WITHOUT_VALUES)
#define HAS_64 (hdr.values_0.isValid() && hdr.udp.length == UDP_LENGTH_64)
#define HAS_256 (hdr.values_1.isValid() && hdr.udp.length == UDP_LENGTH_256)

// The sum of all that was sent, checksum included, is 0; so it is also where the checksum is sent as 0xFFFF in place
// of 0, which would say that there is none.
control verify_checksums(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.ipv4.isValid(), IPV4_FIELDS, hdr.ipv4.checksum, HashAlgorithm.csum16);
        verify_checksum(WITHOUT_VALUES && hdr.udp.checksum != 0, { UDP_FIELDS, hdr.udp.checksum }, meta.zero,
                        HashAlgorithm.csum16);
        verify_checksum(HAS_64 && hdr.udp.checksum != 0, { FIELDS_64, hdr.udp.checksum }, meta.zero,
                        HashAlgorithm.csum16);
        verify_checksum(HAS_256 && hdr.udp.checksum != 0, { FIELDS_256, hdr.udp.checksum }, meta.zero,
                        HashAlgorithm.csum16);
    }
}

// The admission entry of a lease states whether results and partial sums carry a UDP checksum.
control update_checksums(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid(), IPV4_FIELDS, hdr.ipv4.checksum, HashAlgorithm.csum16);
        update_checksum(meta.checksummed == 1 && WITHOUT_VALUES, { UDP_FIELDS }, hdr.udp.checksum,
                        HashAlgorithm.csum16);
        update_checksum(meta.checksummed == 1 && HAS_64, { FIELDS_64 }, hdr.udp.checksum, HashAlgorithm.csum16);
        update_checksum(meta.checksummed == 1 && HAS_256, { FIELDS_256 }, hdr.udp.checksum, HashAlgorithm.csum16);
        // A checksum of 0 is sent as 0xFFFF (RFC 768), which is the checksum of a zero.
        update_checksum(meta.checksummed == 1 && hdr.udp.checksum == 0, { 16w0 }, hdr.udp.checksum,
                        HashAlgorithm.csum16);
    }
}

control deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.arp);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.tcp);
        packet.emit(hdr.udp);
        packet.emit(hdr.switchml);
        packet.emit(hdr.exponents);
        packet.emit(hdr.call);
        packet.emit(hdr.values_0);
        packet.emit(hdr.values_1);
        packet.emit(hdr.values_2);
        packet.emit(hdr.values_3);
    }
}

#endif
