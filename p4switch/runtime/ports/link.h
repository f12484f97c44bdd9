/* An emulated link: rate, queue, delay, and random effects, drawn for each packet independently.
 *
 * A packet that is offered waits in the queue, is sent at the link's rate, and is released after the delay. A packet
 * whose processing must wait for the end of the queue (v1model's egress) can wait there itself, and is offered
 * afterwards. Such packets are served by priority, with a separate queue for each.
 *
 * The caller passes the time, in picoseconds (at 400 Gb/s a byte takes 20 of them). Random numbers are hashes of
 * seed, packet number and purpose (SplitMix64: Steele, Lea, Flood, OOPSLA'14): a seed gives the n-th packet the same
 * effects, independent of other properties and of the time when it arrives. */

#ifndef P4SWITCH_LINK_H
#define P4SWITCH_LINK_H

#include <math.h>
#include <stdlib.h>

#include "../hash.h"

#define PICOSECOND 1e-12
#define NEVER UINT64_MAX
#define LATE 1000000000ull          /* a packet released more than 1 ms after its time is late */
#define MAX_HELD (256ull << 20)    /* bytes that one link holds */

/* Set by Python: seconds, bytes (infinity: no limit), bits/s (0: unlimited), probabilities. With a packet rate, all packets
 * take the same time, and what is counted in bytes below are packets. */
struct link_settings {
    double rate, delay, jitter, queue_bytes, ecn_bytes;
    double packet_rate, queue_packets; /* packets/s (0: `rate` holds); packets of a priority that wait (infinity: no limit) */
    double loss, corruption, duplication, reordering, displacement;
    double burst_begin, burst_end, burst_loss; /* Gilbert and Elliott: a chain of two states, one step per packet */
    double overhead;                           /* bytes that a frame takes in addition to its own */
    uint64_t seed;
};

/* Packets, except for *bytes and for lateness (picoseconds). */
struct link_statistics {
    uint64_t offered, sent, sent_bytes;
    uint64_t lost, burst_lost, queue_dropped, memory_dropped;
    uint64_t marked, corrupted, duplicated, reordered;
    uint64_t highest_bytes;
    uint64_t lateness_sum, lateness_most, late; /* after the time when a packet should have been released */
    /* Set by link_read: */
    uint64_t queue_bytes, held;
};

/* A packet on its way; its bytes follow. */
struct held {
    uint64_t due, number;
    uint32_t length; /* SKIP: the next one is at the beginning of the ring */
    int32_t checksum; /* offset of a partial checksum, or -1 */
    uint16_t checksum_offset; /* its offset in its own header */
};

/* A packet that waits in the queue until the link is free for it. */
struct wait {
    void *packet; /* the packet's memory, */
    size_t room;  /* its size in bytes */
    uint64_t since, until; /* `until` is known when the wait is over */
    uint64_t bytes;
    uint32_t found, left; /* number of waiting packets on arrival, and on leaving */
    uint16_t checksum_offset;
};

#define PRIORITIES 8 /* v1model's priority is a bit<3> */

/* The packets that wait with one priority: a ring. */
struct queue {
    struct wait *ring;
    uint32_t size, head, count;
    uint64_t bytes;
};

/* Takes a packet that has waited, and may offer it. */
typedef void dequeue_function(void *context, const struct wait *w);

/* Takes a packet that leaves the link; `checksum` as for emit_function. */
typedef void release_function(void *context, uint8_t *packet, uint32_t length, uint8_t *checksum, uint16_t checksum_offset);

struct link {
    struct link_settings settings;
    struct link_statistics statistics;
    release_function *release;
    dequeue_function *dequeue;
    void *context;
    uint64_t stream, key;
    uint64_t byte_time; /* in 2^-20 picoseconds; with a packet rate, the time of a packet */
    uint64_t room, mark; /* how long it takes to send queue_bytes, and ecn_bytes */
    uint64_t free_at;   /* when the last packet in the queue has been sent */
    uint64_t floor;     /* no packet is released before an earlier one, unless it was chosen to be late */
    bool in_burst;
    /* Packets in the order of their release: a ring of bytes. Packets that may be overtaken: a heap. */
    uint8_t *ring;
    uint64_t size, head, tail, in_ring;
    struct held **heap;
    uint32_t in_heap, heap_size;
    uint64_t held_bytes;
    uint8_t *corrupted; /* the current packet, if one of its bits was flipped */
    struct queue queues[PRIORITIES];
    uint32_t in_queue; /* in all queues */
    uint64_t queued;   /* bytes in all queues */
    uint64_t waited; /* by the current packet */
};

struct link *link_open(release_function *release, dequeue_function *dequeue, void *context, uint64_t stream);
void link_close(struct link *l);
void link_set(struct link *l, const struct link_settings *settings);
void link_offer(struct link *l, uint64_t now, uint8_t *packet, uint32_t length, const uint8_t *checksum,
                uint16_t checksum_offset);
void *link_wait(struct link *l, uint64_t now, uint32_t priority, uint32_t length, size_t room, uint16_t checksum_offset,
                bool *dropped);
uint64_t link_next(const struct link *l);
void link_release(struct link *l, uint64_t now);
void link_read(const struct link *l, uint64_t now, struct link_statistics *to);

#endif
