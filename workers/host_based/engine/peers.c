/* One worker: participant.py's HostBasedWorker. */

#include "peers.h"
#include "shared.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

SHARE_STRUCT(worker, FIELD(streams) FIELD(rank) FIELD(workers) FIELD(flows) FIELD(session) FIELD(per_host) FIELD(give_up)
             FIELD(header) FIELD(addresses) FIELD(first_port) FIELD(source) FIELD(array) FIELD(call) FIELD(running) FIELD(heard) FIELD(summed_at) FIELD(datagrams_sent)
             FIELD(datagrams_received) FIELD(bytes_sent) FIELD(bytes_received) FIELD(other_session) FIELD(differs) FIELD(other_rank)
             FIELD(other_call))
SHARE_STRUCT(batch, FIELD(peer) FIELD(flow) FIELD(count) FIELD(size) FIELD(offset))
SHARE_STRUCT(piece, FIELD(start) FIELD(stop) FIELD(after) FIELD(needed) FIELD(reduce))
SHARE_NUMBER(LEAST_SHARE);

static struct state *state_of(struct streams *streams)
{
    return (struct state *)((char *)streams - offsetof(struct state, streams));
}

static struct flow *flow_of(struct stream *stream) { return (struct flow *)((char *)stream - offsetof(struct flow, stream)); }

/* Counts a batch, and passes it on; the batch_function of the streams. */
static uint8_t *const *count_batch(void *context, struct connection *connection, bool acknowledges, int64_t count, int64_t size)
{
    const struct state *s = context;
    s->worker->datagrams_sent += count;
    s->worker->bytes_sent += count * size;
    return s->batch(s->context, connection, acknowledges, count, size);
}

/* Adds a batch to the output; a batch_function. */
static uint8_t *const *add_batch(void *context, struct connection *connection, bool acknowledges, int64_t count, int64_t size)
{
    struct state *s = context;
    const struct flow *flow = flow_of((struct stream *)((char *)connection - offsetof(struct stream, connection)));
    size_t bytes = (size_t)(count * size);
    (void)acknowledges;
    if (!make_room(&s->streams, &s->batches, &s->batch_room, s->batch_count + 1, sizeof *s->batches) ||
        !make_room(&s->streams, &s->output, &s->output_room, s->output_size + bytes, 1) ||
        !make_room(&s->streams, &s->places, &s->place_room, (size_t)count, sizeof *s->places))
        return NULL;
    s->batches[s->batch_count++] = (struct batch){flow->peer->rank, flow->number, count, size, (int64_t)s->output_size};
    for (int64_t i = 0; i < count; i++, s->output_size += (size_t)size)
        s->places[i] = s->output + s->output_size;
    return s->places;
}

enum { TO = 30, UDP = 34 }; /* offsets in a frame: the destination's address, the ports */

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
            s->streams.failed = true;
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
    s->streams.failed |= !s->table[at];
    return s->table[at];
}

/* Writes the headers of the frames of a flow: to the peer's address, and with the ports of both. */
static void write_frame_header(const struct worker *w, struct flow *flow)
{
    int64_t from = w->first_port + flow->peer->rank * w->flows + flow->number;
    int64_t to = w->first_port + w->rank * w->flows + flow->number;
    memcpy(flow->header, w->header, FRAME_HEADER);
    memcpy(flow->header + TO, w->addresses[flow->peer->rank], sizeof *w->addresses);
    for (int i = 0; i < 2; i++) {
        flow->header[UDP + i] = (uint8_t)(from >> 8 * (1 - i));
        flow->header[UDP + 2 + i] = (uint8_t)(to >> 8 * (1 - i));
    }
    flow->stream.connection.header = flow->header;
}

