/* Meters by packets and by bytes, a counter, log messages. */

#include <core.p4>
#include <v1model.p4>

header probe_t {
    bit<8> index;
    bit<8> by_packets;
    bit<8> by_bytes;
}
struct headers_t {
    probe_t probe;
}
struct metadata_t {
    bit<2> color;
}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.probe);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control Receive(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    meter(4, MeterType.packets) packets;
    meter(4, MeterType.bytes) volume;
    counter(4, CounterType.packets_and_bytes) seen;

    apply {
        standard_metadata.egress_spec = 1;
        packets.execute_meter((bit<32>)hdr.probe.index, meta.color);
        hdr.probe.by_packets = (bit<8>)meta.color;
        volume.execute_meter((bit<32>)hdr.probe.index, meta.color);
        hdr.probe.by_bytes = (bit<8>)meta.color;
        seen.count((bit<32>)hdr.probe.index);
        log_msg("probe {} is {}", { hdr.probe.index, meta.color });
        assert(hdr.probe.index != 0xff);
    }
}

control Send(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {}
}

control Compute(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control D(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.probe);
    }
}

V1Switch(P(), Verify(), Receive(), Send(), Compute(), D()) main;
