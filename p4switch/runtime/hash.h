/* The hash algorithms of v1model and simple_switch, on bytes in network order. */

#ifndef P4SWITCH_HASH_H
#define P4SWITCH_HASH_H

#include "bits.h"

#define UNUSED_STATIC static __attribute__((unused))

/* Returns the Internet checksum's sum (RFC 1071) of 16-bit words in memory order. An odd last byte is padded with
 * zero. It is not inlined, so that gcc vectorizes the loop: with a known length it would unroll it instead. */
static __attribute__((noinline, unused)) uint64_t checksum_sum_long(const uint8_t *p, uint32_t length)
{
    uint64_t sum = 0;
    uint32_t i = 0;
    for (; i + 4 <= length; i += 4) {
        uint32_t word;
        memcpy(&word, p + i, 4);
        sum += word;
    }
    for (; i < length; i += 2) {
        uint16_t word = p[i];
        if (i + 1 < length)
            memcpy(&word, p + i, 2);
        sum += word; /* little-endian: a single byte is the first of its word */
    }
    return sum;
}

INLINE uint64_t checksum_sum(const uint8_t *p, uint32_t length)
{
    if (!__builtin_constant_p(length) || length > 64)
        return checksum_sum_long(p, length);
    uint64_t sum = 0; /* of a header, where a vectorized loop takes longer */
    uint32_t i = 0;
    for (; i + 8 <= length; i += 8) {
        uint64_t words;
        memcpy(&words, p + i, 8);
        sum += words;
        sum += sum < words;
    }
    sum = (sum >> 32) + (uint32_t)sum;
    for (; i < length; i += 2) {
        uint16_t word = p[i];
        if (i + 1 < length)
            memcpy(&word, p + i, 2);
        sum += word;
    }
    return sum;
}

/* Reduces a sum to 16 bits; the result is 0 only if the sum is. Adding a number's halves to themselves in reverse
 * order leaves their sum and its carry in the upper half. */
INLINE uint16_t checksum_fold(uint64_t sum)
{
    sum += sum << 32 | sum >> 32;
    uint32_t half = (uint32_t)(sum >> 32);
    half += half << 16 | half >> 16;
    return (uint16_t)(half >> 16);
}

UNUSED_STATIC uint16_t hash_csum16(const uint8_t *p, uint32_t length)
{
    return (uint16_t)~__builtin_bswap16(checksum_fold(checksum_sum(p, length)));
}

/* Returns the checksum of words summed in memory order, and of numbers. */
INLINE uint16_t checksum_finish(uint64_t words, uint64_t numbers)
{
    return (uint16_t)~checksum_fold((uint64_t)__builtin_bswap16(checksum_fold(words)) + checksum_fold(numbers));
}

/* Completes a partial TCP or UDP checksum, `offset` bytes into its header. The packet ends at `end`. */
UNUSED_STATIC void complete_checksum(uint8_t *checksum, uint16_t offset, const uint8_t *end)
{
    uint8_t *header = checksum - offset;
    uint16_t sum = hash_csum16(header, (uint32_t)(end - header));
    store_be16(checksum, sum ? sum : 0xffff); /* RFC 768: 0 would mean that there is no checksum */
}

/* Bitwise CRCs, least significant bit first (reflected), as CRC-16/ARC and CRC-32 are. */
UNUSED_STATIC uint32_t crc_reflected(uint32_t crc, uint32_t polynomial, const uint8_t *p, uint32_t length)
{
    for (uint32_t i = 0; i < length; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? polynomial : 0);
    }
    return crc;
}

UNUSED_STATIC uint16_t hash_crc16(const uint8_t *p, uint32_t length) { return (uint16_t)crc_reflected(0, 0xa001, p, length); }

UNUSED_STATIC uint32_t hash_crc32(const uint8_t *p, uint32_t length)
{
    return ~crc_reflected(0xffffffffu, 0xedb88320u, p, length);
}

/* CRC-16/CCITT-FALSE, most significant bit first. */
UNUSED_STATIC uint16_t hash_crcCCITT(const uint8_t *p, uint32_t length)
{
    uint16_t crc = 0xffff;
    for (uint32_t i = 0; i < length; i++) {
        crc ^= (uint16_t)(p[i] << 8);
        for (int bit = 0; bit < 8; bit++)
            crc = (uint16_t)(crc << 1 ^ (crc & 0x8000 ? 0x1021 : 0));
    }
    return crc;
}

