/* The event loop, window by window. ../network.py explains it. */

#include "loop.h"

#include <stdlib.h>
#include <string.h>

#include "shared.h"

SHARE_STRUCT(link,
             FIELD(byte_time) FIELD(overhead) FIELD(delay) FIELD(room) FIELD(mark) FIELD(always_mark) FIELD(down_from) FIELD(down_until)
             FIELD(xoff) FIELD(xon) FIELD(detection) FIELD(restoration) FIELD(action) FIELD(key)
             FIELD(mark_probability) FIELD(loss) FIELD(corruption) FIELD(duplication) FIELD(reordering) FIELD(displacement) FIELD(jitter)
             FIELD(burst_begin) FIELD(burst_end) FIELD(burst_loss)
             FIELD(faulty) FIELD(bursts) FIELD(near_node) FIELD(far_node) FIELD(far_port)
             FIELD(free_at) FIELD(last_arrival) FIELD(numbered) FIELD(in_burst) FIELD(joined) FIELD(acts_at) FIELD(queued_bytes)
             FIELD(packets) FIELD(bytes) FIELD(arrived) FIELD(busy) FIELD(waited) FIELD(queue_area)
             FIELD(longest_queue) FIELD(queue_drops) FIELD(lost) FIELD(marks)
             FIELD(pauses) FIELD(paused) FIELD(storms) FIELD(watchdog_drops))
SHARE_STRUCT(station,
             FIELD(turn) FIELD(worker) FIELD(give_up) FIELD(sizes) FIELD(headers) FIELD(type) FIELD(protocol) FIELD(ends))
SHARE_STRUCT(card_settings, FIELD(receive) FIELD(send) FIELD(deadline) FIELD(needs_python) FIELD(worker) FIELD(others)
             FIELD(byte_seconds) FIELD(ahead) FIELD(overhead) FIELD(address))
SHARE_STRUCT(note,
             FIELD(joined) FIELD(begin) FIELD(sent) FIELD(end) FIELD(link) FIELD(length) FIELD(fate) FIELD(copy) FIELD(head))
SHARE_STRUCT(event, FIELD(time) FIELD(link) FIELD(row))
SHARE_STRUCT(arrival, FIELD(time) FIELD(port) FIELD(length))
SHARE_NUMBER(LOST);
SHARE_NUMBER(BURST_LOST);
SHARE_NUMBER(CORRUPTED);
SHARE_NUMBER(DUPLICATED);
SHARE_NUMBER(REORDERED);
SHARE_NUMBER(QUEUE_DROP);
SHARE_NUMBER(ECN_MARK);
SHARE_NUMBER(NO_LINK);
SHARE_NUMBER(PROGRAM_ROOM);
SHARE_NUMBER(DROP);
SHARE_NUMBER(FORWARD);
SHARE_NUMBER(ALERT);
SHARE_NUMBER(ARRIVES);
SHARE_NUMBER(LOSS);
SHARE_NUMBER(BURST);
SHARE_NUMBER(LINK_DOWN);
SHARE_NUMBER(QUEUE_FULL);
SHARE_NUMBER(WATCHDOG);

#define MICROSECOND 1000000

enum { HOST_PORT = 0 };

static void close_part(struct loop *l)
{
    for (uint32_t i = 0; i < l->rows.slab_count; i++)
        free(l->rows.slabs[i]);
    free(l->rows.slabs);
    free(l->rows.lengths);
    free(l->rows.free);
    free(l->rows.waits);
    close_calendar(l);
    free(l->arrived.at);
    free(l->copies.at);
    free(l->signals.at);
    free(l->sent.at);
    free(l->changes.at);
    free(l->happening.at);
    free(l->scratch);
    free(l->notes);
    free(l->gathered);
    free(l->places);
    free(l->marks);
    for (struct batch_of_rows *b = l->batches, *before; b; b = before) {
        before = b->made_before;
        free(b);
    }
    free(l->leaving);
    free(l->coming);
    free(l->nodes);
    free(l->ends);
    free(l);
}

