/* Meters of all types that P4Runtime has, direct and indirect, beside direct counters; the colours go into the packet. */

#include <core.p4>
#include <v1model.p4>

header flow_t {
    bit<8> source;
    bit<8> direct;
    bit<8> indirect;
}
struct headers_t {
    flow_t flow;
}
struct metadata_t {
    bit<8> direct;
    bit<8> indirect;
}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.flow);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control Receive(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    @single_rate_three_color
    direct_meter<bit<8>>(MeterType.packets) rate;
    @single_rate_two_color
    meter(4, MeterType.bytes) volume;
    @two_rate_three_color
    meter(4, MeterType.packets) unused;
    direct_counter(CounterType.packets_and_bytes) hits;
    direct_counter(CounterType.packets_and_bytes) passes;

    action metered() {
        rate.read(meta.direct);
    }
    action leave(bit<9> port) {
        standard_metadata.egress_spec = port;
    }
    table rates {
        key = { hdr.flow.source: exact; }
        actions = { metered; NoAction; }
        default_action = metered();
        meters = rate;
        counters = hits;
        size = 16;
    }
    table always {
        actions = { leave; }
        const default_action = leave(3);
        counters = passes;
    }
    table quietly {
        actions = { leave; }
        const default_action = leave(4);
    }
    apply {
        rates.apply();
        unused.execute_meter(32w0, meta.indirect);
        volume.execute_meter((bit<32>)hdr.flow.source, meta.indirect);
        hdr.flow.direct = meta.direct;
        hdr.flow.indirect = meta.indirect;
        always.apply();
        quietly.apply();
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
        packet.emit(hdr.flow);
    }
}

V1Switch(P(), Verify(), Receive(), Send(), Compute(), D()) main;
