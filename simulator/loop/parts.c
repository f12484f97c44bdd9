/* The parts of a network, each of which a core can run. Within a window, no part depends on another: what one sends another
 * arrives after the window, and is given to it at the window's end. All parts wait for one another there. The results are
 * those of one part, because a node takes what arrives in the order of (time, link, order of sending) in either case. */

#include "loop.h"

#include <stdlib.h>
#include <string.h>

enum { RUN_AT_ONCE = 10000 }; /* windows, after which Python may be interrupted */
enum { TO_CHECK = -1, AT_LIMIT = -2, NO_THREADS = -3, OTHER_WAY = -4 };
enum { COUNTED = 16 }; /* windows, after which is decided whether threads are worth their barriers */
enum { LOOKS = 500 }; /* at the others, by a thread that waits for them, before it sleeps */

/* Makes a team whose parts are still to be opened. Returns NULL if there is no memory. */
struct team *open_team(uint32_t switches, uint32_t hosts, uint32_t count, uint64_t worth, const uint32_t *part_of)
{
    struct team *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    size_t nodes = (size_t)switches + hosts;
    t->count = count;
    t->worth = worth;
    t->dense = !worth;
    t->switches = switches;
    t->host_count = hosts;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->next_round, NULL);
    t->parts = calloc(count, sizeof(struct loop *));
    t->parcels = calloc(2 * (size_t)count * count, sizeof *t->parcels);
    t->part_of = calloc(nodes + 1, sizeof *t->part_of);
    t->programs = calloc(switches + 1, sizeof *t->programs);
    t->hosts = calloc(hosts + 1, sizeof *t->hosts);
    if (!t->parts || !t->parcels || !t->part_of || !t->programs || !t->hosts) {
        close_team(t);
        return NULL;
    }
    memcpy(t->part_of, part_of, nodes * sizeof *part_of);
    return t;
}

void close_team(struct team *t)
{
    for (uint32_t i = 0; t->programs && i < t->switches; i++)
        free(t->programs[i].links);
    free(t->programs);
    for (uint32_t i = 0; t->hosts && i < t->host_count; i++) {
        free(t->hosts[i].inbox.at);
        free(t->hosts[i].stalls);
        free(t->hosts[i].card);
    }
    free(t->hosts);
    free(t->queues);
    for (size_t i = 0; t->parcels && i < 2 * (size_t)t->count * t->count; i++) {
        free(t->parcels[i].packets.at);
        free(t->parcels[i].signals.at);
        free(t->parcels[i].bytes);
    }
    free(t->parcels);
    free(t->parts);
    free(t->part_of);
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->next_round);
    free(t);
}

struct loop *part_of_host(struct loop *l, uint32_t host) { return l->team->parts[l->team->part_of[l->team->switches + host]]; }

/* The part of the near end of a link. */
struct loop *part_of_link(struct loop *l, uint32_t link) { return l->team->parts[l->team->part_of[l->links[link].near_node]]; }

/* -- from one part to another ---------------------------------------------------------------------------------------- */

static struct parcels *parcels_of(struct team *t, uint32_t turn, uint32_t from, uint32_t to)
{
    return t->parcels + ((size_t)turn * t->count + from) * t->count + to;
}

/* Gives a packet to the part of the node at which it arrives. Returns false if that is this one. */
bool give_parcel(struct loop *l, struct event event)
{
    struct team *t = l->team;
    uint32_t to = t->part_of[l->links[event.link].far_node];
    if (to == l->number)
        return false;
    struct parcels *p = parcels_of(t, t->filled, l->number, to);
    uint32_t length = l->rows.lengths[event.row];
    if (p->used + length > p->room) {
        size_t room = 2 * (p->used + length);
        uint8_t *bytes = realloc(p->bytes, room);
        if (!bytes) {
            l->failed = true;
            return true;
        }
        p->bytes = bytes;
        p->room = room;
    }
    memcpy(p->bytes + p->used, row_bytes(&l->rows, event.row), length);
    p->used += length;
    free_row(l, event.row);
    add_event(l, &p->packets, (struct event){event.time, event.link, length});
    l->first_parcel = event.time < l->first_parcel ? event.time : l->first_parcel;
    return true;
}

