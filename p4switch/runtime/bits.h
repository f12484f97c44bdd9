/* Fields of packet headers in network byte order, and P4's arithmetic on native integers. */

#ifndef P4SWITCH_BITS_H
#define P4SWITCH_BITS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline, unused))

typedef unsigned __int128 uint128_t;
typedef __int128 int128_t;

#define U128(high, low) (((uint128_t)(high) << 64) | (low))

INLINE uint16_t load_be16(const uint8_t *p) { uint16_t v; memcpy(&v, p, 2); return __builtin_bswap16(v); }
INLINE uint32_t load_be32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return __builtin_bswap32(v); }
INLINE uint64_t load_be64(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return __builtin_bswap64(v); }
INLINE void store_be16(uint8_t *p, uint16_t v) { v = __builtin_bswap16(v); memcpy(p, &v, 2); }
INLINE void store_be32(uint8_t *p, uint32_t v) { v = __builtin_bswap32(v); memcpy(p, &v, 4); }
INLINE void store_be64(uint8_t *p, uint64_t v) { v = __builtin_bswap64(v); memcpy(p, &v, 8); }

/* Loads `count` bytes, 1 to 8, as one integer. `count` is a constant wherever this is used. */
INLINE uint64_t load_bytes(const uint8_t *p, unsigned count)
{
    switch (count) {
    case 1: return p[0];
    case 2: return load_be16(p);
    case 3: return (uint32_t)load_be16(p) << 8 | p[2];
    case 4: return load_be32(p);
    case 5: return (uint64_t)load_be32(p) << 8 | p[4];
    case 6: return (uint64_t)load_be32(p) << 16 | load_be16(p + 4);
    case 7: return (uint64_t)load_be32(p) << 24 | (uint32_t)load_be16(p + 4) << 8 | p[6];
    default: return load_be64(p);
    }
}

INLINE void store_bytes(uint8_t *p, unsigned count, uint64_t v)
{
    switch (count) {
    case 1: p[0] = (uint8_t)v; return;
    case 2: store_be16(p, (uint16_t)v); return;
    case 3: store_be16(p, (uint16_t)(v >> 8)), p[2] = (uint8_t)v; return;
    case 4: store_be32(p, (uint32_t)v); return;
    case 5: store_be32(p, (uint32_t)(v >> 8)), p[4] = (uint8_t)v; return;
    case 6: store_be32(p, (uint32_t)(v >> 16)), store_be16(p + 4, (uint16_t)v); return;
    case 7: store_be32(p, (uint32_t)(v >> 24)), store_be16(p + 4, (uint16_t)(v >> 8)), p[6] = (uint8_t)v; return;
    default: store_be64(p, v);
    }
}

INLINE uint64_t ones(unsigned width) { return width >= 64 ? ~0ull : (1ull << width) - 1; }

/* Returns the field of `width` bits (1 to 64) at bit `offset`. */
INLINE uint64_t get64(const uint8_t *header, unsigned offset, unsigned width)
{
    const uint8_t *p = header + offset / 8;
    unsigned bits = offset % 8 + width, count = (bits + 7) / 8;
    if (count > 8) /* up to 64 bits that extend over nine bytes */
        return ((load_be64(p) << (bits - 64)) | (p[8] >> (72 - bits))) & ones(width);
    return (load_bytes(p, count) >> (8 * count - bits)) & ones(width);
}

INLINE void put64(uint8_t *header, unsigned offset, unsigned width, uint64_t v)
{
    uint8_t *p = header + offset / 8;
    unsigned bits = offset % 8 + width, count = (bits + 7) / 8;
    if (offset % 8 == 0 && width == 64)
        store_be64(p, v);
    else if (offset % 8 == 0 && width == 32)
        store_be32(p, (uint32_t)v);
    else if (offset % 8 == 0 && width == 16)
        store_be16(p, (uint16_t)v);
    else if (count > 8) {
        uint64_t head = load_be64(p), shift = bits - 64;
        head = (head & ~(ones(width) >> shift)) | ((v & ones(width)) >> shift);
        p[8] = (uint8_t)((p[8] & (0xff >> shift)) | (v << (8 - shift)));
        store_be64(p, head);
    } else {
        unsigned shift = 8 * count - bits;
        uint64_t old = load_bytes(p, count) & ~(ones(width) << shift);
        store_bytes(p, count, old | ((v & ones(width)) << shift));
    }
}

