/* Tracing: another library of the same program, which records what it does, works on the same state for a while. */

#include "switch.h"

#include <stdlib.h>

#include "shared.h"

SHARE_NUMBER(TRACE_CONDITIONS);
SHARE_NUMBER(TRACE_PORT);
SHARE_STRUCT(trace_condition,
             FIELD(header) FIELD(offset) FIELD(width) FIELD(unused)
             FIELD(high) FIELD(low) FIELD(mask_high) FIELD(mask_low))

/* Packets are processed by a traced program from now on, and those that meet all conditions are traced. NULL: no memory, or a
 * trace is being kept already. The caller holds the lock, here and below. */
bool switch_trace(struct switch_base *base, const struct traced *program, uint32_t count,
                  const struct trace_condition *conditions)
{
    struct trace *trace = base->trace ? NULL : calloc(1, sizeof *trace);
    if (!trace)
        return false;
    memcpy(trace->conditions, conditions, count * sizeof *conditions);
    trace->count = count;
    trace->untraced = (struct traced){base->process, base->dequeue};
    base->process = program->process;
    base->dequeue = program->dequeue;
    base->trace = trace;
    return true;
}

/* The program runs as before. */
void switch_untrace(struct switch_base *base)
{
    base->process = base->trace->untraced.process;
    base->dequeue = base->trace->untraced.dequeue;
    free(base->trace->records.bytes);
    free(base->trace);
    base->trace = NULL;
}

/* The records since the last call, up to the next packet, and how many packets have been lost since then. */
uint64_t switch_traced(struct switch_base *base, const uint8_t **bytes, uint64_t *lost)
{
    struct trace *trace = base->trace;
    uint64_t used = trace->records.used;
    *bytes = trace->records.bytes;
    *lost = trace->lost;
    trace->records.used = trace->lost = 0;
    return used;
}
