/* Declarations shared by native.c and congestion.c (the protocol), socket_loop.c (the socket) and step.c (without a socket).
 * Python has the same structs, and enums in the order of their names; native.py compares them. */

#ifndef WORKERS_NATIVE_H
#define WORKERS_NATIVE_H

#include <stdbool.h>
#include <stdint.h>

enum { DIGITS = 12 }; /* agreement.py */

struct header { /* a packet's header, in network byte order; wire.py */
    uint8_t kind, lease, tsi[4], pool_index[2];
    int8_t e0;
    uint8_t e1, call[4];
};

enum { HEADER = sizeof(struct header), SMALL = 64, LARGE = 256 }; /* the last two: words in a packet */

enum { UPDATE, RESULT, GIVE, TAKE, ACKNOWLEDGEMENT }; /* msg_type; wire.py */

enum { ALL_REDUCE, GATHER, SCATTER }; /* operation; tensor.py */

enum { CARRYING, LEADING, BARE }; /* where a packet is kept; engine.py */

enum reason { MALFORMED, OTHER_LEASE, UNKNOWN_CHUNK, IMPOSSIBLE, DUPLICATE, REASONS };

enum part { WAIT, RECEIVE, UNPACK, PACK, SEND, PARTS };

enum stage { NOT_BEGUN, BEGUN, SUMMED }; /* engine.py */

struct rtt_estimator { /* recovery.py */
    double smoothed, variation, rto, rto_without_floor;
};

struct timers { /* recovery.py */
    double restarted, not_before;
    int64_t backoff, next_sending, newest_answered, probe, running, flight;
};

struct progress { /* engine.py */
    int64_t calls, first_chunk, chunks, missing;
    int64_t disagree, unsummed, sums[DIGITS]; /* unsummed: blocks that some worker cannot quantize */
    double latest;
};

struct totals { /* engine.py */
    int64_t received, received_bytes, sent, sent_bytes, accepted, saturated, ignored[REASONS];
    double spent[PARTS];
};

struct congestion_window { /* congestion.py */
    double size, share, least, most;
};

struct gate { /* congestion.py */
    int64_t in_flight, sent_before, round, answered, marked_in_round, marked, lowest, held_count;
};

struct buffers { /* buffers.py */
    const float *x;
    float *out, *kept; /* kept: where the sum is made and stays; `out` gets it once it is complete. NULL: made in `out` */
    int64_t elements;
};

struct tensor { /* tensor.py */
    int8_t *expected; /* exponents, by block; NULL: the vector has more blocks than the window */
    const int32_t *agreement; /* DIGITS that the first chunk carries if it carries no values */
    int64_t delayed;          /* whether the first chunks carry values, scaled for the expected exponents */
    int64_t signature;        /* every packet carries it, added to the call's number */
    int64_t most_chunks;      /* chunks if no exponent is as expected */
    int64_t values, bits;     /* elements of a block, and bits of an integer that travels */
    int64_t operation, parts, own, part, run, first_run; /* part: elements of one; own: the part of this worker */
};

struct work {
    /* Of one lease. By place in the window: */
    int64_t *awaited, *times_sent, *backoffs, *sendings;
    double *first_sent, *last_sent, *timeouts, *lost_at;
    uint8_t *measured, *kept_in, *packets[3]; /* packets: by where they are kept */
    int64_t *ready;                         /* chunks to send, in order */
    int64_t *held;                          /* chunks that the congestion window holds back */
    struct congestion_window *congestion;
    struct gate *gate;
    struct rtt_estimator *rtt;
    struct timers *timers;
    struct progress *progress;
    struct totals *totals;
    double initial_rto, min_rto, max_rto, granularity, give_up;
    int64_t lease, window, first_slot, workers, earliest_chunk, last_chunk;
    float *x_tail, *out_tail; /* for a block that is not full, the last one of a part */
    /* Memory for the largest all-reduce so far, by chunk or by block: */
    int8_t *e0;
    uint8_t *e1;
    double *factors;
    uint8_t *accepted;
    int64_t *missed; /* blocks whose exponents are not as expected, ascending */
    /* Of one all-reduce. */
    const float *x;
    float *out, *copy; /* copy: gets the sum, too, once it is complete; NULL: none */
    int8_t *expected;         /* this and the next two are the tensor's */
    const int32_t *agreement;
    int64_t delayed, values, bits, words, call; /* words: in a packet with values */
    int64_t operation, parts, own, part, run, first_run;
    int64_t blocks, blocks_of_part, lead, undecided, missed_count;
    int64_t ready_count;
};

struct batch { /* packets of one size, which are sent together */
    int64_t count, kept_in, size;
};

void begin(struct work *w, const struct tensor *t, const struct buffers *b, int64_t first_chunk, bool propagate);
struct batch pack(struct work *w, const int64_t *chunks, int64_t count, double now);
void open_gate(struct work *w);
void count_answers(struct work *w, int64_t count);
void admit(struct work *w, int64_t from);
bool is_loss(int error);
void take_datagrams(struct work *w, const uint8_t *datagrams, int64_t count, int64_t size, int64_t stride, double now);

#endif
