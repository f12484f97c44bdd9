/* The sending end of a stream: transport.py's Sender and its two subclasses. */

#include "streams.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most_of(int64_t a, int64_t b) { return a > b ? a : b; }

void write_message(struct streams *s, struct sender *out, const uint8_t *bytes, int64_t length, uint32_t call)
{
    if (out->first_message == out->end_message)
        out->first_message = out->end_message = 0;
    if (!make_room(s, &out->messages, &out->message_room, out->end_message + 1, sizeof *out->messages))
        return;
    out->messages[out->end_message++] = (struct message){out->end, length, bytes, call};
    out->end += (length + s->settings->payload - 1) / s->settings->payload;
}

static double timeout_of(const struct streams *s, const struct sender *out)
{
    if (out->base == out->sent)
        return INFINITY;
    return out->timer_began + fmin(ldexp(out->rto, (int)out->backoff), s->settings->max_rto);
}

/* Returns when more may be sent or outstanding packets count as lost; infinity if neither will happen. */
double sender_deadline(const struct streams *s, const struct sender *out)
{
    double timeout = timeout_of(s, out);
    return out->waits_for_its_rate ? fmin(out->control.dcqcn.ready_at, timeout) : timeout;
}

static int64_t after_silence(const struct sender *out, int64_t window)
{
    int64_t halvings = most_of(out->backoff - 1, 0);
    return most_of(halvings > 62 ? 0 : window >> halvings, least(window, MIN_FLIGHT));
}

/* Adds the datagrams of packets `first` to `last` - 1. */
static void add_packets(struct streams *s, struct stream *stream, int64_t first, int64_t last)
{
    const struct sender *out = &stream->out;
    size_t low = out->first_message, high = out->end_message; /* the last message that begins at `first` or before */
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (out->messages[middle].first <= first)
            low = middle;
        else
            high = middle;
    }
    for (; first < last; low++) {
        const struct message *m = out->messages + low;
        int64_t whole = m->first + m->length / s->settings->payload; /* packets before this one are full */
        while (first < last && (first < whole || (first == whole && m->length % s->settings->payload))) {
            int64_t stop = first < whole ? least(last, whole) : first + 1;
            int64_t size = first < whole ? s->settings->payload : m->length % s->settings->payload;
            uint8_t *const *to = s->batch(s->context, &stream->connection, false, stop - first, HEADER_BYTES + size);
            if (!to)
                return;
            for (; first < stop; first++, to++) {
                write_header(stream, DATA, (uint64_t)first, m->call, *to);
                if (m->bytes)
                    memcpy(*to + HEADER_BYTES, m->bytes + (first - m->first) * s->settings->payload, (size_t)size);
                else
                    memset(*to + HEADER_BYTES, 0, (size_t)size);
            }
        }
    }
}

/* Initializes the arrays for packets sent since the last call. Returns false if there is no memory for them. */
static bool keep_up(struct streams *s, struct sender *out)
{
    size_t window = (size_t)s->settings->window;
    if (!out->there) {
        out->lost = malloc(window * sizeof *out->lost);
        out->missing = malloc(window * sizeof *out->missing);
        out->sent_after = malloc(window * sizeof *out->sent_after);
        if (!out->lost || !out->missing || !out->sent_after || !(out->there = malloc(window * sizeof *out->there))) {
            s->failed = true;
            return false;
        }
    }
    int64_t n = most_of(out->missing_to, out->base);
    for (size_t at = (size_t)n % window; n < out->next; n++) {
        out->there[at] = false;
        out->sent_after[at] = n;
        at = at + 1 < window ? at + 1 : 0;
    }
    out->missing_to = out->next;
    return true;
}

/* Finds the outstanding packets below `end` that no bitmap has acknowledged. keep_up() comes before. */
static int64_t find_missing(const struct streams *s, struct sender *out, int64_t end)
{
    int64_t count = 0, window = s->settings->window, at = out->base % window;
    for (int64_t n = out->base; n < end; n++) {
        if (!out->there[at])
            out->missing[count++] = n;
        at = at + 1 < window ? at + 1 : 0;
    }
    return count;
}

static void go_back(struct sender *out)
{
    out->next = out->base;
    out->measured_from = out->sent;
}

static int64_t time_out(struct streams *s, struct sender *out)
{
    if (s->settings->transport == GO_BACK_N) {
        go_back(out);
        return out->sent - out->base;
    }
    if (!keep_up(s, out))
        return 0;
    int64_t missing = find_missing(s, out, out->next);
    out->lost_count = least(missing, after_silence(out, s->settings->window));
    memcpy(out->lost, out->missing, (size_t)out->lost_count * sizeof *out->lost);
    return out->lost_count;
}

static void repeat_lost(struct streams *s, struct stream *stream, double now)
{
    struct sender *out = &stream->out;
    int64_t count = 0;
    for (int64_t i = 0; i < out->lost_count; i++)
        if (out->lost[i] >= out->base)
            out->lost[count++] = out->lost[i];
    out->lost_count = 0;
    if (!count)
        return;
    for (int64_t i = 0; i < count; i++)
        out->sent_after[out->lost[i] % s->settings->window] = out->next - 1;
    out->measured_from = out->next;
    s->settings->retransmissions += count;
    for (int64_t i = 0, run; i < count; i += run) {
        for (run = 1; i + run < count && out->lost[i + run] == out->lost[i] + run;)
            run++;
        add_packets(s, stream, out->lost[i], out->lost[i] + run);
    }
    control_sent(s->settings, &out->control, count, now);
}

