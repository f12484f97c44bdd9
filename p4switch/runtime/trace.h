/* Records of a packet's path. Included only by traced programs, after struct packet. codegen/tracing.py defines the
 * kinds.
 *
 * A record: kind (2 bytes), number of words (2 bytes), number (4 bytes), the words (8 bytes each); all native. */

#ifndef P4SWITCH_TRACE_H
#define P4SWITCH_TRACE_H

#include "switch.h"

/* Returns space for a record of so many words after its head, or NULL: the packet is not traced, or memory is full. */
__attribute__((unused)) static uint64_t *trace_room(struct switch_base *base, uint32_t kind, uint32_t number,
                                                    uint32_t words)
{
    struct trace *trace = base->trace;
    struct reports *r = &trace->records;
    uint64_t size = 8 + 8 * (uint64_t)words;
    if (trace->silent)
        return NULL;
    if (r->used + size > r->capacity) {
        uint64_t capacity = 2 * (r->used + size) < MAX_TRACED ? 2 * (r->used + size) : MAX_TRACED;
        uint8_t *grown = r->used + size <= capacity ? realloc(r->bytes, capacity) : NULL;
        if (!grown) { /* a packet is recorded completely or not at all */
            r->used = trace->began;
            trace->silent = true;
            trace->lost++;
            return NULL;
        }
        r->bytes = grown;
        r->capacity = capacity;
    }
    uint8_t *at = r->bytes + r->used;
    r->used += size;
    memcpy(at, (uint16_t[]){(uint16_t)kind, (uint16_t)words}, 4);
    memcpy(at + 4, &number, 4);
    return (uint64_t *)(at + 8);
}

__attribute__((unused)) static void trace_words(struct switch_base *base, uint32_t kind, uint32_t number,
                                                const uint64_t *words, uint32_t count)
{
    uint64_t *room = trace_room(base, kind, number, count);
    if (room && count)
        memcpy(room, words, 8 * (size_t)count);
}

/* TRACE(kind, number, word ...) */
#define TRACE(kind, number, ...)                                                                                        \
    trace_words(&s->base, kind, (uint32_t)(number), (const uint64_t[]){0, ##__VA_ARGS__} + 1,                            \
                sizeof((const uint64_t[]){0, ##__VA_ARGS__}) / 8 - 1)

/* Records a length, then bytes, padded to whole words. */
__attribute__((unused)) static void trace_bytes(struct switch_base *base, uint32_t kind, uint32_t number,
                                                const uint8_t *bytes, uint32_t length)
{
    uint64_t *room = trace_room(base, kind, number, 1 + (length + 7) / 8);
    if (!room)
        return;
    room[0] = length;
    memcpy(room + 1, bytes, length);
}

__attribute__((unused)) static void trace_header(struct switch_base *base, const struct packet *p, uint32_t kind,
                                                 uint32_t header)
{
    trace_bytes(base, kind, header, p->header[header], header_bytes(p, header));
}

/* Begins the record of a packet, or begins it again. */
static void trace_begin(struct switch_base *base, uint32_t port, uint64_t now, const struct packet *p)
{
    struct trace *trace = base->trace;
    if (trace->open)
        trace->records.used = trace->began;
    trace->began = trace->records.used;
    trace->open = true;
    trace->silent = false;
    trace_words(base, TRACE_PACKET, port, &now, 1);
    trace_bytes(base, TRACE_ARRIVED, 0, p->start, p->ingress_length);
}

static bool trace_meets(const struct trace_condition *c, uint32_t port, const struct packet *p)
{
    if (c->header == TRACE_PORT)
        return port == c->low;
    if (!p->valid[c->header])
        return false;
    const uint8_t *header = p->header[c->header];
    uint128_t value = c->width > 64 ? get128(header, c->offset, c->width) : get64(header, c->offset, c->width);
    return (value & U128(c->mask_high, c->mask_low)) == U128(c->high, c->low);
}

/* Forgets a parsed packet that does not meet the conditions. */
static void trace_filter(struct switch_base *base, uint32_t port, const struct packet *p)
{
    struct trace *trace = base->trace;
    for (uint32_t i = 0; i < trace->count; i++) {
        if (!trace->silent && !trace_meets(trace->conditions + i, port, p)) {
            trace->silent = true;
            trace->records.used = trace->began;
        }
    }
}

static void trace_end(struct switch_base *base) { base->trace->open = false; }

/* Returns the index of an entry in its table. */
INLINE uint64_t table_index(const struct table *t, const struct entry *e)
{
    return (uint64_t)((const uint8_t *)e - t->entries) / t->stride;
}

#endif