/* Sends a pause frame to the near end of its link. */
void send_signal(struct loop *l, struct event signal)
{
    struct team *t = l->team;
    uint32_t to = t->part_of[l->links[signal.link].near_node];
    if (to == l->number) {
        add_event(l, &l->signals, signal);
        return;
    }
    add_event(l, &parcels_of(t, t->filled, l->number, to)->signals, signal);
    l->first_parcel = signal.time < l->first_parcel ? signal.time : l->first_parcel;
}

/* Takes what the other parts have given in the previous window. */
void take_parcels(struct loop *l)
{
    struct team *t = l->team;
    for (uint32_t from = 0; from < t->count; from++) {
        struct parcels *p = parcels_of(t, !t->filled, from, l->number);
        const uint8_t *bytes = p->bytes;
        for (size_t i = 0; i < p->packets.end; i++) {
            struct event event = p->packets.at[i];
            uint32_t length = event.row;
            if (!add_row(l, length, &event.row))
                break;
            memcpy(row_bytes(&l->rows, event.row), bytes, length);
            bytes += length;
            schedule(l, event);
        }
        for (size_t i = 0; i < p->signals.end; i++)
            add_event(l, &l->signals, p->signals.at[i]);
        p->packets.end = p->signals.end = p->used = 0;
    }
}

/* Gives all parts what others have sent them. */
void exchange_parcels(struct team *t)
{
    t->filled = !t->filled;
    for (uint32_t i = 0; i < t->count; i++)
        take_parcels(t->parts[i]);
}

/* -- windows of all parts -------------------------------------------------------------------------------------------- */

static int64_t end_of(const struct loop *l, int64_t begin) { return begin < NEVER - l->window ? begin + l->window : NEVER; }

/* Counts what has arrived in a window. Returns whether the next ones are to be run in the other way, with or without threads. */
static bool changes_way(struct team *t)
{
    for (uint32_t i = 0; i < t->count; i++)
        t->events += t->parts[i]->arrived.end;
    if (++t->counted < COUNTED)
        return false;
    bool before = t->dense;
    t->dense = t->events >= t->worth * t->count * COUNTED;
    t->events = t->counted = 0;
    return t->threads && t->dense != before;
}

/* Decides, after a window, whether another one follows at once. */
static bool goes_on(struct team *t)
{
    int64_t next = NEVER;
    bool changes = changes_way(t);
    bool check = !*t->watched || t->ended >= t->look_at || ++t->windows == RUN_AT_ONCE;
    for (uint32_t i = 0; i < t->count; i++) {
        const struct loop *l = t->parts[i];
        next = l->next_time < next ? l->next_time : next;
        check |= l->failed || l->too_long || l->too_long_sent;
    }
    t->outcome = check ? TO_CHECK : next >= t->limit ? AT_LIMIT : OTHER_WAY;
    if (check || next >= t->limit)
        return false;
    t->begin = next;
    t->window_end = end_of(t->parts[0], next);
    return !changes;
}

/* Runs the windows of all parts on this thread. Returns the first host that needs Python, or -1. */
static int64_t run_alone(struct team *t, bool *taken)
{
    do {
        for (uint32_t i = 0; i < t->count; i++)
            bring_in(t->parts[i], t->begin);
        int64_t host = loop_next_host(t->parts[0], t->window_end, taken);
        if (host >= 0)
            return host;
        loop_end(t->parts[0], t->window_end);
    } while (goes_on(t));
    return -1;
}

static bool needs_python(const struct team *t)
{
    for (uint32_t i = 0; i < t->count; i++)
        if (t->parts[i]->pending >= 0)
            return true;
    return false;
}

