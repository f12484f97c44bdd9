/* Reports from a program to the control plane, apart from packets: digests, log messages and failed assertions. */

#ifndef P4SWITCH_REPORT_H
#define P4SWITCH_REPORT_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "switch.h"

#define MAX_REPORTED (16u << 20) /* bytes of digests that are not read yet; further ones are dropped */

/* Counts a packet that is dropped because of a limit, and prints a message the first time. */
__attribute__((unused, noinline, cold)) static void report_drop(uint64_t *counter, const char *why)
{
    if (++*counter == 1)
        fprintf(stderr, "p4switch: a packet is dropped: %s (further ones are only counted)\n", why);
}

/* Keeps a digest: list, length (4 bytes each, native), bytes. Wakes the thread that waits for it. */
UNUSED_STATIC void report_digest(struct switch_base *base, uint32_t list, const uint8_t *bytes, uint32_t length)
{
    struct reports *r = &base->digests;
    if (base->digest_event < 0 || r->used + 8 + length > MAX_REPORTED)
        return;
    if (r->used + 8 + length > r->capacity) {
        uint64_t capacity = 2 * (r->used + 8 + length);
        uint8_t *grown = realloc(r->bytes, capacity);
        if (!grown)
            return;
        r->bytes = grown;
        r->capacity = capacity;
    }
    uint32_t head[2] = {list, length};
    memcpy(r->bytes + r->used, head, 8);
    memcpy(r->bytes + r->used + 8, bytes, length);
    r->used += 8 + length;
    uint64_t one = 1;
    ssize_t written = write(base->digest_event, &one, sizeof one);
    (void)written;
}

#endif
