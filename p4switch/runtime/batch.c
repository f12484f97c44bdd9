/* Processing of many packets in one call, for tests, traces and virtual time. */

#include "switch.h"

#include <stdlib.h>

#include "program.h"
#include "shared.h"

/* For each packet that left: the number in the batch of the packet that caused it, its port and its length. */
struct departure {
    uint32_t source, port, length;
};

/* Packets that left, in order. Row i of `rows`, `room` bytes wide, holds packet i. */
struct departures {
    struct departure *heads;
    uint8_t *rows;
    uint64_t count, capacity;
    uint32_t room;
    uint32_t source;  /* number of the current packet */
    uint32_t longest; /* of the packets that left; anything over `room` was cut off */
    bool failed;      /* no memory */
};

/* Packets that arrive. Row i of `packets` holds packet i. */
struct batch {
    struct departures *out;
    const uint32_t *ports, *lengths;
    const uint8_t *packets;
    const uint64_t *times;
    uint32_t count, next;
};

_Static_assert(PROGRAM_ROOM <= LONGEST_PACKET, "what `next` of program.h may write fits the buffer");
SHARE_STRUCT(departure, FIELD(source) FIELD(port) FIELD(length))
SHARE_STRUCT(departures,
             FIELD(heads) FIELD(rows) FIELD(count) FIELD(capacity) FIELD(room) FIELD(source) FIELD(longest) FIELD(failed))

static bool make_room(struct departures *out)
{
    uint64_t capacity = 2 * out->capacity + 64;
    struct departure *heads = realloc(out->heads, capacity * sizeof *heads);
    if (heads)
        out->heads = heads;
    uint8_t *rows = realloc(out->rows, capacity * out->room + 1); /* + 1: realloc to 0 bytes would free them */
    if (rows)
        out->rows = rows;
    if (heads && rows)
        out->capacity = capacity;
    return heads && rows;
}

static void note(void *context, uint32_t port, uint8_t *packet, uint32_t length, uint8_t *checksum)
{
    struct departures *out = ((struct batch *)context)->out;
    (void)checksum;
    if (out->count == out->capacity && !make_room(out)) {
        out->failed = true;
        return;
    }
    if (length > out->longest)
        out->longest = length;
    out->heads[out->count] = (struct departure){out->source, port, length};
    memcpy(out->rows + out->count * out->room, packet, length < out->room ? length : out->room);
    out->count++;
}

/* Runs a switch's program on the packets from `next`, see program.h. Meanwhile they are emitted only to `emit`. */
void switch_run(struct switch_base *base, next_function *next, emit_function *emit, void *context)
{
    switch_lock(base);
    emit_function *emit_before = base->emit;
    void *context_before = base->emit_context;
    queue_function *queue_before = base->queue;
    base->emit = emit;
    base->emit_context = context;
    base->queue = NULL;
    for (struct arrival arrival; next(context, base->buffer, &arrival);)
        switch_process_buffer(base, arrival.port, arrival.length, arrival.time);
    base->emit = emit_before;
    base->emit_context = context_before;
    base->queue = queue_before;
    switch_unlock(base);
}

static bool next_of_batch(void *context, uint8_t *buffer, struct arrival *arrival)
{
    struct batch *batch = context;
    if (batch->next == batch->count)
        return false;
    uint32_t i = batch->out->source = batch->next++;
    *arrival = (struct arrival){batch->times[i], batch->ports[i], batch->lengths[i]};
    memcpy(buffer, batch->packets + (size_t)i * batch->out->room, arrival->length);
    return true;
}

/* Processes `count` packets, one after the other. Row i of `packets`, `room` bytes wide, holds packet i. */
void switch_process_batch(struct switch_base *base, uint32_t count, const uint32_t *ports, const uint8_t *packets,
                          const uint32_t *lengths, const uint64_t *times, uint32_t room, struct departures *out)
{
    if (out->room != room) {
        free(out->rows);
        free(out->heads);
        *out = (struct departures){.room = room};
    }
    out->count = out->longest = 0;
    out->failed = false;
    struct batch batch = {out, ports, lengths, packets, times, count, 0};
    switch_run(base, next_of_batch, note, &batch);
}

void switch_departures_free(struct departures *out)
{
    free(out->rows);
    free(out->heads);
    memset(out, 0, sizeof *out);
}
