/* Flows, each from one host to another: simulator/flows.py's FlowStation, to the bit. What they carry is zeros. */

#include "streams.h"
#include "shared.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A flow. `missing` bytes have not arrived; when all have, `ended` is the time. Python has the same struct. */
struct flow_facts {
    int64_t source, destination, size, missing; /* hosts by rank */
    double start, ended;
};

SHARE_STRUCT(flow_facts, FIELD(source) FIELD(destination) FIELD(size) FIELD(missing) FIELD(start) FIELD(ended))

/* One end of a flow: its source sends data, and its destination acknowledgements. */
struct end {
    struct stream stream;
    struct flow_facts *facts;
    bool answering;
};

/* All flows of a network. The number of a flow is the session of its datagrams. */
struct flows {
    int64_t count, host_count;
    struct flow_facts *facts; /* Python's memory, as are the next two */
    int64_t *unfinished;
    struct end *sources, *destinations; /* by flow */
    struct flow_host **hosts;
};

/* Datagrams that are sorted by flow. */
struct sorted {
    const uint8_t **at;
    uint8_t *marked;
    size_t room, mark_room;
};

/* The ends at one host. */
struct flow_host {
    struct streams streams;
    struct flows *flows;
    int64_t rank;
    const int64_t *begins, *receives; /* flows that begin here, in order, and that end here; Python's memory */
    int64_t begin_count, receive_count, begun;
    struct end **sending, **answering; /* the former in the order in which they began, the latter in any */
    size_t sending_count, answering_count, sending_room, answering_room;
    struct sorted alike, rest;
    double now; /* of what is taken */
};

static struct flow_host *host_of(struct streams *streams)
{
    return (struct flow_host *)((char *)streams - offsetof(struct flow_host, streams));
}

static struct end *end_of(struct stream *stream) { return (struct end *)((char *)stream - offsetof(struct end, stream)); }

/* Counts what has arrived; a process_function. */
static bool count_arrived(struct streams *streams, struct stream *stream, const uint8_t *with_call, int64_t size)
{
    const struct flow_host *h = host_of(streams);
    struct flow_facts *facts = end_of(stream)->facts;
    (void)with_call;
    if (!facts->missing)
        return true;
    facts->missing -= size;
    if (!facts->missing) {
        facts->ended = h->now;
        __atomic_fetch_sub(h->flows->unfinished, 1, __ATOMIC_RELAXED); /* hosts may run on several threads */
    }
    return true;
}

/* Makes the flows of a network. `headers` has those of frames of the source and of the destination, for each flow. */
struct flows *flows_open(struct flow_facts *facts, int64_t count, const uint8_t (*headers)[2][FRAME_HEADER],
                         int64_t *unfinished, int64_t hosts)
{
    struct flows *all = calloc(1, sizeof *all);
    if (!all)
        return NULL;
    *all = (struct flows){.count = count, .facts = facts, .unfinished = unfinished};
    all->sources = calloc((size_t)count + 1, sizeof *all->sources);
    all->destinations = calloc((size_t)count + 1, sizeof *all->destinations);
    all->hosts = calloc((size_t)hosts + 1, sizeof *all->hosts);
    if (!all->sources || !all->destinations || !all->hosts) {
        free(all->sources);
        free(all->destinations);
        free(all->hosts);
        free(all);
        return NULL;
    }
    for (int64_t i = 0; i < count; i++) {
        all->sources[i].facts = all->destinations[i].facts = facts + i;
        all->sources[i].stream.connection.header = headers[i][0];
        all->destinations[i].stream.connection.header = headers[i][1];
    }
    return all;
}

/* Adds a host. Returns NULL if there is no memory. */
struct flow_host *flows_add_host(struct flows *all, struct settings *settings, int64_t rank, const int64_t *begins,
                                 int64_t begin_count, const int64_t *receives, int64_t receive_count)
{
    struct flow_host *h = calloc(1, sizeof *h);
    if (!h)
        return NULL;
    h->streams = (struct streams){.settings = settings, .process = count_arrived};
    h->flows = all;
    h->rank = rank;
    h->begins = begins;
    h->begin_count = begin_count;
    h->receives = receives;
    h->receive_count = receive_count;
    for (int64_t i = 0; i < begin_count; i++)
        stream_open(&h->streams, &all->sources[begins[i]].stream, 0, rank, all->facts[begins[i]].destination, begins[i]);
    for (int64_t i = 0; i < receive_count; i++)
        stream_open(&h->streams, &all->destinations[receives[i]].stream, 0, rank, all->facts[receives[i]].source,
                    receives[i]);
    all->hosts[all->host_count++] = h;
    return h;
}

void flows_close(struct flows *all)
{
    for (int64_t i = 0; i < all->host_count; i++) {
        struct flow_host *h = all->hosts[i];
        for (int64_t n = 0; n < h->begin_count; n++)
            stream_close(&h->streams, &all->sources[h->begins[n]].stream);
        for (int64_t n = 0; n < h->receive_count; n++)
            stream_close(&h->streams, &all->destinations[h->receives[n]].stream);
        free(h->sending);
        free(h->answering);
        free(h->alike.at);
        free(h->alike.marked);
        free(h->rest.at);
        free(h->rest.marked);
        free(h);
    }
    free(all->sources);
    free(all->destinations);
    free(all->hosts);
    free(all);
}

