/* Rows for packets, lists of events, and the calendar: lists of events by window. */

#include "loop.h"

#include <stdlib.h>
#include <string.h>

enum { CACHE_LINE = 64 };

uint8_t *row_bytes(const struct rows *rows, uint32_t row)
{
    return rows->slabs[row >> SLAB_BITS] + (size_t)(row & (SLAB_ROWS - 1)) * rows->width;
}

/* Prefetches the packet in a row, which will be needed soon: with hundreds of workers the packets in flight do not fit the
 * caches. */
void expect_row(const struct rows *rows, uint32_t row)
{
    const uint8_t *at = row_bytes(rows, row), *end = at + rows->lengths[row];
    for (; at < end; at += CACHE_LINE)
        __builtin_prefetch(at);
}

static bool add_slab(struct rows *rows)
{
    size_t count = (size_t)rows->slab_count + 1;
    uint8_t **slabs = realloc(rows->slabs, count * sizeof *slabs);
    if (slabs)
        rows->slabs = slabs;
    uint32_t *lengths = realloc(rows->lengths, count * SLAB_ROWS * sizeof *lengths);
    if (lengths)
        rows->lengths = lengths;
    uint32_t *free_rows = realloc(rows->free, count * SLAB_ROWS * sizeof *free_rows);
    if (free_rows)
        rows->free = free_rows;
    struct waiting *waits = realloc(rows->waits, count * SLAB_ROWS * sizeof *waits);
    if (waits)
        rows->waits = waits;
    if (!slabs || !lengths || !free_rows || !waits || !(slabs[count - 1] = malloc((size_t)SLAB_ROWS * rows->width)))
        return false;
    for (uint32_t i = 0; i < SLAB_ROWS; i++) /* backwards, so that rows are used in order */
        free_rows[rows->left++] = (uint32_t)(count * SLAB_ROWS - 1 - i);
    rows->slab_count++;
    return true;
}

/* Takes a row for a packet; returns false if there is no memory. */
bool add_row(struct loop *l, uint32_t length, uint32_t *row)
{
    struct rows *rows = &l->rows;
    if (!rows->left && !add_slab(rows)) {
        l->failed = true;
        return false;
    }
    *row = rows->free[--rows->left];
    rows->lengths[*row] = length;
    return true;
}

void free_row(struct loop *l, uint32_t row) { l->rows.free[l->rows.left++] = row; }

void add_event(struct loop *l, struct events *events, struct event event)
{
    if (events->end == events->room) {
        size_t room = 2 * events->room + 16;
        struct event *at = realloc(events->at, room * sizeof *at);
        if (!at) {
            l->failed = true;
            return;
        }
        events->at = at;
        events->room = room;
    }
    events->at[events->end++] = event;
}

/* -- the calendar --------------------------------------------------------------------------------------------------- */

static void sift_up(struct calendar *c, size_t i)
{
    struct window *w = c->heap[i];
    for (; i && c->heap[(i - 1) / 2]->number > w->number; i = (i - 1) / 2)
        c->heap[i] = c->heap[(i - 1) / 2];
    c->heap[i] = w;
}

static void sift_down(struct calendar *c)
{
    struct window *w = c->heap[0];
    size_t i = 0;
    for (size_t child = 1; child < c->count; child = 2 * i + 1) {
        child += child + 1 < c->count && c->heap[child + 1]->number < c->heap[child]->number;
        if (c->heap[child]->number >= w->number)
            break;
        c->heap[i] = c->heap[child];
        i = child;
    }
    c->heap[i] = w;
}

static struct window *open_window(struct loop *l, int64_t number)
{
    struct calendar *c = &l->calendar;
    if (c->count == c->room) {
        size_t room = 2 * c->room + 64;
        struct window **heap = realloc(c->heap, room * sizeof *heap);
        if (!heap)
            return NULL;
        c->heap = heap;
        c->room = room;
    }
    struct window *w = c->spare;
    if (w)
        c->spare = w->next;
    else if (!(w = calloc(1, sizeof *w)))
        return NULL;
    struct window **chain = c->chains + (uint64_t)number % CHAINS;
    w->number = number;
    w->next = *chain;
    *chain = w;
    c->heap[c->count++] = w;
    sift_up(c, c->count - 1);
    return w;
}

/* Files a packet under the window in which it arrives, in the part of the node at which it does. */
void schedule(struct loop *l, struct event event)
{
    if (l->team->count > 1 && give_parcel(l, event))
        return;
    struct calendar *c = &l->calendar;
    int64_t number = event.time / l->window;
    struct window *w = c->latest;
    if (!w || w->number != number) {
        for (w = c->chains[(uint64_t)number % CHAINS]; w && w->number != number; w = w->next)
            ;
        if (!w && !(w = open_window(l, number))) {
            l->failed = true;
            return;
        }
        c->latest = w;
    }
    add_event(l, &w->events, event);
}

/* Returns the earliest window in which something arrives, or NULL. */
struct window *next_window(const struct loop *l) { return l->calendar.count ? l->calendar.heap[0] : NULL; }

/* Closes the earliest window and returns its events, in exchange for `arrived`, which is reused. */
struct events take_window(struct loop *l)
{
    struct calendar *c = &l->calendar;
    struct window *w = c->heap[0], **place = c->chains + (uint64_t)w->number % CHAINS;
    while (*place != w)
        place = &(*place)->next;
    *place = w->next;
    c->heap[0] = c->heap[--c->count];
    if (c->count)
        sift_down(c);
    struct events taken = w->events;
    w->events = l->arrived;
    w->events.first = w->events.end = 0;
    w->next = c->spare;
    c->spare = w;
    c->latest = NULL;
    return taken;
}

void close_calendar(struct loop *l)
{
    struct calendar *c = &l->calendar;
    for (size_t i = 0; i < c->count; i++) {
        c->heap[i]->next = c->spare;
        c->spare = c->heap[i];
    }
    for (struct window *w = c->spare, *next; w; w = next) {
        next = w->next;
        free(w->events.at);
        free(w);
    }
    free(c->heap);
}
