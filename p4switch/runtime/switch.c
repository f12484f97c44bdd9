/* The control plane's way into a switch: its lock, multicast groups, and single packets for tests and traces. */

#include "switch.h"

#include <stdlib.h>

void table_open(struct table *t, uint32_t words, uint32_t ranges, uint32_t data_words);
void table_close(struct table *t);

void switch_lock(struct switch_base *base)
{
    atomic_fetch_add(&base->waiting, 1);
    pthread_mutex_lock(&base->lock);
    atomic_fetch_sub(&base->waiting, 1);
}

void switch_unlock(struct switch_base *base) { pthread_mutex_unlock(&base->lock); }

struct table *switch_table(struct switch_base *base, uint32_t index) { return base->tables + index; }

void switch_open(struct switch_base *base) { pthread_mutex_init(&base->lock, NULL); }

/* Frees everything; `tables` of them. */
void switch_close(struct switch_base *base, uint32_t tables)
{
    for (uint32_t i = 0; i < tables; i++)
        table_close(base->tables + i);
    for (uint32_t i = 0; i < MULTICAST_GROUPS; i++)
        free(base->multicast[i]);
    pthread_mutex_destroy(&base->lock);
    free(base);
}

/* Replaces a group's replicas; with `count` < 0 the group is deleted. Returns false if there is no memory. */
bool switch_set_multicast(struct switch_base *base, uint32_t group, int32_t count, const struct replica *replicas)
{
    struct replicas *fresh = NULL;
    if (count >= 0) {
        fresh = malloc(sizeof *fresh + (size_t)count * sizeof *replicas);
        if (!fresh)
            return false;
        fresh->count = (uint32_t)count;
        memcpy(fresh->replica, replicas, (size_t)count * sizeof *replicas);
    }
    free(base->multicast[group]);
    base->multicast[group] = fresh;
    return true;
}

/* Packets that left, one behind the other: port, length (4 bytes each, native), bytes. */
struct collected {
    uint8_t *bytes;
    uint64_t used, capacity;
};

static void collect(void *context, uint32_t port, uint8_t *packet, uint32_t length, uint8_t *checksum)
{
    struct collected *out = context;
    (void)checksum;
    if (out->used + 8 + length > out->capacity) {
        uint64_t capacity = 2 * (out->capacity + 8 + length);
        uint8_t *bytes = realloc(out->bytes, capacity);
        if (!bytes)
            return;
        out->bytes = bytes;
        out->capacity = capacity;
    }
    uint32_t head[2] = {port, length};
    memcpy(out->bytes + out->used, head, 8);
    memcpy(out->bytes + out->used + 8, packet, length);
    out->used += 8 + length;
}

/* One packet through the program; what leaves is collected in `out`. */
void switch_process(struct switch_base *base, uint32_t port, const uint8_t *packet, uint32_t length, uint64_t now,
                    struct collected *out)
{
    switch_lock(base);
    emit_function *emit = base->emit;
    void *context = base->emit_context;
    base->emit = collect;
    base->emit_context = out;
    out->used = 0;
    memcpy(base->buffer, packet, length);
    base->process(base, port, length, now, NULL);
    base->emit = emit;
    base->emit_context = context;
    switch_unlock(base);
}

void switch_collected_free(struct collected *out)
{
    free(out->bytes);
    memset(out, 0, sizeof *out);
}
