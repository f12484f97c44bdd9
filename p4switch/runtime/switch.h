/* Declarations shared by the runtime and every generated program: packets, multicast, counters. */

#ifndef P4SWITCH_SWITCH_H
#define P4SWITCH_SWITCH_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#include "bits.h"
#include "hash_state.h"
#include "table.h"

#define LONGEST_PACKET 65600 /* IPv4 has 65,535 bytes, without Ethernet and tags */
#define MULTICAST_GROUPS 65536
#define SESSIONS 32768 /* mirroring sessions */

#define MESSAGE_OF_DROP UINT32_MAX /* number of a message that has the reason as text, instead of a statement's number */

/* Packets that the switch has dropped because of limits; read by Python. */
struct drops {
    uint64_t too_long;       /* longer than LONGEST_PACKET when they left */
    uint64_t too_often;      /* one arriving packet has caused too many passes */
    uint64_t no_room;        /* too many bytes wait for their next pass */
    uint64_t too_many_jumps; /* an action jumps back too often */
};

/* What an arriving packet and its copies have used of their limits. */
struct spent {
    uint32_t passes; /* through a pipeline */
    uint32_t jumps;  /* backward */
};

/* See family.h. */
struct family {
    struct family *next, **place; /* in the list of families with a waiting packet */
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
    uint32_t count, longest; /* longer clones are truncated */
    uint32_t service_class;  /* a clone's priority, unless it is 0 */
    struct replica replica[];
};

#define EMIT_MAY_CHANGE 128 /* of a packet: its first bytes, and its checksum */

/* Takes a packet that leaves, of at most LONGEST_PACKET bytes. `checksum` is NULL or points into the packet at a
 * partial TCP or UDP checksum, which contains only the pseudo-header's sum (the sender's kernel left the rest to the
 * network card). */
typedef void emit_function(void *context, uint32_t port, uint8_t *packet, uint32_t length, uint8_t *checksum);

#define ALONE 0

struct switch_base;

/* While a packet is replicated: all replicas are equal from `from` on. */
struct sharing {
    uint64_t serial;     /* number of the replication */
    const uint8_t *from; /* NULL: nothing is shared */
};

/* v1model's queueing metadata: microseconds, and packets. */
struct queueing {
    uint64_t enq_timestamp, deq_timedelta;
    uint32_t enq_qdepth, deq_qdepth;
};

/* Called by programs that use queueing metadata. Returns `room` bytes of memory for a packet that has to wait for
 * its port before egress, or NULL; the packet may then be dropped. */
typedef void *queue_function(void *context, uint32_t port, uint32_t priority, uint32_t length, size_t room, bool *dropped);

/* Runs egress on a packet that has waited, for the time given in base->queueing. */
typedef void dequeue_packet_function(struct switch_base *base, void *packet, uint32_t port, uint64_t now);

/* Consecutive records: number, length (4 bytes each, native), bytes. */
struct reports {
    uint8_t *bytes;
    uint64_t used, capacity;
};

/* Runs the program on a packet in place: the packet is changed, and the base->headroom bytes before it are used.
 * `now` is in microseconds, `checksum` as for emit_function. */
typedef void process_function(struct switch_base *base, uint32_t port, uint8_t *packet, uint32_t length, uint64_t now,
                              uint8_t *checksum);

#define MAX_TRACED (32u << 20)   /* bytes of records that are not read yet; further packets are lost */
#define TRACE_CONDITIONS 8
#define TRACE_PORT UINT32_MAX

/* A condition on packets to trace: a header field, `width` bits at bit `offset`, or the ingress port has this value
 * under the mask. */
struct trace_condition {
    uint32_t header, offset, width, unused;
    uint64_t high, low, mask_high, mask_low;
};

/* Functions of a traced program that replace those of the ordinary one. */
struct traced {
    process_function *process;
    dequeue_packet_function *dequeue;
};

/* Records of a traced program (trace.h). */
struct trace {
    struct traced untraced; /* the ordinary program */
    struct reports records;
    uint64_t began; /* where the current packet's record begins */
    uint64_t lost;  /* packets lost for lack of memory */
    bool open;      /* a packet is being processed */
    bool silent;    /* and is not to be recorded */
    bool logs;      /* whoever reads the records logs the messages in them */
    uint32_t count; /* of conditions, all of which a packet must meet */
    struct trace_condition conditions[TRACE_CONDITIONS];
};

/* The part of a switch's state that does not depend on its program. A program's own state begins with it. */
struct switch_base {
    pthread_mutex_t lock;  /* held while packets are processed, and while the control plane reads or writes */
    atomic_uint waiting;   /* threads of the control plane that wait for the lock: the forwarding loop yields to them */
    process_function *process;
    struct table *tables;
    uint32_t headroom; /* bytes by which the program may extend a packet at its beginning */
    uint8_t *buffer;   /* a packet to process: LONGEST_PACKET bytes, after the headroom */
    emit_function *emit;
    void *emit_context;
    queue_function *queue; /* NULL: no packet waits; same context */
    dequeue_packet_function *dequeue;
    struct queueing queueing; /* of the current packet */
    struct sharing sharing;
    uint64_t superframes; /* received so far */
    uint64_t superframe;  /* number of the current packet's superframe, or ALONE; not changed by `emit` */
    struct replicas *multicast[MULTICAST_GROUPS];
    struct replicas *sessions[SESSIONS];
    struct table *value_sets;
    struct hash_state *hash_states; /* of the calculations that keep state */
    uint32_t hash_state_count;
    struct reports digests; /* not yet read; kept only if the control plane wants them */
    int32_t digest_event;   /* an eventfd that wakes the control plane, or -1 */
    struct reports messages; /* of log_msg(), failed assertions and limits, not yet read */
    uint64_t messages_lost;  /* for which there was no room, since the last read */
    int32_t message_event;   /* an eventfd that wakes their reader, or -1 */
    uint64_t failures;       /* failed assertions */
    struct drops drops;
    struct spent spent; /* by the current packet */
    struct family *family, *families; /* its family, if one of its packets has waited before egress; list of all */
    uint64_t random;
    uint32_t drop_port;
    uint32_t priority_queues; /* of a port: packets of a higher priority are dropped */
    uint16_t checksum_offset; /* offset of the current packet's partial checksum in its header */
    struct trace *trace;      /* while a traced program runs, or NULL */
    void *memory;             /* what free() takes */
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

/* Returns a uniform random number in low..high, both included. */
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

/* Exported by a generated program. */
struct switch_base *program_open(uint32_t drop_port, uint64_t seed);

#endif
