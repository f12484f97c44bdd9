/* Tables whose entries are constrained, refer to those of others, and belong to roles. */

#include <core.p4>
#include <v1model.p4>

header flow_t {
    bit<8> vrf;
    bit<8> kind;
    bit<32> address;
    bit<8> nexthop;
    bit<8> neighbor;
    bit<16> group;
}
struct headers_t {
    flow_t flow;
}
struct metadata_t {
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
    action_profile(16) choices;

    @action_restriction("port != 0; port < 500")
    action forward(bit<9> port) {
        standard_metadata.egress_spec = port;
    }
    action use(@refers_to(nexthops, nexthop) bit<8> nexthop) {
        hdr.flow.nexthop = nexthop;
    }
    action neighbor(
        @refers_to(neighbors, nexthop) bit<8> nexthop,
        @refers_to(neighbors, neighbor) bit<8> neighbor
    ) {
        hdr.flow.neighbor = neighbor;
    }
    action replicate(@refers_to(builtin::multicast_group_table, multicast_group_id) bit<16> group) {
        standard_metadata.mcast_grp = group;
    }

    @entry_restriction("
        vrf != 0;
        // Routes to nowhere have no kind.
        address::prefix_length < 8 -> kind::mask == 0;
        ::priority <= 1000
    ")
    @p4runtime_role("routing")
    table routes {
        key = {
            hdr.flow.vrf: exact @name("vrf");
            hdr.flow.address: lpm @name("address");
            hdr.flow.kind: ternary @name("kind");
        }
        actions = { forward; use; replicate; }
        size = 64;
    }
    @p4runtime_role("neighbors")
    table nexthops {
        key = { hdr.flow.nexthop: exact @name("nexthop"); }
        actions = { forward; neighbor; }
        size = 64;
    }
    table neighbors {
        key = {
            hdr.flow.nexthop: exact @name("nexthop");
            hdr.flow.neighbor: exact @name("neighbor");
        }
        actions = { forward; NoAction; }
        size = 64;
    }
    table chosen {
        key = { hdr.flow.kind: exact; }
        actions = { forward; use; }
        implementation = choices;
        size = 64;
    }
    apply {
        routes.apply();
        nexthops.apply();
        neighbors.apply();
        chosen.apply();
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
