/* One worker: participant.py's HostBasedWorker. */

#include "peers.h"
#include "shared.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

SHARE_STRUCT(worker, FIELD(initial_rto) FIELD(min_rto) FIELD(max_rto) FIELD(granularity) FIELD(rank) FIELD(workers)
             FIELD(flows) FIELD(window) FIELD(session) FIELD(transport) FIELD(per_host) FIELD(packet_threshold)
             FIELD(payload) FIELD(control) FIELD(least) FIELD(first_window) FIELD(initial_ssthresh) FIELD(always)
             FIELD(gain) FIELD(alpha) FIELD(source) FIELD(array) FIELD(call) FIELD(running) FIELD(heard)
             FIELD(summed_at) FIELD(datagrams_sent) FIELD(datagrams_received) FIELD(bytes_sent) FIELD(bytes_received)
             FIELD(retransmissions) FIELD(timeouts) FIELD(malformed) FIELD(other_session) FIELD(duplicate) FIELD(early)
             FIELD(other_rank) FIELD(other_call))
SHARE_STRUCT(batch, FIELD(peer) FIELD(flow) FIELD(kind) FIELD(count) FIELD(size) FIELD(offset))
SHARE_STRUCT(piece, FIELD(start) FIELD(stop) FIELD(after) FIELD(needed) FIELD(reduce))
SHARE_NUMBER(MAX_PAYLOAD);
SHARE_NUMBER(HEADER_BYTES);
SHARE_NUMBER(CALL_BYTES);
SHARE_NUMBER(ENDS);
SHARE_NUMBER(MIN_FLIGHT);
SHARE_NUMBER(MAX_BACKOFF);
SHARE_NUMBER(LEAST_SHARE);
SHARE_NUMBER(DATA);
SHARE_NUMBER(ACK);
SHARE_NUMBER(NAK);

/* Makes room for `needed` elements of `size` bytes; `array` points to the pointer to them. */
bool make_room(struct state *s, void *array, size_t *room, size_t needed, size_t size)
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

static void put(uint8_t *to, uint64_t value, int bytes)
{
    while (bytes--) {
        to[bytes] = (uint8_t)value;
        value >>= 8;
    }
}

void put_header(const struct state *s, const struct flow *flow, int kind, uint64_t number, uint32_t last, uint8_t *to)
{
    to[0] = (uint8_t)kind;
    to[1] = (uint8_t)flow->number;
    put(to + 2, (uint64_t)s->worker->rank, 2);
    put(to + 4, (uint64_t)flow->peer->rank, 2);
    put(to + 6, (uint64_t)s->worker->session, 4);
    put(to + ENDS, number, 8);
    put(to + ENDS + 8, last, CALL_BYTES);
}

/* Adds a batch to the output and returns where its datagrams go; NULL if there is no memory. */
uint8_t *add_batch(struct state *s, const struct flow *flow, int kind, int64_t count, int64_t size)
{
    size_t bytes = (size_t)(count * size);
    if (!make_room(s, &s->batches, &s->batch_room, s->batch_count + 1, sizeof *s->batches) ||
        !make_room(s, &s->output, &s->output_room, s->output_size + bytes, 1))
        return NULL;
    s->batches[s->batch_count++] =
        (struct batch){flow->peer->rank, flow->number, kind, count, size, (int64_t)s->output_size};
    s->output_size += bytes;
    return s->output + s->output_size - bytes;
}

/* -- peers ----------------------------------------------------------------------------------------------------------- */

static size_t place_of(const struct state *s, int64_t rank)
{
    size_t at = (size_t)rank * 0x9e3779b1u % s->table_room;
    while (s->table[at] && s->table[at]->rank != rank)
        at = (at + 1) % s->table_room;
    return at;
}

/* Returns the peer of a rank, which is made if there is none yet; NULL if there is no memory. */
static struct peer *peer_of(struct state *s, int64_t rank)
{
    if (2 * s->peers >= s->table_room) {
        size_t room = s->table_room;
        struct peer **before = s->table, **after = calloc(2 * room + 8, sizeof *after);
        if (!after) {
            s->failed = true;
            return NULL;
        }
        s->table = after;
        s->table_room = 2 * room + 8;
        for (size_t i = 0; i < room; i++)
            if (before[i])
                after[place_of(s, before[i]->rank)] = before[i];
        free(before);
    }
    size_t at = place_of(s, rank);
    if (!s->table[at] && (s->table[at] = calloc(1, sizeof **s->table))) {
        s->table[at]->rank = rank;
        s->peers++;
    }
    s->failed |= !s->table[at];
    return s->table[at];
}

