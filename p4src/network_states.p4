// States of a parser, to be included in it: from Ethernet to a state `udp`, which the parser defines.

state start {
    packet.extract(hdr.ethernet);
    transition select(hdr.ethernet.ethertype) {
        ETHERTYPE_IPV4: ipv4;
        ETHERTYPE_ARP: arp;
        default: accept;
    }
}

state arp {
    packet.extract(hdr.arp);
    transition accept;
}

state ipv4 {
    packet.extract(hdr.ipv4);
    verify(hdr.ipv4.version == 4 && hdr.ipv4.ihl == 5, error.BadIpv4Header);
    transition select(hdr.ipv4.fragment_offset, hdr.ipv4.protocol) {
        (0, PROTOCOL_TCP): tcp;
        (0, PROTOCOL_UDP): udp;
        default: accept;
    }
}

state tcp {
    packet.extract(hdr.tcp);
    meta.source_port = hdr.tcp.source_port;
    meta.destination_port = hdr.tcp.destination_port;
    transition accept;
}
