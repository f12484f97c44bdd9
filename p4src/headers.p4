// The packet: Ethernet / IPv4 / UDP / SwitchML / exponents / call / one or four blocks of 64 values.

#ifndef FANIN_HEADERS_P4
#define FANIN_HEADERS_P4

#include "repeat.p4"

#define PORTS 512

typedef bit<48> mac_t;
typedef bit<32> ipv4_t;

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<16> ETHERTYPE_ARP = 0x0806;
const bit<8> PROTOCOL_TCP = 6;
const bit<8> PROTOCOL_UDP = 17;

const bit<2> ECN_CAPABLE = 2;   // RFC 3168: the sender reacts to marks
const bit<2> ECN_CONGESTED = 3; // RFC 3168: set by the queue of a link that a packet had to wait for

header ethernet_t {
    mac_t destination;
    mac_t source;
    bit<16> ethertype;
}

header arp_t {
    bit<16> hardware_type;
    bit<16> protocol_type;
    bit<8> hardware_length;
    bit<8> protocol_length;
    bit<16> operation;
    mac_t sender_mac;
    ipv4_t sender;
    mac_t target_mac;
    ipv4_t target;
}

header ipv4_header_t {
    bit<4> version;
    bit<4> ihl;
    bit<8> dscp_ecn;
    bit<16> total_length;
    bit<16> identification;
    bit<3> flags;
    bit<13> fragment_offset;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    ipv4_t source;
    ipv4_t destination;
}

// The ports of TCP, for the choice of a path.
header tcp_ports_t {
    bit<16> source_port;
    bit<16> destination_port;
}

header udp_t {
    bit<16> source_port;
    bit<16> destination_port;
    bit<16> length;
    bit<16> checksum;
}

#define ETHERNET_LENGTH 14
#define SHORTEST_FRAME 60 // shorter ones are padded
#define IPV4_LENGTH 20 // without options

// UDP ports 0xBEE0 to 0xBEEF, and the lengths of a datagram with its header.
#define AGGREGATION_PORTS 0xBEE0 &&& 0xFFF0
#define UDP_LENGTH_WITHOUT_VALUES 22
#define UDP_LENGTH_64 278
#define UDP_LENGTH_256 1046

const bit<4> MSG_UPDATE = 0; // from a worker, or from a switch to its parent
const bit<4> MSG_RESULT = 1; // down the tree
// In a chunk that has an owner: in a gather only the owner gives, in a scatter only the owner takes.
const bit<4> MSG_GIVE = 2;            // an update whose sender does not need the sum
const bit<4> MSG_TAKE = 3;            // an update without values; its sender adds its own values, if any, to the result
const bit<4> MSG_ACKNOWLEDGEMENT = 4; // a result without values, for those who gave

// Integers in a packet. Two of 16 bits fit into a word of 32 bits.
const bit<3> SIZE_64 = 1;
const bit<3> SIZE_256 = 3;
const bit<3> SIZE_128_OF_16_BITS = 5;
const bit<3> SIZE_512_OF_16_BITS = 7;

header switchml_t {
    bit<4> msg_type;
    bit<1> saturated; // set in a result in which an addition met the limits of the integers
    bit<3> size;
    bit<8> lease;     // SwitchML's job_number
    bit<32> chunk;    // SwitchML's tsi
    bit<1> version;   // the top bit of SwitchML's pool_index
    bit<15> slot;
}

// A protocol with packets of its own (protocols/) defines FANIN_PACKET, and its own headers_t.
#ifndef FANIN_PACKET

// The exponents of the block that the packet announces (docs/reference/protocol.md). The switch keeps the largest e0. The top bit of
// e1 means that some worker cannot quantize the block. Programs may use the others: see OF_SCATTER in aggregation.p4.
header exponents_t {
    int<8> e0;
    bit<1> not_quantizable;
    bit<7> unused;
}

// Which call the packet belongs to. SwitchML's packets have no such field. The switch never adds packets that differ in it.
header call_t {
    bit<32> call;
}

#define VALUE(i) int<32> v##i;
header values_t {
    REPEAT_64(VALUE)
}

struct headers_t {
    ethernet_t ethernet;
    arp_t arp;
    ipv4_header_t ipv4;
    tcp_ports_t tcp;
    udp_t udp;
    switchml_t switchml;
    exponents_t exponents;
    call_t call;
    values_t values_0;
    values_t values_1;
    values_t values_2;
    values_t values_3;
}

#endif

struct metadata_t {
    bit<8> reason;      // why the packet is dropped (reasons.p4)
    bit<1> lost;        // the emulated link loses it (loss.p4)
    bit<1> admitted;    // of a member, for this switch to add up
    bit<1> aggregated;  // leaves as a result or a partial sum
    bit<1> checksummed; // the lease requires a UDP checksum of it, and what leaves carries one
    bit<16> zero;       // never written: what the sum of a datagram with its checksum is compared with
    bit<16> member;     // its receiver: 0 is the parent, a child has its replication id
    bit<32> givers;     // of a result: the children that get an acknowledgement
    bit<16> nexthop;    // the path that ECMP chose
    // Of TCP or UDP, 0 where the packet has neither: read from an invalid header they would be anything.
    bit<16> source_port;
    bit<16> destination_port;
}

#endif
