/* See pace.h. */

#include "pace.h"

#include "shared.h"

#define MOMENT 14 /* the logarithm of the nanoseconds within which it is too late to sleep */
#define LEAST_MARGIN 15000
#define FIRST_MARGIN(free_for) (LEAST_MARGIN + (free_for) / 256) /* a processor that sleeps longer sleeps deeper */
#define TOO_LATE 250000 /* a sleep that ends later was not scheduled; waking early does not help against that */
#define CALM_FOR 10000000000ull /* picoseconds between two decisions */
#define STEP_DOWN 100
#define STEP_UP (19 * STEP_DOWN)

SHARE_STRUCT(pace,
             FIELD(margin) FIELD(calm) FIELD(looked) FIELD(used) FIELD(since) FIELD(said) FIELD(sent) FIELD(late))

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static int class(int64_t nanoseconds) { return 63 - __builtin_clzll((uint64_t)nanoseconds | 1); }

/* Some of the time is always slept: otherwise nothing would be learnt. */
static int64_t most_margin(int class) { return least(3ll << class >> 2, TOO_LATE); }

void pace_open(struct pace *p)
{
    *p = (struct pace){0};
    for (int i = 0; i < CLASSES; i++)
        p->margin[i] = least(FIRST_MARGIN(1ll << i), most_margin(i));
}

/* Returns when a packet arrived that is read at `now` (picoseconds) and as many nanoseconds old as the wall clock
 * says, which may have been set in between. The results for two packets are in the order of their arrival. */
uint64_t pace_arrival(uint64_t now, int64_t age)
{
    uint64_t oldest = now < SECOND ? now : SECOND;
    if (age <= 0)
        return now;
    return (uint64_t)age < oldest / 1000 ? now - 1000 * (uint64_t)age : now - oldest;
}

/* Returns whether the thread has recently used little of the processor: less than an eighth of the time, or half of
 * it if that was so before. The time slept cannot be used for this: a thread that is not scheduled does not sleep. */
bool pace_calm(struct pace *p, uint64_t now, uint64_t used)
{
    if (now - p->looked >= CALM_FOR) {
        p->calm = 1000 * used - p->used < (now - p->looked) / 8 * (p->calm ? 4 : 1);
        p->looked = now;
        p->used = 1000 * used;
    }
    return p->calm;
}

/* Returns the nanoseconds to sleep if there is nothing to do for so many; 0 or less: do not sleep. */
int64_t pace_sleep(const struct pace *p, int64_t free_for)
{
    int i = class(free_for);
    if (i < MOMENT)
        return 0;
    return free_for - (p->calm ? p->margin[i] : least(p->margin[i], LEAST_MARGIN));
}

/* Learns from a sleep of pace_sleep(free_for) that took so long; free_for -1: it was interrupted, nothing is learnt. */
void pace_slept(struct pace *p, int64_t free_for, int64_t lasted)
{
    int64_t asked = free_for < 0 ? lasted : pace_sleep(p, free_for), too_long = lasted - asked;
    if (free_for < 0 || too_long > TOO_LATE)
        return;
    int i = class(free_for);
    p->margin[i] = too_long > p->margin[i] ? least(p->margin[i] + STEP_UP, most_margin(i)) : p->margin[i] - STEP_DOWN;
}

/* Returns whether to report that links do not keep up, given the packets released so far and how many of them were
 * late. That is at most once per second, if since the last time more than a few and 1 in 100 were late. Then `sent`
 * and `late` become the numbers since that time. */
bool pace_lost(struct pace *p, uint64_t now, uint64_t *sent, uint64_t *late)
{
    uint64_t more = *sent - p->sent, more_late = *late - p->late;
    bool lost = more_late > 10 + more / 100;
    if (lost ? p->said && now - p->said < SECOND : now - p->since < SECOND)
        return false;
    p->since = now;
    p->sent = *sent;
    p->late = *late;
    if (lost)
        p->said = now;
    *sent = more;
    *late = more_late;
    return lost;
}
