/* Keeping time with sleeps that last too long: when to wake up, and whether emulated links are kept up with.
 *
 * A sleep ends late, by how much depends on the machine, its load and how long the sleep is. How much later than asked
 * nineteen in twenty sleeps end is learnt for each power of two, from every sleep by a step up or down (a stochastic
 * approximation of the quantile: Robbins and Monro, Ann. Math. Stat. 22, 1951); who sleeps shorter by that wakes in time
 * and waits out the rest. Who has so much to do that this would take the processor from others wakes a little later.
 * Time is the caller's.
 */

#ifndef P4SWITCH_PACE_H
#define P4SWITCH_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define SECOND 1000000000000ull /* picoseconds */
#define CLASSES 61

struct pace {
    int64_t margin[CLASSES]; /* nanoseconds, by the logarithm of how long there is nothing to do */
    bool calm;
    uint64_t looked, used; /* when that was decided, and how much processor time had been used by then; picoseconds */
    uint64_t since, said; /* of links: when last looked at, and when last found wanting; picoseconds */
    uint64_t sent, late;  /* as of `since` */
};

void pace_open(struct pace *p);
uint64_t pace_arrival(uint64_t now, int64_t age);
bool pace_calm(struct pace *p, uint64_t now, uint64_t used);
int64_t pace_sleep(const struct pace *p, int64_t free_for);
void pace_slept(struct pace *p, int64_t free_for, int64_t lasted);
bool pace_lost(struct pace *p, uint64_t now, uint64_t *sent, uint64_t *late);

#endif
