/* Hosts whose stations leave their packets to C: it parses frames, lets the worker take its turn, and frames its packets. */

#include "loop.h"

#include <stdlib.h>
#include <string.h>

#define EXACT ((int64_t)1 << 53) /* beyond it a double is not exact to the picosecond */

/* Whether a frame is certainly the station's; Python decides about all others. */
static bool is_ours(const struct station *s, const uint8_t *frame)
{
    if (memcmp(frame + TYPE, s->type, sizeof s->type) || frame[PROTOCOL] != s->protocol ||
        memcmp(frame + IP_SOURCE, s->ends, sizeof s->ends) || frame[UDP_CHECKSUM] || frame[UDP_CHECKSUM + 1])
        return false;
    uint32_t sum = 0;
    for (int i = IP; i < UDP; i += 2)
        sum += (uint32_t)frame[i] << 8 | frame[i + 1];
    return sum % 0xffff == 0;
}

/* Gathers the datagrams of `count` events. Returns false if they differ in size, are not all the station's, or there is no
 * memory. */
static bool gather(struct loop *l, const struct station *s, const struct event *events, size_t count, struct turn *t)
{
    uint32_t length = l->rows.lengths[events->row];
    if (length <= PAYLOAD)
        return false;
    size_t size = length - PAYLOAD;
    if (count * size > l->gather_room) {
        uint8_t *gathered = realloc(l->gathered, 2 * count * size);
        if (!gathered)
            return false;
        l->gathered = gathered;
        l->gather_room = 2 * count * size;
    }
    for (size_t i = 0; i < count; i++) {
        if (i + 1 < count)
            expect_row(&l->rows, events[i + 1].row);
        const uint8_t *frame = row_bytes(&l->rows, events[i].row);
        if (l->rows.lengths[events[i].row] != length || !is_ours(s, frame))
            return false;
        memcpy(l->gathered + i * size, frame + PAYLOAD, size);
        t->marked += (frame[TOS] & ECN_MARKED) == ECN_MARKED;
    }
    t->datagrams = l->gathered;
    t->count = (int64_t)count;
    t->size = (int64_t)size;
    return true;
}

static void send_framed(struct loop *l, uint32_t host, const struct turn *t, int64_t now)
{
    const struct station *s = l->hosts[host].station;
    const uint8_t *header = s->headers[t->sent_size == s->sizes[0] ? 0 : 1];
    uint32_t row, length = (uint32_t)(PAYLOAD + t->sent_size);
    for (int64_t i = 0; i < t->sent && add_row(l, length, &row); i++) {
        uint8_t *frame = row_bytes(&l->rows, row);
        memcpy(frame, header, PAYLOAD);
        memcpy(frame + PAYLOAD, t->packets + t->places[i] * t->sent_size, (size_t)t->sent_size);
        send_packet(l, l->hosts[host].link, now, row, NOBODY);
    }
}

/* Returns the first picosecond that, in seconds, is not before `seconds`, or NEVER: units.py. */
int64_t not_before(double seconds)
{
    if (seconds * SECOND >= (double)NEVER)
        return NEVER;
    int64_t nearest = (int64_t)__builtin_rint(seconds * SECOND);
    return (double)nearest / SECOND >= seconds ? nearest : nearest + 1;
}

/* Does what a host does when it wakes at `now`, as far as C can. */
enum outcome wake_station(struct loop *l, uint32_t host, int64_t now)
{
    struct host *h = l->hosts + host;
    const struct station *s = h->station;
    if (now >= EXACT)
        return UNTOUCHED;
    struct events *inbox = &h->inbox;
    size_t count = loop_waiting(l, host, now);
    struct turn turn = {.now = (double)now / SECOND, .give_up = s->give_up};
    if (count && !gather(l, s, inbox->at + inbox->first, count, &turn))
        return UNTOUCHED;
    enum outcome outcome = s->turn(s->worker, &turn);
    if (outcome == UNTOUCHED)
        return UNTOUCHED;
    for (size_t i = 0; i < count; i++)
        free_row(l, inbox->at[inbox->first++].row);
    send_framed(l, host, &turn, now);
    if (outcome == TAKEN || turn.deadline * SECOND >= (double)EXACT)
        return TAKEN;
    int64_t timer = not_before(turn.deadline);
    loop_set_timer(l, host, timer > now ? timer : now + 1);
    return DONE;
}
