/* Processing of packets that other C hands over: virtual time, see simulator/loop/loop.c. */

#include "program.h"
#include "switch.h"

_Static_assert(PROGRAM_ROOM <= LONGEST_PACKET, "what `next` of program.h may write fits the buffer");

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
