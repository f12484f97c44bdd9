/* An arriving packet and all that becomes of it: they have one bound for what they do together (struct spent). Included by
 * programs with such a bound whose packets may wait before egress, where each keeps in mind whose it is. */

#ifndef P4SWITCH_FAMILY_H
#define P4SWITCH_FAMILY_H

#include <stdlib.h>

#include "switch.h"

/* The packet in hand, or a copy of it, begins to wait: its family, or NULL if there is no memory. */
static struct family *family_wait(struct switch_base *base)
{
    struct family *f = base->family;
    if (!f) {
        f = base->family = calloc(1, sizeof *f);
        if (!f)
            return NULL;
        f->next = base->families;
        if (f->next)
            f->next->place = &f->next;
        f->place = &base->families;
        base->families = f;
    }
    f->waiting++;
    return f;
}

/* A packet of this family is taken in hand again. Of one that is unknown nothing may become but what it is. */
static void family_resume(struct switch_base *base, struct family *f)
{
    base->family = f;
    base->spent = f ? f->spent : (struct spent){INT32_MAX, INT32_MAX};
    if (f)
        f->waiting--;
}

/* The packet in hand, and what has not begun to wait, is done. */
static void family_leave(struct switch_base *base)
{
    struct family *f = base->family;
    base->family = NULL;
    if (!f)
        return;
    f->spent = base->spent;
    if (f->waiting)
        return;
    *f->place = f->next;
    if (f->next)
        f->next->place = f->place;
    free(f);
}

#endif