/* Opens the flows to a peer at the first contact. */
static bool contact(struct state *s, struct peer *peer)
{
    if (peer->flows)
        return true;
    peer->flows = calloc((size_t)s->worker->flows, sizeof *peer->flows);
    if (!peer->flows || !make_room(&s->streams, &s->order, &s->order_room, s->contacts + 1, sizeof *s->order)) {
        s->streams.failed = true;
        return false;
    }
    for (int64_t number = 0; number < s->worker->flows; number++) {
        struct flow *flow = peer->flows + number;
        flow->peer = peer;
        flow->number = number;
        if (s->worker->addresses)
            write_frame_header(s->worker, flow);
        stream_open(&s->streams, &flow->stream, (uint64_t)number, s->worker->rank, peer->rank, s->worker->session);
    }
    s->order[s->contacts++] = peer;
    return true;
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
static bool process_payload(struct streams *streams, struct stream *stream, const uint8_t *with_call, int64_t size)
{
    struct state *s = state_of(streams);
    const struct flow *flow = flow_of(stream);
    struct worker *w = s->worker;
    struct peer *peer = flow->peer;
    if (!w->running || w->differs || flow->number != peer->received % w->flows || !peer->receives_left ||
        !may(s, peer->receives))
        return false;
    struct piece *piece = peer->receives;
    int64_t first = piece->start + peer->offset, left = 4 * (piece->stop - first);
    int64_t call = (int64_t)read_number(with_call, CALL_BYTES);
    if (size != (left < w->streams.payload ? left : w->streams.payload) || call != w->call) {
        w->differs = true;
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
    struct receiver *in = &flow->stream.in;
    bool moved = false;
    for (; in->first < in->end; in->first++) {
        const struct payload *next = in->waiting + in->first;
        if (!process_payload(&s->streams, &flow->stream, next->bytes, next->size))
            break;
        free(next->bytes);
        moved = true;
    }
    return moved;
}

static void add_busy(struct state *s, struct flow *flow)
{
    if (flow->busy || !make_room(&s->streams, &s->busy, &s->busy_room, s->busy_count + 1, sizeof *s->busy))
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
            write_message(&s->streams, &flow->stream.out, w->source + 4 * peer->sends->start,
                          4 * (peer->sends->stop - peer->sends->start), (uint32_t)w->call);
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
    return s->streams.failed ? NO_MEMORY : s->worker->differs ? OTHER_CALL : FINE;
}

struct state *peers_open(struct worker *worker)
{
    struct state *s = calloc(1, sizeof *s);
    if (s) {
        s->worker = worker;
        s->streams = (struct streams){&worker->streams, process_payload, true, count_batch, s, false};
    }
    worker->summed_at = NAN;
    return s;
}

void peers_close(struct state *s)
{
    for (size_t i = 0; i < s->contacts; i++) {
        struct peer *peer = s->order[i];
        for (int64_t number = 0; number < s->worker->flows; number++)
            stream_close(&s->streams, &peer->flows[number].stream);
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
    free(s->places);
    free(s->received);
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
        if (!peer || !make_room(&s->streams, &s->sending, &s->sending_room, s->sending_count + 1, sizeof *s->sending))
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

/* Whether a call has ended, or has failed because nothing new has come or a packet of another call has; a needs_python_function. */
bool peers_need_python(const void *worker, double now)
{
    const struct state *s = worker;
    const struct worker *w = s->worker;
    return w->running && (w->differs || peers_finished(s) || now >= w->heard + w->give_up);
}

/* Processes datagrams of one kind, of one peer's flow. */
static void take(struct state *s, const struct datagrams *datagrams, double now)
{
    struct worker *w = s->worker;
    const uint8_t *first = datagrams->at[0];
    int kind = first[0];
    int64_t number = first[1], source = (int64_t)read_number(first + 2, 2);
    if ((int64_t)read_number(first + 6, 4) != w->session || (int64_t)read_number(first + 4, 2) != w->rank) {
        w->other_session += datagrams->count;
        return;
    }
    if (source >= w->workers || source == w->rank || number >= w->flows || kind > NAK) {
        w->streams.malformed += datagrams->count;
        return;
    }
    struct peer *peer = peer_of(s, source);
    if (!peer || !contact(s, peer))
        return;
    struct flow *flow = peer->flows + number;
    struct sender *out = &flow->stream.out;
    if (kind != DATA) {
        for (int64_t i = 0; i < datagrams->count; i++)
            if (acknowledge(&s->streams, out, datagrams->at[i], datagrams->size, now))
                w->heard = now;
        if (out->base == out->end)
            remove_busy(s, flow);
        return;
    }
    if (datagrams->size <= HEADER_BYTES || datagrams->size > HEADER_BYTES + w->streams.payload) {
        w->streams.malformed += datagrams->count;
        return;
    }
    if (!flow->answering &&
        make_room(&s->streams, &s->answering, &s->answering_room, s->answering_count + 1, sizeof flow)) {
        flow->answering = true;
        s->answering[s->answering_count++] = flow;
    }
    bool applied = false;
    if (accept_packets(&s->streams, &flow->stream, datagrams, &applied))
        w->heard = now;
    if (applied) {
        advance(s);
        note_sum(s, now);
    }
}

/* Processes datagrams. Several peers or kinds are processed one after the other, in the order of their headers. */
static int take_all(struct state *s, const struct datagrams *all, double now)
{
    struct worker *w = s->worker;
    int64_t alike = 1, count = all->count;
    w->datagrams_received += count;
    w->bytes_received += count * all->size;
    if (all->size < HEADER_BYTES) {
        w->streams.malformed += count;
        return FINE;
    }
    while (alike < count && !memcmp(all->at[0], all->at[alike], ENDS))
        alike++;
    if (alike == count) {
        take(s, all, now);
        return outcome(s);
    }
    const uint8_t **at = malloc((size_t)count * sizeof *at), *before = NULL;
    uint8_t *marks = malloc((size_t)count);
    for (int64_t done = 0; at && marks && done < count && !w->differs;) {
        const uint8_t *least = NULL;
        int64_t found = 0;
        for (int64_t i = 0; i < count; i++)
            if ((!before || memcmp(all->at[i], before, ENDS) > 0) && (!least || memcmp(all->at[i], least, ENDS) < 0))
                least = all->at[i];
        for (int64_t i = 0; i < count; i++)
            if (!memcmp(all->at[i], least, ENDS)) {
                at[found] = all->at[i];
                marks[found++] = all->marked[i];
            }
        take(s, &(struct datagrams){at, marks, found, all->size}, now);
        before = least;
        done += found;
    }
    s->streams.failed |= !at || !marks;
    free(at);
    free(marks);
    return outcome(s);
}

/* Processes datagrams that a card has received; a receive_function. */
bool peers_receive_by_card(void *worker, const struct datagrams *datagrams, double now)
{
    return take_all(worker, datagrams, now) != NO_MEMORY;
}

/* Processes datagrams, [count, size] bytes; `marked` has a byte for each, or is NULL. */
int peers_receive(struct state *s, const uint8_t *datagrams, int64_t count, int64_t size, const uint8_t *marked, double now)
{
    if (!make_room(&s->streams, &s->received, &s->received_room, (size_t)count, sizeof *s->received) ||
        !make_room(&s->streams, &s->marks, &s->mark_room, (size_t)count, 1))
        return NO_MEMORY;
    for (int64_t i = 0; i < count; i++) {
        s->received[i] = datagrams + i * size;
        s->marks[i] = marked && marked[i];
    }
    return take_all(s, &(struct datagrams){s->received, s->marks, count, size}, now);
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
        sum += s->busy[i]->stream.out.sent - s->busy[i]->stream.out.base;
    return sum;
}

/* Sends acknowledgements, then data. */
static void send_all(struct state *s, double now)
{
    const struct worker *w = s->worker;
    if (s->answering_count > 1)
        qsort(s->answering, s->answering_count, sizeof *s->answering, in_order);
    for (size_t i = 0; i < s->answering_count; i++) {
        s->answering[i]->answering = false;
        send_answer(&s->streams, &s->answering[i]->stream);
    }
    s->answering_count = 0;
    int64_t room = w->per_host ? w->streams.window - outstanding(s) : 0;
    for (size_t i = 0; i < s->busy_count; i++) {
        struct flow *flow = s->busy[i];
        int64_t share = -1, before = flow->stream.out.sent - flow->stream.out.base;
        if (w->per_host) {
            int64_t left = (int64_t)(s->busy_count - i), part = room > 0 ? (room + left - 1) / left : 0;
            share = part > LEAST_SHARE ? part : LEAST_SHARE;
            share = room < share ? room : share;
            share = share > 0 ? share : 0;
        }
        send_from(&s->streams, &flow->stream, now, share);
        room -= flow->stream.out.sent - flow->stream.out.base - before;
    }
    if (s->busy_count > 1) { /* start with another one next time */
        struct flow *first = s->busy[0];
        memmove(s->busy, s->busy + 1, (s->busy_count - 1) * sizeof *s->busy);
        s->busy[s->busy_count - 1] = first;
    }
}

/* Makes the output. Returns the number of batches; -1 if there is no memory. */
int64_t peers_send(struct state *s, double now, const struct batch **batches, const uint8_t **output)
{
    s->batch_count = s->output_size = 0;
    s->batch = add_batch;
    s->context = s;
    send_all(s, now);
    *batches = s->batches;
    *output = s->output;
    return s->streams.failed ? -1 : (int64_t)s->batch_count;
}

/* Sends by a card; a send_function. */
bool peers_send_by_card(void *worker, batch_function *batch, void *context, double now)
{
    struct state *s = worker;
    s->batch = batch;
    s->context = context;
    send_all(s, now);
    return !s->streams.failed;
}

/* Returns when the worker must act next, or gives up; infinity if it need not. A deadline_function. */
double peers_deadline(const void *worker)
{
    const struct state *s = worker;
    double earliest = peers_finished(s) ? INFINITY : s->worker->heard + s->worker->give_up;
    for (size_t i = 0; i < s->busy_count; i++)
        earliest = fmin(earliest, sender_deadline(&s->streams, &s->busy[i]->stream.out));
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
