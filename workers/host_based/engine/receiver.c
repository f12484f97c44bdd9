/* The receiving end of a stream: transport.py's Receiver and its two subclasses. */

#include "streams.h"

#include <stdlib.h>
#include <string.h>

/* Returns a packet's number; -1, which has long arrived, for one that no stream reaches. */
static int64_t number_of(const uint8_t *datagram)
{
    uint64_t number = read_number(datagram + ENDS, 8);
    return number > INT64_MAX ? -1 : (int64_t)number;
}

/* Keeps the payload of a datagram for later; with its bytes, its call in front, only if that is wanted. */
static struct payload kept(struct streams *s, const uint8_t *datagram, int64_t size)
{
    struct payload found = {.size = size - HEADER_BYTES, .there = true};
    if (!s->keeps)
        return found;
    found.bytes = malloc((size_t)(found.size + CALL_BYTES));
    if (found.bytes)
        memcpy(found.bytes, datagram + HEADER_BYTES - CALL_BYTES, (size_t)(found.size + CALL_BYTES));
    else
        s->failed = true;
    found.there = found.bytes;
    return found;
}

/* Keeps a payload until it may be processed. */
static void keep_waiting(struct streams *s, struct receiver *in, struct payload payload)
{
    if (in->first == in->end)
        in->first = in->end = 0;
    if (make_room(s, &in->waiting, &in->room, in->end + 1, sizeof *in->waiting))
        in->waiting[in->end++] = payload;
}

static bool process_or_wait(struct streams *s, struct stream *stream, const uint8_t *datagram, int64_t size)
{
    struct receiver *in = &stream->in;
    if (in->first == in->end && s->process(s, stream, datagram + HEADER_BYTES - CALL_BYTES, size - HEADER_BYTES))
        return true;
    struct payload found = kept(s, datagram, size);
    if (found.there)
        keep_waiting(s, in, found);
    return false;
}

/* Keeps a packet that is early, unless it is there already or beyond the window. */
static void keep_early(struct streams *s, struct receiver *in, const uint8_t *datagram, int64_t size, int64_t number)
{
    size_t window = (size_t)s->settings->window;
    if (!in->early && !(in->early = calloc(window, sizeof *in->early))) {
        s->failed = true;
        return;
    }
    struct payload *place = in->early + (size_t)number % window;
    if (number - in->expected >= (int64_t)window || place->there) {
        s->settings->duplicate++;
        return;
    }
    *place = kept(s, datagram, size);
    if (!place->there)
        return;
    if (!in->kept++ || number > in->newest)
        in->newest = number;
}

/* Processes kept packets that are now next in order. */
static bool process_kept(struct streams *s, struct stream *stream)
{
    struct receiver *in = &stream->in;
    int64_t window = s->settings->window;
    bool applied = false;
    for (int64_t at = in->expected % window; in->kept && in->early[at].there; at = at + 1 < window ? at + 1 : 0) {
        struct payload *next = in->early + at;
        if (in->first == in->end && s->process(s, stream, next->bytes, next->size)) {
            applied = true;
            free(next->bytes);
        } else {
            keep_waiting(s, in, *next);
        }
        *next = (struct payload){0};
        in->kept--;
        in->expected++;
    }
    return applied;
}

/* Accepts packets that have arrived. It processes the payloads that are now in order, or appends them to those that wait. Sets
 * `applied` if it has processed any, and returns whether any are in order now. */
bool accept_packets(struct streams *s, struct stream *stream, const struct datagrams *datagrams, bool *applied)
{
    struct receiver *in = &stream->in;
    int64_t before = in->expected, count = datagrams->count, size = datagrams->size;
    if (in->answer < 0)
        in->answer = ACK;
    bool in_order = !in->kept;
    for (int64_t i = 0; i < count; i++) {
        in->marked += datagrams->marked[i];
        in_order &= number_of(datagrams->at[i]) == in->expected + i;
    }
    for (int64_t i = 0; i < count; i++) {
        const uint8_t *datagram = datagrams->at[i];
        int64_t number = number_of(datagram), ahead = number - in->expected;
        if (ahead < 0) {
            s->settings->duplicate++;
        } else if (in_order || (s->settings->transport == GO_BACK_N && !ahead)) {
            *applied |= process_or_wait(s, stream, datagram, size);
            in->expected++;
            if (!in_order)
                in->answer = ACK;
        } else if (s->settings->transport == SELECTIVE_REPEAT) {
            keep_early(s, in, datagram, size, number);
        } else {
            s->settings->early++;
            if (in->asked_for != in->expected) {
                in->asked_for = in->expected;
                in->answer = NAK;
            }
        }
    }
    if (in->kept)
        *applied |= process_kept(s, stream);
    return in->expected > before;
}

/* Sends the acknowledgement that is due, if any. */
void send_answer(struct streams *s, struct stream *stream)
{
    struct receiver *in = &stream->in;
    int kind = in->answer;
    int64_t window = s->settings->window, bits = in->kept ? in->newest - in->expected : 0, bytes = (bits + 7) / 8;
    in->answer = -1;
    if (kind < 0)
        return;
    uint8_t *const *to = s->batch(s->context, &stream->connection, true, 1, HEADER_BYTES + bytes);
    if (!to)
        return;
    uint8_t *bitmap = *to + HEADER_BYTES;
    write_header(stream, kind, (uint64_t)in->expected, (uint32_t)in->marked, *to);
    memset(bitmap, 0, (size_t)bytes);
    for (int64_t bit = 0, at = (in->expected + 1) % window; bit < bits; bit++) {
        bitmap[bit / 8] |= (uint8_t)(in->early[at].there << (7 - bit % 8));
        at = at + 1 < window ? at + 1 : 0;
    }
}
