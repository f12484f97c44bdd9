/* Meters, as BMv2 computes them: of up to two rates, committed and peak, each with a bucket of tokens that fills from
 * one fixed moment on. RFC 2698's colours: 0 green, 1 yellow, 2 red. */

#ifndef P4SWITCH_METER_H
#define P4SWITCH_METER_H

#include "bits.h"

struct meter_rate {
    double per_microsecond;
    uint64_t burst, tokens, last;
};

struct meter {
    uint64_t rates; /* 0: not configured, everything is green */
    uint64_t since; /* microseconds */
    struct meter_rate rate[2];
};

/* The peak's bucket comes first: a red packet takes from none, a yellow one from that bucket alone. */
__attribute__((unused)) static uint32_t meter_execute(struct meter *m, uint64_t amount, uint64_t now)
{
    for (uint64_t i = m->rates; i-- > 0;) {
        struct meter_rate *r = m->rate + i;
        uint64_t elapsed = now > m->since ? now - m->since : 0;
        uint64_t filled = (uint64_t)((double)elapsed * r->per_microsecond);
        uint64_t fresh = filled > r->last ? filled - r->last : 0;
        r->last = filled > r->last ? filled : r->last;
        r->tokens = fresh > r->burst - (r->tokens < r->burst ? r->tokens : r->burst) ? r->burst : r->tokens + fresh;
        if (r->tokens < amount)
            return (uint32_t)i + 1;
        r->tokens -= amount;
    }
    return 0;
}

#endif
