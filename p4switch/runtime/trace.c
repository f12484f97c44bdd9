/* Tracing: another library of the same program, which records what it does, temporarily works on the same state. */

#include "switch.h"

#include <stdlib.h>

#include "shared.h"

SHARE_NUMBER(TRACE_CONDITIONS);
SHARE_NUMBER(TRACE_PORT);
SHARE_STRUCT(trace_condition,
             FIELD(header) FIELD(offset) FIELD(width) FIELD(unused)
             FIELD(high) FIELD(low) FIELD(mask_high) FIELD(mask_low))

/* Starts tracing: a traced program processes the packets, and records those that meet all conditions. If `logs`, messages
 * are only recorded. False: no memory, or the switch is being traced already. The caller holds the lock, here and below. */
bool switch_trace(struct switch_base *base, const struct traced *program, uint32_t count,
                  const struct trace_condition *conditions, bool logs)
{
    struct trace *trace = base->trace ? NULL : calloc(1, sizeof *trace);
    if (!trace)
        return false;
    memcpy(trace->conditions, conditions, count * sizeof *conditions);
    trace->count = count;
    trace->logs = logs;
    trace->untraced = (struct traced){base->process, base->dequeue};
    base->process = program->process;
    base->dequeue = program->dequeue;
    base->trace = trace;
    return true;
}

/* Stops tracing: the ordinary program runs again. */
void switch_untrace(struct switch_base *base)
{
    base->process = base->trace->untraced.process;
    base->dequeue = base->trace->untraced.dequeue;
    free(base->trace->records.bytes);
    free(base->trace);
    base->trace = NULL;
}

/* Returns the records since the last call, valid until the next packet, and the number of packets lost since then. */
uint64_t switch_traced(struct switch_base *base, const uint8_t **bytes, uint64_t *lost)
{
    struct trace *trace = base->trace;
    uint64_t used = trace->records.used;
    *bytes = trace->records.bytes;
    *lost = trace->lost;
    trace->records.used = trace->lost = 0;
    return used;
}
