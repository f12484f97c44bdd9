/* Reliable streams between hosts: what transport.py and congestion_control.py do, to the bit. Times are in seconds; packets of
 * a stream are numbered from 0. */

#ifndef STREAMS_H
#define STREAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker.h"

enum { MAX_PAYLOAD = 8948, HEADER_BYTES = 22, CALL_BYTES = 4, ENDS = 10, MIN_FLIGHT = 4, MAX_BACKOFF = 64 };
enum { FRAME_HEADER = 42 }; /* Ethernet, IPv4, UDP */
enum { DATA, ACK, NAK };
enum { SELECTIVE_REPEAT, GO_BACK_N };
enum { NO_CONTROL, DCTCP, DCQCN };

/* Settings of streams, and what is counted over all of them; Python has the same struct. */
struct settings {
    double initial_rto, min_rto, max_rto, granularity;
    int64_t transport, window, packet_threshold, payload, control;
    double gain, alpha; /* of both controls, and the rest of DCTCP: */
    int64_t least, first_window, initial_ssthresh, always;
    double rate, packet_bits; /* DCQCN */
    double alpha_interval, decrease_interval, increase_interval, additive_rate, hyper_rate, min_rate;
    int64_t fast_recovery, by_timer, keep_target;
    int64_t retransmissions, timeouts, malformed, duplicate, early;
};

struct dctcp {
    double size, share, ssthresh;
    int64_t acknowledged, reduced, epoch_end, epoch_acknowledged, epoch_marked;
};

struct dcqcn {
    double rate, target, alpha, ready_at, next_alpha, next_decrease, next_increase;
    int64_t increases;
    bool alpha_marked, decrease_marked;
};

struct control {
    int64_t marked;
    union {
        struct dctcp dctcp;
        struct dcqcn dcqcn;
    };
};

struct message {
    int64_t first, length;
    const uint8_t *bytes; /* NULL: zeros */
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
    struct control control;
    bool waits_for_its_rate;
    int64_t *lost, *missing, *sent_after; /* selective repeat: `window` each, from when something is missing */
    bool *there;
    int64_t lost_count, missing_to, highest;
    int64_t asked_for; /* go-back-N */
};

/* A payload that has arrived, with its call in front if payloads are kept. */
struct payload {
    int64_t size; /* without the call */
    uint8_t *bytes;
    bool there;
};

struct receiver {
    int64_t expected, marked, kept, newest, asked_for; /* `newest`: the last packet that is kept */
    int answer;              /* -1: none */
    struct payload *early;   /* selective repeat: by number modulo the window */
    struct payload *waiting; /* from `first` to `end` - 1 */
    size_t first, end, room;
};

/* This host's ends of a stream to another one, and of one back. */
struct stream {
    struct connection connection;
    uint8_t header[ENDS]; /* of its datagrams */
    struct sender out;
    struct receiver in;
};

struct streams;

/* Processes a payload that is next in order, with its call in front. Returns false if it must wait. */
typedef bool process_function(struct streams *s, struct stream *stream, const uint8_t *with_call, int64_t size);

/* What the streams of a host have in common. */
struct streams {
    struct settings *settings; /* Python's memory */
    process_function *process;
    bool keeps; /* payloads that arrive early */
    batch_function *batch;
    void *context; /* its first argument */
    bool failed;   /* no memory */
};

bool make_room(struct streams *s, void *array, size_t *room, size_t needed, size_t size);
uint64_t read_number(const uint8_t *from, int bytes);
void write_header(const struct stream *stream, int kind, uint64_t number, uint32_t last, uint8_t *to);

void control_open(const struct settings *settings, struct control *c);
int64_t control_window(const struct settings *settings, const struct control *c);
int64_t control_allowance(const struct settings *settings, struct control *c, double now);
void control_sent(const struct settings *settings, struct control *c, int64_t packets, double now);
void control_acknowledged(const struct settings *settings, struct control *c, int64_t base, int64_t end, int64_t marked,
                          double now);

void stream_open(struct streams *s, struct stream *stream, uint64_t flow, int64_t source, int64_t destination, int64_t session);
void stream_close(struct streams *s, struct stream *stream);
void write_message(struct streams *s, struct sender *out, const uint8_t *bytes, int64_t length, uint32_t call);
double sender_deadline(const struct streams *s, const struct sender *out);
void send_from(struct streams *s, struct stream *stream, double now, int64_t most);
bool acknowledge(struct streams *s, struct sender *out, const uint8_t *datagram, int64_t size, double now);
bool accept_packets(struct streams *s, struct stream *stream, const struct datagrams *datagrams, bool *applied);
void send_answer(struct streams *s, struct stream *stream);

#endif
