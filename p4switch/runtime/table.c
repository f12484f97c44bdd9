/* Changing match tables: the control plane's side of table.h. Every function runs under the switch's lock. */

#include "table.h"

#include <stdlib.h>

#define FIRST_BUCKETS 8

void table_open(struct table *t, uint32_t words, uint32_t ranges, uint32_t data_words, uint32_t extra_words)
{
    memset(t, 0, sizeof *t);
    t->words = words;
    t->ranges = ranges;
    t->data_words = data_words;
    t->extra_words = extra_words;
    t->stride = (uint32_t)(sizeof(struct entry) + 8 * (words + ranges + data_words + extra_words));
    t->free = -1;
    t->miss = calloc(1, t->stride);
}

static void group_free(struct group *g)
{
    free(g->buckets);
    free(g);
}

void table_close(struct table *t)
{
    for (uint32_t i = 0; i < t->group_count; i++)
        group_free(t->groups[i]);
    free(t->groups);
    free(t->entries);
    free(t->miss);
}

static bool same_mask(const struct group *g, const uint64_t *mask, unsigned words)
{
    return memcmp(g->mask, mask, 8 * words) == 0;
}

static int64_t group_index(const struct table *t, const uint64_t *mask)
{
    for (uint32_t i = 0; i < t->group_count; i++)
        if (same_mask(t->groups[i], mask, t->words))
            return i;
    return -1;
}

static int64_t group_add(struct table *t, const uint64_t *mask)
{
    struct group **groups = realloc(t->groups, (t->group_count + 1) * sizeof *groups);
    if (!groups)
        return -1;
    t->groups = groups;
    struct group *g = calloc(1, sizeof *g + 8 * t->words);
    if (!g)
        return -1;
    g->limit = FIRST_BUCKETS - 1;
    g->buckets = calloc(FIRST_BUCKETS, 8 * (t->words + 1));
    if (!g->buckets) {
        free(g);
        return -1;
    }
    memcpy(g->mask, mask, 8 * t->words);
    groups[t->group_count] = g;
    return t->group_count++;
}

/* Keeps the order by best rank after group `i` has gained a better one. */
static void group_rise(struct table *t, int64_t i, uint64_t rank)
{
    struct group *g = t->groups[i];
    if (rank > g->best)
        g->best = rank;
    for (; i > 0 && t->groups[i - 1]->best < g->best; i--)
        t->groups[i] = t->groups[i - 1];
    t->groups[i] = g;
}

static bool group_grow(struct group *g, unsigned words)
{
    uint64_t *old = g->buckets, count = g->limit + 1;
    uint64_t *grown = calloc(2 * count, 8 * (words + 1));
    if (!grown)
        return false;
    g->buckets = grown;
    g->limit = 2 * count - 1;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t *bucket = old + i * (words + 1);
        if (bucket[0])
            memcpy(group_bucket(g, bucket + 1, words), bucket, 8 * (words + 1));
    }
    free(old);
    return true;
}

static bool entries_grow(struct table *t)
{
    uint32_t capacity = t->capacity ? 2 * t->capacity : 16;
    uint8_t *entries = realloc(t->entries, (uint64_t)capacity * t->stride);
    if (!entries)
        return false;
    t->entries = entries;
    for (uint32_t i = capacity; i-- > t->capacity;) {
        table_entry(t, i)->next = t->free;
        t->free = (int32_t)i;
    }
    t->capacity = capacity;
    return true;
}