static void close_flow(struct flow *flow)
{
    struct receiver *in = &flow->in;
    for (size_t i = in->first; i < in->end; i++)
        free(in->waiting[i].bytes);
    free(in->waiting);
    free(in->early);
    free(flow->out.messages);
    free(flow->out.sent_at);
    free(flow->out.lost);
    free(flow->out.missing);
    free(flow->out.sent_after);
    free(flow->out.there);
}

static bool open_flow(struct state *s, struct flow *flow, struct peer *peer, int64_t number)
{
    const struct worker *w = s->worker;
    size_t window = (size_t)w->window;
    struct sender *out = &flow->out;
    flow->peer = peer;
    flow->number = number;
    out->highest = out->asked_for = flow->in.asked_for = -1;
    out->smoothed = NAN;
    out->rto = w->initial_rto;
    out->size = (double)w->first_window;
    out->share = w->alpha;
    out->ssthresh = (double)w->initial_ssthresh;
    flow->in.answer = -1;
    if (w->transport == GO_BACK_N)
        return true;
    out->lost = malloc(window * sizeof *out->lost);
    out->missing = malloc(window * sizeof *out->missing);
    out->sent_after = calloc(window, sizeof *out->sent_after);
    out->there = calloc(window, sizeof *out->there);
    flow->in.early = calloc(window, sizeof *flow->in.early);
    return out->lost && out->missing && out->sent_after && out->there && flow->in.early;
}

/* Opens the flows to a peer at the first contact. */
static bool contact(struct state *s, struct peer *peer)
{
    if (peer->flows)
        return true;
    peer->flows = calloc((size_t)s->worker->flows, sizeof *peer->flows);
    if (!peer->flows || !make_room(s, &s->order, &s->order_room, s->contacts + 1, sizeof *s->order)) {
        s->failed = true;
        return false;
    }
    for (int64_t number = 0; number < s->worker->flows; number++)
        s->failed |= !open_flow(s, peer->flows + number, peer, number);
    s->order[s->contacts++] = peer;
    return !s->failed;
}

/* -- the array ------------------------------------------------------------------------------------------------------- */

static bool may(struct state *s, const struct piece *piece)
{
    if (piece->after < 0)
        return true;
    const struct peer *after = peer_of(s, piece->after);
    return after && after->done >= piece->needed;
}

/* Adds a payload, which has its call in front, to the array, or stores it there. Returns false if it must wait. */
bool process_payload(struct state *s, struct flow *flow, const uint8_t *with_call, int64_t size)
{
    struct worker *w = s->worker;
    struct peer *peer = flow->peer;
    if (!w->running || s->differs || flow->number != peer->received % w->flows || !peer->receives_left ||
        !may(s, peer->receives))
        return false;
    struct piece *piece = peer->receives;
    int64_t first = piece->start + peer->offset, left = 4 * (piece->stop - first);
    int64_t call = (int64_t)read_number(with_call, CALL_BYTES);
    if (size != (left < w->payload ? left : w->payload) || call != w->call) {
        s->differs = true;
        w->other_rank = peer->rank;
        w->other_call = call;
        return false;
    }
    float *part = w->array + first, values[MAX_PAYLOAD / 4];
    memcpy(values, with_call + CALL_BYTES, (size_t)size);
    if (piece->reduce)
        for (int64_t i = 0; i < size / 4; i++)
            part[i] += values[i];
    else
        memcpy(part, values, (size_t)size);
    peer->offset += size / 4;
    if (first + size / 4 == piece->stop) {
        peer->offset = 0;
        peer->received++;
        peer->done++;
        peer->receives++;
        peer->receives_left--;
        s->receiving--;
    }
    return true;
}

static bool process_waiting(struct state *s, struct flow *flow)
{
    struct receiver *in = &flow->in;
    bool moved = false;
    while (in->first < in->end && process_payload(s, flow, in->waiting[in->first].bytes, in->waiting[in->first].size)) {
        free(in->waiting[in->first++].bytes);
        moved = true;
    }
    return moved;
}

static void add_busy(struct state *s, struct flow *flow)
{
    if (flow->busy || !make_room(s, &s->busy, &s->busy_room, s->busy_count + 1, sizeof *s->busy))
        return;
    flow->busy = true;
    s->busy[s->busy_count++] = flow;
}