/* Notes when packets below `last` were sent. */
static void note_sent(struct streams *s, struct sender *out, int64_t last, double now)
{
    if (out->first_sent && out->end_sent == out->sent_room) {
        out->end_sent -= out->first_sent;
        memmove(out->sent_at, out->sent_at + out->first_sent, out->end_sent * sizeof *out->sent_at);
        out->first_sent = 0;
    }
    if (make_room(s, &out->sent_at, &out->sent_room, out->end_sent + 1, sizeof *out->sent_at))
        out->sent_at[out->end_sent++] = (struct sent_at){last, now};
    out->sent = last;
}

/* Adds what to send now; of packets that were not sent before, at most `most` unless it is negative. */
void send_from(struct streams *s, struct stream *stream, double now, int64_t most)
{
    struct sender *out = &stream->out;
    struct control *control = &out->control;
    if (now >= timeout_of(s, out)) {
        out->backoff = least(out->backoff + 1, MAX_BACKOFF);
        out->timer_began = now;
        s->settings->timeouts += time_out(s, out);
    }
    repeat_lost(s, stream, now);
    int64_t last = least(out->end, out->base + after_silence(out, control_window(s->settings, control)));
    if (most >= 0)
        last = least(last, out->sent + most);
    out->waits_for_its_rate = false;
    if (last <= out->next)
        return;
    int64_t allowance = control_allowance(s->settings, control, now);
    if (allowance >= 0 && out->next + allowance < last) {
        out->waits_for_its_rate = true;
        last = out->next + allowance;
        if (!allowance)
            return;
    }
    control_sent(s->settings, control, last - out->next, now);
    if (out->base == out->sent)
        out->timer_began = now;
    add_packets(s, stream, out->next, last);
    s->settings->retransmissions += least(last, out->sent) - out->next;
    out->next = last;
    if (last > out->sent)
        note_sent(s, out, last, now);
}

/* recovery.py's RttEstimator.sample(). */
static void measure(const struct streams *s, struct sender *out, int64_t number, double now)
{
    const struct sent_at *found = NULL;
    while (out->first_sent < out->end_sent && out->sent_at[out->first_sent].last <= number)
        found = out->sent_at + out->first_sent++;
    if (!found || found->last <= out->measured_from)
        return;
    double rtt = now - found->time, share = (double)(number - out->base) / (double)(out->sent - out->base);
    if (isnan(out->smoothed)) {
        out->smoothed = rtt;
        out->variation = rtt / 2;
    } else {
        share = 2 * rtt > out->smoothed ? share : 1.0;
        out->variation += 0.25 * share * (fabs(out->smoothed - rtt) - out->variation);
        out->smoothed += 0.125 * share * (rtt - out->smoothed);
    }
    double rto = out->smoothed + fmax(s->settings->granularity, 4 * out->variation);
    out->rto = fmax(fmin(rto, s->settings->max_rto), s->settings->min_rto);
}

static int compare_numbers(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static bool find_lost(struct streams *s, struct sender *out, int kind, int64_t number, const uint8_t *bitmap,
                      int64_t size, double now)
{
    if (s->settings->transport == GO_BACK_N) {
        if (kind == NAK && number == out->base && out->base < out->sent && number != out->asked_for) {
            out->asked_for = number;
            out->timer_began = now;
            go_back(out);
        }
        return false;
    }
    if (!size || !keep_up(s, out))
        return false;
    int64_t window = s->settings->window, newest = -1;
    int64_t first = most_of(out->base - number - 1, 0), end = least(out->next - number - 1, 8 * size);
    for (int64_t bit = first, at = (number + 1 + first) % window; bit < end; bit++) {
        if (bitmap[bit / 8] & (0x80 >> bit % 8) && !out->there[at]) {
            out->there[at] = true;
            newest = number + 1 + bit;
        }
        at = at + 1 < window ? at + 1 : 0;
    }
    if (newest < 0)
        return false;
    out->highest = most_of(out->highest, newest);
    out->timer_began = now;
    int64_t missing = find_missing(s, out, out->highest), before = out->lost_count;
    for (int64_t i = 0; i < missing; i++) {
        int64_t n = out->missing[i];
        if (out->highest - out->sent_after[n % window] >= s->settings->packet_threshold &&
            !bsearch(&n, out->lost, (size_t)before, sizeof n, compare_numbers))
            out->lost[out->lost_count++] = n;
    }
    qsort(out->lost, (size_t)out->lost_count, sizeof *out->lost, compare_numbers);
    return true;
}

/* Processes an acknowledgement, a datagram of `size` bytes, and returns whether it contains anything new. */
bool acknowledge(struct streams *s, struct sender *out, const uint8_t *datagram, int64_t size, double now)
{
    int64_t number = (int64_t)read_number(datagram + ENDS, 8), marked = (int64_t)read_number(datagram + ENDS + 8, CALL_BYTES);
    if (number < 0 || number > out->sent) {
        s->settings->malformed++;
        return false;
    }
    bool progress = number > out->base;
    if (progress) {
        measure(s, out, number, now);
        out->base = number;
        out->next = most_of(out->next, number);
        out->timer_began = now;
        out->backoff = 0;
        while (out->first_message < out->end_message) {
            const struct message *m = out->messages + out->first_message;
            if (m->first + (m->length + s->settings->payload - 1) / s->settings->payload > number)
                break;
            out->first_message++;
        }
    }
    progress |= find_lost(s, out, datagram[0], number, datagram + HEADER_BYTES, size - HEADER_BYTES, now);
    control_acknowledged(s->settings, &out->control, out->base, out->next, marked, now);
    return progress;
}
