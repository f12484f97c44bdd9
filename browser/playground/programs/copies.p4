/* Copies of packets: clones, multicast and resubmission, with a register and headers that come and go. */

#include <core.p4>
#include <v1model.p4>
header h_t { bit<8> a; bit<8> b; }
header n_t { bit<16> c; }
struct hs { h_t h; n_t n; h_t[2] st; }
struct ms { bit<8> x; @field_list(1) bit<8> y; }
parser P(packet_in p, out hs hdr, inout ms m, inout standard_metadata_t s) {
  state start { p.extract(hdr.h); m.x = hdr.h.a; transition accept; }
}
control V(inout hs hdr, inout ms m) { apply {} }
control I(inout hs hdr, inout ms m, inout standard_metadata_t s) {
  register<bit<16>>(4) r;
  apply {
    bit<16> t;
    r.read(t, 1);
    t = t + 1;
    r.write(1, t);
    hdr.n.setValid();
    hdr.n.c = t;
    hdr.st[0] = hdr.h;
    if (hdr.h.a == 1) { clone_preserving_field_list(CloneType.I2E, 5, 1); }
    if (hdr.h.a == 2) { s.mcast_grp = 1; } else { s.egress_spec = 3; }
    if (hdr.h.b == 9 && s.instance_type == 0) { resubmit_preserving_field_list(1); }
  }
}
control E(inout hs hdr, inout ms m, inout standard_metadata_t s) { apply { if (s.egress_rid == 1) { hdr.h.setInvalid(); } } }
control C(inout hs hdr, inout ms m) { apply {} }
control D(packet_out p, in hs hdr) { apply { p.emit(hdr.h); p.emit(hdr.n); p.emit(hdr.st);} }
V1Switch(P(), V(), I(), E(), C(), D()) main;