/* Adds an entry; `key` is already masked. Returns its index, or -1 if there is no memory. */
int64_t table_add(struct table *t, const uint64_t *key, const uint64_t *mask, const uint64_t *high, uint32_t priority,
                  uint32_t action, const uint64_t *data)
{
    if (t->free < 0 && !entries_grow(t))
        return -1;
    int64_t i = group_index(t, mask);
    if (i < 0 && (i = group_add(t, mask)) < 0)
        return -1;
    struct group *g = t->groups[i];
    if (4 * (g->used + 1) > 3 * (g->limit + 1) && !group_grow(g, t->words))
        return -1;

    int32_t index = t->free;
    struct entry *e = table_entry(t, index);
    t->free = e->next;
    e->rank = (uint64_t)priority << 32 | (UINT32_MAX - t->added++);
    e->packets = e->bytes = 0;
    e->action = action;
    memcpy(e->words, key, 8 * t->words);
    memcpy(e->words + t->words, high, 8 * t->ranges);
    memcpy(e->words + t->words + t->ranges, data, 8 * t->data_words);
    memset(entry_extra(t, e), 0, 8 * t->extra_words);

    uint64_t masked[t->words + 1];
    for (unsigned w = 0; w < t->words; w++)
        masked[w] = key[w] & mask[w];
    uint64_t *bucket = group_bucket(g, masked, t->words);
    if (bucket[0] == 0) {
        memcpy(bucket + 1, masked, 8 * t->words);
        g->used++;
    }
    int64_t at = (int64_t)bucket[0] - 1, before = -1;
    for (; at >= 0 && table_entry(t, at)->rank > e->rank; at = table_entry(t, at)->next)
        before = at;
    e->next = (int32_t)at;
    if (before < 0)
        bucket[0] = (uint64_t)index + 1;
    else
        table_entry(t, before)->next = index;
    group_rise(t, i, e->rank);
    return index;
}

/* Empties a bucket and closes the gap that it leaves in the probe sequence. */
static void bucket_clear(struct group *g, uint64_t *bucket, unsigned words)
{
    uint64_t size = words + 1, hole = (uint64_t)(bucket - g->buckets) / size;
    for (uint64_t i = (hole + 1) & g->limit;; i = (i + 1) & g->limit) {
        uint64_t *candidate = g->buckets + i * size;
        if (candidate[0] == 0)
            break;
        uint64_t home = key_hash(candidate + 1, words) & g->limit;
        if (((i - home) & g->limit) >= ((i - hole) & g->limit)) {
            memcpy(g->buckets + hole * size, candidate, 8 * size);
            hole = i;
        }
    }
    memset(g->buckets + hole * size, 0, 8 * size);
    g->used--;
}

void table_remove(struct table *t, int64_t index, const uint64_t *mask)
{
    struct entry *e = table_entry(t, index);
    int64_t i = group_index(t, mask);
    struct group *g = t->groups[i];
    uint64_t masked[t->words + 1];
    for (unsigned w = 0; w < t->words; w++)
        masked[w] = e->words[w] & mask[w];
    uint64_t *bucket = group_bucket(g, masked, t->words);
    int64_t at = (int64_t)bucket[0] - 1, before = -1;
    for (; at != index; at = table_entry(t, at)->next)
        before = at;
    if (before >= 0)
        table_entry(t, before)->next = e->next;
    else if (e->next >= 0)
        bucket[0] = (uint64_t)e->next + 1;
    else
        bucket_clear(g, bucket, t->words);
    e->next = t->free;
    t->free = (int32_t)index;
    if (g->used == 0) {
        memmove(t->groups + i, t->groups + i + 1, (t->group_count - (uint64_t)i - 1) * sizeof *t->groups);
        t->group_count--;
        group_free(g);
    }
}

void table_set(struct table *t, int64_t index, uint32_t action, const uint64_t *data)
{
    struct entry *e = index < 0 ? t->miss : table_entry(t, index);
    e->action = action;
    memcpy(e->words + t->words + t->ranges, data, 8 * t->data_words);
}

uint64_t *table_extra(const struct table *t, int64_t index) { return entry_extra(t, table_entry(t, index)); }

void table_counter(const struct table *t, int64_t index, uint64_t *packets, uint64_t *bytes)
{
    const struct entry *e = table_entry(t, index);
    *packets = e->packets;
    *bytes = e->bytes;
}

void table_counter_set(struct table *t, int64_t index, uint64_t packets, uint64_t bytes)
{
    struct entry *e = table_entry(t, index);
    e->packets = packets;
    e->bytes = bytes;
}
