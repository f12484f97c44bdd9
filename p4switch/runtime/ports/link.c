/* See link.h. */

#include "link.h"

#include "shared.h"

#define SKIP UINT32_MAX
#define FIRST_RING (1u << 20)
#define ETHERNET 14
#define ECN_MARKED 3

/* Purposes of random numbers; the values are those of simulator/links.py. */
enum { LOSS, CORRUPTION, DUPLICATION, REORDERING, LATER, COPY_LATER, BURST, BURST_LOSS, JITTER, BIT, PURPOSES = 16 };

#define GOLDEN 0x9e3779b97f4a7c15ull

SHARE_STRUCT(link_settings,
             FIELD(rate) FIELD(delay) FIELD(jitter) FIELD(queue_bytes) FIELD(ecn_bytes) FIELD(packet_rate) FIELD(queue_packets)
             FIELD(loss) FIELD(corruption) FIELD(duplication) FIELD(reordering) FIELD(displacement)
             FIELD(burst_begin) FIELD(burst_end) FIELD(burst_loss) FIELD(overhead) FIELD(seed))

SHARE_STRUCT(link_statistics,
             FIELD(offered) FIELD(sent) FIELD(sent_bytes)
             FIELD(lost) FIELD(burst_lost) FIELD(queue_dropped) FIELD(memory_dropped)
             FIELD(marked) FIELD(corrupted) FIELD(duplicated) FIELD(reordered) FIELD(highest_bytes)
             FIELD(lateness_sum) FIELD(lateness_most) FIELD(late) FIELD(queue_bytes) FIELD(held))

SHARE_STRUCT(wait,
             FIELD(packet) FIELD(room) FIELD(since) FIELD(until) FIELD(bytes) FIELD(found) FIELD(left)
             FIELD(checksum_offset))

static uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

/* Returns a uniform random number in [0, 1). */
static double draw(const struct link *l, uint64_t number, unsigned purpose)
{
    return (double)(mix(l->key + (number * PURPOSES + purpose) * GOLDEN) >> 11) * 0x1p-53;
}

static bool happens(const struct link *l, uint64_t number, unsigned purpose, double probability)
{
    return probability > 0 && draw(l, number, purpose) < probability;
}

static uint64_t picoseconds(double seconds) { return (uint64_t)(seconds / PICOSECOND + 0.5); }

/* Returns how long it takes to send a packet, or a queue, of so many bytes. */
static uint64_t sending_time(const struct link *l, uint64_t bytes)
{
    return (uint64_t)((uint128_t)bytes * l->byte_time >> 20);
}

static uint64_t queue_bytes(const struct link *l, uint64_t time)
{
    return l->byte_time ? (uint64_t)((double)time * 0x1p20 / (double)l->byte_time) : 0;
}

static void note_highest(struct link *l, uint64_t sent)
{
    uint64_t bytes = queue_bytes(l, sent);
    if (bytes > l->statistics.highest_bytes)
        l->statistics.highest_bytes = bytes;
}

/* Opens a link without properties. Packets that leave it go to `release`, those that have waited in its queue to
 * `dequeue`. Links with equal seed and different `stream` draw different random numbers. Returns NULL without
 * memory. */
struct link *link_open(release_function *release, dequeue_function *dequeue, void *context, uint64_t stream)
{
    struct link *l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    l->release = release;
    l->dequeue = dequeue;
    l->context = context;
    l->stream = stream;
    link_set(l, &(struct link_settings){.queue_bytes = INFINITY, .ecn_bytes = INFINITY, .queue_packets = INFINITY});
    return l;
}

void link_close(struct link *l)
{
    for (uint32_t i = 0; i < l->in_heap; i++)
        free(l->heap[i]);
    for (struct queue *q = l->queues; q < l->queues + PRIORITIES; q++) {
        for (uint32_t i = 0; i < q->count; i++)
            free(q->ring[(q->head + i) % q->size].packet);
        free(q->ring);
    }
    free(l->heap);
    free(l->ring);
    free(l->corrupted);
    free(l);
}