/* Tells the processor that this thread only waits. */
static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void wait_for_others(struct team *t, uint64_t round)
{
    for (int looks = 0; looks < LOOKS; looks++) {
        if (atomic_load(&t->round) != round)
            return;
        relax();
    }
    pthread_mutex_lock(&t->lock);
    while (atomic_load(&t->round) == round)
        pthread_cond_wait(&t->next_round, &t->lock);
    pthread_mutex_unlock(&t->lock);
}

/* Waits until all parts have ended the window. The last one decides, before the others continue, whether there is another. */
static bool meet(struct team *t)
{
    uint64_t round = atomic_load(&t->round);
    if (atomic_fetch_add(&t->arrived, 1) + 1 < t->count) {
        wait_for_others(t, round);
        return !t->stopped;
    }
    t->stopped = needs_python(t);
    if (!t->stopped) {
        t->ended = t->window_end;
        t->filled = !t->filled;
        t->stopped = !goes_on(t);
    }
    bool stopped = t->stopped;
    atomic_store(&t->arrived, 0);
    pthread_mutex_lock(&t->lock);
    atomic_store(&t->round, round + 1);
    pthread_mutex_unlock(&t->lock);
    pthread_cond_broadcast(&t->next_round);
    return !stopped;
}

/* Runs the windows of one part. */
static void *run_part(void *part)
{
    struct loop *l = part;
    struct team *t = l->team;
    pthread_mutex_lock(&t->lock); /* until all threads are there */
    bool stopped = t->stopped;
    pthread_mutex_unlock(&t->lock);
    if (stopped)
        return NULL;
    do {
        take_parcels(l);
        bring_in(l, t->begin);
        l->pending = next_host(l, t->window_end);
        if (l->pending < 0)
            end_window(l, t->window_end);
    } while (meet(t));
    return NULL;
}

/* Runs each part on a thread. Returns false if there cannot be so many. */
static bool run_on_threads(struct team *t)
{
    pthread_t threads[t->count];
    uint32_t made = 1;
    pthread_mutex_lock(&t->lock);
    while (made < t->count && !pthread_create(threads + made, NULL, run_part, t->parts[made]))
        made++;
    t->stopped = made < t->count;
    pthread_mutex_unlock(&t->lock);
    run_part(t->parts[0]);
    for (uint32_t i = 1; i < made; i++)
        pthread_join(threads[i], NULL);
    return made == t->count;
}

/* Runs window after window, with a thread for each part if `threads` and enough happens in a window. Returns AT_LIMIT before one that begins at `limit` or later.
 * Before that, it returns the first host that needs Python, see loop_next_host(), in a window that loop_end() has to end; or
 * TO_CHECK after a window if the number at `watched` is 0, if it ends at `look_at` or later, after many windows, or after
 * a failure. Returns NO_THREADS, and does nothing, if not so many threads can be made. */
int64_t loop_run(struct loop *l, int64_t limit, int64_t look_at, const int64_t *watched, bool threads, bool *taken)
{
    struct team *t = l->team;
    int64_t begin = loop_next_time(l);
    if (begin >= limit)
        return AT_LIMIT;
    t->limit = limit;
    t->look_at = look_at;
    t->watched = watched;
    t->windows = 0;
    t->threads = threads;
    t->begin = begin;
    t->window_end = end_of(l, begin);
    do {
        if (!threads || !t->dense) {
            int64_t host = run_alone(t, taken);
            if (host >= 0)
                return host;
        } else {
            if (!run_on_threads(t))
                return NO_THREADS;
            if (needs_python(t))
                return loop_next_host(l, t->window_end, taken);
            for (uint32_t i = 0; i < t->count; i++)
                take_parcels(t->parts[i]);
        }
    } while (t->outcome == OTHER_WAY);
    return t->outcome;
}

/* The end of the window in hand, and of the last one that has ended. */
int64_t loop_window_end(const struct loop *l) { return l->team->window_end; }

int64_t loop_ended(const struct loop *l) { return l->team->ended; }

/* How often the threads have waited for one another. */
uint64_t loop_rounds(const struct loop *l) { return atomic_load(&l->team->round); }
