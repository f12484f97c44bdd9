/* What the runtime and every generated program share: the packet as it arrives and leaves, multicast, counters. */

#ifndef P4SWITCH_SWITCH_H
#define P4SWITCH_SWITCH_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#include "bits.h"
#include "hash_state.h"
#include "table.h"

#define LONGEST_PACKET 65600 /* IPv4 has 65,535 bytes, before Ethernet and tags */
#define MULTICAST_GROUPS 65536
#define SESSIONS 32768 /* of mirroring */

/* Packets that the switch has dropped because something has a bound; read by Python. */
struct drops {
    uint64_t too_long;       /* longer than LONGEST_PACKET when they left */
    uint64_t too_often;      /* one arriving packet has caused too many passes */
    uint64_t no_room;        /* too much waits for its next pass */
    uint64_t too_many_jumps; /* an action goes round and round */
};

/* What an arriving packet and its copies have used up of what they may. */
struct spent {
    uint32_t passes; /* through a pipeline */
    uint32_t jumps;  /* backwards */
};

/* See family.h. */
struct family {
    struct family *next, **place; /* among all that have a packet that waits */
    uint32_t waiting;
    struct spent spent;
};

struct counter {
    uint64_t packets, bytes;
};

struct replica {
    uint32_t port, instance;
};

struct replicas {
    uint32_t count, longest; /* a clone of more bytes is cut */
    uint32_t service_class;  /* a clone's priority, unless it is 0 */
    struct replica replica[];
};

#define EMIT_MAY_CHANGE 128 /* bytes at the beginning of a packet, and its checksum */

/* A packet that leaves, of at most LONGEST_PACKET bytes. `checksum` points into it at a TCP or UDP checksum of which only the pseudo-header's part is
 * there yet (the sender's kernel left the rest to the network card), or is NULL. */
typedef void emit_function(void *context, uint32_t port, uint8_t *packet, uint32_t length, uint8_t *checksum);

#define ALONE 0

struct switch_base;

/* While a packet is replicated: what is emitted is the same every time from `from` on. */
struct sharing {
    uint64_t serial;     /* of the replication */
    const uint8_t *from; /* NULL: nothing is */
};

/* v1model's queueing metadata: microseconds, and packets. */
struct queueing {
    uint64_t enq_timestamp, deq_timedelta;
    uint32_t enq_qdepth, deq_qdepth;
};

/* Asked by programs that use queueing metadata: `room` bytes of memory for a packet that has to wait for its port before
 * egress, or NULL; then it may be dropped. */
typedef void *queue_function(void *context, uint32_t port, uint32_t priority, uint32_t length, size_t room, bool *dropped);

/* Runs egress on a packet that has waited; base->queueing says for how long. */
typedef void dequeue_packet_function(struct switch_base *base, void *packet, uint32_t port, uint64_t now);

/* Records one after another: number, length (4 bytes each, native), bytes. */
struct reports {
    uint8_t *bytes;
    uint64_t used, capacity;
};

/* Runs the program on a packet, where it stands: it is changed, and the base->headroom bytes in front of it are used.
 * `now` in microseconds, `checksum` as for emit_function. */
typedef void process_function(struct switch_base *base, uint32_t port, uint8_t *packet, uint32_t length, uint64_t now,
                              uint8_t *checksum);

#define MAX_TRACED (32u << 20)   /* bytes of records that nobody has fetched; further packets are lost */
#define TRACE_CONDITIONS 8
#define TRACE_PORT UINT32_MAX

/* A packet is traced if this field, `width` bits at bit `offset` of a header, is so under the mask; or the ingress port. */
struct trace_condition {
    uint32_t header, offset, width, unused;
    uint64_t high, low, mask_high, mask_low;
};

/* What a traced program puts in the place of the ordinary one. */
struct traced {
    process_function *process;
    dequeue_packet_function *dequeue;
};

/* What a traced program records (trace.h). */
struct trace {
    struct traced untraced; /* what runs otherwise */
    struct reports records;
    uint64_t began; /* where the packet in hand begins */
    uint64_t lost;  /* packets for which there was no room */
    bool open;      /* a packet is in hand */
    bool silent;    /* and is not to be recorded */
    uint32_t count; /* of conditions, all of which a packet has to meet */
    struct trace_condition conditions[TRACE_CONDITIONS];
};

/* The part of a switch's state that does not depend on its program; a program's own state begins with it. */
struct switch_base {
    pthread_mutex_t lock;  /* held while packets are processed, and while the control plane reads or writes */
    atomic_uint waiting;   /* threads of the control plane that want it: the forwarding loop lets them in */
    process_function *process;
    struct table *tables;
    uint32_t headroom; /* bytes by which the program may make a packet longer, at its beginning */
    uint8_t *buffer;   /* room for a packet that has to be processed: LONGEST_PACKET bytes, and headroom in front */
    emit_function *emit;
    void *emit_context;
    queue_function *queue; /* NULL: no packet waits; with the same context */
    dequeue_packet_function *dequeue;
    struct queueing queueing; /* of the packet in hand */
    struct sharing sharing;
    uint64_t superframes; /* that came */
    uint64_t superframe;  /* number of the one whose packets are processed; or ALONE. `emit` leaves them as they are */
    struct replicas *multicast[MULTICAST_GROUPS];
    struct replicas *sessions[SESSIONS];
    struct table *value_sets;
    struct hash_state *hash_states; /* of the calculations that remember something */
    uint32_t hash_state_count;
    struct reports digests; /* that the control plane has not fetched; kept only if it wants them */
    int32_t digest_event;   /* an eventfd that wakes it, or -1 */
    bool logs;              /* log_msg writes to stderr */
    uint64_t failures;      /* of assertions */
    struct drops drops;
    struct spent spent; /* by the packet in hand */
    struct family *family, *families; /* its family, if any of that has begun to wait before egress; all of them */
    uint64_t random;
    uint32_t drop_port;
    uint32_t priority_queues; /* of a port: a packet of a higher priority is dropped */
    uint16_t checksum_offset; /* where the partial checksum of the packet in hand stands in its own header */
    struct trace *trace;      /* while a traced program runs, or NULL */
};

void switch_lock(struct switch_base *base);
void switch_unlock(struct switch_base *base);
void switch_process_buffer(struct switch_base *base, uint32_t port, uint32_t length, uint64_t now);

/* splitmix64 */
INLINE uint64_t next_random(struct switch_base *base)
{
    uint64_t z = base->random += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

/* Uniform in low..high, both included. */
INLINE uint64_t random_between(struct switch_base *base, uint64_t low, uint64_t high)
{
    uint64_t span = high - low + 1;
    return span == 0 ? next_random(base) : low + (uint64_t)(((uint128_t)next_random(base) * span) >> 64);
}

INLINE void count(struct counter *counter, uint64_t bytes)
{
    counter->packets++;
    counter->bytes += bytes;
}

/* What a generated program exports. */
struct switch_base *program_open(uint32_t drop_port, uint64_t seed);

#endif