/* Returns what a packet takes of the link: bytes, or with a packet rate one packet. */
static uint64_t units_of(const struct link *l, uint32_t length)
{
    return l->settings.packet_rate > 0 ? 1 : length + (uint64_t)l->settings.overhead;
}

/* Sets the properties from now on. Packets on their way arrive as planned before. */
void link_set(struct link *l, const struct link_settings *settings)
{
    l->settings = *settings;
    l->key = mix(mix(settings->seed + GOLDEN) ^ mix((l->stream + 1) * GOLDEN));
    double units = settings->packet_rate > 0 ? settings->packet_rate : settings->rate / 8; /* per second */
    l->byte_time = units > 0 ? (uint64_t)(1 / PICOSECOND * 0x1p20 / units + 0.5) : 0;
    l->room = isinf(settings->queue_bytes) || settings->packet_rate > 0 ? NEVER : sending_time(l, (uint64_t)settings->queue_bytes);
    l->mark = isinf(settings->ecn_bytes) || settings->packet_rate > 0 ? NEVER : sending_time(l, (uint64_t)settings->ecn_bytes);
}

/* Packets on their way, in the order of their release */

static uint64_t record_size(uint32_t length) { return (sizeof(struct held) + length + 7) / 8 * 8; }

static struct held *at(const struct link *l, uint64_t place) { return (struct held *)(l->ring + place); }

static void fill(struct held *to, const struct held *head, const uint8_t *packet)
{
    *to = *head;
    memcpy(to + 1, packet, head->length);
}

/* Returns the place after a record, or the beginning of the ring if there is no space for a record's head after it. */
static uint64_t behind(const struct link *l, uint64_t place, uint64_t size)
{
    return place + size + sizeof(struct held) <= l->size ? place + size : 0;
}

/* Returns the first packet in the ring. */
static struct held *ring_first(struct link *l)
{
    if (at(l, l->head)->length == SKIP)
        l->head = 0;
    return at(l, l->head);
}

static void ring_pop(struct link *l)
{
    uint64_t size = record_size(ring_first(l)->length);
    l->head = behind(l, l->head, size);
    l->held_bytes -= size;
    l->in_ring--;
}

static bool ring_grow(struct link *l)
{
    uint64_t size = l->size ? 2 * l->size : FIRST_RING;
    uint8_t *ring = malloc(size);
    if (!ring)
        return false;
    uint64_t tail = 0;
    for (uint64_t i = l->in_ring, place = l->head; i > 0; i--) {
        if (at(l, place)->length == SKIP)
            place = 0;
        uint64_t bytes = record_size(at(l, place)->length);
        memcpy(ring + tail, l->ring + place, bytes);
        tail += bytes;
        place = behind(l, place, bytes);
    }
    free(l->ring);
    l->ring = ring;
    l->size = size;
    l->head = 0;
    l->tail = tail;
    return true;
}

/* Returns whether `size` bytes fit at the tail, which may have to return to the beginning first. */
static bool ring_fits(struct link *l, uint64_t size)
{
    if (!l->ring)
        return false;
    if (l->in_ring == 0)
        l->head = l->tail = 0;
    if (l->tail < l->head)
        return l->tail + size < l->head;
    if (l->tail + size <= l->size)
        return l->in_ring == 0 || behind(l, l->tail, size) != l->head;
    if (l->in_ring == 0 || size >= l->head)
        return false;
    at(l, l->tail)->length = SKIP;
    l->tail = 0;
    return true;
}

static bool ring_push(struct link *l, const struct held *head, const uint8_t *packet)
{
    uint64_t size = record_size(head->length);
    while (!ring_fits(l, size))
        if (!ring_grow(l))
            return false;
    fill(at(l, l->tail), head, packet);
    l->tail = behind(l, l->tail, size);
    l->held_bytes += size;
    l->in_ring++;
    return true;
}

/* Packets that others may overtake, and copies */

static bool before(const struct held *a, const struct held *b)
{
    return a->due < b->due || (a->due == b->due && a->number < b->number);
}

