/* What a link does to one packet; ../links.py describes it. */

#include "loop.h"

#include <stdlib.h>
#include <string.h>

/* Purposes of the random draws for a packet. The numbers are part of what a seed means. */
enum { LOSS, CORRUPTION, DUPLICATION, REORDERING, LATER, COPY_LATER, BURST, BURST_LOSS, JITTER, BIT, MARK, PURPOSES = 16 };

#define GOLDEN 0x9e3779b97f4a7c15ull

enum { FRAGMENT = 20, IP_CHECKSUM = 24, UDP_LENGTH = 38 };
enum { PROTOCOL_UDP = 17 };

static uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

/* Draws uniformly in [0, 1): a hash of the link's key, the packet and the purpose (SplitMix64). */
static double draw(const struct link *k, int64_t number, unsigned purpose)
{
    return (double)(mix(k->key + ((uint64_t)number * PURPOSES + purpose) * GOLDEN) >> 11) * 0x1p-53;
}

static uint32_t load16(const uint8_t *from) { return (uint32_t)from[0] << 8 | from[1]; }

static void store16(uint8_t *to, uint32_t value)
{
    to[0] = (uint8_t)(value >> 8);
    to[1] = (uint8_t)value;
}

/* Sets CE if the packet is IPv4 and ECN-capable (RFC 3168, section 5), and updates the checksum (RFC 1624). */
static bool mark_congestion(uint8_t *frame, uint32_t length)
{
    if (length < UDP || load16(frame + TYPE) != 0x0800 || !(frame[TOS] & ECN_MARKED) ||
        (frame[TOS] & ECN_MARKED) == ECN_MARKED)
        return false;
    uint32_t checksum = (~load16(frame + IP_CHECKSUM) & 0xffff) + ECN_MARKED - (frame[TOS] & ECN_MARKED);
    store16(frame + IP_CHECKSUM, ~((checksum & 0xffff) + (checksum >> 16)));
    frame[TOS] |= ECN_MARKED;
    return true;
}

/* Returns whether a packet that waits for `wait` is to be marked. */
static bool too_much(const struct link *k, int64_t wait)
{
    if (wait <= k->mark || wait > k->always_mark)
        return wait > k->mark;
    double share = k->mark_probability * (double)(wait - k->mark) / (double)(k->always_mark - k->mark);
    return draw(k, k->joined, MARK) < share;
}

static uint64_t word_sum(const uint8_t *from, const uint8_t *to)
{
    uint64_t sum = 0;
    for (; from + 1 < to; from += 2)
        sum += load16(from);
    return from < to ? sum + ((uint64_t)*from << 8) : sum;
}

/* Writes the UDP checksum (RFC 768) of a frame that has none: IPv4 without options, not a fragment. */
static void complete_checksum(uint8_t *frame, uint32_t length)
{
    if (length < PAYLOAD || load16(frame + TYPE) != 0x0800 || frame[IP] != 0x45 || frame[PROTOCOL] != PROTOCOL_UDP ||
        load16(frame + FRAGMENT) & 0x3fff || load16(frame + UDP_CHECKSUM))
        return;
    uint64_t sum = word_sum(frame + UDP, frame + length) + word_sum(frame + IP_SOURCE, frame + UDP) + PROTOCOL_UDP;
    sum += load16(frame + UDP_LENGTH);
    store16(frame + UDP_CHECKSUM, 0xffff - (uint32_t)(sum % 0xffff)); /* never 0, which would mean that there is none */
}

static void flip_bit(uint8_t *frame, uint32_t length, double drawn)
{
    complete_checksum(frame, length);
    int64_t bit = (int64_t)(drawn * (double)(8 * (int64_t)length));
    frame[bit >> 3] ^= (uint8_t)(0x80 >> (bit & 7));
}

/* Begins to record a packet, before faults change it. Returns NULL if there is no recording. There is room for its copy. */
struct flight *begin_flight(struct loop *l, uint32_t link, uint32_t row, int64_t joined, int64_t begin, int64_t sent)
{
    struct flights *f = &l->flights;
    if (!f->wanted)
        return NULL;
    if (f->count + 2 > f->room) {
        size_t room = 2 * f->room + 1024;
        struct flight *at = realloc(f->at, room * sizeof *at);
        if (!at) {
            l->failed = true;
            return NULL;
        }
        f->at = at;
        f->room = room;
    }
    uint32_t length = l->rows.lengths[row];
    f->at[f->count] = (struct flight){.joined = joined, .begin = begin, .sent = sent, .link = link, .length = length};
    memcpy(f->at[f->count].first, row_bytes(&l->rows, row), length < NOTED ? length : NOTED);
    return f->at + f->count;
}

void end_flight(struct loop *l, struct flight *flight, int64_t end, enum fate fate)
{
    if (!flight)
        return;
    flight->end = end;
    flight->fate = fate;
    l->flights.count++;
}

static enum fate draw_loss(struct loop *l, struct link *k, int64_t number)
{
    bool lost = draw(k, number, LOSS) < k->loss;
    l->faults[LOST] += lost;
    bool in_burst = false;
    if (k->bursts) {
        double step = draw(k, number, BURST);
        k->in_burst = k->in_burst ? step >= k->burst_end : step < k->burst_begin;
        in_burst = k->in_burst && draw(k, number, BURST_LOSS) < k->burst_loss && !lost;
        l->faults[BURST_LOST] += in_burst;
    }
    return lost ? LOST_AT_RANDOM : in_burst ? LOST_IN_BURST : ARRIVES;
}

