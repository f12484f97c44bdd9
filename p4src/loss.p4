// Loss on an emulated link, drawn for each packet by itself and repeatable by seed.
//
// BMv2's random() cannot be seeded, so the n-th packet of a port is judged by a hash of n and the port's seed. It is a
// multiplication by the golden ratio and the finalizer of MurmurHash3, in which every bit of n reaches every bit.

#ifndef FANIN_LOSS_P4
#define FANIN_LOSS_P4

#include "headers.p4"

control Loss(in bit<9> port, inout bit<1> lost) {
    register<bit<32>>(PORTS) drawn;
    @name("lost") counter(PORTS, CounterType.packets) losses;

    // Lost with probability threshold / 2^32.
    action draw(bit<32> seed, bit<32> threshold) {
        bit<32> n;
        drawn.read(n, (bit<32>)port);
        drawn.write((bit<32>)port, n + 1);
        bit<32> x = n * 0x9E3779B9 + seed;
        x = (x ^ (x >> 16)) * 0x85EBCA6B;
        x = (x ^ (x >> 13)) * 0xC2B2AE35;
        x = x ^ (x >> 16);
        lost = x < threshold ? 1w1 : 1w0;
    }
    action lossless() {
        lost = 0;
    }
    table links {
        key = { port: exact; }
        actions = { draw; lossless; }
        const default_action = lossless();
        size = PORTS;
    }

    apply {
        links.apply();
        if (lost == 1) {
            losses.count((bit<32>)port);
        }
    }
}

#endif