static bool heap_push(struct link *l, const struct held *head, const uint8_t *packet)
{
    if (l->in_heap == l->heap_size) {
        uint32_t size = 2 * l->heap_size + 64;
        struct held **heap = realloc(l->heap, size * sizeof *heap);
        if (!heap)
            return false;
        l->heap = heap;
        l->heap_size = size;
    }
    struct held *fresh = malloc(record_size(head->length));
    if (!fresh)
        return false;
    fill(fresh, head, packet);
    uint32_t i = l->in_heap++;
    for (; i > 0 && before(fresh, l->heap[(i - 1) / 2]); i = (i - 1) / 2)
        l->heap[i] = l->heap[(i - 1) / 2];
    l->heap[i] = fresh;
    l->held_bytes += record_size(head->length);
    return true;
}

static struct held *heap_pop(struct link *l)
{
    struct held *first = l->heap[0], *last = l->heap[--l->in_heap];
    uint32_t i = 0;
    for (uint32_t child; (child = 2 * i + 1) < l->in_heap; i = child) {
        if (child + 1 < l->in_heap && before(l->heap[child + 1], l->heap[child]))
            child++;
        if (!before(l->heap[child], last))
            break;
        l->heap[i] = l->heap[child];
    }
    l->heap[i] = last;
    l->held_bytes -= record_size(first->length);
    return first;
}

/* Returns when the next packet is due; NEVER: there is none. */
static uint64_t next_due(const struct link *l)
{
    uint64_t due = NEVER;
    if (l->in_ring)
        due = at(l, at(l, l->head)->length == SKIP ? 0 : l->head)->due;
    return l->in_heap && l->heap[0]->due < due ? l->heap[0]->due : due;
}

/* Returns when the first packet in the queues has waited long enough. */
static uint64_t next_free(const struct link *l)
{
    uint64_t since = NEVER;
    for (const struct queue *q = l->queues; l->in_queue && q < l->queues + PRIORITIES; q++)
        if (q->count && q->ring[q->head].since < since)
            since = q->ring[q->head].since;
    return since > l->free_at ? since : l->free_at;
}

/* Returns the queue to serve at a time, the one with the highest priority of all packets that have arrived by then. */
static struct queue *next_queue(struct link *l, uint64_t time)
{
    struct queue *q = l->queues + PRIORITIES - 1;
    while (!q->count || q->ring[q->head].since > time)
        q--;
    return q;
}

/* Returns the time of the next event; NEVER: there is none. */
uint64_t link_next(const struct link *l)
{
    uint64_t due = next_due(l), start = next_free(l);
    return start < due ? start : due;
}

static void hand_over(struct link *l, uint64_t now, const struct held *head, uint8_t *packet)
{
    struct link_statistics *s = &l->statistics;
    uint64_t lateness = now - head->due;
    s->sent++;
    s->sent_bytes += head->length;
    s->lateness_sum += lateness;
    s->late += lateness > LATE;
    if (lateness > s->lateness_most)
        s->lateness_most = lateness;
    l->release(l->context, packet, head->length, head->checksum < 0 ? NULL : packet + head->checksum,
               head->checksum_offset);
}

static bool queue_grow(struct queue *q)
{
    uint32_t size = 2 * q->size + 64;
    struct wait *ring = malloc(size * sizeof *ring);
    if (!ring)
        return false;
    for (uint32_t i = 0; i < q->count; i++)
        ring[i] = q->ring[(q->head + i) % q->size];
    free(q->ring);
    q->ring = ring;
    q->size = size;
    q->head = 0;
    return true;
}

/* Returns `room` bytes of memory for a packet of `length` bytes that has to wait in the queue of its priority. NULL:
 * it need not wait, or the queue is full and it is dropped. */
