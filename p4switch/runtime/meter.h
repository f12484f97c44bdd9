/* Meters as in BMv2: with up to two rates, committed and peak, each with a bucket of tokens that fills from time
 * zero (RFC 2698); or with a single rate, whose tokens fill an excess bucket when the committed one is full (RFC
 * 2697). Colours: 0 green, 1 yellow, 2 red. */

#ifndef P4SWITCH_METER_H
#define P4SWITCH_METER_H

#include "switch.h"

struct meter_rate {
    double per_microsecond;
    uint64_t burst, tokens, last;
    uint64_t per_second; /* as configured, for the control plane */
};

struct meter {
    uint64_t rates;  /* 0: not configured, everything is green */
    uint64_t excess; /* not 0: rate[1] is the excess bucket of rate[0] */
    struct meter_rate rate[2];
    struct counter count[3]; /* by colour */
};

/* Returns the tokens since the last packet. */
INLINE uint64_t meter_fresh(struct meter_rate *r, uint64_t now)
{
    double all = (double)now * r->per_microsecond;
    if (all >= 0x1p63) /* a rate that fills any bucket at once */
        return 1ull << 63;
    uint64_t filled = (uint64_t)all;
    uint64_t fresh = filled > r->last ? filled - r->last : 0;
    r->last += fresh;
    return fresh;
}

/* Puts tokens into a bucket. Returns those that do not fit. */
INLINE uint64_t meter_fill(struct meter_rate *r, uint64_t tokens)
{
    uint64_t room = r->burst - r->tokens;
    r->tokens = tokens > room ? r->burst : r->tokens + tokens;
    return tokens > room ? tokens - room : 0;
}

INLINE bool meter_take(struct meter_rate *r, uint64_t amount)
{
    if (r->tokens < amount)
        return false;
    r->tokens -= amount;
    return true;
}

__attribute__((unused)) static uint32_t meter_execute(struct meter *m, uint64_t amount, uint64_t bytes, uint64_t now)
{
    uint32_t color = 0;
    if (m->excess) {
        meter_fill(m->rate + 1, meter_fill(m->rate, meter_fresh(m->rate, now)));
        while (color < 2 && !meter_take(m->rate + color, amount))
            color++;
    } else {
        /* The peak bucket comes first: a red packet takes no tokens, a yellow one only from that bucket. */
        for (uint32_t i = (uint32_t)m->rates; i > 0 && color == 0; i--) {
            struct meter_rate *r = m->rate + i - 1;
            meter_fill(r, meter_fresh(r, now));
            color = meter_take(r, amount) ? 0 : i;
        }
    }
    m->count[color].packets++;
    m->count[color].bytes += bytes;
    return color;
}

#endif