static void remove_busy(struct state *s, struct flow *flow)
{
    size_t at = 0;
    if (!flow->busy)
        return;
    while (s->busy[at] != flow)
        at++;
    memmove(s->busy + at, s->busy + at + 1, (--s->busy_count - at) * sizeof *s->busy);
    flow->busy = false;
}

/* Processes what waits, and writes pieces, until nothing more can be done. */
static void advance(struct state *s)
{
    struct worker *w = s->worker;
    if (!w->running)
        return;
    for (bool moved = true; moved;) {
        moved = false;
        for (size_t i = 0; i < s->contacts; i++)
            for (int64_t number = 0; number < w->flows; number++)
                moved |= process_waiting(s, s->order[i]->flows + number);
    }
    size_t left = 0;
    for (size_t i = 0; i < s->sending_count; i++) {
        struct peer *peer = s->sending[i];
        for (; peer->sends_left && may(s, peer->sends) && contact(s, peer); peer->sends++, peer->sends_left--) {
            struct flow *flow = peer->flows + peer->sent++ % w->flows;
            write_message(s, &flow->out, w->source + 4 * peer->sends->start,
                          4 * (peer->sends->stop - peer->sends->start));
            add_busy(s, flow);
        }
        if (peer->sends_left)
            s->sending[left++] = peer;
    }
    s->sending_count = left;
}

/* -- what Python calls ----------------------------------------------------------------------------------------------- */

static int outcome(const struct state *s)
{
    return s->failed ? NO_MEMORY : s->differs ? OTHER_CALL : FINE;
}

struct state *peers_open(struct worker *worker)
{
    struct state *s = calloc(1, sizeof *s);
    if (s)
        s->worker = worker;
    worker->summed_at = NAN;
    return s;
}

void peers_close(struct state *s)
{
    for (size_t i = 0; i < s->contacts; i++) {
        struct peer *peer = s->order[i];
        for (int64_t number = 0; number < s->worker->flows; number++) {
            struct flow *flow = peer->flows + number;
            for (int64_t n = 0; flow->in.early && n < s->worker->window; n++)
                free(flow->in.early[n].bytes);
            close_flow(flow);
        }
        free(peer->flows);
    }
    for (size_t i = 0; i < s->table_room; i++)
        free(s->table[i]);
    free(s->table);
    free(s->order);
    free(s->sending);
    free(s->busy);
    free(s->answering);
    free(s->batches);
    free(s->output);
    free(s->gathered);
    free(s->marks);
    free(s);
}

static void note_sum(struct state *s, double now)
{
    if (!s->receiving && isnan(s->worker->summed_at))
        s->worker->summed_at = now;
}

/* Begins a call. `streams` has a row for each stream of pieces: its peer, whether pieces go to it (1) or come from it (0), and
 * their number. The pieces of all streams follow one another. The array, and pieces, stay in Python's memory. */
int peers_start(struct state *s, const int64_t (*streams)[3], int64_t count, struct piece *pieces, double now)
{
    s->receiving = 0;
    s->sending_count = 0;
    for (size_t i = 0; i < s->table_room; i++)
        if (s->table[i])
            s->table[i]->sends_left = s->table[i]->receives_left = s->table[i]->done = 0;
    for (int64_t i = 0; i < count; pieces += streams[i++][2]) {
        struct peer *peer = peer_of(s, streams[i][0]);
        if (!peer || !make_room(s, &s->sending, &s->sending_room, s->sending_count + 1, sizeof *s->sending))
            return NO_MEMORY;
        if (streams[i][1]) {
            peer->sends = pieces;
            peer->sends_left = streams[i][2];
            s->sending[s->sending_count++] = peer;
        } else {
            peer->receives = pieces;
            peer->receives_left = streams[i][2];
            s->receiving += streams[i][2];
        }
    }
    s->worker->running = 1;
    s->worker->heard = now;
    s->worker->summed_at = NAN;
    advance(s);
    note_sum(s, now);
    return outcome(s);
}

/* Whether the sum is there and all that was sent has been acknowledged. */
bool peers_finished(const struct state *s)
{
    return !s->worker->running || !(s->receiving || s->sending_count || s->busy_count);
}

