/* Interface by which a worker's packets are handled in C without a socket: workers/ implements it, simulator/ calls it. */

#ifndef NATIVE_WORKER_H
#define NATIVE_WORKER_H

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

#endif
