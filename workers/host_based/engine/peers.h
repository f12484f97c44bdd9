/* One worker of a host-based all-reduce. What it does is participant.py, transport.py and congestion_control.py, to the bit.
 * Times are in seconds; packets of a stream are numbered from 0. */

#ifndef PEERS_H
#define PEERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MAX_PAYLOAD = 8948, HEADER_BYTES = 22, CALL_BYTES = 4, ENDS = 10, MIN_FLIGHT = 4, MAX_BACKOFF = 64, LEAST_SHARE = 8 };
enum { DATA, ACK, NAK };
enum { SELECTIVE_REPEAT, GO_BACK_N };
enum { NO_CONTROL, DCTCP };
enum { FINE, NO_MEMORY, OTHER_CALL }; /* what a call returns */

/* Settings of a worker, and what it counts; Python has the same struct. */
struct worker {
    double initial_rto, min_rto, max_rto, granularity;
    int64_t rank, workers, flows, window, session, transport, per_host, packet_threshold, payload;
    int64_t control, least, first_window, initial_ssthresh, always;
    double gain, alpha;
    /* Its call: the arrays, and the number that its packets carry. */
    uint8_t *source;
    float *array;
    int64_t call, running;
    double heard;
    double summed_at; /* NaN until the sum is there */
    /* Totals. */
    int64_t datagrams_sent, datagrams_received, bytes_sent, bytes_received, retransmissions, timeouts;
    int64_t malformed, other_session, duplicate, early;
    /* Of the call that differs, after OTHER_CALL. */
    int64_t other_rank, other_call;
};

/* A piece of a schedule (pieces.py). `reduce` is 0 or 1. */
struct piece {
    int64_t start, stop, after, needed, reduce;
};

/* A batch to send: `count` datagrams of `size` bytes each, one after another, at `offset` of the output. */
struct batch {
    int64_t peer, flow, kind, count, size, offset;
};

struct message {
    int64_t first, length;
    const uint8_t *bytes;
    uint32_t call;
};

struct sent_at {
    int64_t last;
    double time;
};

struct sender {
    struct message *messages; /* from `first_message` to `end_message` - 1 */
    struct sent_at *sent_at;
    size_t first_message, end_message, message_room, first_sent, end_sent, sent_room;
    int64_t end, base, next, sent, measured_from, backoff;
    double timer_began;
    double smoothed, variation, rto; /* `smoothed` is NaN before the first measurement */
    double size, share, ssthresh;    /* DCTCP */
    int64_t acknowledged, marked, reduced, epoch_end, epoch_acknowledged, epoch_marked;
    int64_t *lost, *missing, *sent_after; /* selective repeat: `window` each */
    bool *there;
    int64_t lost_count, missing_to, highest;
    int64_t asked_for; /* go-back-N */
};

/* A payload that has arrived, with its call in front. */
struct payload {
    int64_t size; /* without the call */
    uint8_t *bytes;
};

struct receiver {
    int64_t expected, marked, kept, asked_for;
    int answer; /* -1: none */
    struct payload *early;   /* selective repeat: by number modulo the window */
    struct payload *waiting; /* from `first` to `end` - 1 */
    size_t first, end, room;
};

struct flow {
    struct peer *peer;
    int64_t number;
    bool busy, answering;
    struct sender out;
    struct receiver in;
};

/* Another rank. `done` counts pieces from it that have been processed in this call. */
struct peer {
    int64_t rank, sent, received, offset, done;
    struct flow *flows; /* NULL until the first contact */
    struct piece *sends, *receives; /* those left of this call */
    int64_t sends_left, receives_left;
};

struct state {
    struct worker *worker; /* Python's memory */
    struct peer **table;   /* by hash of rank */
    struct peer **order;   /* in the order of first contact */
    struct peer **sending; /* in the order of the schedule */
    struct flow **busy;    /* in the order in which they are served */
    struct flow **answering;
    size_t peers, table_room, contacts, sending_count, busy_count, answering_count;
    size_t order_room, sending_room, busy_room, answering_room;
    int64_t receiving; /* pieces left to receive */
    struct batch *batches;
    uint8_t *output;
    uint8_t *gathered, *marks; /* datagrams of one length, and whether each came with a congestion mark */
    size_t batch_count, batch_room, output_size, output_room, gather_room, marks_room;
    bool failed, differs; /* no memory; a packet of another call came */
};

bool make_room(struct state *s, void *array, size_t *room, size_t needed, size_t size);
void put_header(const struct state *s, const struct flow *flow, int kind, uint64_t number, uint32_t last, uint8_t *to);
uint8_t *add_batch(struct state *s, const struct flow *flow, int kind, int64_t count, int64_t size);
void write_message(struct state *s, struct sender *out, const uint8_t *bytes, int64_t length);
double sender_deadline(const struct state *s, const struct sender *out);
void send_from(struct state *s, struct flow *flow, double now, int64_t most);
bool acknowledge(struct state *s, struct sender *out, int kind, int64_t number, int64_t marked, const uint8_t *bitmap,
                 int64_t size, double now);
bool accept_packets(struct state *s, struct flow *flow, const uint8_t *datagrams, int64_t count, int64_t size, int64_t marked,
                    bool *applied);
bool process_payload(struct state *s, struct flow *flow, const uint8_t *with_call, int64_t size);
void send_answer(struct state *s, struct flow *flow);
uint64_t read_number(const uint8_t *from, int bytes);

#endif
