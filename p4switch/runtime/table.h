/* Match tables.
 *
 * A key is a few 64-bit words. Entries with the same mask form a group, and a group is a hash table of masked keys: an
 * exact table has one group, a longest-prefix table one for each prefix length, a ternary table one for each mask in
 * use (tuple space search). Groups are tried in the order of the best rank in them, so a look-up ends early.
 * Entries of one group with equal masked keys (other priorities, other ranges) are chained, best rank first.
 */

#ifndef P4SWITCH_TABLE_H
#define P4SWITCH_TABLE_H

#include "bits.h"

struct entry {
    uint64_t rank; /* priority, then age: unique in its table, the larger wins */
    uint64_t packets, bytes;
    uint32_t action;
    int32_t next; /* in the chain of equal masked keys, or -1 */
    uint64_t words[]; /* key (of range fields: the low ends), high ends of the ranges, action data, extra */
};

struct group {
    uint64_t best;     /* no entry of the group ranks higher */
    uint64_t *buckets; /* each: entry index + 1, or 0; then the masked key */
    uint64_t limit;    /* number of buckets - 1 */
    uint64_t used;
    uint64_t mask[];
};

struct table {
    uint32_t words;  /* of a key */
    uint32_t ranges; /* how many of them, the last ones, are matched by range */
    uint32_t data_words;
    uint32_t extra_words; /* a direct meter, the time of the last hit: what the data plane keeps in an entry */
    uint32_t stride; /* bytes of an entry */
    uint32_t capacity;
    int32_t free; /* first free entry, chained by `next`, or -1 */
    uint32_t group_count;
    uint32_t added; /* entries ever added */
    uint8_t *entries;
    struct group **groups; /* best rank first */
    struct entry *miss;    /* the default action */
};

INLINE struct entry *table_entry(const struct table *t, int64_t index)
{
    return (struct entry *)(t->entries + (uint64_t)index * t->stride);
}

INLINE const uint64_t *entry_data(const struct table *t, const struct entry *e)
{
    return e->words + t->words + t->ranges;
}

INLINE uint64_t *entry_extra(const struct table *t, struct entry *e)
{
    return e->words + t->words + t->ranges + t->data_words;
}

INLINE uint64_t key_hash(const uint64_t *key, unsigned words)
{
    uint64_t h = 0;
    for (unsigned i = 0; i < words; i++) {
        uint128_t product = (uint128_t)(h ^ key[i] ^ 0x9e3779b97f4a7c15ull) * 0xd6e8feb86659fd93ull;
        h = (uint64_t)product ^ (uint64_t)(product >> 64);
    }
    return h;
}

/* The bucket that holds `key`, or the empty one where it would go. */
INLINE uint64_t *group_bucket(const struct group *g, const uint64_t *key, unsigned words)
{
    for (uint64_t i = key_hash(key, words) & g->limit;; i = (i + 1) & g->limit) {
        uint64_t *bucket = g->buckets + i * (words + 1), different = 0;
        for (unsigned w = 0; w < words; w++)
            different |= bucket[1 + w] ^ key[w];
        if (bucket[0] == 0 || different == 0)
            return bucket;
    }
}

INLINE struct entry *table_find_exact(const struct table *t, const uint64_t *key, unsigned words)
{
    if (t->group_count == 0)
        return NULL;
    const uint64_t *bucket = group_bucket(t->groups[0], key, words);
    return bucket[0] ? table_entry(t, (int64_t)bucket[0] - 1) : NULL;
}

INLINE bool entry_in_range(const struct entry *e, const uint64_t *key, unsigned words, unsigned ranges)
{
    for (unsigned i = 0; i < ranges; i++) {
        unsigned w = words - ranges + i;
        if (key[w] < e->words[w] || key[w] > e->words[words + i])
            return false;
    }
    return true;
}

INLINE struct entry *table_find(const struct table *t, const uint64_t *key, unsigned words, unsigned ranges)
{
    struct entry *found = NULL;
    uint64_t rank = 0;
    for (uint32_t i = 0; i < t->group_count; i++) {
        const struct group *g = t->groups[i];
        if (g->best <= rank)
            break;
        uint64_t masked[words];
        for (unsigned w = 0; w < words; w++)
            masked[w] = key[w] & g->mask[w];
        const uint64_t *bucket = group_bucket(g, masked, words);
        for (int64_t at = (int64_t)bucket[0] - 1; at >= 0;) {
            struct entry *e = table_entry(t, at);
            if (e->rank <= rank)
                break;
            if (entry_in_range(e, key, words, ranges)) {
                found = e;
                rank = e->rank;
                break;
            }
            at = e->next;
        }
    }
    return found;
}

#endif
