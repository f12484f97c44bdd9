/* Match tables.
 *
 * A key is a few 64-bit words. Entries with the same mask and the same ranges form a group, and a group is a hash
 * table of masked keys: an exact table has one group, a longest-prefix table one for each prefix length, a ternary
 * table one for each mask in use (tuple space search: Srinivasan, Suri and Varghese, SIGCOMM 1999). Entries of one
 * group with equal masked keys (but different priorities) are chained, best rank first.
 *
 * Groups are searched in the order of their best rank, so that a lookup ends early. If there are many groups, a
 * filter excludes those that cannot contain a given key: it has a row of bits, one for each group, for each byte of
 * the key and each value of that byte (bit vectors: Lakshman and Stiliadis, SIGCOMM 1998). The bitwise `and` of the
 * rows of a key's bytes leaves the groups to search. A bit too many costs a probe and changes no result. So deleting
 * an entry leaves its bits, and a new group is added at the end, until so much has changed that the filter is built
 * again. */

#ifndef P4SWITCH_TABLE_H
#define P4SWITCH_TABLE_H

#include "bits.h"

#define FEW_GROUPS 8 /* searched without a filter */

struct entry {
    uint64_t rank; /* priority, then age: unique in its table, the larger one wins */
    uint64_t packets, bytes;
    uint32_t action;
    int32_t next; /* in the chain of equal masked keys, or -1 */
    uint64_t words[]; /* key (lower ends of range fields), action data, extra */
};

struct group {
    uint64_t best;     /* no entry of the group has a higher rank */
    uint64_t rest;     /* no entry of the groups after it has a higher rank */
    uint64_t *buckets; /* each: entry index + 1, or 0; then the masked key */
    uint64_t limit;    /* number of buckets - 1 */
    uint64_t used;
    uint64_t words[];  /* mask, lower ends of the ranges, upper ends */
};

struct table {
    uint32_t words;  /* of a key */
    uint32_t ranges; /* of them, the last ones, that are matched by range */
    uint64_t joined; /* bits for the range words that continue the field of the word before */
    uint32_t data_words;
    uint32_t extra_words; /* kept in an entry by the data plane: a direct meter, the time of the last hit */
    uint32_t stride; /* bytes of an entry */
    uint32_t capacity;
    int32_t free; /* first free entry, chained by `next`, or -1 */
    uint32_t group_count;
    uint32_t added; /* entries ever added */
    uint32_t used;    /* entries */
    uint32_t changed; /* entries added and removed since the groups were sorted */
    uint8_t *entries;
    struct group **groups;
    struct entry *miss;  /* the default action */
    uint64_t *filter;    /* [filtered][256][row], or NULL */
    uint32_t row;        /* words in a row */
    uint32_t filtered;   /* bytes of the key that the filter uses */
    uint16_t *byte;      /* which ones */
};

INLINE struct entry *table_entry(const struct table *t, int64_t index)
{
    return (struct entry *)(t->entries + (uint64_t)index * t->stride);
}

INLINE const uint64_t *entry_data(const struct table *t, const struct entry *e)
{
    return e->words + t->words;
}

INLINE uint64_t *entry_extra(const struct table *t, struct entry *e)
{
    return e->words + t->words + t->data_words;
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

/* Returns the bucket that contains `key`, or the empty one where it belongs. */
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

INLINE bool group_in_range(const struct group *g, const uint64_t *key, unsigned words, unsigned ranges, uint64_t joined)
{
    const uint64_t *low = g->words + words, *high = low + ranges;
    bool at_low = true, at_high = true; /* the words so far equal those of the range's lower, upper end */
    for (unsigned i = 0; i < ranges; i++) {
        uint64_t word = key[words - ranges + i];
        if (!(joined >> i & 1))
            at_low = at_high = true;
        if ((at_low && word < low[i]) || (at_high && word > high[i]))
            return false;
        at_low = at_low && word == low[i];
        at_high = at_high && word == high[i];
    }
    return true;
}

/* Returns which of the 64 groups from 64 * `at` may contain the key. */
INLINE uint64_t table_candidates(const struct table *t, const uint64_t *key, uint32_t at)
{
    uint32_t left = t->group_count - 64 * at;
    uint64_t candidates = ones(left < 64 ? left : 64);
    if (t->filter)
        for (uint32_t i = 0; i < t->filtered; i++)
            candidates &= t->filter[(256 * i + ((const uint8_t *)key)[t->byte[i]]) * t->row + at];
    return candidates;
}

INLINE struct entry *table_find(const struct table *t, const uint64_t *key, unsigned words, unsigned ranges,
                                uint64_t joined)
{
    struct entry *found = NULL;
    uint64_t rank = 0;
    for (uint32_t at = 0; 64 * at < t->group_count; at++) {
        for (uint64_t left = table_candidates(t, key, at); left; left &= left - 1) {
            const struct group *g = t->groups[64 * at + (uint32_t)__builtin_ctzll(left)];
            if (g->rest <= rank)
                return found;
            if (g->best <= rank || !group_in_range(g, key, words, ranges, joined))
                continue;
            uint64_t masked[words];
            for (unsigned w = 0; w < words; w++)
                masked[w] = key[w] & g->words[w];
            const uint64_t *bucket = group_bucket(g, masked, words);
            if (bucket[0] == 0)
                continue;
            struct entry *e = table_entry(t, (int64_t)bucket[0] - 1);
            if (e->rank > rank) {
                found = e;
                rank = e->rank;
            }
        }
    }
    return found;
}

#endif
