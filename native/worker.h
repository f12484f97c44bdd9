/* How a worker's packets are left to C where there is no socket: workers/ has such a function, topologies/virtual calls it. */

#ifndef NATIVE_WORKER_H
#define NATIVE_WORKER_H

#include <stdint.h>

/* One waking of a worker; times in seconds. */
struct turn {
    /* Given: how long nothing new may arrive; `count` datagrams that have, of `size` bytes, one after another, and how
     * many of them with a congestion mark. */
    double now, give_up;
    const uint8_t *datagrams;
    int64_t count, size, marked;
    /* Told: `sent` packets of `sent_size` bytes to send, at these places from `packets` on, and when to wake again. */
    const uint8_t *packets;
    const int64_t *places;
    int64_t sent, sent_size;
    double deadline;
};

/* UNTOUCHED: nothing was done, all of this turn is for Python. TAKEN: what came was taken, and what is to be sent is told;
 * the rest is for Python. DONE: all of it was done. */
enum outcome { UNTOUCHED, TAKEN, DONE };

typedef enum outcome turn_function(void *worker, struct turn *turn);

#endif