INLINE uint32_t get32(const uint8_t *header, unsigned offset, unsigned width)
{
    return (uint32_t)get64(header, offset, width);
}

INLINE void put32(uint8_t *header, unsigned offset, unsigned width, uint32_t v) { put64(header, offset, width, v); }

/* Fields of 65 to 128 bits. */
INLINE uint128_t get128(const uint8_t *header, unsigned offset, unsigned width)
{
    return (uint128_t)get64(header, offset, width - 64) << 64 | get64(header, offset + width - 64, 64);
}

INLINE void put128(uint8_t *header, unsigned offset, unsigned width, uint128_t v)
{
    put64(header, offset, width - 64, (uint64_t)(v >> 64));
    put64(header, offset + width - 64, 64, (uint64_t)v);
}

/* Return the low `width` bits as a signed number. */
INLINE int32_t sign32(uint32_t v, unsigned width) { return (int32_t)(v << (32 - width)) >> (32 - width); }
INLINE int64_t sign64(uint64_t v, unsigned width) { return (int64_t)(v << (64 - width)) >> (64 - width); }
INLINE int128_t sign128(uint128_t v, unsigned width) { return (int128_t)(v << (128 - width)) >> (128 - width); }

/* P4 allows shifts by any amount; C only by less than the width. */
INLINE uint32_t shl32(uint32_t v, uint64_t n) { return n < 32 ? v << n : 0; }
INLINE uint64_t shl64(uint64_t v, uint64_t n) { return n < 64 ? v << n : 0; }
INLINE uint128_t shl128(uint128_t v, uint64_t n) { return n < 128 ? v << n : 0; }
INLINE uint32_t shr_u32(uint32_t v, uint64_t n) { return n < 32 ? v >> n : 0; }
INLINE uint64_t shr_u64(uint64_t v, uint64_t n) { return n < 64 ? v >> n : 0; }
INLINE uint128_t shr_u128(uint128_t v, uint64_t n) { return n < 128 ? v >> n : 0; }
INLINE int32_t shr_i32(int32_t v, uint64_t n) { return v >> (n < 31 ? n : 31); }
INLINE int64_t shr_i64(int64_t v, uint64_t n) { return v >> (n < 63 ? n : 63); }
INLINE int128_t shr_i128(int128_t v, uint64_t n) { return v >> (n < 127 ? n : 127); }

/* P4's |+| and |-| on int<32>, without a wider type and without a branch, so that gcc turns loops into few vector
 * instructions. A result has left the range exactly if its sign is wrong; it is then on the other side. */
INLINE int32_t saturated_i32(int32_t wrapped, int32_t overflow)
{
    int32_t mask = overflow >> 31, limit = wrapped >> 31 ^ INT32_MIN;
    return (wrapped & ~mask) | (limit & mask);
}

INLINE int32_t add_saturating_i32(int32_t a, int32_t b)
{
    int32_t sum = (int32_t)((uint32_t)a + (uint32_t)b);
    return saturated_i32(sum, (a ^ sum) & (b ^ sum));
}

INLINE int32_t subtract_saturating_i32(int32_t a, int32_t b)
{
    int32_t difference = (int32_t)((uint32_t)a - (uint32_t)b);
    return saturated_i32(difference, (a ^ b) & (a ^ difference));
}

/* P4 leaves division by zero undefined; the switch returns zero. These are functions because macros would evaluate
 * their arguments repeatedly, and more so when nested. */
#define ARITHMETIC(type)                                                                                               \
    INLINE type divide_##type(type a, type b) { return b ? a / b : 0; }                                                \
    INLINE type modulo_##type(type a, type b) { return b ? a % b : 0; }                                                \
    INLINE type clamp_##type(type v, type low, type high) { return v < low ? low : v > high ? high : v; }
ARITHMETIC(int32_t)
ARITHMETIC(uint32_t)
ARITHMETIC(int64_t)
ARITHMETIC(uint64_t)
ARITHMETIC(int128_t)
ARITHMETIC(uint128_t)

/* Returns the index of a stack's element; an index out of range selects the last one. */
INLINE uint64_t at_most(uint64_t index, uint64_t last) { return index < last ? index : last; }

#endif