void *link_wait(struct link *l, uint64_t now, uint32_t priority, uint32_t length, size_t room, uint16_t checksum_offset,
                bool *dropped)
{
    struct queue *q = l->queues + priority % PRIORITIES;
    *dropped = false;
    if (!l->byte_time || (!l->in_queue && l->free_at <= now))
        return NULL;
    struct wait w = {.since = now,
                     .bytes = units_of(l, length),
                     .room = room,
                     .found = q->count,
                     .checksum_offset = checksum_offset};
    uint64_t busy = l->free_at > now ? l->free_at - now : 0;
    bool full = busy + sending_time(l, q->bytes + w.bytes) > l->room || q->count >= l->settings.queue_packets;
    if (!full && l->held_bytes + room <= MAX_HELD && (q->count < q->size || queue_grow(q)))
        w.packet = malloc(room);
    if (!w.packet) {
        l->statistics.offered++;
        *(full ? &l->statistics.queue_dropped : &l->statistics.memory_dropped) += 1;
        *dropped = true;
        return NULL;
    }
    q->ring[(q->head + q->count++) % q->size] = w;
    q->bytes += w.bytes;
    l->in_queue++;
    l->queued += w.bytes;
    l->held_bytes += room;
    note_highest(l, busy + sending_time(l, l->queued));
    return w.packet;
}

static void dequeue(struct link *l)
{
    uint64_t until = next_free(l);
    struct queue *q = next_queue(l, until);
    struct wait w = q->ring[q->head];
    q->head = (q->head + 1) % q->size;
    w.left = --q->count;
    w.until = until;
    q->bytes -= w.bytes;
    l->in_queue--;
    l->queued -= w.bytes;
    l->held_bytes -= w.room;
    l->waited = until - w.since;
    l->dequeue(l->context, &w);
    l->waited = 0;
    free(w.packet);
}

/* Releases every packet that is due. */
void link_release(struct link *l, uint64_t now)
{
    while (link_next(l) <= now) {
        if (next_free(l) <= next_due(l)) {
            dequeue(l);
            continue;
        }
        struct held *ringed = l->in_ring ? ring_first(l) : NULL;
        if (l->in_heap && !(ringed && !before(l->heap[0], ringed))) {
            struct held *first = heap_pop(l);
            hand_over(l, now, first, (uint8_t *)(first + 1));
            free(first);
        } else {
            hand_over(l, now, ringed, (uint8_t *)(ringed + 1));
            ring_pop(l);
        }
    }
}

/* Effects of a link on a packet */

/* Sets Congestion Experienced if the packet is ECN-capable (RFC 3168, section 5). Returns whether it did. */
static bool mark(uint8_t *packet, uint32_t length)
{
    if (length < ETHERNET)
        return false;
    uint32_t network = ETHERNET;
    while (network + 4 < length && load_be16(packet + network - 2) == 0x8100)
        network += 4;
    uint16_t ethertype = load_be16(packet + network - 2);
    uint8_t *ip = packet + network;
    if (ethertype == 0x0800 && length >= network + 20) {
        uint16_t old = load_be16(ip);
        if (!(old & ECN_MARKED) || (old & ECN_MARKED) == ECN_MARKED)
            return false;
        store_be16(ip, old | ECN_MARKED);
        /* RFC 1624: the checksum of a header in which one word has changed */
        uint16_t sum = checksum_fold((uint32_t)(uint16_t)~load_be16(ip + 10) + (uint16_t)~old + (old | ECN_MARKED));
        store_be16(ip + 10, (uint16_t)~sum);
        return true;
    }
    if (ethertype == 0x86dd && length >= network + 40) {
        unsigned codepoint = ip[1] >> 4 & ECN_MARKED; /* of the traffic class, which begins in the first byte */
        if (codepoint == 0 || codepoint == ECN_MARKED)
            return false;
        ip[1] |= ECN_MARKED << 4;
        return true;
    }
    return false;
}

/* Returns the counter of the kind of loss that a packet suffers, or NULL. */
static uint64_t *loss(struct link *l, uint64_t number)
{
    const struct link_settings *p = &l->settings;
    if (p->burst_begin > 0) {
        double step = draw(l, number, BURST);
        l->in_burst = l->in_burst ? step >= p->burst_end : step < p->burst_begin;
    } else {
        l->in_burst = false;
    }
    if (happens(l, number, LOSS, p->loss))
        return &l->statistics.lost;
    return l->in_burst && happens(l, number, BURST_LOSS, p->burst_loss) ? &l->statistics.burst_lost : NULL;
}

