// What every parser and checksum needs of IPv4.

#ifndef FANIN_NETWORK_P4
#define FANIN_NETWORK_P4

error { BadIpv4Header }

#define IPV4_FIELDS { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.dscp_ecn, hdr.ipv4.total_length, \
                      hdr.ipv4.identification, hdr.ipv4.flags, hdr.ipv4.fragment_offset, hdr.ipv4.ttl, \
                      hdr.ipv4.protocol, hdr.ipv4.source, hdr.ipv4.destination }

#endif