/* Lists the links of a part. Returns false if there is no memory. */
static bool list_links(struct loop *l)
{
    l->leaving = calloc((size_t)l->link_count + 1, sizeof *l->leaving);
    l->coming = calloc((size_t)l->link_count + 1, sizeof *l->coming);
    if (!l->leaving || !l->coming)
        return false;
    for (uint32_t i = 0; i < l->link_count; i++) {
        if (l->team->part_of[l->links[i].near_node] == l->number)
            l->leaving[l->leaving_count++] = i;
        if (l->team->part_of[l->links[i].far_node] == l->number)
            l->coming[l->coming_count++] = i;
    }
    return true;
}

void loop_close(struct loop *l)
{
    struct team *t = l->team;
    for (uint32_t i = 0; i < t->count; i++)
        close_part(t->parts[i]);
    close_team(t);
}

/* Makes a network whose packets have up to `longest` bytes, and returns its first part. Nodes are numbered, switches first.
 * `link_at` [nodes, ports] is the link that leaves a node at a port, or -1. `priorities` is the number of queues of each link, or
 * 0 for links without queues by priority. Threads are worth their barriers if `worth` packets
 * arrive in each part in a window. `part_of` [nodes] says which of the `parts` has a node; the hosts of part i are those from
 * first_hosts[i] to first_hosts[i + 1]. `faults` has the counts of each part. Returns NULL if there is no memory. */
struct loop *loop_open(uint32_t switches, uint32_t hosts, uint32_t ports, const int32_t *link_at, uint32_t longest,
                       struct link *links, uint32_t link_count, uint32_t priorities, int64_t *wakes,
                       int64_t (*faults)[FAULTS], int64_t window, int64_t coalescing, uint32_t parts,
                       uint64_t worth, const uint32_t *part_of, const uint32_t *first_hosts)
{
    struct team *t = open_team(switches, hosts, parts, worth, part_of);
    if (!t)
        return NULL;
    t->queues = calloc((size_t)link_count * priorities + 1, sizeof *t->queues);
    bool failed = !t->queues;
    for (uint32_t i = 0; !failed && i < switches; i++) {
        size_t size = ports * sizeof *link_at;
        if ((t->programs[i].links = malloc(size)))
            memcpy(t->programs[i].links, link_at + (size_t)i * ports, size);
        else
            failed = true;
    }
    uint32_t nodes = switches + hosts;
    for (t->count = 0; !failed && t->count < parts; t->count++) {
        struct loop *l = calloc(1, sizeof *l);
        if (!(t->parts[t->count] = l))
            break;
        l->team = t;
        l->number = t->count;
        l->first_host = first_hosts[t->count];
        l->end_host = first_hosts[t->count + 1];
        l->pending = -1;
        l->first_parcel = NEVER;
        l->rows.width = (longest + 63) / 64 * 64;
        l->links = links;
        l->link_count = link_count;
        l->priorities = priorities;
        l->wakes = wakes;
        l->faults = faults[t->count];
        l->window = window;
        l->coalescing = coalescing;
        l->ports = ports;
        l->node_count = nodes;
        l->programs = t->programs;
        l->hosts = t->hosts;
        l->queues = t->queues;
        l->nodes = calloc(nodes, sizeof *l->nodes);
        l->ends = calloc(nodes, sizeof *l->ends);
        failed = !l->nodes || !l->ends || !list_links(l);
    }
    if (failed || t->count < parts) {
        for (uint32_t i = 0; i < t->count; i++)
            close_part(t->parts[i]);
        close_team(t);
        return NULL;
    }
    for (uint32_t i = 0; i < link_count; i++)
        links[i].acts_at = NEVER;
    for (size_t i = 0; i < (size_t)link_count * priorities; i++)
        t->queues[i].first = t->queues[i].last = NOBODY;
    for (uint32_t i = 0; i < hosts; i++) {
        t->hosts[i].timer = wakes[i] = NEVER;
        t->hosts[i].link = (uint32_t)link_at[(size_t)(switches + i) * ports + HOST_PORT];
    }
    return t->parts[0];
}

void loop_set_program(struct loop *l, uint32_t node, run_function *run, void *state)
{
    l->programs[node].run = run;
    l->programs[node].state = state;
}

