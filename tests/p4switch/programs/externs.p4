// One action for each extern and statement that the tests ask about, chosen by the packet's first byte.
#include <core.p4>
#include <v1model.p4>

header command_t {
    bit<8> what;
    bit<8> index;
    bit<16> value;
    bit<32> result;
    int<32> signed_result;
}
header extra_t {
    bit<32> a;
    bit<32> b;
}
struct headers_t {
    command_t command;
    extra_t extra;
    extra_t other;
}
struct metadata_t {
    bit<16> scratch;
}

parser parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.command);
        transition select(hdr.command.what) {
            0x80 &&& 0x80: extra;
            default: accept;
        }
    }
    state extra {
        packet.extract(hdr.extra);
        transition accept;
    }
}
control verify_checksums(inout headers_t hdr, inout metadata_t meta) { apply {} }

control ingress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    register<bit<32>>(10) cells;
    register<int<32>>(10) signed_cells;
    register<bit<7>>(10) narrow;
    counter(4, CounterType.packets) counted;

    action read_register() { cells.read(hdr.command.result, (bit<32>)hdr.command.index); }
    action write_register() { cells.write((bit<32>)hdr.command.index, hdr.command.result); }
    action add_signed() {
        int<32> old;
        signed_cells.read(old, (bit<32>)hdr.command.index);
        int<32> sum = old |+| hdr.command.signed_result;
        signed_cells.write((bit<32>)hdr.command.index, sum);
        hdr.command.signed_result = sum;
    }
    action write_narrow() {
        narrow.write((bit<32>)hdr.command.index, (bit<7>)hdr.command.value);
    }
    action count() { counted.count((bit<32>)hdr.command.index); }
    action crc16() {
        hash(hdr.command.result, HashAlgorithm.crc16, 32w0, { hdr.command.value, hdr.command.index }, 32w0x10000);
    }
    action crc32() {
        hash(hdr.command.result, HashAlgorithm.crc32, 32w0, { hdr.command.value, hdr.command.index }, 64w0x100000000);
    }
    action crc32_modulo() {
        hash(hdr.command.result, HashAlgorithm.crc32, 32w1000, { hdr.command.value }, 32w7);
    }
    action csum16() {
        hash(hdr.command.result, HashAlgorithm.csum16, 32w0, { hdr.command.value, hdr.command.index }, 32w0x10000);
    }
    action xor16() {
        hash(hdr.command.result, HashAlgorithm.xor16, 32w0, { hdr.command.value, hdr.command.index }, 32w0x10000);
    }
    action identity() {
        hash(hdr.command.result, HashAlgorithm.identity, 32w0, { hdr.command.value, hdr.command.index }, 64w0x100000000);
    }
    action draw() { random(hdr.command.result, 32w10, 32w19); }
    action shorten() { truncate((bit<32>)hdr.command.value); }
    action copy_header() { hdr.other = hdr.extra; }
    action invalid_copy() { hdr.extra = hdr.other; }
    action leave_early() { hdr.command.result = 1; exit; }
    action times() {
        hdr.command.result = (bit<32>)standard_metadata.ingress_global_timestamp;
    }
    table commands {
        key = { hdr.command.what: exact; }
        actions = {
            read_register; write_register; add_signed; write_narrow; count; crc16; crc32; crc32_modulo; csum16; xor16;
            identity; draw; shorten; copy_header; invalid_copy; leave_early; times; NoAction;
        }
        default_action = NoAction();
        const entries = {
            0x01: read_register();
            0x02: write_register();
            0x03: add_signed();
            0x04: write_narrow();
            0x05: count();
            0x06: crc16();
            0x07: crc32();
            0x08: crc32_modulo();
            0x09: csum16();
            0x0a: xor16();
            0x0b: identity();
            0x0c: draw();
            0x0d: shorten();
            0x0f: leave_early();
            0x10: times();
            0x81: copy_header();
            0x82: invalid_copy();
        }
    }
    apply {
        standard_metadata.egress_spec = standard_metadata.ingress_port;
        commands.apply();
        hdr.command.what = 0xff;
    }
}
control egress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) { apply {} }
control update_checksums(inout headers_t hdr, inout metadata_t meta) { apply {} }
control deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.command);
        packet.emit(hdr.extra);
        packet.emit(hdr.other);
    }
}

V1Switch(parse(), verify_checksums(), ingress(), egress(), update_checksums(), deparse()) main;
