/* The receiving end of a stream: transport.py's Receiver and its two subclasses. */

#include "peers.h"

#include <stdlib.h>
#include <string.h>

/* Returns a packet's number; -1, which has long arrived, for one that no stream reaches. */
static int64_t number_of(const uint8_t *datagram)
{
    uint64_t number = read_number(datagram + ENDS, 8);
    return number > INT64_MAX ? -1 : (int64_t)number;
}

/* Copies the payload of a datagram, with its call in front. */
static struct payload copied(struct state *s, const uint8_t *datagram, int64_t size)
{
    struct payload found = {size - HEADER_BYTES, malloc((size_t)(size - HEADER_BYTES + CALL_BYTES))};
    if (found.bytes)
        memcpy(found.bytes, datagram + HEADER_BYTES - CALL_BYTES, (size_t)(found.size + CALL_BYTES));
    else
        s->failed = true;
    return found;
}

/* Keeps a payload until its piece may be processed. */
static void keep_waiting(struct state *s, struct receiver *in, struct payload payload)
{
    if (in->first == in->end)
        in->first = in->end = 0;
    if (make_room(s, &in->waiting, &in->room, in->end + 1, sizeof *in->waiting))
        in->waiting[in->end++] = payload;
}

static bool process_or_wait(struct state *s, struct flow *flow, const uint8_t *datagram, int64_t size)
{
    struct receiver *in = &flow->in;
    if (in->first == in->end && process_payload(s, flow, datagram + HEADER_BYTES - CALL_BYTES, size - HEADER_BYTES))
        return true;
    struct payload found = copied(s, datagram, size);
    if (found.bytes)
        keep_waiting(s, in, found);
    return false;
}

/* Accepts packets that have arrived, [count, size] bytes. It processes the payloads that are now in order, or appends them to
 * those that wait. Sets `applied` if it has processed any, and returns whether any are in order now. */
bool accept_packets(struct state *s, struct flow *flow, const uint8_t *datagrams, int64_t count, int64_t size, int64_t marked,
                    bool *applied)
{
    struct receiver *in = &flow->in;
    int64_t window = s->worker->window, before = in->expected;
    in->marked += marked;
    if (in->answer < 0)
        in->answer = ACK;
    bool in_order = !in->kept;
    for (int64_t i = 0; i < count && in_order; i++)
        in_order = number_of(datagrams + i * size) == in->expected + i;
    for (int64_t i = 0; i < count; i++) {
        const uint8_t *datagram = datagrams + i * size;
        int64_t number = number_of(datagram), ahead = number - in->expected;
        if (s->worker->transport == GO_BACK_N) {
            if (ahead < 0) {
                s->worker->duplicate++;
            } else if (ahead > 0) {
                s->worker->early++;
                if (in->asked_for != in->expected) {
                    in->asked_for = in->expected;
                    in->answer = NAK;
                }
            } else {
                *applied |= process_or_wait(s, flow, datagram, size);
                in->expected++;
                if (!in_order)
                    in->answer = ACK;
            }
        } else if (ahead < 0 || ahead >= window || in->early[number % window].bytes) {
            s->worker->duplicate++;
        } else if (in_order) {
            *applied |= process_or_wait(s, flow, datagram, size);
            in->expected++;
        } else if ((in->early[number % window] = copied(s, datagram, size)).bytes) {
            in->kept++;
        }
    }
    while (in->kept && in->early[in->expected % window].bytes) {
        struct payload *next = in->early + in->expected % window;
        if (in->first == in->end && process_payload(s, flow, next->bytes, next->size)) {
            *applied = true;
            free(next->bytes);
        } else {
            keep_waiting(s, in, *next);
        }
        next->bytes = NULL;
        in->kept--;
        in->expected++;
    }
    return in->expected > before;
}

/* Adds the acknowledgement that is due, if any. */
void send_answer(struct state *s, struct flow *flow)
{
    struct receiver *in = &flow->in;
    int kind = in->answer;
    int64_t window = s->worker->window, bytes = 0;
    in->answer = -1;
    if (kind < 0)
        return;
    if (in->kept)
        for (int64_t i = 1; i < window; i++)
            if (in->early[(in->expected + i) % window].bytes)
                bytes = (i - 1) / 8 + 1;
    uint8_t *to = add_batch(s, flow, kind, 1, HEADER_BYTES + bytes);
    if (!to)
        return;
    put_header(s, flow, kind, (uint64_t)in->expected, (uint32_t)in->marked, to);
    memset(to + HEADER_BYTES, 0, (size_t)bytes);
    for (int64_t i = 1; i < window && bytes; i++)
        if (in->early[(in->expected + i) % window].bytes)
            to[HEADER_BYTES + (i - 1) / 8] |= (uint8_t)(0x80 >> (i - 1) % 8);
}