/* Returns a copy of a packet with one random bit flipped, or NULL without memory. A copy, because others may use the
 * packet itself. Its checksum is complete by then: the sender's network card has summed the correct data. */
static uint8_t *corrupt(struct link *l, struct held *head, const uint8_t *packet)
{
    uint8_t *copy = realloc(l->corrupted, head->length);
    if (!copy)
        return NULL;
    l->corrupted = copy;
    memcpy(copy, packet, head->length);
    if (head->checksum >= 0)
        complete_checksum(copy + head->checksum, head->checksum_offset, copy + head->length);
    head->checksum = -1;
    uint64_t bit = (uint64_t)(draw(l, head->number, BIT) * 8 * head->length);
    copy[bit / 8] ^= (uint8_t)(0x80 >> bit % 8);
    return copy;
}

/* Holds a packet until it is due; `ordered`: after those that are held already. */
static void hold(struct link *l, const struct held *head, const uint8_t *packet, bool ordered)
{
    bool held = l->held_bytes + record_size(head->length) <= MAX_HELD &&
                (ordered ? ring_push(l, head, packet) : heap_push(l, head, packet));
    l->statistics.memory_dropped += !held;
}

/* Gives a packet to the link, which may change it. `checksum` points at a partial checksum in the packet, or is
 * NULL; `checksum_offset` is its offset in its header. A packet that is due at once is released at once if no other
 * is due. */
void link_offer(struct link *l, uint64_t now, uint8_t *packet, uint32_t length, const uint8_t *checksum,
                uint16_t checksum_offset)
{
    const struct link_settings *p = &l->settings;
    struct link_statistics *s = &l->statistics;
    struct held head = {.number = s->offered++,
                        .length = length,
                        .checksum = checksum ? (int32_t)(checksum - packet) : -1,
                        .checksum_offset = checksum_offset};
    uint64_t *lost = loss(l, head.number);

    uint64_t waiting = l->free_at > now ? l->free_at - now : 0;
    uint64_t sent = waiting + sending_time(l, units_of(l, length));
    if (sent > l->room) {
        s->queue_dropped++;
        return;
    }
    l->free_at = now + sent;
    note_highest(l, sent);
    if (lost) {
        ++*lost;
        return;
    }
    if (waiting + l->waited > l->mark)
        s->marked += mark(packet, length);
    if (happens(l, head.number, CORRUPTION, p->corruption)) {
        packet = corrupt(l, &head, packet);
        *(packet ? &s->corrupted : &s->memory_dropped) += 1;
        if (!packet)
            return;
    }

    uint64_t due = l->free_at + picoseconds(p->delay);
    if (p->jitter > 0)
        due += picoseconds(draw(l, head.number, JITTER) * p->jitter);
    if (due < l->floor)
        due = l->floor;
    bool late = happens(l, head.number, REORDERING, p->reordering);
    head.due = due + (late ? picoseconds(draw(l, head.number, LATER) * p->displacement) : 0);
    s->reordered += late;
    if (!late)
        l->floor = due;
    struct held copy = head;
    bool twice = happens(l, head.number, DUPLICATION, p->duplication);
    copy.due += twice ? picoseconds(draw(l, head.number, COPY_LATER) * p->displacement) : 0;
    s->duplicated += twice;
    if (head.due <= now && next_due(l) > head.due) {
        if (twice) /* before the packet is given to a function that may change it */
            hold(l, &copy, packet, false);
        hand_over(l, now, &head, packet);
        return;
    }
    hold(l, &head, packet, !late);
    if (twice)
        hold(l, &copy, packet, false);
}

/* Reads the statistics and the present size of the queue. */
void link_read(const struct link *l, uint64_t now, struct link_statistics *to)
{
    *to = l->statistics;
    to->queue_bytes = queue_bytes(l, l->free_at > now ? l->free_at - now : 0) + l->queued;
    to->held = l->in_ring + l->in_heap + l->in_queue;
}