/* Processes datagrams of one kind, of one peer's flow, [count, size] bytes. */
static void take(struct state *s, const uint8_t *datagrams, int64_t count, int64_t size, int64_t marked, double now)
{
    struct worker *w = s->worker;
    int kind = datagrams[0];
    int64_t number = datagrams[1], source = (int64_t)read_number(datagrams + 2, 2);
    if ((int64_t)read_number(datagrams + 6, 4) != w->session || (int64_t)read_number(datagrams + 4, 2) != w->rank) {
        w->other_session += count;
        return;
    }
    if (source >= w->workers || source == w->rank || number >= w->flows || kind > NAK) {
        w->malformed += count;
        return;
    }
    struct peer *peer = peer_of(s, source);
    if (!peer || !contact(s, peer))
        return;
    struct flow *flow = peer->flows + number;
    if (kind != DATA) {
        for (int64_t i = 0; i < count; i++, datagrams += size)
            if (acknowledge(s, &flow->out, kind, (int64_t)read_number(datagrams + ENDS, 8),
                            (int64_t)read_number(datagrams + ENDS + 8, 4), datagrams + HEADER_BYTES, size - HEADER_BYTES, now))
                w->heard = now;
        if (flow->out.base == flow->out.end)
            remove_busy(s, flow);
        return;
    }
    if (size <= HEADER_BYTES || size > HEADER_BYTES + w->payload) {
        w->malformed += count;
        return;
    }
    if (!flow->answering && make_room(s, &s->answering, &s->answering_room, s->answering_count + 1, sizeof flow)) {
        flow->answering = true;
        s->answering[s->answering_count++] = flow;
    }
    bool applied = false;
    if (accept_packets(s, flow, datagrams, count, size, marked, &applied))
        w->heard = now;
    if (applied) {
        advance(s);
        note_sum(s, now);
    }
}

/* Processes datagrams, [count, size] bytes; `marked` has a byte for each, or is NULL. Several peers or kinds are processed one
 * after the other, in the order of their headers. */
int peers_receive(struct state *s, const uint8_t *datagrams, int64_t count, int64_t size, const uint8_t *marked, double now)
{
    struct worker *w = s->worker;
    w->datagrams_received += count;
    w->bytes_received += count * size;
    if (size < HEADER_BYTES) {
        w->malformed += count;
        return FINE;
    }
    int64_t alike = 1, marks = 0;
    while (alike < count && !memcmp(datagrams, datagrams + alike * size, ENDS))
        alike++;
    for (int64_t i = 0; marked && i < count; i++)
        marks += marked[i];
    if (alike == count) {
        take(s, datagrams, count, size, marks, now);
        return outcome(s);
    }
    uint8_t *gathered = malloc((size_t)(count * size));
    if (!gathered)
        return NO_MEMORY;
    const uint8_t *before = NULL;
    for (int64_t done = 0; done < count && !s->differs;) {
        const uint8_t *least = NULL;
        for (int64_t i = 0; i < count; i++) {
            const uint8_t *at = datagrams + i * size;
            if ((!before || memcmp(at, before, ENDS) > 0) && (!least || memcmp(at, least, ENDS) < 0))
                least = at;
        }
        int64_t found = 0;
        marks = 0;
        for (int64_t i = 0; i < count; i++)
            if (!memcmp(datagrams + i * size, least, ENDS)) {
                memcpy(gathered + found++ * size, datagrams + i * size, (size_t)size);
                marks += marked && marked[i];
            }
        take(s, gathered, found, size, marks, now);
        before = least;
        done += found;
    }
    free(gathered);
    return outcome(s);
}

/* Offsets in a frame of UDP over IPv4. */
enum { TYPE = 12, IP = 14, TOS = 15, PROTOCOL = 23, TO = 30, UDP = 34, UDP_LENGTH = 38, UDP_CHECKSUM = 40, HEADERS = 42 };
enum { CONGESTED = 3 }; /* of TOS, RFC 3168 */

static uint64_t sum_of(const uint8_t *from, int64_t bytes)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i + 1 < bytes; i += 2)
        sum += (uint64_t)(from[i] << 8 | from[i + 1]);
    return bytes % 2 ? sum + (uint64_t)(from[bytes - 1] << 8) : sum;
}

/* Whether a frame carries UDP over IPv4 to this address, with right checksums: stations.py's FrameFilter. */
static bool is_ours(const uint8_t *frame, int64_t length, const uint8_t address[4])
{
    if (length < HEADERS || frame[TYPE] != 8 || frame[TYPE + 1] || frame[PROTOCOL] != 17 ||
        memcmp(frame + TO, address, 4) || sum_of(frame + IP, UDP - IP) % 0xffff)
        return false;
    return !(frame[UDP_CHECKSUM] || frame[UDP_CHECKSUM + 1]) ||
           (sum_of(frame + TO - 4, length - TO + 4) + sum_of(frame + UDP_LENGTH, 2) + 17) % 0xffff == 0;
}

