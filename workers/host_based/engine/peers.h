/* One worker of a host-based all-reduce. What it does is participant.py, to the bit. Times are in seconds. */

#ifndef PEERS_H
#define PEERS_H

#include "streams.h"

enum { LEAST_SHARE = 8 };
enum { FINE, NO_MEMORY, OTHER_CALL }; /* what a call returns */

/* Settings of a worker, and what it counts; Python has the same struct. */
struct worker {
    struct settings streams;
    int64_t rank, workers, flows, session, per_host;
    double give_up; /* how long nothing new may come */
    /* For a card: the headers of its frames, but for what depends on the peer; the IPv4 addresses of all peers; and the first of the
     * UDP ports, which are those of participant.py's Group.port(). */
    uint8_t header[FRAME_HEADER];
    const uint8_t (*addresses)[4];
    int64_t first_port;
    /* Its call: the arrays, and the number that its packets carry. */
    uint8_t *source;
    float *array;
    int64_t call, running;
    double heard;
    double summed_at; /* NaN until the sum is there */
    /* Totals. */
    int64_t datagrams_sent, datagrams_received, bytes_sent, bytes_received, other_session;
    /* Whether a packet of another call has come, from whom, and of which. */
    int64_t differs, other_rank, other_call;
};

/* A piece of a schedule (pieces.py). `reduce` is 0 or 1. */
struct piece {
    int64_t start, stop, after, needed, reduce;
};

/* A batch to send: `count` datagrams of `size` bytes each, one after another, at `offset` of the output. */
struct batch {
    int64_t peer, flow, count, size, offset;
};

struct flow {
    struct stream stream;
    uint8_t header[FRAME_HEADER];
    struct peer *peer;
    int64_t number;
    bool busy, answering;
};

/* Another rank. `done` counts pieces from it that have been processed in this call. */
struct peer {
    int64_t rank, sent, received, offset, done;
    struct flow *flows; /* NULL until the first contact */
    struct piece *sends, *receives; /* those left of this call */
    int64_t sends_left, receives_left;
};

struct state {
    struct streams streams;
    struct worker *worker; /* Python's memory */
    struct peer **table;   /* by hash of rank */
    struct peer **order;   /* in the order of first contact */
    struct peer **sending; /* in the order of the schedule */
    struct flow **busy;    /* in the order in which they are served */
    struct flow **answering;
    size_t peers, table_room, contacts, sending_count, busy_count, answering_count;
    size_t order_room, sending_room, busy_room, answering_room;
    int64_t receiving; /* pieces left to receive */
    batch_function *batch; /* where the streams' batches go, and its first argument */
    void *context;
    struct batch *batches;
    uint8_t *output, **places; /* `places`: of the datagrams of the last batch */
    const uint8_t **received;  /* datagrams that Python gives, and whether each came with a congestion mark */
    uint8_t *marks;
    size_t batch_count, batch_room, output_size, output_room, place_room, received_room, mark_room;
};

#endif
