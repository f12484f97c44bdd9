/* An emulated link: rate, queue, delay, and what a link does to packets, drawn for each packet by itself.
 *
 * A packet that is offered waits in the queue, is sent at the link's rate, and is released after the delay. What is to
 * happen at the end of the queue only (v1model's egress) can wait there itself, and offer its packet then; of what waits
 * so, the higher priority is served first, each from a queue of its own. Time is the caller's, in picoseconds (at 400 Gb/s a byte takes 20 of them). Draws are hashes of seed, packet number and purpose
 * (SplitMix64: Steele, Lea, Flood, OOPSLA'14): a seed gives the n-th packet the same fate whatever else is switched on
 * and whenever it comes.
 */

#ifndef P4SWITCH_LINK_H
#define P4SWITCH_LINK_H

#include <math.h>
#include <stdlib.h>

#include "../hash.h"

#define PICOSECOND 1e-12
#define NEVER UINT64_MAX
#define LATE 1000000000ull          /* a packet released more than 1 ms behind its time counts as late */
#define MAX_HELD (256ull << 20)    /* bytes that one link holds */

/* As Python sets them: seconds, bytes (infinity: no limit), bits/s (0: unlimited), probabilities. */
struct link_settings {
    double rate, delay, jitter, queue_bytes, ecn_bytes;
    double loss, corruption, duplication, reordering, displacement;
    double burst_begin, burst_end, burst_loss; /* Gilbert and Elliott: a chain of two states, a step a packet */
    double overhead;                           /* bytes that a frame takes besides its own */
    uint64_t seed;
};

/* Packets, but for *bytes and lateness (picoseconds). */
struct link_statistics {
    uint64_t offered, sent, sent_bytes;
    uint64_t lost, burst_lost, queue_dropped, memory_dropped;
    uint64_t marked, corrupted, duplicated, reordered;
    uint64_t highest_bytes;
    uint64_t lateness_sum, lateness_most, late; /* behind the time when a packet should have been released */
    /* As of link_statistics(): */
    uint64_t queue_bytes, held;
};

/* A packet that is on its way; its bytes follow. */
struct held {
    uint64_t due, number;
    uint32_t length; /* SKIP: the next one is at the beginning of the ring */
    int32_t checksum; /* offset of a partial checksum, or -1 */
    uint16_t checksum_offset; /* where that stands in its own header */
};

/* Something that waits in the queue until the link is free for it. */
struct wait {
    void *packet; /* its own memory, */
    size_t room;  /* of so many bytes */
    uint64_t since, until; /* `until` is known when it is over */
    uint64_t bytes;
    uint32_t found, left; /* how many waited when it came, and when it left */
    uint16_t checksum_offset;
};

#define PRIORITIES 8 /* v1model's priority is a bit<3> */

/* What waits with one priority: a ring. */
struct queue {
    struct wait *ring;
    uint32_t size, head, count;
    uint64_t bytes;
};

/* Takes what has waited, and may offer a packet. */
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
    uint64_t byte_time; /* in 2^-20 picoseconds */
    uint64_t room, mark; /* how long queue_bytes and ecn_bytes take to be sent */
    uint64_t free_at;   /* when the last packet in the queue has been sent */
    uint64_t floor;     /* no packet is released before one that was offered earlier, unless it was drawn to be late */
    bool in_burst;
    /* Packets in the order of their release: a ring of bytes. Those that may be overtaken: a heap. */
    uint8_t *ring;
    uint64_t size, head, tail, in_ring;
    struct held **heap;
    uint32_t in_heap, heap_size;
    uint64_t held_bytes;
    uint8_t *corrupted; /* the packet in hand, if a bit of it has been flipped */
    struct queue queues[PRIORITIES];
    uint32_t in_queue; /* in all of them */
    uint64_t queued;   /* bytes, likewise */
    uint64_t waited; /* by the packet in hand */
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
