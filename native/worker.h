/* Interface by which a worker's packets are handled in C without a socket: workers/ implements it, simulator/ calls it. */

#ifndef NATIVE_WORKER_H
#define NATIVE_WORKER_H

#include <stdbool.h>
#include <stdint.h>

/* One call that lets a worker act; times in seconds. */
struct turn {
    /* Input: the time, and for how long nothing new may arrive before the worker gives up; `count` datagrams that have
     * arrived, each of `size` bytes, one after another; `marked` of them carry a congestion mark. */
    double now, give_up;
    const uint8_t *datagrams;
    int64_t count, size, marked;
    /* Output: `sent` packets of `sent_size` bytes to send, at these offsets from `packets`, and when to call again. */
    const uint8_t *packets;
    const int64_t *places;
    int64_t sent, sent_size;
    double deadline;
};

/* UNTOUCHED: nothing was done; Python has to do all of this turn. TAKEN: the datagrams were taken and the packets to send
 * are in the output; Python has to do the rest. DONE: everything was done. */
enum outcome { UNTOUCHED, TAKEN, DONE };

typedef enum outcome turn_function(void *worker, struct turn *turn);

/* Datagrams of one size; `marked` has a byte for each that says whether it carries a congestion mark. */
struct datagrams {
    const uint8_t *const *at;
    const uint8_t *marked;
    int64_t count, size;
};

struct batch_of_rows;

/* One of a worker's connections. The worker owns it and begins with zeros; only its host's card uses it after that. */
struct connection {
    const uint8_t *header; /* of its frames, for a datagram of 0 bytes; the worker sets it */
    struct batch_of_rows *first, *last; /* what waits for the card, in order */
    struct connection *next;
};

/* Makes room for `count` datagrams of `size` bytes that a worker sends on a connection, as acknowledgements or as data, and
 * returns their places; NULL if there is none. */
typedef uint8_t *const *batch_function(void *context, struct connection *connection, bool acknowledges, int64_t count,
                                       int64_t size);

/* What a worker needs behind a card: to take what has arrived, to send, with the first two arguments of `batch`, and to
 * know when to send next (infinity: not before something arrives). The first two return false if there is no memory. */
typedef bool receive_function(void *worker, const struct datagrams *datagrams, double now);
typedef bool send_function(void *worker, batch_function *batch, void *context, double now);
typedef double deadline_function(const void *worker);

/* Whether Python has to act at `now`, after the worker has taken what has arrived and before it sends. */
typedef bool needs_python_function(const void *worker, double now);

#endif
