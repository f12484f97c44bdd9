/* What a link does to one packet; ../links.py describes it. */

#include "loop.h"

#include <string.h>

/* Purposes of the random draws for a packet. The numbers are part of what a seed means. */
enum { TO_LOSE, TO_CORRUPT, TO_DUPLICATE, TO_REORDER, LATER, COPY_LATER, TO_BURST, TO_LOSE_IN_BURST, TO_JITTER, BIT, TO_MARK, PURPOSES = 16 };

#define GOLDEN 0x9e3779b97f4a7c15ull

enum { FRAGMENT = 20 };

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
    return draw(k, k->joined, TO_MARK) < share;
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

static enum fate loss_of(struct loop *l, struct link *k, int64_t number)
{
    enum fate fate = draw(k, number, TO_LOSE) < k->loss ? LOSS : ARRIVES;
    l->faults[LOST] += fate == LOSS;
    if (k->bursts) {
        double step = draw(k, number, TO_BURST);
        k->in_burst = k->in_burst ? step >= k->burst_end : step < k->burst_begin;
        if (k->in_burst && draw(k, number, TO_LOSE_IN_BURST) < k->burst_loss && fate == ARRIVES) {
            l->faults[BURST_LOST]++;
            fate = BURST;
        }
    }
    return fate;
}

/* Applies the link's faults to a packet that is not lost, and makes its copy, if any. Returns when the copy arrives, or
 * NEVER. */
static int64_t disturb(struct loop *l, struct link *k, struct event *event, int64_t number)
{
    uint8_t *frame = row_bytes(&l->rows, event->row);
    uint32_t length = l->rows.lengths[event->row];
    if (draw(k, number, TO_CORRUPT) < k->corruption) {
        l->faults[CORRUPTED]++;
        flip_bit(frame, length, draw(k, number, BIT));
    }
    if (draw(k, number, TO_REORDER) < k->reordering) {
        l->faults[REORDERED]++;
        event->time += (int64_t)(draw(k, number, LATER) * k->displacement);
    }
    struct event copy = *event;
    if (draw(k, number, TO_DUPLICATE) < k->duplication && add_row(l, length, &copy.row)) {
        l->faults[DUPLICATED]++;
        memcpy(row_bytes(&l->rows, copy.row), frame, length);
        copy.time += (int64_t)(draw(k, number, COPY_LATER) * k->displacement);
        add_event(l, &l->copies, copy);
        k->arrived++;
        return copy.time;
    }
    return NEVER;
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
    note(l, &(struct note){time, time, time, time, .link = link, .fate = QUEUE_FULL}, row);
    l->faults[QUEUE_DROP]++;
    l->links[link].queue_drops++;
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
    struct note noted = {begin - wait, begin, k->free_at, event.time, .link = link};
    if (event.time > k->down_from && k->free_at - duration < k->down_until) {
        noted.fate = LINK_DOWN;
        note(l, &noted, row);
        l->faults[LOST]++;
        k->lost++;
        free_row(l, row);
        return;
    }
    int64_t number = k->numbered++;
    if (k->jitter > 0) {
        event.time += (int64_t)(draw(k, number, TO_JITTER) * k->jitter);
        if (event.time < k->last_arrival) /* it overtakes none */
            event.time = k->last_arrival;
        k->last_arrival = event.time;
    }
    noted.end = event.time;
    noted.fate = k->faulty ? loss_of(l, k, number) : ARRIVES;
    note(l, &noted, row);
    if (noted.fate != ARRIVES) {
        k->lost++;
        free_row(l, row);
        return;
    }
    if (k->faulty) {
        int64_t copy_arrives = disturb(l, k, &event, number);
        note_arrivals(l, event.time, copy_arrives);
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
