/* The sending end of a stream: transport.py's Sender and its two subclasses, and the congestion control of each. */

#include "peers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most_of(int64_t a, int64_t b) { return a > b ? a : b; }

/* -- congestion control: congestion_control.py's NoControl and Dctcp ---------------------------------------------- */

static int64_t window_of(const struct state *s, const struct sender *out)
{
    return s->worker->control == DCTCP ? (int64_t)out->size : s->worker->window;
}

static void increase(const struct state *s, struct sender *out, double packets)
{
    out->size = fmin(out->size + packets, (double)s->worker->window);
}

static void control_acknowledged(const struct state *s, struct sender *out, int64_t marked)
{
    const struct worker *w = s->worker;
    int64_t base = out->base;
    if (w->control != DCTCP)
        return;
    bool congested = marked > out->marked;
    if (congested) {
        out->marked = marked;
        out->ssthresh = fmin(out->ssthresh, out->size);
    }
    bool slow_start = out->size < out->ssthresh;
    if (slow_start)
        increase(s, out, fmin((double)(base - out->acknowledged), out->ssthresh - out->size));
    out->acknowledged = base;
    bool ended = base >= least(out->epoch_end, out->next);
    int64_t marks = out->marked - out->epoch_marked;
    if (ended) {
        double share = fmin((double)marks / (double)most_of(base - out->epoch_acknowledged, 1), 1.0);
        out->share += w->gain * (share - out->share);
        out->epoch_end = out->next;
        out->epoch_acknowledged = base;
        out->epoch_marked = out->marked;
    }
    if (congested && base > least(out->reduced, out->next - 1)) {
        out->size = fmax(out->size * (1 - out->share / 2), (double)w->least);
        out->ssthresh = out->size;
        out->reduced = out->next;
    }
    if (ended && !(slow_start || (marks && !w->always)))
        increase(s, out, 1);
}

/* -- the stream ------------------------------------------------------------------------------------------------------ */

void write_message(struct state *s, struct sender *out, const uint8_t *bytes, int64_t length)
{
    if (out->first_message == out->end_message)
        out->first_message = out->end_message = 0;
    if (!make_room(s, &out->messages, &out->message_room, out->end_message + 1, sizeof *out->messages))
        return;
    out->messages[out->end_message++] = (struct message){out->end, length, bytes, (uint32_t)s->worker->call};
    out->end += (length + s->worker->payload - 1) / s->worker->payload;
}

static double timeout_of(const struct state *s, const struct sender *out)
{
    if (out->base == out->sent)
        return INFINITY;
    return out->timer_began + fmin(ldexp(out->rto, (int)out->backoff), s->worker->max_rto);
}

double sender_deadline(const struct state *s, const struct sender *out)
{
    return timeout_of(s, out);
}

static int64_t after_silence(const struct sender *out, int64_t window)
{
    int64_t halvings = most_of(out->backoff - 1, 0);
    return most_of(halvings > 62 ? 0 : window >> halvings, least(window, MIN_FLIGHT));
}

/* Adds the datagrams of packets `first` to `last` - 1. */
static void add_packets(struct state *s, struct flow *flow, int64_t first, int64_t last)
{
    const struct sender *out = &flow->out;
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
        int64_t whole = m->first + m->length / s->worker->payload; /* packets before this one are full */
        while (first < last && (first < whole || (first == whole && m->length % s->worker->payload))) {
            int64_t stop = first < whole ? least(last, whole) : first + 1;
            int64_t size = first < whole ? s->worker->payload : m->length % s->worker->payload;
            uint8_t *to = add_batch(s, flow, DATA, stop - first, HEADER_BYTES + size);
            if (!to)
                return;
            for (; first < stop; first++, to += HEADER_BYTES + size) {
                put_header(s, flow, DATA, (uint64_t)first, m->call, to);
                memcpy(to + HEADER_BYTES, m->bytes + (first - m->first) * s->worker->payload, (size_t)size);
            }
        }
    }
}

static void keep_up(const struct state *s, struct sender *out)
{
    int64_t window = s->worker->window;
    for (int64_t n = most_of(out->missing_to, out->base); n < out->next; n++) {
        out->there[n % window] = false;
        out->sent_after[n % window] = n;
    }
    out->missing_to = out->next;
}

/* Finds the outstanding packets below `end` that no bitmap has acknowledged. */
static int64_t find_missing(const struct state *s, struct sender *out, int64_t end)
{
    int64_t count = 0;
    keep_up(s, out);
    for (int64_t n = out->base; n < end; n++)
        if (!out->there[n % s->worker->window])
            out->missing[count++] = n;
    return count;
}

static void go_back(struct sender *out)
{
    out->next = out->base;
    out->measured_from = out->sent;
}