bool loop_failed(const struct loop *l)
{
    bool failed = false;
    for (uint32_t i = 0; i < l->team->count; i++)
        failed |= l->team->parts[i]->failed;
    return failed;
}

/* The length of a packet that left a switch and fits no row, or 0. */
uint32_t loop_too_long(const struct loop *l)
{
    uint32_t length = 0;
    for (uint32_t i = 0; i < l->team->count; i++)
        length = l->team->parts[i]->too_long > length ? l->team->parts[i]->too_long : length;
    return length;
}

/* The length of a frame that a worker with a card sent and that is too long, or 0. */
uint32_t loop_too_long_sent(const struct loop *l)
{
    uint32_t length = 0;
    for (uint32_t i = 0; i < l->team->count; i++)
        length = l->team->parts[i]->too_long_sent > length ? l->team->parts[i]->too_long_sent : length;
    return length;
}

/* How often hosts have woken and C has done everything without Python. */
uint64_t loop_turns(const struct loop *l)
{
    uint64_t turns = 0;
    for (uint32_t i = 0; i < l->team->count; i++)
        turns += l->team->parts[i]->turns;
    return turns;
}

/* How many packets have been given to links and have not been processed. */
uint64_t loop_in_use(const struct loop *l)
{
    uint64_t in_use = 0;
    for (uint32_t i = 0; i < l->team->count; i++) {
        const struct loop *part = l->team->parts[i];
        in_use += (uint64_t)part->rows.slab_count * SLAB_ROWS - part->rows.left - part->rows_with_cards;
    }
    return in_use;
}

/* -- what arrives in a window ---------------------------------------------------------------------------------------- */

static bool is_before(const struct event *a, const struct event *b)
{
    return a->time < b->time || (a->time == b->time && a->link < b->link);
}

