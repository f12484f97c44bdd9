// Accesses beyond the end of arrays.

#include <core.p4>
#include <v1model.p4>

header h_t {
    bit<8> what;
    bit<8> index;
    bit<32> value;
}

struct headers {
    h_t h;
}

struct meta { }

parser P(packet_in p, out headers hdr, inout meta m, inout standard_metadata_t s) {
    state start {
        p.extract(hdr.h);
        transition accept;
    }
}

control V(inout headers hdr, inout meta m) {
    apply { }
}

control I(inout headers hdr, inout meta m, inout standard_metadata_t s) {
    register<bit<32>>(4) cells;
    counter(4, CounterType.packets) counts;
    meter(4, MeterType.packets) rates;

    apply {
        bit<32> index = (bit<32>)hdr.h.index;
        bit<2> colour = 1;
        s.egress_spec = 2;
        cells.read(hdr.h.value, index);
        cells.write(index, 3);
        counts.count(index);
        rates.execute_meter(index, colour);
        hdr.h.what = (bit<8>)colour;
    }
}

control E(inout headers hdr, inout meta m, inout standard_metadata_t s) {
    apply { }
}

control C(inout headers hdr, inout meta m) {
    apply { }
}

control D(packet_out p, in headers hdr) {
    apply {
        p.emit(hdr.h);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;