static int64_t time_out(const struct state *s, struct sender *out)
{
    if (s->worker->transport == GO_BACK_N) {
        go_back(out);
        return out->sent - out->base;
    }
    int64_t missing = find_missing(s, out, out->next);
    out->lost_count = least(missing, after_silence(out, s->worker->window));
    memcpy(out->lost, out->missing, (size_t)out->lost_count * sizeof *out->lost);
    return out->lost_count;
}

static void repeat_lost(struct state *s, struct flow *flow)
{
    struct sender *out = &flow->out;
    int64_t count = 0;
    for (int64_t i = 0; i < out->lost_count; i++)
        if (out->lost[i] >= out->base)
            out->lost[count++] = out->lost[i];
    out->lost_count = 0;
    if (!count)
        return;
    for (int64_t i = 0; i < count; i++)
        out->sent_after[out->lost[i] % s->worker->window] = out->next - 1;
    out->measured_from = out->next;
    s->worker->retransmissions += count;
    for (int64_t i = 0, run; i < count; i += run) {
        for (run = 1; i + run < count && out->lost[i + run] == out->lost[i] + run;)
            run++;
        add_packets(s, flow, out->lost[i], out->lost[i] + run);
    }
}

/* Adds what to send now; of packets that were not sent before, at most `most` unless it is negative. */
void send_from(struct state *s, struct flow *flow, double now, int64_t most)
{
    struct sender *out = &flow->out;
    if (now >= timeout_of(s, out)) {
        out->backoff = least(out->backoff + 1, MAX_BACKOFF);
        out->timer_began = now;
        s->worker->timeouts += time_out(s, out);
    }
    repeat_lost(s, flow);
    int64_t last = least(out->end, out->base + after_silence(out, window_of(s, out)));
    if (most >= 0)
        last = least(last, out->sent + most);
    if (last <= out->next)
        return;
    if (out->base == out->sent)
        out->timer_began = now;
    add_packets(s, flow, out->next, last);
    s->worker->retransmissions += least(last, out->sent) - out->next;
    out->next = last;
    if (last > out->sent) {
        if (out->first_sent == out->end_sent)
            out->first_sent = out->end_sent = 0;
        if (make_room(s, &out->sent_at, &out->sent_room, out->end_sent + 1, sizeof *out->sent_at))
            out->sent_at[out->end_sent++] = (struct sent_at){last, now};
        out->sent = last;
    }
}

/* recovery.py's RttEstimator.sample(). */
static void measure(const struct state *s, struct sender *out, int64_t number, double now)
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
    double rto = out->smoothed + fmax(s->worker->granularity, 4 * out->variation);
    out->rto = fmax(fmin(rto, s->worker->max_rto), s->worker->min_rto);
}

static int compare_numbers(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static bool find_lost(struct state *s, struct sender *out, int kind, int64_t number, const uint8_t *bitmap,
                      int64_t size, double now)
{
    if (s->worker->transport == GO_BACK_N) {
        if (kind == NAK && number == out->base && out->base < out->sent && number != out->asked_for) {
            out->asked_for = number;
            out->timer_began = now;
            go_back(out);
        }
        return false;
    }
    if (!size)
        return false;
    int64_t window = s->worker->window, newest = -1;
    keep_up(s, out);
    for (int64_t bit = 0; bit < 8 * size; bit++) {
        int64_t n = number + 1 + bit;
        if (!(bitmap[bit / 8] & (0x80 >> bit % 8)) || n < out->base || n >= out->next || out->there[n % window])
            continue;
        out->there[n % window] = true;
        newest = n;
    }
    if (newest < 0)
        return false;
    out->highest = most_of(out->highest, newest);
    out->timer_began = now;
    int64_t missing = find_missing(s, out, out->highest), before = out->lost_count;
    for (int64_t i = 0; i < missing; i++) {
        int64_t n = out->missing[i];
        if (out->highest - out->sent_after[n % window] >= s->worker->packet_threshold &&
            !bsearch(&n, out->lost, (size_t)before, sizeof n, compare_numbers))
            out->lost[out->lost_count++] = n;
    }
    qsort(out->lost, (size_t)out->lost_count, sizeof *out->lost, compare_numbers);
    return true;
}

bool acknowledge(struct state *s, struct sender *out, int kind, int64_t number, int64_t marked, const uint8_t *bitmap,
                 int64_t size, double now)
{
    if (number < 0 || number > out->sent) {
        s->worker->malformed++;
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
            if (m->first + (m->length + s->worker->payload - 1) / s->worker->payload > number)
                break;
            out->first_message++;
        }
    }
    progress |= find_lost(s, out, kind, number, bitmap, size, now);
    control_acknowledged(s, out, marked);
    return progress;
}
