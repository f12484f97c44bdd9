/* Numbers too large for C's integers: two's complement in WIDE_WORDS words of 64 bits, the low one first. The
 * program defines WIDE_WORDS so that none of its results overflows. */

#ifndef P4SWITCH_WIDE_H
#define P4SWITCH_WIDE_H

#include "bits.h"

#define WIDE_FUNCTION static __attribute__((unused, noinline)) /* noinline: compiles much faster, and they are rare */

typedef struct {
    uint64_t word[WIDE_WORDS];
} wide_t;

WIDE_FUNCTION wide_t wide_of_unsigned(uint128_t v) { return (wide_t){{(uint64_t)v, (uint64_t)(v >> 64)}}; }

WIDE_FUNCTION wide_t wide_of_signed(int128_t v)
{
    wide_t wide = wide_of_unsigned((uint128_t)v);
    for (unsigned i = 2; v < 0 && i < WIDE_WORDS; i++)
        wide.word[i] = ~0ull;
    return wide;
}

/* Returns the low 128 bits. */
WIDE_FUNCTION uint128_t wide_low(wide_t v) { return U128(v.word[1], v.word[0]); }

WIDE_FUNCTION bool wide_negative(wide_t v) { return v.word[WIDE_WORDS - 1] >> 63; }

/* Access fields of over 128 bits, like get64 and put64 of bits.h. */
WIDE_FUNCTION wide_t getwide(const uint8_t *header, unsigned offset, unsigned width)
{
    wide_t v = {{0}};
    unsigned i = 0;
    for (; width > 64; width -= 64)
        v.word[i++] = get64(header, offset + width - 64, 64);
    v.word[i] = get64(header, offset, width);
    return v;
}

WIDE_FUNCTION void putwide(uint8_t *header, unsigned offset, unsigned width, wide_t v)
{
    unsigned i = 0;
    for (; width > 64; width -= 64)
        put64(header, offset + width - 64, 64, v.word[i++]);
    put64(header, offset, width, v.word[i]);
}

/* Returns the low `width` bits; the others become `fill`, zeros or ones. */
WIDE_FUNCTION wide_t wide_filled(wide_t v, unsigned width, uint64_t fill)
{
    for (unsigned i = width / 64; i < WIDE_WORDS; i++) {
        uint64_t kept = i == width / 64 ? ones(width % 64) : 0;
        v.word[i] = (v.word[i] & kept) | (fill & ~kept);
    }
    return v;
}

WIDE_FUNCTION wide_t wide_cut(wide_t v, unsigned width) { return wide_filled(v, width, 0); }

/* Returns the low `width` bits as a signed number. */
WIDE_FUNCTION wide_t signwide(wide_t v, unsigned width)
{
    bool negative = v.word[(width - 1) / 64] >> ((width - 1) % 64) & 1;
    return wide_filled(v, width, negative ? ~0ull : 0);
}

#define WIDE_BY_WORD(name, expression)                                                                                 \
    WIDE_FUNCTION wide_t name(wide_t a, wide_t b)                                                                      \
    {                                                                                                                  \
        for (unsigned i = 0; i < WIDE_WORDS; i++)                                                                      \
            a.word[i] = expression;                                                                                    \
        return a;                                                                                                      \
    }
WIDE_BY_WORD(wide_and, a.word[i] & b.word[i])
WIDE_BY_WORD(wide_or, a.word[i] | b.word[i])
WIDE_BY_WORD(wide_xor, a.word[i] ^ b.word[i])

WIDE_FUNCTION wide_t wide_not(wide_t v)
{
    for (unsigned i = 0; i < WIDE_WORDS; i++)
        v.word[i] = ~v.word[i];
    return v;
}

WIDE_FUNCTION wide_t wide_add(wide_t a, wide_t b)
{
    uint128_t sum = 0;
    for (unsigned i = 0; i < WIDE_WORDS; i++) {
        sum += (uint128_t)a.word[i] + b.word[i];
        a.word[i] = (uint64_t)sum;
        sum >>= 64;
    }
    return a;
}

WIDE_FUNCTION wide_t wide_subtract(wide_t a, wide_t b)
{
    return wide_add(wide_add(a, wide_not(b)), wide_of_unsigned(1));
}

WIDE_FUNCTION wide_t wide_multiply(wide_t a, wide_t b)
{
    wide_t product = {{0}};
    for (unsigned i = 0; i < WIDE_WORDS; i++) {
        if (!a.word[i])
            continue; /* mostly: few numbers are as wide as the program's widest */
        uint128_t carry = 0;
        for (unsigned j = 0; i + j < WIDE_WORDS; j++) {
            carry += (uint128_t)a.word[i] * b.word[j] + product.word[i + j];
            product.word[i + j] = (uint64_t)carry;
            carry >>= 64;
        }
    }
    return product;
}

WIDE_FUNCTION wide_t wide_shift_left(wide_t v, uint64_t by)
{
    wide_t shifted = {{0}};
    for (uint64_t i = by / 64; i < WIDE_WORDS; i++) {
        uint64_t from = i - by / 64;
        shifted.word[i] = v.word[from] << by % 64;
        if (by % 64 && from > 0)
            shifted.word[i] |= v.word[from - 1] >> (64 - by % 64);
    }
    return shifted;
}

WIDE_FUNCTION wide_t wide_shift_right(wide_t v, uint64_t by)
{
    uint64_t sign = wide_negative(v) ? ~0ull : 0;
    wide_t shifted;
    for (unsigned i = 0; i < WIDE_WORDS; i++) {
        uint64_t from = by / 64 + i;
        uint64_t low = from < WIDE_WORDS ? v.word[from] : sign, high = from + 1 < WIDE_WORDS ? v.word[from + 1] : sign;
        shifted.word[i] = by % 64 ? low >> by % 64 | high << (64 - by % 64) : low;
    }
    return shifted;
}

WIDE_FUNCTION bool wide_equal(wide_t a, wide_t b) { return memcmp(&a, &b, sizeof a) == 0; }

WIDE_FUNCTION bool wide_less(wide_t a, wide_t b)
{
    if (wide_negative(a) != wide_negative(b))
        return wide_negative(a);
    unsigned i = WIDE_WORDS - 1;
    while (i > 0 && a.word[i] == b.word[i])
        i--;
    return a.word[i] < b.word[i];
}

WIDE_FUNCTION wide_t clamp_wide_t(wide_t v, wide_t low, wide_t high)
{
    return wide_less(v, low) ? low : wide_less(high, v) ? high : v;
}

/* Returns the quotient or remainder of numbers that are not negative; zero for division by zero, as in bits.h. */
WIDE_FUNCTION wide_t wide_divided(wide_t a, wide_t b, bool want_rest)
{
    wide_t quotient = {{0}}, rest = {{0}};
    for (unsigned i = 64 * WIDE_WORDS; wide_less(wide_of_unsigned(0), b) && i-- > 0;) {
        rest = wide_shift_left(rest, 1);
        rest.word[0] |= a.word[i / 64] >> i % 64 & 1;
        if (!wide_less(rest, b)) {
            rest = wide_subtract(rest, b);
            quotient.word[i / 64] |= 1ull << i % 64;
        }
    }
    return want_rest ? rest : quotient;
}

WIDE_FUNCTION wide_t divide_wide_t(wide_t a, wide_t b) { return wide_divided(a, b, false); }
WIDE_FUNCTION wide_t modulo_wide_t(wide_t a, wide_t b) { return wide_divided(a, b, true); }

#endif
