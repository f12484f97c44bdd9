// Tables with what belongs to them, hit and miss, ways out of a control, hashes, clones and checksums.
#include <core.p4>
#include <v1model.p4>

header h_t { bit<32> a; bit<16> b; bit<16> sum; }
struct headers { h_t h; }
struct metadata { @field_list(1) bit<16> hash; bit<2> colour; }

parser MyParser(packet_in packet, out headers hdr, inout metadata meta, inout standard_metadata_t standard_metadata) {
    state start { packet.extract(hdr.h); transition accept; }
}
control MyVerify(inout headers hdr, inout metadata meta) {
    apply { verify_checksum(hdr.h.isValid(), { hdr.h.a, hdr.h.b }, hdr.h.sum, HashAlgorithm.csum16); }
}
control MyIngress(inout headers hdr, inout metadata meta, inout standard_metadata_t standard_metadata) {
    direct_counter(CounterType.packets) hits;
    direct_meter<bit<2>>(MeterType.bytes) pace;
    action_selector(HashAlgorithm.crc16, 8, 4) members;
    action drop() { mark_to_drop(standard_metadata); }
    action forward(bit<9> port) { hits.count(); pace.read(meta.colour); standard_metadata.egress_spec = port; }
    action pick(bit<9> port) { standard_metadata.egress_spec = port; }
    table routes {
        key = { hdr.h.a: lpm; }
        actions = { forward; @defaultonly drop; }
        const default_action = drop();
        size = 64;
        counters = hits;
        meters = pace;
    }
    table groups {
        key = { hdr.h.b: exact; meta.hash: selector; }
        actions = { pick; NoAction; }
        implementation = members;
        support_timeout = true;
    }
    apply {
        if (!hdr.h.isValid()) { drop(); return; }
        hash(meta.hash, HashAlgorithm.crc32, 16w0, { hdr.h.a, hdr.h.b }, 32w1024);
        if (!routes.apply().hit && groups.apply().hit) { exit; }
        clone_preserving_field_list(CloneType.I2E, 5, 1);
    }
}
control MyEgress(inout headers hdr, inout metadata meta, inout standard_metadata_t standard_metadata) { apply { } }
control MyCompute(inout headers hdr, inout metadata meta) {
    apply { update_checksum(true, { hdr.h.a, hdr.h.b }, hdr.h.sum, HashAlgorithm.csum16); }
}
control MyDeparser(packet_out packet, in headers hdr) { apply { packet.emit(hdr); } }
V1Switch(MyParser(), MyVerify(), MyIngress(), MyEgress(), MyCompute(), MyDeparser()) main;
