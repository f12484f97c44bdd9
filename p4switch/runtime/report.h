/* Reports from a program to the control plane, apart from packets: digests, log messages and failed assertions. */

#ifndef P4SWITCH_REPORT_H
#define P4SWITCH_REPORT_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "switch.h"

/* Bytes that are not read yet; what follows is dropped. */
#define MAX_DIGESTS (16u << 20)
#define MAX_MESSAGES (256u << 10)

/* Appends a record: number, length (4 bytes each, native), bytes. Returns false if there is no room. */
UNUSED_STATIC bool report(struct reports *r, uint64_t most, uint32_t number, const void *bytes, uint32_t length)
{
    if (r->used + 8 + length > most)
        return false;
    if (r->used + 8 + length > r->capacity) {
        uint64_t capacity = 2 * (r->used + 8 + length);
        uint8_t *grown = realloc(r->bytes, capacity);
        if (!grown)
            return false;
        r->bytes = grown;
        r->capacity = capacity;
    }
    uint32_t head[2] = {number, length};
    memcpy(r->bytes + r->used, head, 8);
    if (length)
        memcpy(r->bytes + r->used + 8, bytes, length);
    r->used += 8 + length;
    return true;
}

/* Wakes the thread that waits for an eventfd. */
UNUSED_STATIC void report_wake(int32_t event)
{
    uint64_t one = 1;
    ssize_t written = write(event, &one, sizeof one);
    (void)written;
}

UNUSED_STATIC void report_digest(struct switch_base *base, uint32_t list, const uint8_t *bytes, uint32_t length)
{
    if (base->digest_event >= 0 && report(&base->digests, MAX_DIGESTS, list, bytes, length))
        report_wake(base->digest_event);
}

UNUSED_STATIC void keep_message(struct switch_base *base, uint32_t number, const void *bytes, uint32_t length)
{
    bool first = !base->messages.used;
    if (base->trace && base->trace->logs)
        return;
    if (!report(&base->messages, MAX_MESSAGES, number, bytes, length))
        base->messages_lost++;
    else if (first && base->message_event >= 0)
        report_wake(base->message_event);
}

/* Keeps the message of a statement, with the values in it. */
__attribute__((unused, noinline, cold)) static void report_message(struct switch_base *base, uint32_t statement,
                                                                   const uint64_t *words, uint32_t count)
{
    keep_message(base, statement, words, 8 * count);
}

/* Counts a packet that is dropped, and reports the first one: to stderr if nobody waits for messages. */
__attribute__((unused, noinline, cold)) static void report_drop(struct switch_base *base, uint64_t *counter,
                                                                const char *why)
{
    if (++*counter > 1)
        return;
    if (base->message_event < 0)
        fprintf(stderr, "p4switch: a packet is dropped: %s (further ones are only counted)\n", why);
    else
        keep_message(base, MESSAGE_OF_DROP, why, (uint32_t)strlen(why));
}

/* Counts and reports a failed assertion. */
__attribute__((unused, noinline, cold)) static void report_failure(struct switch_base *base, uint32_t statement,
                                                                   const char *why)
{
    if (base->message_event < 0) {
        report_drop(base, &base->failures, why);
        return;
    }
    base->failures++;
    keep_message(base, statement, NULL, 0);
}

#endif
