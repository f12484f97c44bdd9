// A table of each match kind over the same key; the answer is the number that the matching entry carries.
#include <core.p4>
#include <v1model.p4>

header probe_t {
    bit<8> a;
    bit<16> b;
    bit<16> c;
    bit<4> d;
    bit<4> e;
    bit<128> f;
}
header answer_t {
    bit<32> exact_;
    bit<32> lpm_;
    bit<32> ternary_;
    bit<32> range_;
    bit<32> optional_;
    bit<32> wide_;
    bit<32> span_;
}
struct headers_t {
    probe_t probe;
    answer_t answer;
}
struct metadata_t {}

parser parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.probe);
        packet.extract(hdr.answer);
        transition accept;
    }
}
control verify_checksums(inout headers_t hdr, inout metadata_t meta) { apply {} }
control ingress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    action answer_exact(bit<32> n) { hdr.answer.exact_ = n; }
    action answer_lpm(bit<32> n) { hdr.answer.lpm_ = n; }
    action answer_ternary(bit<32> n) { hdr.answer.ternary_ = n; }
    action answer_range(bit<32> n) { hdr.answer.range_ = n; }
    action answer_optional(bit<32> n) { hdr.answer.optional_ = n; }
    action answer_wide(bit<32> n) { hdr.answer.wide_ = n; }
    action answer_span(bit<32> n) { hdr.answer.span_ = n; }
    direct_counter(CounterType.packets_and_bytes) hits;

    table exact_table {
        key = { hdr.probe.a: exact; hdr.probe.c: exact; hdr.probe.e: exact; }
        actions = { answer_exact; }
        default_action = answer_exact(0);
        size = 100;
        counters = hits;
    }
    table lpm_table {
        key = { hdr.probe.d: exact; hdr.probe.b: lpm; }
        actions = { answer_lpm; }
        default_action = answer_lpm(0);
    }
    table ternary_table {
        key = { hdr.probe.a: ternary; hdr.probe.b: ternary; hdr.probe.e: exact; }
        actions = { answer_ternary; }
        default_action = answer_ternary(0);
    }
    table range_table {
        key = { hdr.probe.b: range; hdr.probe.d: exact; hdr.probe.c: range; hdr.probe.a: ternary; }
        actions = { answer_range; }
        default_action = answer_range(0);
    }
    table optional_table {
        key = { hdr.probe.a: optional; hdr.probe.c: optional; }
        actions = { answer_optional; }
        default_action = answer_optional(0);
    }
    table wide_table {
        key = { hdr.probe.a: exact; hdr.probe.f: lpm; }
        actions = { answer_wide; }
        default_action = answer_wide(0);
    }
    table span_table {
        key = { hdr.probe.a: ternary; hdr.probe.f: range; hdr.probe.b: range; }
        actions = { answer_span; }
        default_action = answer_span(0);
    }
    apply {
        standard_metadata.egress_spec = standard_metadata.ingress_port;
        exact_table.apply();
        lpm_table.apply();
        ternary_table.apply();
        range_table.apply();
        optional_table.apply();
        wide_table.apply();
        span_table.apply();
    }
}
control egress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) { apply {} }
control update_checksums(inout headers_t hdr, inout metadata_t meta) { apply {} }
control deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.probe);
        packet.emit(hdr.answer);
    }
}

V1Switch(parse(), verify_checksums(), ingress(), egress(), update_checksums(), deparse()) main;
