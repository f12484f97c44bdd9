/* A worker's turn without a socket: does the same as Worker.receive(), datagrams_to_send() and deadline() one after the
 * other, if no timer has expired, there is no error and the all-reduce continues. */

#include "native.h"
#include "worker.h"

#include <math.h>

/* See Timers.earliest(). */
static double earliest(struct work *w)
{
    double restarted = w->timers->restarted, least = INFINITY;
    for (int64_t place = 0; place < w->window; place++) {
        double since = w->last_sent[place] > restarted ? w->last_sent[place] : restarted;
        double expires = since + w->timeouts[place];
        expires = w->lost_at[place] < expires ? w->lost_at[place] : expires;
        least = expires < least ? expires : least;
    }
    return w->timers->not_before = least;
}

/* A turn_function. */
enum outcome take_turn(void *worker, struct turn *t)
{
    struct work *w = worker;
    t->sent = 0;
    if (!w->progress->missing || w->operation != ALL_REDUCE) /* packets of several sizes are left to Python */
        return UNTOUCHED;
    w->ready_count = 0;
    w->gate->marked += t->marked;
    if (t->count)
        take_datagrams(w, t->datagrams, t->count, t->size, t->size, t->now);
    if (!w->progress->missing || w->progress->disagree)
        return TAKEN;
    if (w->ready_count) {
        t->sent = w->ready_count;
        struct batch batch = pack(w, w->ready, w->ready_count, t->now);
        t->sent_size = batch.size;
        t->packets = w->packets[batch.kept_in];
        t->places = w->ready;
        for (int64_t i = 0; i < w->ready_count; i++)
            w->ready[i] = (w->ready[i] + w->progress->first_chunk) % w->window;
        w->ready_count = 0;
        w->totals->sent += t->sent;
        w->totals->sent_bytes += t->sent * t->sent_size;
    }
    double give_up_at = w->progress->latest + t->give_up;
    if (t->now >= give_up_at || t->now >= w->timers->not_before)
        return TAKEN;
    t->deadline = fmin(earliest(w), give_up_at);
    return DONE;
}
