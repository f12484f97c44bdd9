/* Congestion control: does the same as congestion.py, bit for bit. */

#include "native.h"

#include <math.h>
#include <string.h>

#include "shared.h"

#define GAIN 0.0625

SHARE_NUMBER(GAIN);
SHARE_STRUCT(congestion_window, FIELD(size) FIELD(share) FIELD(least) FIELD(most))
SHARE_STRUCT(gate, FIELD(in_flight) FIELD(sent_before) FIELD(round) FIELD(answered) FIELD(marked_in_round) FIELD(marked)
                   FIELD(lowest) FIELD(held_count))

/* Begins an all-reduce: puts those of the first `lead` chunks that may be sent into `ready`, and holds the others. */
void open_gate(struct work *w)
{
    struct gate *g = w->gate;
    int64_t size = (int64_t)w->congestion->size;
    g->lowest = 0;
    g->in_flight = w->ready_count = w->lead < size ? w->lead : size;
    g->held_count = w->lead - w->ready_count;
    for (int64_t chunk = 0; chunk < w->ready_count; chunk++)
        w->ready[chunk] = chunk;
    for (int64_t i = 0; i < g->held_count; i++)
        w->held[i] = w->ready_count + i;
}

/* Records that `count` more results have arrived, and adapts the window. */
void count_answers(struct work *w, int64_t count)
{
    struct gate *g = w->gate;
    struct congestion_window *window = w->congestion;
    bool marked = g->marked > 0;
    int64_t later = count > g->sent_before ? count - g->sent_before : 0;
    g->in_flight -= count;
    g->sent_before -= count - later;
    g->answered += count;
    g->marked_in_round += g->marked;
    g->marked = 0;
    if (g->answered >= g->round) {
        double share = fmin((double)g->marked_in_round / (double)g->answered, 1);
        window->share += GAIN * (share - window->share);
        g->answered = g->marked_in_round = 0;
        int64_t size = (int64_t)window->size;
        g->round = g->in_flight > size ? g->in_flight : size;
    }
    if (!marked) {
        window->size = fmin(window->size + (double)later / window->size, window->most);
    } else if (later) {
        window->size = fmax(window->size * (1 - window->share / 2), window->least);
        g->sent_before = g->in_flight;
    }
}

/* Inserts the chunks of `ready` from `from` on into those held, in ascending order. */
static void hold(struct work *w, int64_t from)
{
    struct gate *g = w->gate;
    for (; from < w->ready_count; from++) {
        int64_t i = g->held_count++;
        for (; i > 0 && w->held[i - 1] > w->ready[from]; i--)
            w->held[i] = w->held[i - 1];
        w->held[i] = w->ready[from];
    }
}

/* Leaves in `ready`, from `from` on, the chunks that may be sent now, and holds the rest. Afterwards either all ready chunks
 * are among the first `lead`, or none is. */
void admit(struct work *w, int64_t from)
{
    struct gate *g = w->gate;
    int64_t room = (int64_t)w->congestion->size - g->in_flight, fresh = w->ready_count - from;
    bool leading = from && w->ready[0] < w->lead;
    if (!g->held_count && (!fresh || (fresh <= room && !leading))) {
        g->in_flight += fresh;
        return;
    }
    hold(w, from);
    w->ready_count = from;
    while (w->accepted[g->lowest])
        g->lowest++;
    if (room < 1)
        room = w->held[0] == g->lowest;
    int64_t count = 0;
    leading |= !from && w->held[0] < w->lead;
    while (count < room && count < g->held_count && (!leading || w->held[count] < w->lead))
        w->ready[w->ready_count++] = w->held[count++];
    g->in_flight += count;
    g->held_count -= count;
    memmove(w->held, w->held + count, (size_t)g->held_count * sizeof *w->held);
}