/* -- what arrives ---------------------------------------------------------------------------------------------------- */

static void stop_sending(struct flow_host *h, const struct end *end)
{
    size_t at = 0;
    while (h->sending[at] != end)
        at++;
    memmove(h->sending + at, h->sending + at + 1, (--h->sending_count - at) * sizeof *h->sending);
}

/* Processes datagrams of one flow. */
static void take(struct flow_host *h, const struct datagrams *datagrams, double now)
{
    const uint8_t *first = datagrams->at[0];
    int64_t source = (int64_t)read_number(first + 2, 2), session = (int64_t)read_number(first + 6, 4);
    if ((int64_t)read_number(first + 4, 2) != h->rank || session >= h->flows->count)
        return;
    const struct flow_facts *facts = h->flows->facts + session;
    if (first[0] == DATA && facts->destination == h->rank && facts->source == source) {
        struct end *end = h->flows->destinations + session;
        bool applied = false;
        if (!end->answering &&
            make_room(&h->streams, &h->answering, &h->answering_room, h->answering_count + 1, sizeof end)) {
            end->answering = true;
            h->answering[h->answering_count++] = end;
        }
        accept_packets(&h->streams, &end->stream, datagrams, &applied);
    } else if (first[0] != DATA && facts->source == h->rank && facts->destination == source) {
        struct end *end = h->flows->sources + session;
        struct sender *out = &end->stream.out;
        if (out->base == out->end) /* it has not begun, or has ended */
            return;
        for (int64_t i = 0; i < datagrams->count; i++)
            acknowledge(&h->streams, out, datagrams->at[i], datagrams->size, now);
        if (out->base == out->end)
            stop_sending(h, end);
    }
}

/* Returns what is the same in the datagrams of one flow that go one way: source, destination and session. */
static uint64_t stream_of(const uint8_t *datagram)
{
    uint64_t found;
    memcpy(&found, datagram + 2, sizeof found);
    return found;
}

static bool expect_sorted(struct flow_host *h, struct sorted *sorted, int64_t count)
{
    return make_room(&h->streams, &sorted->at, &sorted->room, (size_t)count, sizeof *sorted->at) &&
           make_room(&h->streams, &sorted->marked, &sorted->mark_room, (size_t)count, 1);
}

/* Takes datagrams of one size, flow by flow; a receive_function. */
bool flows_receive(void *worker, const struct datagrams *all, double now)
{
    struct flow_host *h = worker;
    struct sorted *alike = &h->alike, *rest = &h->rest;
    if (all->size < HEADER_BYTES)
        return true;
    h->now = now;
    if (!expect_sorted(h, alike, all->count) || !expect_sorted(h, rest, all->count))
        return false;
    struct datagrams left = *all; /* first those that arrived, then `rest`, which is overwritten from its beginning */
    while (left.count) {
        uint64_t first = stream_of(left.at[0]);
        int64_t found = 0, others = 0;
        for (int64_t i = 0; i < left.count; i++) {
            struct sorted *to = stream_of(left.at[i]) == first ? alike : rest;
            int64_t *count = to == alike ? &found : &others;
            to->at[*count] = left.at[i];
            to->marked[(*count)++] = left.marked[i];
        }
        take(h, &(struct datagrams){alike->at, alike->marked, found, all->size}, now);
        left = (struct datagrams){rest->at, rest->marked, others, all->size};
    }
    return !h->streams.failed;
}

/* -- what is sent ---------------------------------------------------------------------------------------------------- */

static int by_flow(const void *a, const void *b)
{
    const struct end *x = *(struct end *const *)a, *y = *(struct end *const *)b;
    return (x > y) - (x < y);
}

/* Sends acknowledgements, then data of all flows in turn; a send_function. */
bool flows_send(void *worker, batch_function *batch, void *context, double now)
{
    struct flow_host *h = worker;
    struct streams *s = &h->streams;
    s->batch = batch;
    s->context = context;
    for (; h->begun < h->begin_count; h->begun++) {
        struct end *end = h->flows->sources + h->begins[h->begun];
        if (end->facts->start > now)
            break;
        if (!make_room(s, &h->sending, &h->sending_room, h->sending_count + 1, sizeof end))
            return false;
        h->sending[h->sending_count++] = end;
        write_message(s, &end->stream.out, NULL, end->facts->size, 0);
    }
    if (h->answering_count > 1)
        qsort(h->answering, h->answering_count, sizeof *h->answering, by_flow);
    for (size_t i = 0; i < h->answering_count; i++) {
        h->answering[i]->answering = false;
        send_answer(s, &h->answering[i]->stream);
    }
    h->answering_count = 0;
    for (size_t i = 0; i < h->sending_count; i++)
        send_from(s, &h->sending[i]->stream, now, -1);
    return !s->failed;
}

/* Returns when to send next; a deadline_function. */
double flows_deadline(const void *worker)
{
    const struct flow_host *h = worker;
    double earliest = h->begun < h->begin_count ? h->flows->facts[h->begins[h->begun]].start : INFINITY;
    for (size_t i = 0; i < h->sending_count; i++)
        earliest = fmin(earliest, sender_deadline(&h->streams, &h->sending[i]->stream.out));
    return earliest;
}
