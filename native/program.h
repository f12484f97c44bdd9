/* How packets are given to a switch's program from C: p4switch has such a function, and topologies/virtual calls it. */

#ifndef NATIVE_PROGRAM_H
#define NATIVE_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>

enum { PROGRAM_ROOM = 65600 }; /* bytes of the longest packet that may come */

/* Of a packet that comes to a switch; `time` in microseconds. */
struct arrival {
    uint64_t time;
    uint32_t port, length;
};

/* Writes the next packet into `buffer`, which has PROGRAM_ROOM, and says what it is; false: there is none. */
typedef bool next_function(void *context, uint8_t *buffer, struct arrival *arrival);

/* A packet that leaves; `checksum` is NULL here. */
typedef void emit_function(void *context, uint32_t port, uint8_t *packet, uint32_t length, uint8_t *checksum);

/* Runs `program` on what `next` gives, one packet after the other; what leaves because of one goes to `emit` before the
 * next is asked for. */
typedef void run_function(void *program, next_function *next, emit_function *emit, void *context);

#endif
