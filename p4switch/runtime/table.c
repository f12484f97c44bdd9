/* Changes to match tables: the control plane's side of table.h. The caller of every function holds the switch's
 * lock. */

#include "table.h"

#include <stdlib.h>

#define FIRST_BUCKETS 8
#define OFTEN 4 /* groups are sorted again after one in so many entries has changed */

void table_open(struct table *t, uint32_t words, uint32_t ranges, uint64_t joined, uint32_t data_words,
                uint32_t extra_words)
{
    memset(t, 0, sizeof *t);
    t->words = words;
    t->ranges = ranges;
    t->joined = joined;
    t->data_words = data_words;
    t->extra_words = extra_words;
    t->stride = (uint32_t)(sizeof(struct entry) + 8 * (words + data_words + extra_words));
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
    free(t->filter);
    free(t->byte);
}

/* Returns the group of a mask and ranges, or -1. */
static int64_t group_index(const struct table *t, const uint64_t *mask, const uint64_t *low, const uint64_t *high)
{
    for (uint32_t i = 0; i < t->group_count; i++) {
        const uint64_t *words = t->groups[i]->words;
        if (memcmp(words, mask, 8 * t->words) == 0 && memcmp(words + t->words, low, 8 * t->ranges) == 0 &&
            memcmp(words + t->words + t->ranges, high, 8 * t->ranges) == 0)
            return i;
    }
    return -1;
}

static int64_t group_add(struct table *t, const uint64_t *mask, const uint64_t *low, const uint64_t *high)
{
    struct group **groups = realloc(t->groups, (t->group_count + 1) * sizeof *groups);
    if (!groups)
        return -1;
    t->groups = groups;
    struct group *g = calloc(1, sizeof *g + 8 * (t->words + 2 * t->ranges));
    if (!g)
        return -1;
    g->limit = FIRST_BUCKETS - 1;
    g->buckets = calloc(FIRST_BUCKETS, 8 * (t->words + 1));
    if (!g->buckets) {
        free(g);
        return -1;
    }
    memcpy(g->words, mask, 8 * t->words);
    memcpy(g->words + t->words, low, 8 * t->ranges);
    memcpy(g->words + t->words + t->ranges, high, 8 * t->ranges);
    groups[t->group_count] = g;
    return t->group_count++;
}

/* Called when a group has gained an entry of that rank. */
static void group_rise(struct table *t, int64_t i, uint64_t rank)
{
    struct group *g = t->groups[i];
    if (rank > g->best)
        g->best = rank;
    for (; i >= 0 && t->groups[i]->rest < g->best; i--)
        t->groups[i]->rest = g->best;
}

static void filter_set(struct table *t, uint32_t i, unsigned value, uint32_t group)
{
    t->filter[(256 * i + value) * t->row + group / 64] |= 1ull << group % 64;
}

/* Sets the filter's bits of a group for bytes whose mask or ranges alone decide. */
static void filter_group(struct table *t, uint32_t group)
{
    const struct group *g = t->groups[group];
    for (uint32_t i = 0; i < t->filtered; i++) {
        unsigned low = 0, high = 255, word = t->byte[i] / 8, shift = t->byte[i] % 8 * 8;
        if (word >= t->words - t->ranges) {
            unsigned range = word - (t->words - t->ranges);
            const uint64_t *end = g->words + t->words + range;
            bool open = shift < 56 && end[0] >> (shift + 8) != end[t->ranges] >> (shift + 8); /* in higher bytes */
            for (unsigned back = 0; t->joined >> (range - back) & 1; back++) /* and in higher words */
                open |= *(end - back - 1) != *(end - back - 1 + t->ranges);
            low = open ? 0 : end[0] >> shift & 0xff;
            high = open ? 255 : end[t->ranges] >> shift & 0xff;
        } else if (((const uint8_t *)g->words)[t->byte[i]]) {
            continue; /* its entries decide */
        }
        for (unsigned value = low; value <= high; value++)
            filter_set(t, i, value, group);
    }
}

/* Sets the filter's bits of a group for a masked key: in every byte each value that equals the key's under the mask. */
static void filter_key(struct table *t, uint32_t group, const uint64_t *masked)
{
    for (uint32_t i = 0; i < t->filtered; i++) {
        unsigned mask = ((const uint8_t *)t->groups[group]->words)[t->byte[i]];
        unsigned key = ((const uint8_t *)masked)[t->byte[i]], others = ~mask & 0xff;
        for (unsigned any = others; mask; any = (any - 1) & others) {
            filter_set(t, i, key | any, group);
            if (any == 0)
                break;
        }
    }
}

static int by_best(const void *a, const void *b)
{
    uint64_t x = (*(struct group *const *)a)->best, y = (*(struct group *const *)b)->best;
    return (x < y) - (x > y);
}