/* CRC-8, which crc8_custom is until it is configured. */
UNUSED_STATIC uint8_t hash_crc8(const uint8_t *p, uint32_t length)
{
    uint8_t crc = 0;
    for (uint32_t i = 0; i < length; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++)
            crc = (uint8_t)(crc << 1 ^ (crc & 0x80 ? 0x07 : 0));
    }
    return crc;
}

/* The polynomial of CRC-64/GO-ISO without its inversions, as in crc64_custom. */
UNUSED_STATIC uint64_t hash_crc64(const uint8_t *p, uint32_t length)
{
    uint64_t crc = 0;
    for (uint32_t i = 0; i < length; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xd800000000000000ull : 0);
    }
    return crc;
}

/* FNV-1a of signed bytes and a final mix. */
UNUSED_STATIC uint32_t hash_ex(const uint8_t *p, uint32_t length)
{
    uint32_t hash = 2166136261u;
    for (uint32_t i = 0; i < length; i++)
        hash = (hash ^ (uint32_t)(int8_t)p[i]) * 16777619u;
    hash += hash << 13;
    hash ^= hash >> 7;
    hash += hash << 3;
    hash ^= hash >> 17;
    return hash + (hash << 5);
}

/* XXH64 with the seed 0 (xxHash specification). */
INLINE uint64_t xxh64_little(const uint8_t *p, unsigned count)
{
    uint64_t v = 0;
    memcpy(&v, p, count);
    return v;
}

INLINE uint64_t xxh64_turned(uint64_t v, unsigned by) { return v << by | v >> (64 - by); }

UNUSED_STATIC uint64_t hash_xxh64(const uint8_t *p, uint32_t length)
{
    const uint64_t prime[5] = {0x9e3779b185ebca87ull, 0xc2b2ae3d27d4eb4full, 0x165667b19e3779f9ull,
                               0x85ebca77c2b2ae63ull, 0x27d4eb2f165667c5ull};
    uint64_t lane[4] = {prime[0] + prime[1], prime[1], 0, 0 - prime[0]}, hash = prime[4];
    uint32_t left = length;
    for (; left >= 32; left -= 32)
        for (unsigned i = 0; i < 4; i++, p += 8)
            lane[i] = xxh64_turned(lane[i] + xxh64_little(p, 8) * prime[1], 31) * prime[0];
    if (length >= 32) {
        const unsigned turns[4] = {1, 7, 12, 18};
        hash = 0;
        for (unsigned i = 0; i < 4; i++)
            hash += xxh64_turned(lane[i], turns[i]);
        for (unsigned i = 0; i < 4; i++) {
            hash ^= xxh64_turned(lane[i] * prime[1], 31) * prime[0];
            hash = hash * prime[0] + prime[3];
        }
    }
    hash += length;
    for (; left >= 8; left -= 8, p += 8) {
        hash ^= xxh64_turned(xxh64_little(p, 8) * prime[1], 31) * prime[0];
        hash = xxh64_turned(hash, 27) * prime[0] + prime[3];
    }
    for (; left >= 4; left -= 4, p += 4) {
        hash ^= xxh64_little(p, 4) * prime[0];
        hash = xxh64_turned(hash, 23) * prime[1] + prime[2];
    }
    for (; left > 0; left--, p++)
        hash = xxh64_turned(hash ^ *p * prime[4], 11) * prime[0];
    hash = (hash ^ hash >> 33) * prime[1];
    hash = (hash ^ hash >> 29) * prime[2];
    return hash ^ hash >> 32;
}

UNUSED_STATIC uint16_t hash_xor16(const uint8_t *p, uint32_t length)
{
    uint16_t value = 0;
    for (uint32_t i = 0; i < length; i++)
        value ^= (uint16_t)(i % 2 ? p[i] : p[i] << 8);
    return value;
}

UNUSED_STATIC uint32_t hash_xor32(const uint8_t *p, uint32_t length)
{
    uint32_t value = 0;
    for (uint32_t i = 0; i < length; i++)
        value ^= (uint32_t)p[i] << (24 - 8 * (i % 4));
    return value;
}

/* Returns the first bytes, at most eight, as a number. */
UNUSED_STATIC uint64_t hash_identity(const uint8_t *p, uint32_t length)
{
    uint64_t value = 0;
    for (uint32_t i = 0; i < 8 && i < length; i++)
        value = value << 8 | p[i];
    return value;
}

#endif
