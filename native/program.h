/* Interface by which C passes packets to a switch's program: p4switch/ implements it, simulator/ calls it. */

#ifndef NATIVE_PROGRAM_H
#define NATIVE_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>

enum { PROGRAM_ROOM = 65600 }; /* bytes of the longest packet that may come */

/* A packet that arrives at a switch; `time` in microseconds. */
struct arrival {
    uint64_t time;
    uint32_t port, length;
};

/* Writes the next packet into `buffer`, which has PROGRAM_ROOM bytes, and describes it in `arrival`; returns false if there
 * is none. */
typedef bool next_function(void *context, uint8_t *buffer, struct arrival *arrival);

/* Called for each packet that leaves; `checksum` is NULL here. */
typedef void emit_function(void *context, uint32_t port, uint8_t *packet, uint32_t length, uint8_t *checksum);

/* Runs `program` on the packets that `next` returns, one after another. All packets that leave because of one are passed to
 * `emit` before `next` is called again. */
typedef void run_function(void *program, next_function *next, emit_function *emit, void *context);

#endif