/* Finds the bytes of the key that any mask or range uses. */
static void find_bytes(struct table *t)
{
    t->filtered = 0;
    for (uint32_t byte = 0; byte < 8 * t->words; byte++) {
        uint8_t used = 0;
        uint32_t word = byte / 8, fixed = t->words - t->ranges;
        for (uint32_t i = 0; i < t->group_count; i++) {
            const uint64_t *words = t->groups[i]->words;
            used |= ((const uint8_t *)(word < fixed ? words : words + 2 * t->ranges))[byte];
        }
        if (used)
            t->byte[t->filtered++] = (uint16_t)byte;
    }
}

/* Drops empty groups, sorts the others by their best ranks, and builds the filter; without memory there is none. */
static void table_order(struct table *t)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < t->group_count; i++) {
        if (t->groups[i]->used)
            t->groups[kept++] = t->groups[i];
        else
            group_free(t->groups[i]);
    }
    t->group_count = kept;
    t->changed = 0;
    qsort(t->groups, kept, sizeof *t->groups, by_best);
    for (uint32_t i = 0; i < kept; i++)
        t->groups[i]->rest = t->groups[i]->best;
    free(t->filter);
    free(t->byte);
    t->filter = NULL;
    t->byte = NULL;
    if (kept <= FEW_GROUPS)
        return;
    t->byte = calloc(8 * t->words, sizeof *t->byte);
    if (!t->byte)
        return;
    find_bytes(t);
    t->row = (kept + kept / OFTEN) / 64 + 1; /* with space for some more */
    t->filter = calloc((size_t)256 * t->filtered * t->row + 1, sizeof *t->filter);
    for (uint32_t i = 0; t->filter && i < kept; i++) {
        const struct group *g = t->groups[i];
        filter_group(t, i);
        for (uint64_t b = 0; b <= g->limit; b++)
            if (g->buckets[b * (t->words + 1)])
                filter_key(t, i, g->buckets + b * (t->words + 1) + 1);
    }
}

/* Called after an entry has been added to a group (with its masked key) or removed from one. */
static void table_changed(struct table *t, uint32_t group, const uint64_t *masked, bool is_new_group)
{
    bool fits = t->filter ? group < 64 * t->row : t->group_count <= FEW_GROUPS;
    if (++t->changed > t->used / OFTEN + FEW_GROUPS || !fits) {
        table_order(t);
    } else if (t->filter && masked) {
        if (is_new_group)
            filter_group(t, group);
        filter_key(t, group, masked);
    }
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

/* Adds an entry. `words` are its masked key, the mask, the upper ends of its ranges, and its action's data. Returns
 * its index, or -1 if there is no memory. */
int64_t table_add(struct table *t, const uint64_t *words, uint32_t priority, uint32_t action)
{
    const uint64_t *key = words, *mask = key + t->words, *high = mask + t->words, *data = high + t->ranges;
    if (t->free < 0 && !entries_grow(t))
        return -1;
    const uint64_t *low = key + (t->words - t->ranges);
    int64_t i = group_index(t, mask, low, high);
    bool is_new_group = i < 0;
    if (is_new_group && (i = group_add(t, mask, low, high)) < 0)
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
    memcpy(e->words + t->words, data, 8 * t->data_words);
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
    t->used++;
    table_changed(t, (uint32_t)i, masked, is_new_group);
    return index;
}

/* Empties a bucket and closes the gap in the probe sequence. */
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

/* Removes the entry of that index. `words` are its mask and the upper ends of its ranges. */
void table_remove(struct table *t, int64_t index, const uint64_t *words)
{
    const uint64_t *mask = words, *high = mask + t->words;
    struct entry *e = table_entry(t, index);
    int64_t i = group_index(t, mask, e->words + (t->words - t->ranges), high);
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
    t->used--;
    table_changed(t, (uint32_t)i, NULL, false);
}

/* Returns the entry of that index, or the default one. */
static struct entry *entry_at(const struct table *t, int64_t index)
{
    return index < 0 ? t->miss : table_entry(t, index);
}

void table_set(struct table *t, int64_t index, uint32_t action, const uint64_t *data)
{
    struct entry *e = entry_at(t, index);
    e->action = action;
    memcpy(e->words + t->words, data, 8 * t->data_words);
}

uint64_t *table_extra(const struct table *t, int64_t index) { return entry_extra(t, entry_at(t, index)); }

void table_counter(const struct table *t, int64_t index, uint64_t *packets, uint64_t *bytes)
{
    const struct entry *e = entry_at(t, index);
    *packets = e->packets;
    *bytes = e->bytes;
}

void table_counter_set(struct table *t, int64_t index, uint64_t packets, uint64_t bytes)
{
    struct entry *e = entry_at(t, index);
    e->packets = packets;
    e->bytes = bytes;
}
