/* What senders and receivers of streams have in common. */

#include "streams.h"
#include "shared.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

SHARE_STRUCT(settings,
             FIELD(initial_rto) FIELD(min_rto) FIELD(max_rto) FIELD(granularity) FIELD(transport) FIELD(window)
             FIELD(packet_threshold) FIELD(payload) FIELD(control) FIELD(gain) FIELD(alpha) FIELD(least) FIELD(first_window)
             FIELD(initial_ssthresh) FIELD(always) FIELD(rate) FIELD(packet_bits) FIELD(alpha_interval)
             FIELD(decrease_interval) FIELD(increase_interval) FIELD(additive_rate) FIELD(hyper_rate) FIELD(min_rate)
             FIELD(fast_recovery) FIELD(by_timer) FIELD(keep_target) FIELD(retransmissions) FIELD(timeouts)
             FIELD(malformed) FIELD(duplicate) FIELD(early))
SHARE_NUMBER(MAX_PAYLOAD);
SHARE_NUMBER(HEADER_BYTES);
SHARE_NUMBER(FRAME_HEADER);
SHARE_NUMBER(CALL_BYTES);
SHARE_NUMBER(ENDS);
SHARE_NUMBER(MIN_FLIGHT);
SHARE_NUMBER(MAX_BACKOFF);
SHARE_NUMBER(DATA);
SHARE_NUMBER(ACK);
SHARE_NUMBER(NAK);

/* Makes room for `needed` elements of `size` bytes; `array` points to the pointer to them. */
bool make_room(struct streams *s, void *array, size_t *room, size_t needed, size_t size)
{
    if (needed <= *room)
        return true;
    void *before, *after;
    memcpy(&before, array, sizeof before);
    after = realloc(before, 2 * needed * size);
    if (!after) {
        s->failed = true;
        return false;
    }
    memcpy(array, &after, sizeof after);
    *room = 2 * needed;
    return true;
}

uint64_t read_number(const uint8_t *from, int bytes)
{
    uint64_t found = 0;
    while (bytes--)
        found = found << 8 | *from++;
    return found;
}

static void write_number(uint8_t *to, uint64_t value, int bytes)
{
    while (bytes--) {
        to[bytes] = (uint8_t)value;
        value >>= 8;
    }
}

void write_header(const struct stream *stream, int kind, uint64_t number, uint32_t last, uint8_t *to)
{
    memcpy(to, stream->header, ENDS);
    to[0] = (uint8_t)kind;
    write_number(to + ENDS, number, 8);
    write_number(to + ENDS + 8, last, CALL_BYTES);
}

/* Makes the ends at `source` of a stream to `destination` and of one back; all of them is zeros before. */
void stream_open(struct streams *s, struct stream *stream, uint64_t flow, int64_t source, int64_t destination, int64_t session)
{
    const struct settings *settings = s->settings;
    struct sender *out = &stream->out;
    write_number(stream->header + 1, flow, 1);
    write_number(stream->header + 2, (uint64_t)source, 2);
    write_number(stream->header + 4, (uint64_t)destination, 2);
    write_number(stream->header + 6, (uint64_t)session, 4);
    out->highest = out->asked_for = stream->in.asked_for = stream->in.answer = -1;
    out->smoothed = NAN;
    out->rto = settings->initial_rto;
    control_open(settings, &out->control);
}

static void free_receiver(struct streams *s, struct receiver *in)
{
    for (size_t i = in->first; i < in->end; i++)
        free(in->waiting[i].bytes);
    for (int64_t n = 0; in->kept && n < s->settings->window; n++)
        free(in->early[n].bytes);
    free(in->waiting);
    free(in->early);
}

void stream_close(struct streams *s, struct stream *stream)
{
    free_receiver(s, &stream->in);
    free(stream->out.messages);
    free(stream->out.sent_at);
    free(stream->out.lost);
    free(stream->out.missing);
    free(stream->out.sent_after);
    free(stream->out.there);
}
