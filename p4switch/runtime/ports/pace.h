/* Keeping time with sleeps that take too long: when to wake up, and whether emulated links keep up.
 *
 * A sleep ends late, by a time that depends on the machine, its load and the length of the sleep. For each power of
 * two, the lateness that nineteen in twenty sleeps do not exceed is learnt, by a step up or down after every sleep
 * (a stochastic approximation of the quantile: Robbins and Monro, Ann. Math. Stat. 22, 1951). A thread that shortens
 * its sleep by that wakes up in time and waits for the rest. If it has so much to do that the waiting would take the
 * processor from others, it wakes up a little later. The caller passes the time. */

#ifndef P4SWITCH_PACE_H
#define P4SWITCH_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define SECOND 1000000000000ull /* picoseconds */
#define CLASSES 61

struct pace {
    int64_t margin[CLASSES]; /* nanoseconds, by the logarithm of the time without work */
    bool calm;
    uint64_t looked, used; /* when that was decided, and the processor time used by then; picoseconds */
    uint64_t since, said; /* of links: last check, and last report of lateness; picoseconds */
    uint64_t sent, late;  /* as of `since` */
};

void pace_open(struct pace *p);
uint64_t pace_arrival(uint64_t now, int64_t age);
bool pace_calm(struct pace *p, uint64_t now, uint64_t used);
int64_t pace_sleep(const struct pace *p, int64_t free_for);
void pace_slept(struct pace *p, int64_t free_for, int64_t lasted);
bool pace_lost(struct pace *p, uint64_t now, uint64_t *sent, uint64_t *late);

#endif