/* Processes frames, which have these lengths and begin `stride` bytes apart, as far as they are datagrams to this address.
 * `others` receives the number of those that are not. Datagrams of one length that follow one another are one batch. */
int peers_receive_frames(struct state *s, const uint8_t *frames, int64_t stride, const int64_t *lengths, int64_t count,
                         const uint8_t *address, double now, int64_t *others)
{
    *others = 0;
    for (int64_t i = 0, end; i < count; i = end) {
        int64_t length = lengths[i], size = length - HEADERS, found = 0;
        for (end = i + 1; end < count && lengths[end] == length;)
            end++;
        if (length >= HEADERS &&
            !(make_room(s, &s->gathered, &s->gather_room, (size_t)((end - i) * size), 1) &&
              make_room(s, &s->marks, &s->marks_room, (size_t)(end - i), 1)))
            return NO_MEMORY;
        for (int64_t at = i; at < end; at++) {
            const uint8_t *frame = frames + at * stride;
            if (!is_ours(frame, length, address))
                continue;
            memcpy(s->gathered + found * size, frame + HEADERS, (size_t)size);
            s->marks[found++] = (frame[TOS] & CONGESTED) == CONGESTED;
        }
        *others += end - i - found;
        int result = found ? peers_receive(s, s->gathered, found, size, s->marks, now) : FINE;
        if (result != FINE)
            return result;
    }
    return FINE;
}

static int in_order(const void *a, const void *b)
{
    const struct flow *x = *(struct flow *const *)a, *y = *(struct flow *const *)b;
    if (x->peer->rank != y->peer->rank)
        return x->peer->rank < y->peer->rank ? -1 : 1;
    return (x->number > y->number) - (x->number < y->number);
}

static int64_t outstanding(const struct state *s)
{
    int64_t sum = 0;
    for (size_t i = 0; i < s->busy_count; i++)
        sum += s->busy[i]->out.sent - s->busy[i]->out.base;
    return sum;
}

/* Makes the output: acknowledgements, then data. Returns the number of batches; -1 if there is no memory. */
int64_t peers_send(struct state *s, double now, const struct batch **batches, const uint8_t **output)
{
    struct worker *w = s->worker;
    s->batch_count = s->output_size = 0;
    if (s->answering_count > 1)
        qsort(s->answering, s->answering_count, sizeof *s->answering, in_order);
    for (size_t i = 0; i < s->answering_count; i++) {
        s->answering[i]->answering = false;
        send_answer(s, s->answering[i]);
    }
    s->answering_count = 0;
    int64_t room = w->per_host ? w->window - outstanding(s) : 0;
    for (size_t i = 0; i < s->busy_count; i++) {
        struct flow *flow = s->busy[i];
        int64_t share = -1, before = flow->out.sent - flow->out.base;
        if (w->per_host) {
            int64_t left = (int64_t)(s->busy_count - i), part = room > 0 ? (room + left - 1) / left : 0;
            share = part > LEAST_SHARE ? part : LEAST_SHARE;
            share = room < share ? room : share;
            share = share > 0 ? share : 0;
        }
        send_from(s, flow, now, share);
        room -= flow->out.sent - flow->out.base - before;
    }
    if (s->busy_count > 1) { /* start with another one next time */
        struct flow *first = s->busy[0];
        memmove(s->busy, s->busy + 1, (s->busy_count - 1) * sizeof *s->busy);
        s->busy[s->busy_count - 1] = first;
    }
    for (size_t i = 0; i < s->batch_count; i++)
        w->datagrams_sent += s->batches[i].count;
    w->bytes_sent += (int64_t)s->output_size;
    *batches = s->batches;
    *output = s->output;
    return s->failed ? -1 : (int64_t)s->batch_count;
}

/* Returns when a flow must act next; infinity if none has to. */
double peers_deadline(const struct state *s)
{
    double earliest = INFINITY;
    for (size_t i = 0; i < s->busy_count; i++)
        earliest = fmin(earliest, sender_deadline(s, &s->busy[i]->out));
    return earliest;
}

/* Writes the ranks from which pieces (`from`) or acknowledgements are awaited, and returns how many there are. */
int64_t peers_awaited(const struct state *s, bool from, int64_t *ranks)
{
    int64_t count = 0;
    if (!from)
        for (size_t i = 0; i < s->busy_count; i++)
            ranks[count++] = s->busy[i]->peer->rank;
    else
        for (size_t i = 0; i < s->table_room; i++)
            if (s->table[i] && s->table[i]->receives_left)
                ranks[count++] = s->table[i]->rank;
    return count;
}