/* Applies the link's faults to a packet that has been sent, and makes its copy, if any. `copied`: when that arrives. */
static enum fate disturb(struct loop *l, struct link *k, struct event *event, int64_t number, int64_t *copied)
{
    enum fate fate = draw_loss(l, k, number);
    if (fate != ARRIVES)
        return fate;
    uint8_t *frame = row_bytes(&l->rows, event->row);
    uint32_t length = l->rows.lengths[event->row];
    if (draw(k, number, CORRUPTION) < k->corruption) {
        l->faults[CORRUPTED]++;
        flip_bit(frame, length, draw(k, number, BIT));
    }
    if (draw(k, number, REORDERING) < k->reordering) {
        l->faults[REORDERED]++;
        event->time += (int64_t)(draw(k, number, LATER) * k->displacement);
    }
    struct event copy = *event;
    if (draw(k, number, DUPLICATION) < k->duplication && add_row(l, length, &copy.row)) {
        l->faults[DUPLICATED]++;
        memcpy(row_bytes(&l->rows, copy.row), frame, length);
        copy.time += (int64_t)(draw(k, number, COPY_LATER) * k->displacement);
        add_event(l, &l->copies, copy);
        k->arrived++;
        *copied = copy.time;
    }
    return ARRIVES;
}

int64_t size_on_wire(const struct loop *l, const struct link *k, uint32_t row)
{
    return l->rows.lengths[row] + k->overhead;
}

int64_t time_on_wire(const struct loop *l, const struct link *k, uint32_t row)
{
    return size_on_wire(l, k, row) * k->byte_time >> 20;
}

/* Bytes that are in a queue for a time, in byte-nanoseconds. */
int64_t queue_area(int64_t size, int64_t time) { return size * time / 1000; }

/* Notes the depth of a queue that a packet joins at `time`: this packet, those that wait, and the rest of the packet that
 * is being sent. */
void note_depth(struct link *k, int64_t time, int64_t size)
{
    int64_t left = k->free_at > time && k->byte_time ? (int64_t)((double)(k->free_at - time) * 0x1p20 / (double)k->byte_time) : 0;
    int64_t depth = left + k->queued_bytes + size;
    k->longest_queue = depth > k->longest_queue ? depth : k->longest_queue;
}

void drop_for_room(struct loop *l, uint32_t link, int64_t time, uint32_t row)
{
    l->faults[QUEUE_DROP]++;
    l->links[link].queue_drops++;
    end_flight(l, begin_flight(l, link, row, time, time, time), time, NO_ROOM);
    free_row(l, row);
}

/* Marks a packet that joins a queue, where what is ahead takes `wait` to be sent, if that is too much. */
void mark_if_crowded(struct loop *l, struct link *k, int64_t wait, uint32_t row)
{
    if (too_much(k, wait) && mark_congestion(row_bytes(&l->rows, row), l->rows.lengths[row])) {
        l->faults[ECN_MARK]++;
        k->marks++;
    }
    k->joined++;
}

/* Sends a packet, which has waited for `wait`, from `begin` on. */
void carry(struct loop *l, uint32_t link, int64_t begin, int64_t wait, uint32_t row)
{
    struct link *k = l->links + link;
    int64_t duration = time_on_wire(l, k, row);
    k->free_at = begin + duration;
    k->packets++;
    k->bytes += l->rows.lengths[row];
    k->busy += duration;
    k->waited += wait;
    k->queue_area += queue_area(size_on_wire(l, k, row), wait + duration / 2); /* while it is sent, half of it is there on average */
    struct event event = {k->free_at + k->delay, link, row};
    struct flight *flight = begin_flight(l, link, row, begin - wait, begin, k->free_at);
    if (event.time > k->down_from && k->free_at - duration < k->down_until) {
        l->faults[LOST]++;
        k->lost++;
        end_flight(l, flight, event.time, LOST_WITH_LINK);
        free_row(l, row);
        return;
    }
    int64_t number = k->numbered++;
    if (k->jitter > 0) {
        event.time += (int64_t)(draw(k, number, JITTER) * k->jitter);
        if (event.time < k->last_arrival) /* it overtakes none */
            event.time = k->last_arrival;
        k->last_arrival = event.time;
    }
    int64_t copied = NEVER;
    enum fate fate = k->faulty ? disturb(l, k, &event, number, &copied) : ARRIVES;
    end_flight(l, flight, event.time, fate);
    if (flight && copied != NEVER) {
        flight[1] = flight[0];
        flight[1].copy = true;
        end_flight(l, flight + 1, copied, ARRIVES);
    }
    if (fate != ARRIVES) {
        k->lost++;
        free_row(l, row);
        return;
    }
    k->arrived++;
    schedule(l, event);
}

/* Puts a packet on its link, none earlier than any on that link before. `came_by` is the link on which its cause reached
 * the switch, or NOBODY. */
void send_packet(struct loop *l, uint32_t link, int64_t time, uint32_t row, uint32_t came_by)
{
    if (l->priorities) {
        l->rows.waits[row].came_by = came_by;
        add_event(l, &l->sent, (struct event){time, link, row});
        return;
    }
    struct link *k = l->links + link;
    int64_t wait = k->free_at > time ? k->free_at - time : 0;
    if (wait + time_on_wire(l, k, row) > k->room) {
        drop_for_room(l, link, time, row);
        return;
    }
    mark_if_crowded(l, k, wait, row);
    note_depth(k, time, size_on_wire(l, k, row));
    carry(l, link, time + wait, wait, row);
}
