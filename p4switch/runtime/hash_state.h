/* Hash algorithms that keep state between packets, separately for each calculation, as in BMv2. */

#ifndef P4SWITCH_HASH_STATE_H
#define P4SWITCH_HASH_STATE_H

#include <stdlib.h>

#include "hash.h"

#define MAX_KEY_WORDS 64
#define MAX_SEEN (1u << 20) /* inputs that are stored */
#define FIRST_SEEN 64

struct seen {
    bool used;
    uint64_t input[2]; /* 128 bits of hash */
    uint64_t number;
};

struct hash_state {
    uint64_t next;     /* the result of round_robin */
    struct seen *seen; /* for round_robin_consistent: an open hash table, at least half empty */
    uint64_t places;
    uint32_t key_words; /* of toeplitz */
    uint32_t key[MAX_KEY_WORDS];
    bool crc_set; /* of crc16_custom and crc32_custom; before, they are crc16 and crc32 */
    bool reflects_input, reflects_output;
    uint32_t polynomial, initial, final;
};

/* Returns so many of the lowest bits in reverse order. */
INLINE uint32_t reversed(uint32_t bits, unsigned width)
{
    uint32_t result = 0;
    for (unsigned i = 0; i < width; i++)
        result = result << 1 | (bits >> i & 1);
    return result;
}

/* A CRC of 16 or 32 bits with the parameters that the control plane has set, in Williams' model (A painless guide to
 * CRC error detection algorithms, 1993). */
INLINE uint32_t crc_custom(const struct hash_state *h, unsigned width, const uint8_t *p, uint32_t length)
{
    uint32_t top = 1u << (width - 1), all = top | (top - 1), crc = h->initial & all;
    for (uint32_t i = 0; i < length; i++) {
        uint32_t byte = h->reflects_input ? reversed(p[i], 8) : p[i];
        crc ^= byte << (width - 8);
        for (int bit = 0; bit < 8; bit++)
            crc = (crc << 1 ^ (crc & top ? h->polynomial : 0)) & all;
    }
    return ((h->reflects_output ? reversed(crc, width) : crc) ^ h->final) & all;
}

UNUSED_STATIC uint16_t hash_crc16_custom(const struct hash_state *h, const uint8_t *p, uint32_t length)
{
    return h->crc_set ? (uint16_t)crc_custom(h, 16, p, length) : hash_crc16(p, length);
}

UNUSED_STATIC uint32_t hash_crc32_custom(const struct hash_state *h, const uint8_t *p, uint32_t length)
{
    return h->crc_set ? crc_custom(h, 32, p, length) : hash_crc32(p, length);
}

/* Toeplitz (RSS). The key is repeated for a longer input. Without a key the result is 0. */
UNUSED_STATIC uint32_t hash_toeplitz(struct hash_state *h, const uint8_t *p, uint32_t length)
{
    uint32_t result = 0;
    for (uint32_t i = 0; h->key_words > 0 && 4 * i < length; i++) {
        uint8_t padded[4] = {0};
        memcpy(padded, p + 4 * i, length - 4 * i < 4 ? length - 4 * i : 4);
        uint64_t window = (uint64_t)h->key[i % h->key_words] << 32 | h->key[(i + 1) % h->key_words];
        for (uint32_t word = load_be32(padded); word; word &= word - 1)
            result ^= (uint32_t)(window >> (1 + __builtin_ctz(word)));
    }
    return result;
}

/* Returns 0, 1, 2, ... for any input. */
UNUSED_STATIC uint64_t hash_round_robin(struct hash_state *h, const uint8_t *p, uint32_t length)
{
    (void)p, (void)length;
    return h->next++;
}

/* Returns the place of an input, or the empty place where it belongs. */
INLINE struct seen *seen_place(struct seen *seen, uint64_t places, const uint64_t *input)
{
    uint64_t i = input[0] & (places - 1);
    while (seen[i].used && (seen[i].input[0] != input[0] || seen[i].input[1] != input[1]))
        i = (i + 1) & (places - 1);
    return seen + i;
}

UNUSED_STATIC bool seen_grow(struct hash_state *h)
{
    uint64_t places = h->places ? 2 * h->places : FIRST_SEEN;
    struct seen *seen = calloc(places, sizeof *seen);
    if (!seen)
        return false;
    for (uint64_t i = 0; i < h->places; i++)
        if (h->seen[i].used)
            *seen_place(seen, places, h->seen[i].input) = h->seen[i];
    free(h->seen);
    h->seen = seen;
    h->places = places;
    return true;
}

/* Returns the next number for a new input, and the same number as before for a known one. */
UNUSED_STATIC uint64_t hash_round_robin_consistent(struct hash_state *h, const uint8_t *p, uint32_t length)
{
    const uint64_t input[2] = {hash_xxh64(p, length), (uint64_t)hash_ex(p, length) << 32 | hash_crc32(p, length)};
    if (2 * h->next >= h->places && h->next < MAX_SEEN && !seen_grow(h))
        return 0; /* no memory for more */
    struct seen *place = seen_place(h->seen, h->places, input);
    if (!place->used && h->next >= MAX_SEEN)
        return input[0] % MAX_SEEN; /* also consistent, but shared with other inputs */
    if (!place->used)
        *place = (struct seen){true, {input[0], input[1]}, h->next++};
    return place->number;
}

#endif