/* Sorts by (time, link), stably. Merges runs that are already in order; there is about one for each link. */
void sort_events(struct event *events, struct event *scratch, size_t count)
{
    for (;;) {
        size_t runs = 0;
        for (size_t first = 0, middle, last; first < count; first = last) {
            for (middle = first + 1; middle < count && !is_before(events + middle, events + middle - 1);)
                middle++;
            for (last = middle + (middle < count); last < count && !is_before(events + last, events + last - 1);)
                last++;
            runs++;
            if (middle == count)
                break;
            memcpy(scratch, events + first, (middle - first) * sizeof *events);
            const struct event *a = scratch, *end = scratch + (middle - first), *b = events + middle;
            for (struct event *to = events + first; a < end;)
                *to++ = b < events + last && is_before(b, a) ? *b++ : *a++;
        }
        if (runs <= 1)
            return;
    }
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

enum { FEW_NODES = 8 }; /* if one of so many nodes gets something, looking at all is faster than sorting */

static void sort_nodes(struct loop *l)
{
    if (l->node_touched < l->node_count / FEW_NODES) {
        qsort(l->nodes, l->node_touched, sizeof *l->nodes, by_number);
        return;
    }
    l->node_touched = 0;
    for (uint32_t node = 0; node < l->node_count; node++)
        if (l->ends[node])
            l->nodes[l->node_touched++] = node;
}

bool make_scratch(struct loop *l, size_t count)
{
    if (count <= l->scratch_room)
        return true;
    struct event *scratch = realloc(l->scratch, 2 * count * sizeof *scratch);
    if (!scratch) {
        l->failed = true;
        return false;
    }
    l->scratch = scratch;
    l->scratch_room = 2 * count;
    return true;
}

/* Collects what arrives in a part in the window that begins at `begin`, in order. */
static void collect(struct loop *l, int64_t begin)
{
    for (size_t i = 0; i < l->node_touched; i++)
        l->ends[l->nodes[i]] = 0;
    l->node_touched = l->arrived.end = 0;
    l->next_host = l->first_host;
    l->first_parcel = NEVER;
    struct window *w = next_window(l);
    if (!w || w->number * l->window != begin || !make_scratch(l, w->events.end))
        return;
    l->arrived = take_window(l);
    struct event *arrived = l->arrived.at;
    size_t count = l->arrived.end;
    /* `ends`, by node: the number of events, then the end of its events. */
    for (size_t i = 0; i < count; i++) {
        uint32_t node = (uint32_t)l->links[arrived[i].link].far_node;
        if (!l->ends[node]++)
            l->nodes[l->node_touched++] = node;
    }
    sort_nodes(l);
    uint32_t first = 0;
    for (size_t i = 0; i < l->node_touched; i++) {
        uint32_t here = l->ends[l->nodes[i]];
        l->ends[l->nodes[i]] = first;
        first += here;
    }
    memcpy(l->scratch, arrived, count * sizeof *arrived);
    for (size_t i = 0; i < count; i++)
        arrived[l->ends[l->links[l->scratch[i].link].far_node]++] = l->scratch[i];
    for (size_t i = 0, start = 0; i < l->node_touched; i++) {
        size_t end = l->ends[l->nodes[i]];
        sort_events(arrived + start, l->scratch, end - start);
        start = end;
    }
}

/* Collects what arrives in the window that begins at `begin`, and returns the number of `events`. They are those of the first part. */
uint64_t loop_collect(struct loop *l, int64_t begin, struct event **events)
{
    struct team *t = l->team;
    for (uint32_t i = 0; i < t->count; i++)
        collect(t->parts[i], begin);
    *events = l->arrived.at;
    return l->arrived.end;
}

/* Copies the lengths of collected packets, and the bytes of each into a row of `width`. */
void loop_read(const struct loop *l, const struct event *events, uint64_t count, uint8_t *rows, int64_t *lengths,
               uint64_t width)
{
    for (uint64_t i = 0; i < count; i++, rows += width) {
        lengths[i] = l->rows.lengths[events[i].row];
        memcpy(rows, row_bytes(&l->rows, events[i].row), (size_t)lengths[i]);
    }
}

/* -- switches -------------------------------------------------------------------------------------------------------- */

static bool next_packet(void *context, uint8_t *buffer, struct arrival *arrival)
{
    struct loop *l = context;
    if (l->next == l->last)
        return false;
    const struct event *event = l->next++;
    if (l->next < l->last)
        expect_row(&l->rows, l->next->row);
    l->now = event->time;
    l->came_by = event->link < l->link_count ? event->link : NOBODY; /* pauses do not concern loopback ports */
    *arrival = (struct arrival){(uint64_t)(event->time / MICROSECOND), (uint32_t)l->links[event->link].far_port,
                                l->rows.lengths[event->row]};
    memcpy(buffer, row_bytes(&l->rows, event->row), arrival->length);
    free_row(l, event->row);
    return true;
}

static void send_from_switch(void *context, uint32_t port, uint8_t *packet, uint32_t length, uint8_t *checksum)
{
    struct loop *l = context;
    (void)checksum;
    if (length > l->rows.width) {
        l->too_long = length > l->too_long ? length : l->too_long;
        return;
    }
    int32_t link = port < l->ports ? l->program->links[port] : -1;
    if (link < 0) {
        l->faults[NO_LINK]++;
        return;
    }
    uint32_t row;
    if (!add_row(l, length, &row))
        return;
    memcpy(row_bytes(&l->rows, row), packet, length);
    if ((uint32_t)link >= l->link_count) { /* the loopback port */
        schedule(l, (struct event){l->now + l->links[link].delay, (uint32_t)link, row});
        return;
    }
    send_packet(l, (uint32_t)link, l->now, row, l->came_by);
}

/* -- hosts ----------------------------------------------------------------------------------------------------------- */

static void set_wake(struct loop *l, uint32_t number)
{
    const struct host *h = l->hosts + number;
    int64_t wake = h->timer;
    if (h->inbox.first < h->inbox.end) {
        int64_t noticed = h->inbox.at[h->inbox.first].time + l->coalescing;
        wake = noticed < wake ? noticed : wake;
    }
    for (size_t i = 0; i < h->stall_count; i++)
        if (h->stalls[i][0] <= wake && wake < h->stalls[i][1])
            wake = h->stalls[i][1];
    l->wakes[number] = wake;
}

static void take_in(struct loop *l, uint32_t number, const struct event *events, size_t count)
{
    struct host *h = l->hosts + number;
    bool first = h->inbox.first == h->inbox.end;
    if (first)
        h->inbox.first = h->inbox.end = 0;
    for (size_t i = 0; i < count; i++)
        if (h->present)
            add_event(l, &h->inbox, events[i]);
        else
            free_row(l, events[i].row);
    if (first && h->present)
        set_wake(l, number);
}

/* Delivers what has been collected in a part to its nodes. */
static void deliver(struct loop *l)
{
    uint32_t switches = l->team->switches;
    size_t start = 0;
    for (size_t i = 0; i < l->node_touched; i++) {
        uint32_t node = l->nodes[i];
        size_t end = l->ends[node];
        if (node < switches) {
            l->program = l->programs + node;
            l->next = l->arrived.at + start;
            l->last = l->arrived.at + end;
            l->program->run(l->program->state, next_packet, send_from_switch, l);
        } else {
            take_in(l, node - switches, l->arrived.at + start, end - start);
        }
        start = end;
    }
}

void loop_deliver(struct loop *l)
{
    for (uint32_t i = 0; i < l->team->count; i++)
        deliver(l->team->parts[i]);
}

/* Collects and delivers what arrives in a part in a window. */
void bring_in(struct loop *l, int64_t begin)
{
    collect(l, begin);
    deliver(l);
}

void loop_set_timer(struct loop *l, uint32_t host, int64_t at)
{
    l->hosts[host].timer = at;
    set_wake(l, host);
}

void loop_set_stalls(struct loop *l, uint32_t host, const int64_t (*stalls)[2], uint64_t count)
{
    struct host *h = l->hosts + host;
    int64_t(*room)[2] = realloc(h->stalls, count * sizeof *room);
    if (!room) {
        l->failed = true;
        return;
    }
    memcpy(room, stalls, count * sizeof *room);
    h->stalls = room;
    h->stall_count = count;
}

/* Gives a host another station, or NULL, which has received nothing so far. */
void replace_station(struct loop *l, uint32_t host, struct station *station)
{
    struct events *inbox = &l->hosts[host].inbox;
    for (; inbox->first < inbox->end; inbox->first++)
        free_row(l, inbox->at[inbox->first].row);
    l->hosts[host].present = true;
    l->hosts[host].station = station;
}

/* Gives a host a station without a card. `station` is Python's memory; NULL leaves everything to Python. */
void loop_set_station(struct loop *first, uint32_t host, struct station *station)
{
    struct loop *l = part_of_host(first, host);
    remove_card(l, host);
    replace_station(l, host, station);
}

void loop_remove_station(struct loop *first, uint32_t host)
{
    loop_set_station(first, host, NULL);
    first->hosts[host].present = false;
}

/* Returns the next host of a part that wakes before `end` and needs Python, or -1. */
int64_t next_host(struct loop *l, int64_t end)
{
    for (; l->next_host < l->end_host; l->next_host++) {
        uint32_t host = l->next_host;
        while (l->wakes[host] < end) {
            if (!l->hosts[host].present) {
                l->wakes[host] = NEVER;
                break;
            }
            enum outcome outcome = UNTOUCHED;
            if (l->hosts[host].card)
                outcome = wake_card(l, host, l->wakes[host]);
            else if (l->hosts[host].station)
                outcome = wake_station(l, host, l->wakes[host]);
            l->taken = outcome == TAKEN;
            if (outcome != DONE)
                return host;
            l->turns++;
        }
    }
    return -1;
}

/* Returns the next host that wakes before `end` and needs Python, or -1. `taken` is whether C has already received what
 * arrived. */
int64_t loop_next_host(struct loop *l, int64_t end, bool *taken)
{
    for (uint32_t i = 0; i < l->team->count; i++) {
        struct loop *part = l->team->parts[i];
        int64_t host = part->pending >= 0 ? part->pending : next_host(part, end);
        part->pending = -1;
        *taken = part->taken;
        if (host >= 0)
            return host;
    }
    return -1;
}

/* Returns the number of packets that have arrived at a host by `now` and wait there. */
uint64_t loop_waiting(const struct loop *l, uint32_t host, int64_t now)
{
    const struct events *inbox = &l->hosts[host].inbox;
    size_t last = inbox->first;
    while (last < inbox->end && inbox->at[last].time <= now)
        last++;
    return last - inbox->first;
}

/* Takes the first `count` of them; see loop_read(). */
void loop_take(struct loop *first, uint32_t host, uint64_t count, uint8_t *rows, int64_t *lengths, uint64_t width)
{
    struct loop *l = part_of_host(first, host);
    struct events *inbox = &l->hosts[host].inbox;
    loop_read(l, inbox->at + inbox->first, count, rows, lengths, width);
    for (uint64_t i = 0; i < count; i++)
        free_row(l, inbox->at[inbox->first++].row);
}

/* Sends `count` frames of `length` bytes, one after another in memory. */
void loop_send(struct loop *first, uint32_t host, const uint8_t *frames, uint64_t count, uint32_t length, int64_t now)
{
    struct loop *l = part_of_host(first, host);
    for (uint32_t row; count && add_row(l, length, &row); count--, frames += length) {
        memcpy(row_bytes(&l->rows, row), frames, length);
        send_packet(l, l->hosts[host].link, now, row, NOBODY);
    }
}

static void add_note(struct loop *l, const struct note *note)
{
    if (l->note_count == l->note_room) {
        size_t room = 2 * l->note_room + 256;
        struct note *notes = realloc(l->notes, room * sizeof *notes);
        if (!notes) {
            l->failed = true;
            return;
        }
        l->notes = notes;
        l->note_room = room;
    }
    l->notes[l->note_count++] = *note;
}

/* Notes what becomes of a packet, if that is recorded. */
void note(struct loop *l, const struct note *note, uint32_t row)
{
    if (!l->recording)
        return;
    struct note added = *note;
    added.length = l->rows.lengths[row];
    memcpy(added.head, row_bytes(&l->rows, row), added.length < NOTED ? added.length : NOTED);
    add_note(l, &added);
}

/* Corrects the last note: when the packet arrives, and when its copy does; NEVER if there is none. */
void note_arrivals(struct loop *l, int64_t end, int64_t copy_end)
{
    if (!l->note_count)
        return;
    struct note *last = l->notes + l->note_count - 1;
    last->end = end;
    if (copy_end != NEVER) {
        struct note copy = *last;
        copy.end = copy_end;
        copy.copy = true;
        add_note(l, &copy);
    }
}

void loop_record(struct loop *l)
{
    for (uint32_t i = 0; i < l->team->count; i++)
        l->team->parts[i]->recording = true;
}

/* Returns how many notes of a part there are since the last call. */
uint64_t loop_take_notes(struct loop *l, uint32_t part, struct note **notes)
{
    struct loop *of = l->team->parts[part];
    uint64_t count = of->note_count;
    *notes = of->notes;
    of->note_count = 0;
    return count;
}

/* Returns when the next window begins in which something happens in a part, or NEVER. */
static int64_t next_time(const struct loop *l)
{
    int64_t due = l->first_parcel;
    for (uint32_t i = l->first_host; i < l->end_host; i++)
        due = l->wakes[i] < due ? l->wakes[i] : due;
    if (l->priorities) {
        int64_t act = queues_act_at(l);
        due = act < due ? act : due;
    }
    due = due == NEVER ? NEVER : due / l->window * l->window;
    const struct window *w = next_window(l);
    return w && w->number * l->window < due ? w->number * l->window : due;
}

int64_t loop_next_time(const struct loop *l)
{
    int64_t next = NEVER;
    for (uint32_t i = 0; i < l->team->count; i++) {
        int64_t here = next_time(l->team->parts[i]);
        next = here < next ? here : next;
    }
    return next;
}

/* Ends a window of a part. */
void end_window(struct loop *l, int64_t end)
{
    if (l->priorities)
        run_queues(l, end);
    for (; l->copies.first < l->copies.end; l->copies.first++)
        schedule(l, l->copies.at[l->copies.first]);
    l->copies.first = l->copies.end = 0;
    l->next_time = next_time(l);
}

/* Ends a window. */
void loop_end(struct loop *l, int64_t end)
{
    struct team *t = l->team;
    for (uint32_t i = 0; i < t->count; i++)
        end_window(t->parts[i], end);
    if (t->count > 1)
        exchange_parcels(t);
    t->ended = end;
}
